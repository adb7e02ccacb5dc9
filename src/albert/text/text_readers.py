"""Readers of text formats: plain text, CSV, TSV and JSON lines; very long documents are divided."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedIOBase

from albert.runtime.errors import DamagedData
from albert.runtime.json_files import RepeatedKey, each_key_once
from albert.text.readers import (
    NULL,
    CorpusFile,
    CorpusReport,
    Document,
    Reading,
    decode,
    decode_from_file,
    open_corpus_file,
    repair,
    similar_name,
    size_in_bytes,
)

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


def documents_of(text: str, source: str, reading: Reading, report: CorpusReport) -> Iterator[Document]:
    """A document, or its pieces if it is longer than `reading.max_document_bytes`."""
    limit = reading.max_document_bytes
    if len(text) <= limit // 4 or size_in_bytes(text) <= limit:
        yield Document(text, source)
        return
    for number, piece in enumerate(pieces(io.BytesIO(text.encode("utf-8")).read, limit), start=1):
        report.cuts += number > 1
        yield Document(piece.decode("utf-8"), source if number == 1 else f"{source}#{number}")


_AFTER_LONE_RETURN = re.compile(rb"(?<=\r)(?!\n|\Z)")


@dataclass(frozen=True)
class Stretch:
    """Some bytes of a file.

    Attributes:
        data: the bytes.
        offset: how many stand before them.
        line: the line they begin with, from 1.
        part: 2 and more of what goes on from the stretch before, because it is too long to be one.
    """

    data: bytes
    offset: int
    line: int
    part: int = 1


def read_plain_text(
    file: CorpusFile, reading: Reading, report: CorpusReport, reached: Callable[[int], None]
) -> Iterator[Document]:
    """The documents of a text file (see `albert.text.readers.Reader`)."""
    divide = {"file": _whole, "blank-line": _blocks, "line": _filled_lines}[reading.documents]
    with open_corpus_file(file) as (content, raw):
        for stretch in divide(content, reading.max_document_bytes):
            text = decode_from_file(stretch.data, file.path, stretch.offset, reading, report)
            report.cuts += stretch.part > 1
            if text is not None:
                line = "" if reading.documents == "file" else f":{stretch.line}"
                yield Document(text, file.name + line + (f"#{stretch.part}" if stretch.part > 1 else ""))
            reached(raw.tell())


def _whole(content: BufferedIOBase, limit: int) -> Iterator[Stretch]:
    offset = 0
    for part, data in enumerate(pieces(content.read, limit), start=1):
        yield Stretch(data, offset, 1, part)
        offset += len(data)


def _filled_lines(content: BufferedIOBase, limit: int) -> Iterator[Stretch]:
    offset, line, part = 0, 1, 1
    for data, ended in _lines(content, limit):
        if not data.isspace():
            yield Stretch(data, offset, line, part)
        offset += len(data)
        line, part = (line + 1, 1) if ended else (line, part + 1)


def _blocks(content: BufferedIOBase, limit: int) -> Iterator[Stretch]:
    """Filled lines that follow one another."""
    block: list[bytes] = []
    offset = size = 0  # of the block
    first = line = part = 1
    for data, ended in _lines(content, limit):
        blank = data.isspace()
        if block and (blank or size + len(data) > limit):
            yield Stretch(b"".join(block), offset, first, part)
            part = 1 if blank else part + 1
            block, offset, size = [], offset + size, 0
        if blank:
            offset += len(data)
        else:
            first = first if block else line
            block.append(data)
            size += len(data)
        line += ended
    if block:
        yield Stretch(b"".join(block), offset, first, part)


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
            for line in _AFTER_LONE_RETURN.split(data):
                yield line, line.endswith((b"\n", b"\r"))
        else:
            yield data, data.endswith(b"\n")


# --------------------------------------------------------------------------------------------------------------------
# Documents of tables in text: CSV with quotes (RFC 4180), and TSV without any, where a tab always ends a field.
#
# A header names the columns; every row is a document.

csv.field_size_limit(2**31 - 1)  # the length of rows is limited here

Rows = Iterator[tuple[int, list[bytes]]]


def read_delimited(
    file: CorpusFile, reading: Reading, report: CorpusReport, reached: Callable[[int], None]
) -> Iterator[Document]:
    """The documents of a table (see `albert.text.readers.Reader`)."""
    with open_corpus_file(file) as (content, raw):
        rows = (quoted_rows if file.kind == "CSV" else unquoted_rows)(content, file, reading.max_record_bytes)
        columns = column = 0
        for line, fields in rows:
            place = f"{file.path}:{line}"
            if not columns:
                columns, column = len(fields), _column(fields, file, place, reading.text_field)
                continue
            if len(fields) != columns:
                raise DamagedData(place, f"has {len(fields)} fields where the header has {columns}")
            text = decode(fields[column], place, 0, reading, report)
            if text is not None:
                yield from documents_of(text, f"{file.name}:{line}", reading, report)
            reached(raw.tell())


def _column(header: list[bytes], file: CorpusFile, place: str, name: str) -> int:
    strictly = Reading(), CorpusReport()
    first, *others = header
    names = [
        decode_from_file(first, file.path, 0, *strictly),
        *(decode(other, place, 0, *strictly) for other in others),
    ]
    if names.count(name) == 1:
        return names.index(name)
    if name in names:
        raise DamagedData(place, f"two columns are named {name!r}")
    raise DamagedData(place, f"has no column {name!r}", similar_name(name, names))


def quoted_rows(content: BufferedIOBase, file: CorpusFile, limit: int) -> Rows:
    """Rows of CSV, each with the line it begins on."""
    line, size = 1, 0

    def lines() -> Iterator[str]:
        nonlocal size
        for data in iter(lambda: content.readline(limit + 1), b""):
            first, size = size == 0 and line == 1, size + len(data)
            if size > limit:
                why = f"has a row longer than {limit / 1e6:,.0f} MB"
                raise DamagedData(f"{file.path}:{line}", why, "look for a quote that nothing closes")
            data = data.removeprefix(b"\xef\xbb\xbf") if first else data
            yield data.decode("latin-1")  # a character for a byte: quotes and commas are the same in UTF-8

    reader = csv.reader(lines(), strict=True)
    try:
        for fields in reader:
            if fields:  # an empty line is no row
                yield line, [field.encode("latin-1") for field in fields]
            line, size = reader.line_num + 1, 0
    except csv.Error as error:
        raise DamagedData(
            f"{file.path}:{line}", f"broken CSV ({str(error).partition(' - ')[0]})", "check the quotes of this row"
        ) from error


def unquoted_rows(content: BufferedIOBase, file: CorpusFile, limit: int) -> Rows:
    """Rows of TSV, each with its line."""
    for line, data in enumerate(iter(lambda: content.readline(limit + 1), b""), start=1):
        if len(data) > limit:
            raise DamagedData(f"{file.path}:{line}", f"is longer than {limit / 1e6:,.0f} MB")
        if data := data.removesuffix(b"\n").removesuffix(b"\r"):
            yield line, data.split(b"\t")


# --------------------------------------------------------------------------------------------------------------------
# Documents of JSON lines: each line an object with the text in one of its fields.

ONE_A_LINE = "JSON lines hold one object a line; of a list or indented objects `jq -c '.[]?' FILE` makes them"


def read_json_lines(
    file: CorpusFile, reading: Reading, report: CorpusReport, reached: Callable[[int], None]
) -> Iterator[Document]:
    """The documents of a file of JSON lines (see `albert.text.readers.Reader`)."""
    offset, limit = 0, reading.max_record_bytes
    with open_corpus_file(file) as (content, raw):
        for number, line in enumerate(iter(lambda: content.readline(limit + 1), b""), start=1):
            place = f"{file.path}:{number}"
            if len(line) > limit:
                raise DamagedData(place, f"is longer than {limit / 1e6:,.0f} MB", ONE_A_LINE)
            text = decode_from_file(line, file.path, offset, reading, report)
            offset += len(line)
            if text is None or not text or text.isspace():
                continue  # an empty line between records is no record
            value = _field(text, reading.text_field, place)
            if value is None:
                report.drop(NULL, 0)
            else:
                yield from documents_of(repair(value, report), f"{file.name}:{number}", reading, report)
            reached(raw.tell())


def _field(line: str, name: str, place: str) -> str | None:
    try:
        record = json.loads(line, object_pairs_hook=each_key_once)
    except RepeatedKey as error:
        raise DamagedData(place, f"is not JSON ({error})") from error
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", None) or "too deep or too large a value"
        remedy = ONE_A_LINE if line.strip() in ("{", "[") else None
        raise DamagedData(place, f"is not JSON ({reason})", remedy) from error
    if not isinstance(record, dict):
        remedy = ONE_A_LINE if isinstance(record, list) else None
        raise DamagedData(place, f"is {type(record).__name__}, a JSON object is expected", remedy)
    if name not in record:
        raise DamagedData(place, f"has no field {name!r}", similar_name(name, record))
    value = record[name]
    if value is not None and not isinstance(value, str):
        raise DamagedData(place, f"field {name!r} is {type(value).__name__}, text is expected")
    return value
