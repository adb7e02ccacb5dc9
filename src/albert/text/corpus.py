"""Corpora: the files that they consist of, the format of each, and the documents in them, with counts.

To add a format, write a function that reads it and list it in `FORMATS`."""

import glob
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
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
    JSON_LINES_REMEDY,
    REPAIRED,
    Advance,
    CorpusFile,
    CorpusReport,
    Document,
    Kind,
    RawDocuments,
    Reader,
    Reading,
    SourceCounts,
    check_column,
    cut_position,
    decode,
    decode_with_bom,
    json_object,
    numbered_lines,
    open_corpus_file,
    size_and_time,
    split_bytes,
    suggest_name,
    table_rows,
    to_documents,
    utf8_length,
)
from albert.text.sentences import replace_surrogates


@dataclass(frozen=True)
class Format:
    """A format of corpus files.

    Attributes:
        endings: of file names.
        reader: "module:function" of an `albert.text.readers.Reader`.
        extra: the extra of the package that the reader needs.
        compressible: whether the files may be compressed.
    """

    endings: tuple[str, ...]
    reader: str
    extra: str | None = None
    compressible: bool = True


FORMATS: dict[Kind, Format] = {
    "text": Format((".txt",), "albert.text.corpus:read_plain_text"),
    "JSON lines": Format((".jsonl", ".ndjson", ".json"), "albert.text.corpus:read_json_lines"),
    "CSV": Format((".csv",), "albert.text.corpus:read_delimited"),
    "TSV": Format((".tsv",), "albert.text.corpus:read_delimited"),
    "Wikipedia": Format((".xml",), "albert.text.wikipedia_reader:read", "wikipedia"),
    "Parquet": Format((".parquet",), "albert.text.arrow_files:read_parquet", "data", compressible=False),
    "saved dataset": Format((), "albert.text.arrow_files:read_saved_dataset", "data"),
    "Hub dataset": Format((), "albert.text.arrow_files:read_hub_dataset", "data"),
}
HUB = re.compile(
    r"hf:/{1,2}(?P<id>[\w.-]+/[\w.-]+)(?:/(?P<config>[\w.+-]+))?(?:@(?P<revision>[\w./-]+))?:(?P<split>[^/]+)"
)
"""hf://OWNER/NAME[/CONFIG][@REVISION]:SPLIT, a data set of the Hugging Face Hub; `Path` leaves one slash of two."""
DEFAULT_READING = Reading()


def endings() -> str:
    """Return the endings of all formats, separated by blanks."""
    return " ".join(ending for format_ in FORMATS.values() for ending in format_.endings)


def describe_endings() -> str:
    """Return all endings with the compressions, for error messages."""
    plain = " ".join(end for format_ in FORMATS.values() if not format_.compressible for end in format_.endings)
    return f"{endings()} (each but {plain} also with {' '.join(COMPRESSIONS)})"


def kind_of(name: str) -> Kind | None:
    """Return the format of a file by its name; None if it is unknown."""
    stem, ending = os.path.splitext(name.lower())
    compressed = ending in COMPRESSIONS
    ending = os.path.splitext(stem)[1] if compressed else ending
    for kind, format_ in FORMATS.items():
        if ending in format_.endings and (format_.compressible or not compressed):
            return kind
    return None


# ---- The files of a corpus: each once, in a fixed order ------------------------------------------------------------


class CorpusFiles(NamedTuple):
    """The files of a corpus, the number of ignored files (unknown format or hidden), and of repeated ones."""

    files: list[CorpusFile]
    ignored: int
    repeated: int


def find_corpus_files(paths: Sequence[Path]) -> CorpusFiles:
    """Find the files of files, folders (searched recursively), glob patterns and `hf://` addresses, in a fixed order.

    A file with two paths, for example through links, counts once. Hidden files and folders in a folder are ignored.
    """
    if not paths:
        raise UsageError("corpus", "no file, folder or pattern is given")
    search = _FileSearch()
    for path in paths:
        search.add(path)
    return CorpusFiles(_disambiguate_names(list(search.files.values())), search.ignored, search.repeated)


class _FileSearch:
    """The files found so far by device and inode, or by address."""

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
                raise UsageError(path, "cannot tell its format from its name", f"known: {describe_endings()}")
            self._add_path(path)
        else:
            matches = sorted(Path(name) for name in glob.glob(str(path), recursive=True))
            readable = [match for match in matches if match.is_dir() or kind_of(match.name) is not None]
            self.ignored += len(matches) - len(readable)
            if not readable:
                known = f" of a known format: {describe_endings()}" if matches else ""
                raise MissingInput(path, f"matches no file{known}")
            for match in readable:
                self._add_path(match)

    def _add_path(self, path: Path) -> None:
        if not path.is_dir():
            self._add_file(path, path.name)
            return
        is_empty = True  # also for a folder that holds only a link to itself
        for file in self._walk(path, set()):
            is_empty = False
            self._add_file(file, file.relative_to(path).as_posix() if file != path else path.resolve().name)
        if is_empty:
            raise MissingInput(path, f"holds no {endings()} file")

    def _walk(self, folder: Path, entered: set[tuple[int, int]]) -> Iterator[Path]:
        """Yield files and saved data sets in a folder; each folder is entered once, whatever links lead to it."""
        try:
            file_id = _file_id(folder.stat())
            names = sorted(os.listdir(folder))
        except OSError as error:
            raise MissingInput(folder, error.strerror or "cannot be searched") from error
        if file_id in entered:
            self.repeated += 1
            return
        entered.add(file_id)
        if _is_saved_dataset(folder, names):
            yield folder
            return
        for name in names:
            path = folder / name
            if name.startswith("."):
                self.ignored += 1
            elif path.is_dir():
                yield from self._walk(path, entered)
            elif kind_of(name) is None:
                self.ignored += 1
            else:
                yield path

    def _add_file(self, path: Path, name: str) -> None:
        try:
            file_id = _file_id(path.stat())
            size, modified = size_and_time(path)
        except OSError as error:
            why = "no such file or folder" if isinstance(error, FileNotFoundError) else error.strerror
            if path.is_symlink() and isinstance(error, FileNotFoundError):
                why = f"is a link to {os.readlink(path)}, which does not exist"
            raise MissingInput(path, why or "cannot be read") from error
        if file_id in self.files:
            self.repeated += 1
            return
        kind: Kind | None = "saved dataset" if path.is_dir() else kind_of(path.name)
        assert kind is not None
        name = os.fsencode(name).decode("utf-8", "replace")
        self.files[file_id] = CorpusFile(path, name, size, modified, kind)


def _is_saved_dataset(folder: Path, names: list[str]) -> bool:
    if "dataset_dict.json" in names:
        splits = [name for name in names if (folder / name / "state.json").is_file()]
        why = f"holds a data set of several splits: {', '.join(splits)}"
        raise UsageError(folder, why, f"name one: {folder / splits[0]}" if splits else None)
    return "state.json" in names and "dataset_info.json" in names


def _file_id(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _disambiguate_names(files: list[CorpusFile]) -> list[CorpusFile]:
    """Prefix names that occur twice with as many folders of their paths as make them unique."""
    folders, names = 0, Counter(file.name for file in files)
    while max(names.values(), default=0) > 1:
        folders += 1
        files = [
            replace(file, name="/".join(file.path.parts[-1 - folders :])) if names[file.name] > 1 else file
            for file in files
        ]
        names = Counter(file.name for file in files)
    return files


# ---- The documents of files ----------------------------------------------------------------------------------------


def read_corpus(
    paths: Sequence[Path],
    reading: Reading = DEFAULT_READING,
    *,
    report: CorpusReport | None = None,
    advance: Advance | None = None,
) -> Iterator[Document]:
    """Read the documents of files, folders, glob patterns and `hf://` addresses, in a fixed order.

    Args:
        advance: called with the bytes on disk read since the last call.

    Raises:
        MissingInput: a path does not exist or cannot be read, or no document has text.
        UsageError: a file of an unknown format.
        DamagedData: invalid content, with file and line: bytes that are not UTF-8 or NUL bytes (with their position), a
            damaged or growing file, a line without a JSON object, a field or column that is missing or not text.
        Unavailable: a library is not installed, or a data set of the Hub cannot be fetched.
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
    advance: Advance | None = None,
) -> Iterator[Document]:
    """Read the documents of files that `find_corpus_files` found; there may be none."""
    sources: list[SourceCounts] = []
    for file in files:
        report.files += 1
        before = report.documents_in, report.bytes_in, report.documents, report.bytes
        progress = Position(advance)
        module, _, function = FORMATS[file.kind].reader.partition(":")
        read: Reader = getattr(load_by_name(module, FORMATS[file.kind].extra), function)
        for position, value in read(file, reading, report, progress.reached):
            for document in to_documents(value, position, file, reading, report):
                if not document.text or document.text.isspace():
                    report.drop(EMPTY, utf8_length(document.text))
                    continue
                report.use(document.text)
                yield document
        progress.reached(file.size)
        after = report.documents_in, report.bytes_in, report.documents, report.bytes
        sources.append(SourceCounts(file.name, file.size, *(b - a for a, b in zip(before, after, strict=True))))
        report.files_empty += sources[-1].documents_in == 0
    report.sources += tuple(sources)


# ---- Plain text: a document is a file, a block of lines, or a line -------------------------------------------------


Parts = Iterator[tuple[bytes, int, int]]
"""All bytes of a file as (data, line where they begin, part): the part counts, from 1, within a document that is
divided because it is too long."""


def read_plain_text(file: CorpusFile, reading: Reading, report: CorpusReport, reached: Advance) -> RawDocuments:
    """Read a text file (see `albert.text.readers.Reader`)."""
    divide = {"file": _file_parts, "blank-line": _block_parts, "line": _line_parts}[reading.documents]
    offset = 0
    with open_corpus_file(file) as (content, raw):
        for data, line, part in divide(content, reading.max_document_bytes):
            if reading.documents == "file" or not data.isspace():
                text = decode_with_bom(data, file.path, offset, reading, report)
                report.cuts += part > 1
                if text is not None:
                    position = "" if reading.documents == "file" else f":{line}"
                    yield position + (f"#{part}" if part > 1 else ""), text
                reached(raw.tell())
            offset += len(data)


def _file_parts(content: BufferedIOBase, limit: int) -> Parts:
    for part, data in enumerate(split_bytes(content.read, limit), start=1):
        yield data, 1, part


def _line_parts(content: BufferedIOBase, limit: int) -> Parts:
    line = part = 1
    for data, is_end in _lines(content, limit):
        yield data, line, part
        line, part = (line + 1, 1) if is_end else (line, part + 1)


def _block_parts(content: BufferedIOBase, limit: int) -> Parts:
    """Yield each run of lines that are not blank, and each blank line."""
    block: list[bytes] = []
    size, first, line, part = 0, 1, 1, 1
    for data, is_end in _lines(content, limit):
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
        line += is_end
    if block:
        yield b"".join(block), first, part


def _lines(content: BufferedIOBase, limit: int) -> Iterator[tuple[bytes, bool]]:
    """Yield lines that end with LF, CR or CR LF, longer ones in parts, and whether each is the end of its line."""
    rest = b""
    while data := rest + content.readline(limit + 1 - len(rest)):
        rest = b""
        if len(data) > limit:
            end = cut_position(data, limit)
            data, rest = data[:end], data[end:]
        if b"\r" in data:
            for line in AFTER_LONE_RETURN.split(data):
                yield line, line.endswith((b"\n", b"\r"))
        else:
            yield data, data.endswith(b"\n")


# ---- Tables and JSON lines: every row after the header, and every line, is a document ------------------------------


def read_delimited(file: CorpusFile, reading: Reading, report: CorpusReport, reached: Advance) -> RawDocuments:
    """Read a CSV or TSV file (see `albert.text.readers.Reader`)."""
    with open_corpus_file(file) as (content, raw):
        rows = table_rows(file, content, file.path, reading.max_record_bytes)
        column = 0
        for line, (first, *others) in rows:  # the header
            where, strict = f"{file.path}:{line}", (DEFAULT_READING, CorpusReport())
            names = [decode_with_bom(first, file.path, 0, *strict)]
            names += [decode(name, where, 0, *strict) for name in others]
            check_column(where, names, reading.text_field)
            column = names.index(reading.text_field)
            break
        for line, fields in rows:
            yield f":{line}", fields[column]
            reached(raw.tell())


def read_json_lines(file: CorpusFile, reading: Reading, report: CorpusReport, reached: Advance) -> RawDocuments:
    """Read a file of JSON lines (see `albert.text.readers.Reader`)."""
    offset, limit, name = 0, reading.max_record_bytes, reading.text_field
    with open_corpus_file(file) as (content, raw):
        for number, line in numbered_lines(content, file.path, limit, JSON_LINES_REMEDY):
            where = f"{file.path}:{number}"
            text = decode_with_bom(line, file.path, offset, reading, report)
            offset += len(line)
            if text is None or not text or text.isspace():
                continue  # blank lines are not records
            record = json_object(text, where)
            if name not in record:
                raise DamagedData(where, f"has no field {name!r}", suggest_name(name, record))
            value = record[name]
            if value is not None and not isinstance(value, str):
                raise DamagedData(where, f"field {name!r} is {type(value).__name__}, text is expected")
            if value is not None and (repaired := replace_surrogates(value)) is not value:
                report.noted[REPAIRED] += sum(a != b for a, b in zip(value, repaired, strict=True))
                value = repaired
            yield f":{number}", value
            reached(raw.tell())
