"""What all readers of files share: documents, how they are counted, decoded and divided; unpacking; records of files.

The formats are entered in `albert.text.corpus`."""

import bz2
import csv
import io
import json
import lzma
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, is_dataclass
from dataclasses import fields as fields_of
from io import BufferedIOBase
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from albert.runtime.environment import load_by_name
from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput, did_you_mean
from albert.runtime.json_files import unique_keys
from albert.runtime.manifest import PIPE_REMEDY, open_input, refuse_special_file
from albert.text.normalization import REPLACEMENT_CHARACTER
from albert.text.sentences import replace_surrogates

Kind = str
"""The name of a format: "text", "JSON lines", "CSV", "TSV", "Parquet" and so on."""


@dataclass(frozen=True)
class CorpusFile:
    """One source of a corpus: a file, or a data set of `datasets`.

    Attributes:
        path: where it is; of a data set on the Hub, its address.
        name: how it is called in records and errors: of a corpus, relative to the folder it was found in.
        size: bytes on disk; 0 of what is not on this disk.
    """

    path: Path
    name: str
    size: int
    modified: int
    kind: Kind


def input_file(path: Path, kind: Kind, name: str | None = None, pipe_remedy: str = PIPE_REMEDY) -> CorpusFile:
    """A single file of a known format."""
    name = str(path) if name is None else name
    try:
        status = path.stat()
    except OSError as error:
        raise MissingInput(name, error.strerror or "cannot be read") from error
    refuse_special_file(name, status.st_mode, pipe_remedy)
    return CorpusFile(path, name, status.st_size, status.st_mtime_ns, kind)


def size_and_time(path: Path) -> tuple[int, int]:
    """Bytes on disk, and when they were last written, of a file or of a folder's files."""
    if path.is_dir():
        parts = [entry.stat() for entry in os.scandir(path)]
        return sum(part.st_size for part in parts), max(part.st_mtime_ns for part in parts)
    status = path.stat()
    refuse_special_file(path, status.st_mode)
    return status.st_size, status.st_mtime_ns


DocumentBoundary = Literal["file", "blank-line", "line"]
BadUtf8 = Literal["refuse", "replace", "skip"]

NULL, EMPTY, NOT_UTF8 = "null", "empty", "not UTF-8"


@dataclass(frozen=True)
class Document:
    """One document and where it comes from ("books.jsonl.gz:12")."""

    text: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How documents are taken out of files.

    Attributes:
        text_field: the key of a JSON line, or the column of a table, that holds the text.
        documents: what a document is in a `.txt` file: the file, what stands between blank lines, or a line.
        bad_utf8: what becomes of text that is not UTF-8, or holds NUL bytes: an error that names file and byte, U+FFFD
            for every bad sequence, or the document is dropped.
        max_document_bytes: a longer document is divided at the end of a paragraph, a line or a sentence.
    """

    text_field: str = "text"
    documents: DocumentBoundary = "file"
    bad_utf8: BadUtf8 = "refuse"
    max_document_bytes: int = 16_000_000

    def __post_init__(self) -> None:
        if self.max_document_bytes < 4:
            raise InvalidConfiguration("max_document_bytes", f"{self.max_document_bytes} holds no character")

    @property
    def max_record_bytes(self) -> int:
        """A record longer than this, text and all else, is refused: nothing can divide it."""
        return 8 * self.max_document_bytes


@dataclass(frozen=True)
class SourceCounts:
    """What was read of one source, a file or a data set of so many bytes on disk; used and dropped together.

    A prepared corpus of before these counts has zeros.
    """

    name: str
    bytes: int
    documents_in: int = 0
    bytes_in: int = 0
    documents_used: int = 0
    bytes_used: int = 0


@dataclass
class CorpusReport:
    """What was read: `documents_in` = `documents` + the sum of `dropped`, and the same in bytes.

    Bytes are bytes of UTF-8 text; those of a document that was never decoded are its bytes in the file.
    """

    files: int = 0
    files_ignored: int = 0
    files_repeated: int = 0
    files_empty: int = 0
    documents_in: int = 0
    bytes_in: int = 0
    documents: int = 0
    bytes: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    dropped_bytes: Counter[str] = field(default_factory=Counter)
    cuts: int = 0
    noted: Counter[str] = field(default_factory=Counter)
    sources: tuple[SourceCounts, ...] = ()

    def use(self, text: str) -> None:
        """Count a document that is handed on."""
        size = size_in_bytes(text)
        self.documents_in += 1
        self.bytes_in += size
        self.documents += 1
        self.bytes += size

    def drop(self, reason: str, size: int, documents: int = 1) -> None:
        """Count a document that is not, or bytes of one that is."""
        self.documents_in += documents
        self.bytes_in += size
        if documents:
            self.dropped[reason] += documents
        self.dropped_bytes[reason] += size

    def remarks(self) -> list[str]:
        lines = [f"{count:,} documents dropped: {reason}" for reason, count in self.dropped.items()]
        for count, what in (
            (self.files_ignored, "files of other kinds, or hidden, ignored"),
            (self.files_repeated, "files or folders met again by another path, read once"),
            (self.files_empty, "files without a document"),
            (self.cuts, "cuts in documents longer than --max-document-megabytes"),
        ):
            if count:
                lines.append(f"{count:,} {what}")
        return lines + [f"{count:,} {what}" for what, count in self.noted.items()]


def sum_counts(counts: Sequence[Any]) -> Any:
    """The sum of numbers; of tuples all their items; of dicts and dataclasses the same by name."""
    first = counts[0]
    if is_dataclass(first):
        sums = {each.name: sum_counts([getattr(one, each.name) for one in counts]) for each in fields_of(first)}
        return type(first)(**sums)  # pyright: ignore[reportCallIssue]
    if isinstance(first, dict):
        names = dict.fromkeys(chain.from_iterable(counts))
        return type(first)({name: sum_counts([one[name] for one in counts if name in one]) for name in names})
    return tuple(chain.from_iterable(counts)) if isinstance(first, tuple) else sum(counts)


Values = Iterator[tuple[str, str | bytes | None]]
"""The documents of a file as it holds them: where each stands (":12", "" of the file as a whole), and its text, in
UTF-8 if it was not decoded yet, or null."""


Reader = Callable[[CorpusFile, Reading, CorpusReport, Callable[[int], None]], Values]
"""What reads a kind of file: gives its documents in their order, those without text included.

It counts in the report what it drops or mends itself; what it gives is decoded, divided and counted by
`albert.text.corpus.read_files`. It calls the function that it gets with its place in the file, in bytes. It raises
MissingInput when the file cannot be read, DamagedData (with line, row or byte) when its content is not what its name
says, and Unavailable when a data set of the Hub cannot be fetched."""


def size_in_bytes(text: str) -> int:
    """The length of a text as UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


# --------------------------------------------------------------------------------------------------------------------
# Bytes of a file to text: UTF-8, or what `Reading.bad_utf8` says.

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_REPLACED = "bad UTF-8 sequences replaced by U+FFFD"
_REPAIRED = "half surrogates replaced by U+FFFD"


def decode_from_file(data: bytes, path: Path, offset: int, reading: Reading, report: CorpusReport) -> str | None:
    """`decode` of what stands at a place of a file, unpacked; a byte order mark at its beginning is no text."""
    if offset == 0:
        if data.startswith(_UTF16_MARKS) and reading.bad_utf8 == "refuse":
            raise DamagedData(path, "is not UTF-8: byte 0: it is UTF-16", "convert it: iconv -f UTF-16 -t UTF-8")
        if data.startswith(_BYTE_ORDER_MARK):
            data, offset = data[len(_BYTE_ORDER_MARK) :], len(_BYTE_ORDER_MARK)
    return decode(data, path, offset, reading, report)


def decode(data: bytes, subject: object, offset: int, reading: Reading, report: CorpusReport) -> str | None:
    """The text of some bytes; None when it is dropped, and counted as a document."""
    place, error = data.find(b"\0"), None
    if place < 0:
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as found:
            place, error = found.start, found
    if reading.bad_utf8 == "skip":
        report.drop(NOT_UTF8, len(data))
        return None
    if reading.bad_utf8 == "replace":
        text = data.decode("utf-8", "replace").replace("\0", REPLACEMENT_CHARACTER)
        report.noted[_REPLACED] += text.count(REPLACEMENT_CHARACTER) - data.count(b"\xef\xbf\xbd")
        return text
    what = "is not UTF-8:" if error else "is not text: NUL byte at"
    remedy = "convert it to UTF-8" if error else "UTF-8 is expected"
    raise DamagedData(subject, f"{what} byte {offset + place}", f"{remedy}, or --bad-utf8 replace or skip") from error


def similar_name(name: str, names: Iterable[object]) -> str:
    """`did_you_mean` for names out of a file, whatever characters they are made of."""
    hint = did_you_mean(name, [repr(str(known))[1:-1] for known in names])
    return f"{hint} (--text-field)" if hint else ""


def check_column(source: object, columns: Sequence[str | None], name: str) -> None:
    """Refuse a table without the column of the text, or with two of that name."""
    if columns.count(name) > 1:
        raise DamagedData(source, f"two columns are named {name!r}")
    if name not in columns:
        raise DamagedData(source, f"has no column {name!r}", similar_name(name, columns))


def repair(text: str, report: CorpusReport) -> str:
    """The text with every lone surrogate, which JSON's escapes may leave, replaced and counted."""
    if text.isascii():
        return text
    repaired = replace_surrogates(text)
    if repaired is not text:
        report.noted[_REPAIRED] += sum(a != b for a, b in zip(text, repaired, strict=True))
    return repaired


# --------------------------------------------------------------------------------------------------------------------
# Documents too long to be held whole, in pieces that end where a paragraph, a line, a sentence or a word does.

_ENDS = tuple(
    tuple(end.encode("utf-8") for end in ends)
    for ends in (("\n\n", "\n\r\n"), ("\n", "\r"), (". ", "! ", "? ", "。", "！", "？", "।"), (" ",))
)


def pieces(read: Callable[[int], bytes], limit: int) -> Iterator[bytes]:
    """What `read` gives, in pieces of at most `limit` bytes (4 or more); joined, they are the whole."""
    rest = b""
    while len(data := rest + read(limit + 1 - len(rest))) > limit:
        end = place_to_cut(data, limit)
        yield data[:end]
        rest = data[end:]
    yield data


def place_to_cut(data: bytes, limit: int) -> int:
    """Where to cut UTF-8 that is longer than `limit`: at the last and best end of something in its second half.

    Returns:
        the number of bytes before the cut, 1 to `limit`.
    """
    for ends in _ENDS:
        place = max((found + len(end) for end in ends if (found := data.rfind(end, limit // 2, limit)) >= 0), default=0)
        if place:
            return place
    starts = [end for end in range(limit, max(limit - 4, 0), -1) if data[end] & 0xC0 != 0x80]  # of characters
    return starts[0] if starts else limit


def documents_of(
    value: str | bytes | None, place: str, file: CorpusFile, reading: Reading, report: CorpusReport
) -> Iterator[Document]:
    """The document that a value is, or its pieces if it is longer than `reading.max_document_bytes`; null is none."""
    if value is None:
        report.drop(NULL, 0)
        return
    subject = file.name if file.kind == "Hub dataset" else file.path
    text = value if isinstance(value, str) else decode(value, f"{subject}{place}", 0, reading, report)
    if text is None:
        return
    source, limit = file.name + place, reading.max_document_bytes
    if len(text) <= limit // 4 or size_in_bytes(text) <= limit:
        yield Document(text, source)
        return
    for number, piece in enumerate(pieces(io.BytesIO(text.encode("utf-8")).read, limit), start=1):
        report.cuts += number > 1
        yield Document(piece.decode("utf-8"), source if number == 1 else f"{source}#{number}")


# --------------------------------------------------------------------------------------------------------------------
# Files as bytes, unpacked where they are packed; one that is damaged, cut short or still growing is refused.
#
# The standard library's readers take what follows the first stream of a `.bz2` or `.xz` file, if it is damaged, for
# nothing; Zstandard's take the end of the file for the end of the data. Here every stream must be whole.

CHUNK = 1 << 16
LARGEST_PART = 1 << 18
LARGEST_WINDOW = 1 << 31  # `zstd --long=31`, as some published corpora are packed; used as far as data fill it


class ZstandardDecompressor:
    """One frame; skippable frames are frames without data. Needs the library `zstandard`."""

    def __init__(self) -> None:
        self._library = load_by_name("zstandard", "data")
        self._stream = self._library.ZstdDecompressor(max_window_size=LARGEST_WINDOW).decompressobj()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        """What the next packed bytes hold, all of it: there is no limit, four bytes may stand for 128 KB."""
        try:
            return self._stream.decompress(data)
        except self._library.ZstdError as error:
            raise ValueError(str(error).removeprefix("zstd decompressor error: ")) from error


@dataclass(frozen=True)
class Compression:
    """A way to pack files: how it is called, and what opens one stream, an object like `bz2.BZ2Decompressor`.

    What it has taken but not unpacked yet stays in it, or comes back as `unconsumed_tail` (zlib).
    """

    name: str
    decompressor: Callable[[], Any]
    chunk: int = CHUNK
    """Packed bytes unpacked at a time."""


COMPRESSIONS: dict[str, Compression] = {
    ".gz": Compression("gzip", lambda: zlib.decompressobj(16 + zlib.MAX_WBITS)),
    ".bz2": Compression("bzip2", bz2.BZ2Decompressor),
    ".xz": Compression("xz", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ)),
    ".zst": Compression("Zstandard", ZstandardDecompressor, CHUNK >> 7),
}


class UnpackedFile(io.RawIOBase):
    """The data of all streams of a packed file, one after the other."""

    def __init__(self, raw: BufferedIOBase, path: Path, packing: Compression) -> None:
        self._raw, self._path, self._packing = raw, path, packing
        self._stream: Any = None
        self._any_stream = False
        self._packed = b""
        self._data = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer; 0 is the end of the data."""
        if not self._data:
            try:
                self._data = memoryview(self._more())
            except (EOFError, OSError, ValueError, zlib.error, lzma.LZMAError) as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise  # the disk's, not the stream's
                why = f"damaged {self._packing.name} file ({' '.join(str(error).split())})"
                raise DamagedData(self._path, why, "fetch or pack it again") from error
        count = min(len(buffer), len(self._data))
        buffer[:count], self._data = self._data[:count], self._data[count:]
        return count

    def _more(self) -> bytes:
        """Some data; none at the end of a file whose streams are all whole."""
        while True:
            if not self._packed and getattr(self._stream, "needs_input", True):
                self._packed = self._raw.read(self._packing.chunk)
                if not self._packed and self._stream is None:
                    if self._any_stream:
                        return b""
                    raise EOFError("it is empty")
            if self._stream is None:
                if self._any_stream:
                    self._packed = self._packed.lstrip(b"\0")  # they may fill a block
                    if not self._packed:
                        continue
                self._stream, self._any_stream = self._packing.decompressor(), True
            packed = self._packed
            data = self._stream.decompress(packed, LARGEST_PART)
            self._packed = getattr(self._stream, "unconsumed_tail", b"")
            if self._stream.eof:
                self._packed, self._stream = self._stream.unused_data, None
            elif not data and not packed and getattr(self._stream, "needs_input", True):
                raise EOFError("it ends too early")
            if data:
                return data


@contextmanager
def open_corpus_file(file: CorpusFile) -> Iterator[tuple[BufferedIOBase, BufferedIOBase]]:
    """Open a file: its content, unpacked if need be, and the raw file, whose position is the progress."""
    try:
        with open_input(file.path) as raw:
            _check_unchanged(file, raw)
            packing = COMPRESSIONS.get(file.path.suffix.lower())
            yield (
                (raw if packing is None else io.BufferedReader(UnpackedFile(raw, file.path, packing), LARGEST_PART)),
                raw,
            )
            _check_unchanged(file, raw)
    except OSError as error:
        raise MissingInput(file.path, error.strerror or " ".join(str(error).split())) from error


def changed(file: CorpusFile) -> DamagedData:
    """The error of a source that something writes to."""
    return DamagedData(file.path, "changed while it was read", "run again when nothing writes to it")


def _check_unchanged(file: CorpusFile, raw: BufferedIOBase) -> None:
    status = os.fstat(raw.fileno())
    if (status.st_size, status.st_mtime_ns) != (file.size, file.modified):
        raise changed(file)


# --------------------------------------------------------------------------------------------------------------------
# Records of a file: rows of CSV, TSV and Parquet, objects of JSON lines, lines of text.
#
# Corpora, tables of tasks and the input of predictions are all read by this. CSV has quotes (RFC 4180); TSV has none, a
# tab always ends a field. What cannot be read is an error that names file and line.

csv.field_size_limit(2**31 - 1)  # the length of rows is limited here

LONGEST_RECORD = 128_000_000
"""Bytes; a longer one is most likely a file of another kind."""
ONE_A_LINE = "JSON lines hold one object a line; of a list or indented objects `jq -c '.[]?' FILE` makes them"
AFTER_LONE_RETURN = re.compile(rb"(?<=\r)(?!\n|\Z)")

Rows = Iterator[tuple[int, list[bytes]]]


@dataclass(frozen=True)
class Record:
    """One row: where it stands ("reviews.csv:3"), and its fields as they are written."""

    where: str
    fields: dict[str, Any]


def read_records(
    file: CorpusFile,
    text_field: str = "text",
    *,
    keep_empty_lines: bool = False,
    columns: tuple[str, ...] | None = None,
    class_names: bool = False,
    reached: Callable[[int], None] = lambda place: None,
) -> Iterator[Record]:
    """Every row of a file, in its order; empty lines of JSON and of tables are skipped.

    Args:
        keep_empty_lines: take them for rows like others, which most often makes them errors.
        class_names: whether Parquet columns that `datasets` wrote as numbers of named classes are read by these names.

    Raises:
        MissingInput: it cannot be read.
        DamagedData: it is not what its name says, or changes while it is read.
        Unavailable: Parquet, without pyarrow.
    """
    if file.kind == "Parquet":
        records = load_by_name("albert.text.arrow_files", "data").read_parquet_records
        yield from (Record(where, fields) for where, fields in records(file, class_names, reached))
        return
    with open_corpus_file(file) as (content, raw):
        if file.kind in ("CSV", "TSV"):
            records = _table_records(file, content, keep_empty_lines, columns)
        elif file.kind == "JSON lines":
            records = _json_records(file, content, keep_empty_lines)
        else:
            records = (Record(where, {text_field: decoded(line, where)}) for where, line in _lines(file, content))
        for record in records:
            yield record
            reached(raw.tell())


def decoded(data: bytes, where: str) -> str:
    """The text of some bytes."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DamagedData(where, f"is not UTF-8: byte {error.start}", "convert the file to UTF-8") from error


def numbered_lines(
    content: BufferedIOBase, name: object, limit: int, remedy: str | None = None
) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers, from 1, and what ends them; other Unicode line ends are text."""
    for number, line in enumerate(iter(lambda: content.readline(limit + 1), b""), start=1):
        if len(line) > limit:
            raise DamagedData(f"{name}:{number}", f"is longer than {limit / 1e6:,.0f} MB", remedy)
        yield number, line


def quoted_rows(content: BufferedIOBase, name: object, limit: int, keep_empty_lines: bool) -> Rows:
    """Rows of CSV, each with the line it begins on; lines end with a line feed, a carriage return, or both."""
    line, size = 1, 0

    def lines() -> Iterator[str]:
        nonlocal size
        for data in iter(lambda: content.readline(limit + 1), b""):
            first, size = size == 0 and line == 1, size + len(data)
            if size > limit:
                why = f"has a row longer than {limit / 1e6:,.0f} MB"
                raise DamagedData(f"{name}:{line}", why, "look for a quote that nothing closes")
            data = data.removeprefix(_BYTE_ORDER_MARK) if first else data
            end = -2 if data.endswith(b"\r\n") else -1
            for part in AFTER_LONE_RETURN.split(data) if data.find(b"\r", 0, end) >= 0 else (data,):
                yield part.decode("latin-1")  # a character for a byte: quotes and commas are the same in UTF-8

    reader = csv.reader(lines(), strict=True)
    try:
        for fields in reader:
            if fields or keep_empty_lines:
                yield line, [field.encode("latin-1") for field in fields]
            line, size = reader.line_num + 1, 0
    except csv.Error as error:
        why = f"broken CSV ({str(error).partition(' - ')[0]})"
        raise DamagedData(f"{name}:{line}", why, "check the quotes of this row") from error


def unquoted_rows(content: BufferedIOBase, name: object, limit: int, keep_empty_lines: bool) -> Rows:
    """Rows of TSV, each with its line."""
    for line, data in numbered_lines(content, name, limit):
        data = _without_end(data.removeprefix(_BYTE_ORDER_MARK) if line == 1 else data)
        if data or keep_empty_lines:
            yield line, data.split(b"\t")


def json_object(text: str, where: str) -> dict[str, Any]:
    """The object on a line of JSON."""
    try:
        value = json.loads(text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", None) or "too deep or too large a value"
        remedy = ONE_A_LINE if text.strip() in ("{", "[") else None
        raise DamagedData(where, f"is not JSON ({reason})", remedy) from error
    if not isinstance(value, dict):
        remedy = ONE_A_LINE if isinstance(value, list) else None
        raise DamagedData(where, f"is {type(value).__name__}, a JSON object is expected", remedy)
    return value


def _without_end(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")


def _lines(file: CorpusFile, content: BufferedIOBase) -> Iterator[tuple[str, bytes]]:
    """Places and lines, without their ends and the byte order mark."""
    for number, line in numbered_lines(content, file.name, LONGEST_RECORD):
        yield f"{file.name}:{number}", _without_end(line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line)


def _json_records(file: CorpusFile, content: BufferedIOBase, keep_empty_lines: bool) -> Iterator[Record]:
    for where, line in _lines(file, content):
        if not keep_empty_lines and not line.strip():
            continue
        text = decoded(line, where)
        fields = json_object(text, where)
        if "\\ud" in text or "\\uD" in text:
            _refuse_half_characters(fields, where)
        yield Record(where, fields)


def _refuse_half_characters(fields: Mapping[str, Any], where: str) -> None:
    """JSON's escapes may leave half of a surrogate pair, which nothing can write."""
    for name, value in fields.items():
        try:
            json.dumps([name, value], ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            why = f"{name!r} holds half of a surrogate pair"
            raise DamagedData(where, why, "write the file as UTF-8 again") from error


def table_rows(
    file: CorpusFile,
    content: BufferedIOBase,
    name: object,
    limit: int,
    width: int | None = None,
    keep_empty_lines: bool = False,
) -> Rows:
    """The rows of a CSV or TSV file, each with its line; one not as wide as the header, or as `width`, is an error.

    Args:
        name: of the file, in errors.
        limit: bytes of a row.
    """
    read_rows, what = (quoted_rows, "fields") if file.kind == "CSV" else (unquoted_rows, "tab-separated fields")
    wanted = "where the header has {}" if width is None else "where {} are expected"
    for line, fields in read_rows(content, name, limit, keep_empty_lines):
        width = len(fields) if width is None else width
        if len(fields) != width:
            raise DamagedData(f"{name}:{line}", f"has {len(fields)} {what} {wanted.format(width)}")
        yield line, fields


def _table_records(
    file: CorpusFile, content: BufferedIOBase, keep_empty_lines: bool, columns: tuple[str, ...] | None
) -> Iterator[Record]:
    header, width = columns, None if columns is None else len(columns)
    rows = table_rows(file, content, file.name, LONGEST_RECORD, width, keep_empty_lines)
    for line, data in rows:
        where = f"{file.name}:{line}"
        fields = tuple(decoded(field, where) for field in data)
        if header is not None:
            yield Record(where, dict(zip(header, fields, strict=True)))
            continue
        header = fields
        if len(set(header)) != len(header):
            raise DamagedData(where, "two columns have the same name")
