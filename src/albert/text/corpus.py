"""Corpora: which files they consist of, the format of each, and the documents in them; all that is read is counted.

A new format is entered in `FORMATS`, with the function that reads it."""

import glob
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import BufferedIOBase
from pathlib import Path
from typing import NamedTuple

from albert.runtime.environment import load_by_name
from albert.runtime.errors import DamagedData, MissingInput, UsageError
from albert.runtime.progress import Position
from albert.text.readers import (
    AFTER_LONE_RETURN,
    COMPRESSIONS,
    EMPTY,
    ONE_A_LINE,
    CorpusFile,
    CorpusReport,
    Document,
    Kind,
    Reader,
    Reading,
    SourceCounts,
    Values,
    check_column,
    decode,
    decode_from_file,
    documents_of,
    json_object,
    numbered_lines,
    open_corpus_file,
    pieces,
    place_to_cut,
    repair,
    similar_name,
    size_and_time,
    size_in_bytes,
    table_rows,
)


@dataclass(frozen=True)
class Format:
    """A kind of source.

    Attributes:
        reader: the function that reads it, as "module:name"; it is an `albert.text.readers.Reader`.
    """

    endings: tuple[str, ...]
    reader: str
    extra: str | None = None
    packed: bool = True


FORMATS: dict[Kind, Format] = {
    "text": Format((".txt",), "albert.text.corpus:read_plain_text"),
    "JSON lines": Format((".jsonl", ".ndjson", ".json"), "albert.text.corpus:read_json_lines"),
    "CSV": Format((".csv",), "albert.text.corpus:read_delimited"),
    "TSV": Format((".tsv",), "albert.text.corpus:read_delimited"),
    "Wikipedia": Format((".xml",), "albert.text.wikipedia_reader:read", "wikipedia"),
    "Parquet": Format((".parquet",), "albert.text.arrow_files:read_parquet", "data", packed=False),
    "saved dataset": Format((), "albert.text.arrow_files:read_saved_dataset", "data"),
    "Hub dataset": Format((), "albert.text.arrow_files:read_hub_dataset", "data"),
}
"""What can be read, by name."""
HUB = re.compile(
    r"hf:/{1,2}(?P<id>[\w.-]+/[\w.-]+)(?:/(?P<config>[\w.+-]+))?(?:@(?P<revision>[\w./-]+))?:(?P<split>[^/]+)"
)
"""A data set of the Hugging Face Hub: hf://OWNER/NAME[/CONFIG][@REVISION]:SPLIT; `Path` leaves one slash of two."""
DEFAULT_READING = Reading()


def endings() -> str:
    """The endings of all formats."""
    return " ".join(ending for format_ in FORMATS.values() for ending in format_.endings)


def known_endings() -> str:
    """All that a file may be called, for people."""
    unpacked = " ".join(each for format_ in FORMATS.values() if not format_.packed for each in format_.endings)
    return f"{endings()} (each but {unpacked} also with {' '.join(COMPRESSIONS)})"


def kind_of(name: str) -> Kind | None:
    """What reads a file of this name; None when nothing does."""
    plain, ending = os.path.splitext(name.lower())
    packed = ending in COMPRESSIONS
    ending = os.path.splitext(plain)[1] if packed else ending
    found = (kind for kind, format_ in FORMATS.items() if ending in format_.endings and (format_.packed or not packed))
    return next(found, None)


# --------------------------------------------------------------------------------------------------------------------
# Which files a corpus consists of: what folders and patterns hold, each file once, in a fixed order.


class FoundFiles(NamedTuple):
    """The files of a corpus; how many files of other kinds, or hidden ones, were passed over; how many met again."""

    files: list[CorpusFile]
    ignored: int
    repeated: int


def find_corpus_files(paths: Sequence[Path]) -> FoundFiles:
    """The files behind files, folders (searched recursively), glob patterns and `hf://` addresses, in a fixed order.

    A file met by two paths, through links say, is one file. Hidden files and folders of a folder are passed over.
    """
    if not paths:
        raise UsageError("corpus", "no file, folder or pattern is given")
    search = _Search()
    for path in paths:
        search.add(path)
    return FoundFiles(_distinct_names(list(search.files.values())), search.ignored, search.repeated)


class _Search:
    """What has been found so far, by the numbers that the file system gives to files."""

    def __init__(self) -> None:
        self.files: dict[tuple[int, int] | str, CorpusFile] = {}
        self.ignored = self.repeated = 0

    def add(self, path: Path) -> None:
        if str(path).startswith("hf:"):
            name = str(path).replace("hf:/", "hf://", 1)
            if not HUB.fullmatch(str(path)):
                remedy = "write hf://OWNER/NAME[/CONFIG][@REVISION]:SPLIT"
                raise UsageError(name, "is not an address of a data set", remedy)
            self.files.setdefault(name, CorpusFile(path, name, 0, 0, "Hub dataset"))
        elif os.path.lexists(path) or not glob.has_magic(str(path)):
            if not path.is_dir() and path.is_file() and kind_of(path.name) is None:
                raise UsageError(path, "cannot tell its format from its name", f"known: {known_endings()}")
            self._add_place(path)
        else:
            found = sorted(Path(name) for name in glob.glob(str(path), recursive=True))
            read = [place for place in found if place.is_dir() or kind_of(place.name) is not None]
            self.ignored += len(found) - len(read)
            if not read:
                raise MissingInput(
                    path, "matches no file" + (f" of a kind that is read: {known_endings()}" if found else "")
                )
            for place in read:
                self._add_place(place)

    def _add_place(self, place: Path) -> None:
        if not place.is_dir():
            self._add_file(place, place.name)
            return
        any_file = False  # a folder whose only content is a link to itself holds none
        for found in self._below(place, set()):
            any_file = True
            self._add_file(found, found.relative_to(place).as_posix() if found != place else place.resolve().name)
        if not any_file:
            raise MissingInput(place, f"holds no {endings()} file")

    def _below(self, folder: Path, entered: set[tuple[int, int]]) -> Iterator[Path]:
        """Files and saved data sets in a folder; a folder that links lead to again is entered once."""
        try:
            number = _number(folder.stat())
            names = sorted(os.listdir(folder))
        except OSError as error:
            raise MissingInput(folder, error.strerror or "cannot be searched") from error
        if number in entered:
            self.repeated += 1
            return
        entered.add(number)
        if _is_saved_dataset(folder, names):
            yield folder
            return
        for name in names:
            place = folder / name
            if name.startswith("."):
                self.ignored += 1
            elif place.is_dir():
                yield from self._below(place, entered)
            elif kind_of(name) is None:
                self.ignored += 1
            else:
                yield place

    def _add_file(self, path: Path, name: str) -> None:
        try:
            status = path.stat()
            size, modified = size_and_time(path)
        except OSError as error:
            why = "no such file or folder" if isinstance(error, FileNotFoundError) else error.strerror
            if path.is_symlink() and isinstance(error, FileNotFoundError):
                why = f"is a link to {os.readlink(path)}, which is not there"
            raise MissingInput(path, why or "cannot be read") from error
        if _number(status) in self.files:
            self.repeated += 1
            return
        kind: Kind | None = "saved dataset" if path.is_dir() else kind_of(path.name)
        assert kind is not None
        name = os.fsencode(name).decode("utf-8", "replace")
        self.files[_number(status)] = CorpusFile(path, name, size, modified, kind)


def _is_saved_dataset(folder: Path, names: list[str]) -> bool:
    if "dataset_dict.json" in names:
        splits = [name for name in names if (folder / name / "state.json").is_file()]
        why = f"holds a data set of several splits: {', '.join(splits)}"
        raise UsageError(folder, why, f"name one: {folder / splits[0]}" if splits else None)
    return "state.json" in names and "dataset_info.json" in names


def _number(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _distinct_names(files: list[CorpusFile]) -> list[CorpusFile]:
    """The same files; those with a name in common are called by as many folders of their paths as tell them apart."""
    folders, names = 0, Counter(file.name for file in files)
    while max(names.values(), default=0) > 1:
        folders += 1
        files = [
            replace(file, name="/".join(file.path.parts[-1 - folders :])) if names[file.name] > 1 else file
            for file in files
        ]
        names = Counter(file.name for file in files)
    return files


# --------------------------------------------------------------------------------------------------------------------
# The documents of files, one after the other.


def read_corpus(
    paths: Sequence[Path],
    reading: Reading = DEFAULT_READING,
    *,
    report: CorpusReport | None = None,
    advance: Callable[[int], None] | None = None,
) -> Iterator[Document]:
    """Read the documents of files, folders, glob patterns and `hf://` addresses, in a fixed order.

    Args:
        advance: called with the bytes on disk read since the last call.

    Raises:
        MissingInput: a path leads to nothing, cannot be read, or there is no document with text.
        UsageError: a file of a kind that is not read.
        DamagedData: not UTF-8 (file and byte), NUL bytes, a damaged or growing file, a line without a JSON object, a
            row or a page that cannot be one (file and line); a field or column that is missing or no text.
        Unavailable: a library that is not installed, a data set of the Hub that cannot be had.
    """
    report = report if report is not None else CorpusReport()
    files, report.files_ignored, report.files_repeated = find_corpus_files(paths)
    yield from read_files(files, reading, report=report, advance=advance)
    if report.documents == 0:
        subject = paths[0] if len(paths) == 1 else "corpus"
        dropped = "".join(f", {count:,} dropped: {reason}" for reason, count in report.dropped.items())
        raise MissingInput(subject, f"no document with text ({report.documents_in:,} read{dropped})")


def read_files(
    files: Sequence[CorpusFile],
    reading: Reading = DEFAULT_READING,
    *,
    report: CorpusReport,
    advance: Callable[[int], None] | None = None,
) -> Iterator[Document]:
    """`read_corpus` of files that were found before, a part of a corpus say; there may be no document in them."""
    sources: list[SourceCounts] = []
    for file in files:
        report.files += 1
        before = report.documents_in, report.bytes_in, report.documents, report.bytes
        position = Position(advance)
        module, _, function = FORMATS[file.kind].reader.partition(":")
        read: Reader = getattr(load_by_name(module, FORMATS[file.kind].extra), function)
        for place, value in read(file, reading, report, position.reached):
            for document in documents_of(value, place, file, reading, report):
                if not document.text or document.text.isspace():
                    report.drop(EMPTY, size_in_bytes(document.text))
                    continue
                report.use(document.text)
                yield document
        position.reached(file.size)
        after = report.documents_in, report.bytes_in, report.documents, report.bytes
        sources.append(SourceCounts(file.name, file.size, *(b - a for a, b in zip(before, after, strict=True))))
        report.files_empty += sources[-1].documents_in == 0
    report.sources += tuple(sources)


# --------------------------------------------------------------------------------------------------------------------
# Documents of plain text: a file each, a block of lines, or a line.


Stretches = Iterator[tuple[bytes, int, int]]
"""All bytes of a file in turn: some of them; the line they begin with, from 1; and which part of one document they are,
from 1, where it is too long to be one."""


def read_plain_text(file: CorpusFile, reading: Reading, report: CorpusReport, reached: Callable[[int], None]) -> Values:
    """The documents of a text file (see `albert.text.readers.Reader`)."""
    divide = {"file": _whole, "blank-line": _blocks, "line": _single_lines}[reading.documents]
    offset = 0
    with open_corpus_file(file) as (content, raw):
        for data, line, part in divide(content, reading.max_document_bytes):
            if reading.documents == "file" or not data.isspace():
                text = decode_from_file(data, file.path, offset, reading, report)
                report.cuts += part > 1
                if text is not None:
                    place = "" if reading.documents == "file" else f":{line}"
                    yield place + (f"#{part}" if part > 1 else ""), text
                reached(raw.tell())
            offset += len(data)


def _whole(content: BufferedIOBase, limit: int) -> Stretches:
    for part, data in enumerate(pieces(content.read, limit), start=1):
        yield data, 1, part


def _single_lines(content: BufferedIOBase, limit: int) -> Stretches:
    line = part = 1
    for data, ended in _lines(content, limit):
        yield data, line, part
        line, part = (line + 1, 1) if ended else (line, part + 1)


def _blocks(content: BufferedIOBase, limit: int) -> Stretches:
    """Filled lines that follow one another; each blank line by itself."""
    block: list[bytes] = []
    size, first, line, part = 0, 1, 1, 1
    for data, ended in _lines(content, limit):
        blank = data.isspace()
        if block and (blank or size + len(data) > limit):
            yield b"".join(block), first, part
            block, size, part = [], 0, 1 if blank else part + 1
        if blank:
            yield data, line, 1
        else:
            first = first if block else line
            block.append(data)
            size += len(data)
        line += ended
    if block:
        yield b"".join(block), first, part


def _lines(content: BufferedIOBase, limit: int) -> Iterator[tuple[bytes, bool]]:
    """Lines with what ends them: a line feed, a carriage return or both; of a very long one, its parts: only the last
    one has ended."""
    rest = b""
    while data := rest + content.readline(limit + 1 - len(rest)):
        rest = b""
        if len(data) > limit:
            end = place_to_cut(data, limit)
            data, rest = data[:end], data[end:]
        if b"\r" in data:
            for line in AFTER_LONE_RETURN.split(data):
                yield line, line.endswith((b"\n", b"\r"))
        else:
            yield data, data.endswith(b"\n")


# --------------------------------------------------------------------------------------------------------------------
# Documents of tables in text: CSV with quotes (RFC 4180), and TSV without any, where a tab always ends a field.
#
# A header names the columns; every row is a document.


def read_delimited(file: CorpusFile, reading: Reading, report: CorpusReport, reached: Callable[[int], None]) -> Values:
    """The documents of a table (see `albert.text.readers.Reader`)."""
    with open_corpus_file(file) as (content, raw):
        column: int | None = None
        for line, fields in table_rows(file, content, file.path, reading.max_record_bytes):
            if column is None:
                column = _column(fields, file, f"{file.path}:{line}", reading.text_field)
            else:
                yield f":{line}", fields[column]
                reached(raw.tell())


def _column(header: list[bytes], file: CorpusFile, place: str, name: str) -> int:
    strictly = Reading(), CorpusReport()
    first, *others = header
    names = [decode_from_file(first, file.path, 0, *strictly), *(decode(each, place, 0, *strictly) for each in others)]
    check_column(place, names, name)
    return names.index(name)


def read_json_lines(file: CorpusFile, reading: Reading, report: CorpusReport, reached: Callable[[int], None]) -> Values:
    """The documents of a file of JSON lines (see `albert.text.readers.Reader`)."""
    offset, limit = 0, reading.max_record_bytes
    with open_corpus_file(file) as (content, raw):
        for number, line in numbered_lines(content, file.path, limit, ONE_A_LINE):
            place = f"{file.path}:{number}"
            text = decode_from_file(line, file.path, offset, reading, report)
            offset += len(line)
            if text is None or not text or text.isspace():
                continue  # an empty line between records is no record
            record, name = json_object(text, place), reading.text_field
            if name not in record:
                raise DamagedData(place, f"has no field {name!r}", similar_name(name, record))
            value = record[name]
            if value is not None and not isinstance(value, str):
                raise DamagedData(place, f"field {name!r} is {type(value).__name__}, text is expected")
            yield f":{number}", value if value is None else repair(value, report)
            reached(raw.tell())
