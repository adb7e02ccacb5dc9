"""Readers of corpora: documents and their counts, decoding, division; text, tables and JSON lines.

The formats are listed in `albert.text.corpus`."""

import io
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedIOBase
from typing import Literal

from albert.runtime.environment import lazy_import
from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput, UsageError
from albert.runtime.words import counted, kind_of_value
from albert.tables.fields import text_of
from albert.tables.files import Advance, InputFile, check_unchanged, open_input_file
from albert.tables.records import (
    AFTER_LONE_RETURN,
    BYTE_ORDER_MARK,
    JSON_LINES_REMEDY,
    check_column,
    json_object,
    numbered_lines,
    suggest_name,
)
from albert.tables.rows import open_table, records_of
from albert.tables.table_file import Layout
from albert.text.normalization import REPLACEMENT_CHARACTER
from albert.text.sentences import replace_surrogates
from albert.text.wrapping import LineCounts

DocumentBoundary = Literal["file", "blank-line", "line"]
BadUtf8 = Literal["refuse", "skip"]

NULL = "null"
EMPTY = "empty"
NOT_UTF8 = "not UTF-8"
MAX_DOCUMENT_BYTES = 16_000_000


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How documents are read from files.

    Attributes:
        text_field: the key of a JSON line, or the column of a table, that holds the text.
        documents: what a document is in a `.txt` file: the file, the text between blank lines, or a line.
        bad_utf8: what to do with invalid UTF-8 and NUL bytes: raise an error that names file and byte, or drop the
            document.
        max_document_bytes: a longer document is divided at the end of a paragraph, a line or a sentence.
    """

    text_field: str = "text"
    documents: DocumentBoundary = "file"
    bad_utf8: BadUtf8 = "refuse"
    max_document_bytes: int = MAX_DOCUMENT_BYTES

    def __post_init__(self) -> None:
        if self.max_document_bytes < 4:
            raise InvalidConfiguration("max_document_bytes", f"{self.max_document_bytes} holds no character")

    @property
    def max_record_bytes(self) -> int:
        """A longer record, all fields included, is refused, because a record cannot be divided."""
        return 8 * self.max_document_bytes


@dataclass(frozen=True)
class SourceCounts:
    """Counts for one source: its bytes on disk, documents read and documents used."""

    name: str
    bytes: int
    documents_in: int = 0
    bytes_in: int = 0
    documents_used: int = 0
    bytes_used: int = 0


@dataclass
class CorpusReport:
    """Counts of what was read: documents used and dropped, and their bytes of UTF-8 text.

    For a document that could not be decoded, its bytes in the file.
    """

    files: int = 0
    files_ignored: int = 0
    files_repeated: int = 0
    files_empty: int = 0
    documents: int = 0
    bytes: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    dropped_bytes: Counter[str] = field(default_factory=Counter)
    cuts: int = 0
    noted: Counter[str] = field(default_factory=Counter)
    sources: tuple[SourceCounts, ...] = ()
    lines: LineCounts = field(default_factory=LineCounts)

    @property
    def documents_in(self) -> int:
        return self.documents + self.dropped.total()

    @property
    def bytes_in(self) -> int:
        return self.bytes + self.dropped_bytes.total()

    @classmethod
    def dropped_later(cls, reason: str, documents: int, size: int) -> "CorpusReport":
        """Return what to add for documents that were used at first."""
        return cls(
            documents=-documents,
            bytes=-size,
            dropped=+Counter({reason: documents}),
            dropped_bytes=+Counter({reason: size}),
        )

    def refuse_empty(self, subject: object) -> None:
        """Raise MissingInput if no document is used."""
        if self.documents == 0:
            dropped = "".join(f", {count:,} dropped: {reason}" for reason, count in self.dropped.items())
            raise MissingInput(subject, f"no document with text ({self.documents_in:,} read{dropped})")

    def drop(self, reason: str, size: int) -> None:
        """Count a dropped document."""
        self.dropped[reason] += 1
        self.dropped_bytes[reason] += size

    def remarks(self) -> list[str]:
        lines = [counted(count, f"documents dropped: {reason}") for reason, count in self.dropped.items()]
        for count, what in (
            (self.files_ignored, "files of other formats, hidden files, and folders that albert wrote, ignored"),
            (self.files_repeated, "files found by two paths, read once"),
            (self.files_empty, "files without a document"),
            (self.cuts, f"cuts in documents longer than {MAX_DOCUMENT_BYTES / 1e6:.0f} MB"),
        ):
            if count:
                lines.append(counted(count, what))
        lines += [counted(count, what) for what, count in self.noted.items()]
        return lines + self.lines.remarks()


RawDocuments = Iterator[str | None]
"""The documents of a file; None for one that is dropped and counted."""


Reader = Callable[[InputFile, Reading, CorpusReport, Advance], RawDocuments]
"""A function that reads one format: yields all documents in order, also empty ones.

It counts in the report what it drops or repairs itself; `albert.text.corpus.read_files` divides and counts what it
yields. It calls its last argument with its position in the file in bytes. It raises MissingInput if the file cannot be
read, DamagedData (with line, row or byte) for invalid content, Unavailable if a library or the Hub is."""


def utf8_length(text: str) -> int:
    """Return the length of a text in bytes of UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8"))


# ---- Decoding of UTF-8, with the errors that `Reading.bad_utf8` allows ---------------------------------------------

_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_PACKED = "name it with the ending of its compression, as a.txt.gz"
_OTHER_FORMATS = (
    (b"\x1f\x8b", "a gzip file", _PACKED),
    (b"BZh9", "a bzip2 file", _PACKED),
    (b"\xfd7zXZ\0", "an xz file", _PACKED),
    (b"\x28\xb5\x2f\xfd", "a Zstandard file", _PACKED),
    (b"PK\x03\x04", "a zip archive or an office document", "unpack it, or save it as text"),
    (b"%PDF-", "a PDF", "extract its text first, as `pdftotext` does"),
    (b"{\\rtf", "an RTF document", "save it as text"),
    (b"\xd0\xcf\x11\xe0", "an office document", "save it as text"),
)
REPAIRED = "half surrogates replaced by U+FFFD"


def decode(
    data: bytes, subject: object, reading: Reading, report: CorpusReport, offset: int | None = None
) -> str | None:
    """Decode data as `reading.bad_utf8` says; None for a document that is dropped, which is counted.

    Args:
        offset: of the data in the file `subject`, which may begin with a byte order mark; None for a field of a record.
    """
    if offset == 0 and data.startswith(_UTF16_MARKS) and reading.bad_utf8 == "refuse":
        raise DamagedData(subject, "is not UTF-8: byte 0: it is UTF-16", "convert it: iconv -f UTF-16 -t UTF-8")
    if offset == 0 and data.startswith(BYTE_ORDER_MARK):
        data = data[len(BYTE_ORDER_MARK) :]
        offset = len(BYTE_ORDER_MARK)
    if offset == 0 and reading.bad_utf8 == "refuse":
        for beginning, what, remedy in _OTHER_FORMATS:
            if data.startswith(beginning):
                raise DamagedData(subject, f"is not text: it begins as {what} does", remedy)
    position = data.find(b"\0")
    error = None
    if position < 0:
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as decode_error:
            position = decode_error.start
            error = decode_error
    if reading.bad_utf8 == "skip":
        report.drop(NOT_UTF8, len(data))
        return None
    what = "is not UTF-8:" if error else "is not text: NUL byte at"
    what += f" byte {position + (offset or 0)}"
    remedy = f"{_conversion(data, position)}, or drop such documents: --bad-utf8 skip"
    raise DamagedData(subject, what, remedy) from error


def _conversion(data: bytes, position: int) -> str:
    """Return what makes UTF-8 text of a file with such data, whose first bad byte is at a position."""
    encoding = _likely_encoding(data, position)
    if encoding.startswith("UTF-16"):
        return f"it looks like {encoding}: iconv -f {encoding} -t UTF-8 FILE > NEW"
    if data[position] == 0:
        return "tr -d '\\0' < FILE > NEW removes NUL bytes"
    text = data[max(position - (1 << 15), 0) : position + (1 << 15)].decode("utf-8", "replace")
    bad = text.count(REPLACEMENT_CHARACTER)
    if sum(not character.isascii() for character in text) > 10 * bad:
        return "it is UTF-8 with bad bytes: iconv -c -f UTF-8 -t UTF-8 FILE > NEW leaves them out"
    if not encoding:
        return "convert it to UTF-8"
    return f"it looks like {encoding}: iconv -f {encoding} -t UTF-8 FILE > NEW, and check its letters"


_ENCODINGS = {
    "cp1252": "WINDOWS-1252",
    "cp1250": "WINDOWS-1250",
    "iso8859_2": "ISO-8859-2",
    "cp1251": "WINDOWS-1251",
    "koi8_r": "KOI8-R",
    "cp1253": "WINDOWS-1253",
    "cp1254": "WINDOWS-1254",
    "cp1255": "WINDOWS-1255",
    "cp1256": "WINDOWS-1256",
    "cp1257": "WINDOWS-1257",
    "gb18030": "GB18030",
    "big5": "BIG5",
    "shift_jis": "SHIFT_JIS",
    "euc_jp": "EUC-JP",
    "euc_kr": "EUC-KR",
}
"""Encodings that are looked for, the likelier ones first, with their names for iconv."""


def _likely_encoding(data: bytes, position: int) -> str:
    """Return the name of an encoding other than UTF-8 in which data make sense; empty if none is found."""
    sample = data[: 1 << 16]
    for encoding, zeros in (("UTF-16LE", sample[1::2]), ("UTF-16BE", sample[0::2])):
        if len(sample) > 20 and zeros.count(0) > 0.6 * len(zeros) and sample.count(0) < 1.1 * zeros.count(0):
            return encoding
    if b"\0" in sample:
        return ""
    around = data[max(position - (1 << 15), 0) : position + (1 << 15)]
    matches = lazy_import("charset_normalizer").from_bytes(around, cp_isolation=list(_ENCODINGS))
    best = matches.best()
    if best is None:
        return ""
    western = [each for each in matches if "cp1252" in (each.encoding, *each.could_be_from_charset)]
    is_latin = best.encoding in ("cp1250", "cp1254", "cp1257", "iso8859_2")
    if is_latin and any(
        each.chaos <= best.chaos + 0.07 and each.coherence >= best.coherence - 0.01 for each in western
    ):
        return _ENCODINGS["cp1252"]
    equal = (best.encoding, *best.could_be_from_charset)
    return next(name for encoding, name in _ENCODINGS.items() if encoding in equal)


# ---- Documents longer than the limit are cut after a paragraph, a line, a sentence or a word -----------------------

_ENDS = tuple(
    tuple(end.encode("utf-8") for end in ends)
    for ends in (("\n\n", "\n\r\n"), ("\n", "\r"), (". ", "! ", "? ", "。", "！", "？", "।"), (" ",))
)


def split_bytes(read: Callable[[int], bytes], limit: int) -> Iterator[bytes]:
    """Yield all data that `read` returns in parts of at most `limit` bytes (4 or more)."""
    rest = b""
    while len(data := rest + read(limit + 1 - len(rest))) > limit:
        end = cut_position(data, limit)
        yield data[:end]
        rest = data[end:]
    yield data


def cut_position(data: bytes, limit: int) -> int:
    """Return how many bytes (1 to `limit`) of longer UTF-8 come before the best cut in the second half of the limit."""
    for ends in _ENDS:
        cut = max((start + len(end) for end in ends if (start := data.rfind(end, limit // 2, limit)) >= 0), default=0)
        if cut:
            return cut
    starts = [end for end in range(limit, max(limit - 4, 0), -1) if data[end] & 0xC0 != 0x80]  # of characters
    return starts[0] if starts else limit


def split_text(text: str, limit: int, report: CorpusReport) -> Iterator[str]:
    """Yield a text in parts of at most `limit` bytes, and count the cuts."""
    if len(text) <= limit // 4 or utf8_length(text) <= limit:
        yield text
        return
    for number, part in enumerate(split_bytes(io.BytesIO(text.encode("utf-8")).read, limit)):
        report.cuts += number > 0
        yield part.decode("utf-8")


# ---- Plain text: a document is a file, a block of lines, or a line -------------------------------------------------


Parts = Iterator[tuple[bytes, bool]]
"""All bytes of a file as (data, whether they go on with a document that is divided because it is too long)."""


def read_plain_text(file: InputFile, reading: Reading, report: CorpusReport, reached: Advance) -> RawDocuments:
    """Read a text file (see `Reader`); one that begins as JSON lines do, such as WikiExtractor's, is read so."""
    divide = {"file": _file_parts, "blank-line": _block_parts, "line": _line_parts}[reading.documents]
    offset = 0
    with open_input_file(file) as (content, raw):
        is_json_lines = _is_json_lines(_beginning(content), file, report)
        for data, continues in () if is_json_lines else divide(content, reading.max_document_bytes):
            if reading.documents == "file" or not data.isspace():
                report.cuts += continues
                yield decode(data, file.path, reading, report, offset)
                reached(raw.tell())
            offset += len(data)
    if is_json_lines:
        report.noted[IS_JSON_LINES] += 1
        yield from read_json_lines(file, reading, report, reached)


def _file_parts(content: BufferedIOBase, limit: int) -> Parts:
    for number, data in enumerate(split_bytes(content.read, limit)):
        yield data, number > 0


def _line_parts(content: BufferedIOBase, limit: int) -> Parts:
    continues = False
    for data, is_end in _parts_of_lines(content, limit):
        yield data, continues
        continues = not is_end


SHORT_LINE = 100
"""Bytes of a line that is looked at for blanks beyond ASCII, such as U+3000."""


def _block_parts(content: BufferedIOBase, limit: int) -> Parts:
    """Yield each run of lines that are not blank, and each blank line."""
    block = bytearray()
    continues = False
    for data, _ in _parts_of_lines(content, limit):
        blank = data.isspace() or (len(data) < SHORT_LINE and not data.decode("utf-8", "replace").strip())
        if block and (blank or len(block) + len(data) > limit):
            yield bytes(block), continues
            block = bytearray()
            continues = not blank
        if blank:
            yield data, False
        else:
            block += data
    if block:
        yield bytes(block), continues


def _parts_of_lines(content: BufferedIOBase, limit: int) -> Iterator[tuple[bytes, bool]]:
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


# ---- What begins as another format, whatever the name of the file is ------------------------------------------------

_JSON_LINE = re.compile(rb'\{"\w+":')
_HTML = (b"<!doctype html", b"<html", b"<?xml version")
LOOKS_LIKE_HTML = "text files begin like HTML or XML, and their tags were read as text: extract the text first"
IS_JSON_LINES = "files read as JSON lines because of their content"
WIKIPEDIA = "take hf://wikimedia/wikipedia/20231101.de:train, or use WikiExtractor with --json (docs/own-text.md)"
_WIKIS = ((b"<mediawiki", "is a dump of a wiki"), (b"<doc id=", "is in WikiExtractor's <doc> format"))


def _beginning(content: BufferedIOBase) -> bytes:
    """Return the first bytes without consuming them, and without a byte order mark and blanks."""
    peek = getattr(content, "peek", None)
    return b"" if peek is None else peek(200)[:200].removeprefix(BYTE_ORDER_MARK).lstrip()


def _is_json_lines(beginning: bytes, file: InputFile, report: CorpusReport) -> bool:
    """Return whether a text file holds JSON lines; count what else it looks like, and refuse what wikis write."""
    for first, what in _WIKIS:
        if beginning.startswith(first):
            raise DamagedData(file.path, what, WIKIPEDIA)
    if beginning.lower().startswith(_HTML):
        report.noted[LOOKS_LIKE_HTML] += 1
    return _JSON_LINE.match(beginning) is not None


# ---- Tables and JSON lines: every row, and every line, is a document ------------------------------


def read_rows(file: InputFile, reading: Reading, report: CorpusReport, reached: Advance) -> RawDocuments:
    """Read a table as `albert finetune` does: CSV, TSV, Excel, or a list in JSON (see `Reader`).

    Separator, quotes and encoding are recognised and noted in the report.
    """
    name = reading.text_field
    with _remedies_without_options():
        table = open_table(file.path, Layout(has_task=True))
        check_unchanged(file, table.file.size, table.file.modified)
        for note in table.notes:
            if note != table.doubt:
                report.noted[f"files: {_OPTIONS_IN_BRACKETS.sub('', note)}"] += 1
        if table.names:
            header = f"{file.path}:{table.preamble + 1}"
            if table.doubt is not None and name not in table.names:
                why = f"has no column {name!r}, and its first row looks like a row"
                raise DamagedData(header, why, "write the names of the columns on its first line")
            check_column(header, table.names, name)
        for record in records_of(table, reached):
            if name not in record.fields:
                raise DamagedData(record.where, f"has no field {name!r}", suggest_name(name, record.fields))
            value = record.fields[name]
            if value is None:
                report.drop(NULL, 0)
                continue
            text = text_of(value) if table.format == "xlsx" else value
            if not isinstance(text, str):
                raise DamagedData(record.where, f"field {name!r} is {kind_of_value(value)}, a text is expected")
            if "\0" not in text:
                yield text
            elif reading.bad_utf8 == "skip":
                report.drop(NOT_UTF8, utf8_length(text))
            else:
                remedy = "remove it, or drop such documents: --bad-utf8 skip"
                raise DamagedData(record.where, "is not text: it has a NUL byte", remedy)


_OPTIONS_IN_BRACKETS = re.compile(r" \(--[^)]*\)")
"""What `albert finetune` has for a file that is recognised wrongly, and `albert prepare` has not."""


@contextmanager
def _remedies_without_options() -> Iterator[None]:
    """Name another remedy where a table is refused with options that only commands on tables have."""
    try:
        yield
    except (UsageError, DamagedData) as error:
        options = re.findall(r"--[a-z-]+|reading\.\w+", error.remedy or "")
        if not options or set(options) <= {"--text-field", "--bad-utf8"}:
            raise
        raise type(error)(error.subject, error.why, "save it in UTF-8 with commas, or as JSON lines") from error


def read_json_lines(file: InputFile, reading: Reading, report: CorpusReport, reached: Advance) -> RawDocuments:
    """Read a file of JSON lines, or a list in JSON (see `Reader`)."""
    limit = reading.max_record_bytes
    name = reading.text_field
    with open_input_file(file) as (content, raw):
        is_list = _beginning(content).startswith(b"[")
        for number, line in () if is_list else numbered_lines(content, file.path, limit, JSON_LINES_REMEDY):
            where = f"{file.path}:{number}"
            text = decode(line, where, reading, report, 0 if number == 1 else None)
            if text is None or not text or text.isspace():
                continue  # blank lines are not records
            record = json_object(text, where)
            if name not in record:
                raise DamagedData(where, f"has no field {name!r}", suggest_name(name, record))
            value = record[name]
            if value is None:
                report.drop(NULL, 0)
                continue
            if not isinstance(value, str):
                raise DamagedData(where, f"field {name!r} is {kind_of_value(value)}, a text is expected")
            repaired = replace_surrogates(value)
            if repaired is not value:
                report.noted[REPAIRED] += sum(a != b for a, b in zip(value, repaired, strict=True))
            yield repaired
            reached(raw.tell())
    if is_list:
        yield from read_rows(file, reading, report, reached)
