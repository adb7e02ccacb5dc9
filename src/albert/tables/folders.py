"""A folder with a folder of texts for each label, as aclImdb, 20 Newsgroups and scikit-learn's `load_files` have it."""

import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from albert.runtime.errors import DamagedData, MissingInput, UsageError
from albert.runtime.manifest import read_input
from albert.runtime.words import counted
from albert.tables.encodings import ENCODING_MARKS, known_encoding, likely_encoding, shown_word
from albert.tables.exports import CONVERT
from albert.tables.files import Advance, input_file
from albert.tables.records import Record
from albert.tables.table_file import FolderFormat, Layout, TableFile

UNLABELLED = ("unsup", "unlabeled", "unlabelled", "unsupervised")
"""Folders whose texts have no label, by their name."""
TABLE_ENDINGS = (
    *(".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet", ".xlsx", ".xls", ".ods", ".conll", ".conllu"),
    *(".gz", ".zip"),
)


class FolderOfTexts(FolderFormat):
    """A folder with a text in each file; folders in it are the labels."""

    name: ClassVar[str] = "folder"
    about: ClassVar[str] = "folder"

    def open(self, path: Path, name: str, layout: Layout) -> TableFile:
        """Every text of the folder."""
        return _read_folder(path, name, layout.encoding)

    def records(self, table: TableFile, reached: Advance, counts: Counter[str], class_names: bool) -> Iterator[Record]:
        return iter(table.rows or ())


@dataclass(frozen=True)
class _Entries:
    """What a folder holds, in the order of the names."""

    files: Sequence[Path]
    folders: Sequence[Path]
    hidden: int


def _read_folder(folder: Path, name: str, encoding: str | None) -> TableFile:
    """Every text of the folders in a folder, whose names are the labels, or of a folder with texts alone.

    If some files are `.txt`, only these are read; otherwise all files are. What is not read is counted in the notes.

    Raises:
        UsageError: there are tables, or folders in the folders, or BRAT's `.ann` files.
        MissingInput: there is no text, or a file cannot be read.
        DamagedData: a file is not text.
    """
    entries = _entries_of(folder)
    inner = {each.name: _entries_of(each) for each in entries.folders}
    deeper = []
    for label, held in inner.items():
        if any(_has_files(each) for each in held.folders):
            deeper.append(label)
    if deeper:
        more = f" and {len(deeper) - 8} more" if len(deeper) > 8 else ""
        why = f"holds folders of folders: {', '.join(deeper[:8])}{more}"
        remedy = "name a file of rows, or a folder that holds a folder of texts for each label"
        readable = [label for label in deeper if _has_folders_of_texts(inner[label])]
        if readable:
            remedy += f", such as {name.rstrip('/')}/{'train' if 'train' in readable else readable[0]}"
        raise UsageError(name, why, remedy)
    labels = {label: held for label, held in inner.items() if held.files}
    notes: list[str] = []
    unread: Counter[str] = Counter()
    found: list[tuple[str | None, Path]]
    doubt = None
    if any(file.suffix.lower() == ".ann" for held in (entries, *labels.values()) for file in held.files):
        raise UsageError(name, "holds BRAT's .ann files, which are not read", f"convert the folder: {CONVERT}")
    if labels:
        names = ("text", "label", "file")
        is_txt = any(file.suffix.lower() == ".txt" for held in labels.values() for file in held.files)
        found = []
        for label, held in labels.items():
            own = [file for file in held.files if not is_txt or file.suffix.lower() == ".txt"]
            unread["files with another ending than .txt"] += len(held.files) - len(own)
            unread["files with a hidden name"] += held.hidden
            if label.lower() in UNLABELLED:
                unread[f"texts in {label!r}, without a label"] += len(own)
            else:
                found += [(label, file) for file in own]
        used = sorted({str(label) for label, _ in found})
        shown = ", ".join(used[:8]) + (f" and {len(used) - 8} more" if len(used) > 8 else "")
        files = counted(len(found), "files")
        notes.append(f"{files} with a text each; the labels are the names of the folders: {shown}")
        unread["files beside these folders"] += len(entries.files)
        unread["folders without a text"] += len(inner) - len(labels)
    else:
        names = ("text", "file")
        tables = [file.name for file in entries.files if file.suffix.lower() in TABLE_ENDINGS]
        if tables:
            more = f" and {len(tables) - 8} more" if len(tables) > 8 else ""
            why = f"is a folder with the files {', '.join(tables[:8])}{more}"
            example = next((table for table in tables if "train" in table), tables[0])
            raise UsageError(name, why, f"name one of them, such as {name.rstrip('/')}/{example}")
        is_txt = any(file.suffix.lower() == ".txt" for file in entries.files)
        found = [(None, file) for file in entries.files if not is_txt or file.suffix.lower() == ".txt"]
        unread["files with another ending than .txt"] += len(entries.files) - len(found)
        notes.append(f"{counted(len(found), 'files')} with a text each")
        doubt = (
            f"the texts of each label are expected in a folder of their own: {name.rstrip('/')}/LABEL/1.txt; of files "
            "with a text on each line, one for each label: sed 's/^/__label__LABEL /' FILE >> train.txt"
        )
    if not found:
        raise MissingInput(name, "is a folder without texts", "a folder of .txt files for each label is expected")
    unread["files with a hidden name"] += entries.hidden
    texts, note = _decoded(folder, name, [file for _, file in found], encoding)
    notes += note
    empty = sum(not text for text in texts)
    if empty:
        notes.append(f"{empty:,} of the files {'is' if empty == 1 else 'are'} empty")
    left_out = [counted(count, what) for what, count in unread.items() if count]
    if left_out:
        notes.append(f"not read: {', '.join(left_out)}")
    records = []
    for (label, file), text in zip(found, texts, strict=True):
        where = f"{name.rstrip('/')}/{file.relative_to(folder).as_posix()}"
        fields = {"text": text, "label": label, "file": file.relative_to(folder).as_posix()}
        records.append(Record(where, {key: fields[key] for key in names}))
    return TableFile(
        file=input_file(folder, FolderOfTexts.about, name),
        format=FolderOfTexts.name,
        names=names,
        notes=tuple(notes),
        doubt=doubt,
        rows=tuple(records),
    )


def _entries_of(folder: Path) -> _Entries:
    files = []
    folders = []
    hidden = 0
    try:
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            if entry.name.startswith((".", "__MACOSX")):
                hidden += 1
                continue
            mode = os.stat(entry.path).st_mode
            if stat.S_ISDIR(mode):
                folders.append(Path(entry.path))
            else:
                files.append(Path(entry.path))
    except OSError as error:
        raise MissingInput(error.filename or folder, error.strerror or "cannot be read") from error
    return _Entries(files, folders, hidden)


def _has_files(folder: Path) -> bool:
    return bool(_entries_of(folder).files)


def _has_folders_of_texts(entries: _Entries) -> bool:
    """Whether the files in these folders are texts by their names, and no folder is in them: a run has other files."""
    inner = [_entries_of(folder) for folder in entries.folders]
    endings = {file.suffix.lower() for held in inner for file in held.files}
    return not any(held.folders for held in inner) and all(
        ending in ("", ".txt") or ending[1:].isdigit() for ending in endings
    )


def _decoded(folder: Path, name: str, files: Sequence[Path], encoding: str | None) -> tuple[list[str], tuple[str, ...]]:
    """The texts of files, without blanks at their ends; a line about the encoding of those that are not UTF-8."""
    given = None if encoding is None else known_encoding(encoding)
    texts: list[str] = []
    foreign: dict[int, bytes] = {}
    lines: list[bytes] = []
    for number, file in enumerate(files):
        data = read_input(file)
        where = f"{name.rstrip('/')}/{file.relative_to(folder).as_posix()}"
        own = given or next((each for mark, each in ENCODING_MARKS if data.startswith(mark)), "utf-8")
        if b"\0" in data and not own.startswith(("utf-16", "utf-32")):
            why = f"is not text: NUL byte at byte {data.index(0)}"
            raise DamagedData(where, why, "remove it; if there are .txt files, only these are read")
        try:
            texts.append(data.decode(own))
        except UnicodeDecodeError as error:
            if given is not None:
                why = f"is not {given.removesuffix('-sig').upper()}: byte {data[error.start]:#04x} ({error.reason})"
                raise DamagedData(where, why, "name its encoding with reading.encoding") from error
            foreign[number] = data
            texts.append("")
            if sum(map(len, lines)) < 1 << 16:
                lines += [line for line in data.splitlines() if not line.isascii()]
    if not foreign:
        return [text.strip() for text in texts], ()
    likely = likely_encoding(lines)
    for number, data in foreign.items():
        where = f"{name.rstrip('/')}/{files[number].relative_to(folder).as_posix()}"
        try:
            texts[number] = data.decode(likely)
        except UnicodeDecodeError as error:
            why = f"is neither UTF-8 nor {likely}: byte {data[error.start]:#04x}"
            raise DamagedData(where, why, "name the encoding with reading.encoding (latin-1 has every byte)") from error
    first = min(foreign)
    shown = f"{shown_word(texts[first])!r} in {files[first].relative_to(folder).as_posix()}"
    verb = "is" if len(foreign) == 1 else "are"
    these = f"{len(foreign):,} of the files {verb} not UTF-8"
    texts = [text.strip() for text in texts]
    return texts, (f"{these}: read as {likely}, such as {shown} (reading.encoding)",)
