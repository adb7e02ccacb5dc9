"""Records of a file: rows of CSV, TSV and Parquet, objects of JSON lines, lines of text; packed or not.

Corpora, tables of tasks and the input of predictions are all read by this. CSV has quotes (RFC 4180); TSV has none, a
tab always ends a field. What cannot be read is an error that names file and line."""

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from io import BufferedIOBase
from typing import Any

from albert.runtime.environment import load_by_name
from albert.runtime.errors import DamagedData
from albert.runtime.json_files import each_key_once
from albert.text.readers import CorpusFile, open_corpus_file

csv.field_size_limit(2**31 - 1)  # the length of rows is limited here

LONGEST_RECORD = 128_000_000
"""Bytes; a longer one is most likely a file of another kind."""
ONE_A_LINE = "JSON lines hold one object a line; of a list or indented objects `jq -c '.[]?' FILE` makes them"
AFTER_LONE_RETURN = re.compile(rb"(?<=\r)(?!\n|\Z)")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

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
        file: its name begins the places of the records.
        text_field: what the text of a plain line is called.
        keep_empty_lines: take them for rows like others, which most often makes them errors.
        class_names: whether Parquet columns that `datasets` wrote as numbers of named classes are read by these names.
        reached: is told how many bytes of the file are behind.

    Raises:
        MissingInput: it cannot be read.
        DamagedData: it is not what its name says, or changes while it is read.
        Unavailable: Parquet, without pyarrow.
    """
    if file.kind == "Parquet":
        records = load_by_name("albert.text.arrow_readers", "data").read_parquet_records
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
    """The text of some bytes.

    Raises:
        DamagedData: they are not UTF-8.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DamagedData(where, f"is not UTF-8: byte {error.start}", "convert the file to UTF-8") from error


def numbered_lines(
    content: BufferedIOBase, name: object, limit: int, remedy: str | None = None
) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers, from 1, and what ends them; other Unicode line ends are text.

    Raises:
        DamagedData: one is longer than `limit` bytes.
    """
    for number, line in enumerate(iter(lambda: content.readline(limit + 1), b""), start=1):
        if len(line) > limit:
            raise DamagedData(f"{name}:{number}", f"is longer than {limit / 1e6:,.0f} MB", remedy)
        yield number, line


def quoted_rows(content: BufferedIOBase, name: object, limit: int, keep_empty_lines: bool = False) -> Rows:
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


def unquoted_rows(content: BufferedIOBase, name: object, limit: int, keep_empty_lines: bool = False) -> Rows:
    """Rows of TSV, each with its line."""
    for line, data in numbered_lines(content, name, limit):
        data = _without_end(data)
        if data or keep_empty_lines:
            yield line, data.split(b"\t")


def json_object(text: str, where: str) -> dict[str, Any]:
    """The object on a line of JSON.

    Raises:
        DamagedData: it is none, or has a key twice.
    """
    try:
        value = json.loads(text, object_pairs_hook=each_key_once)
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


def _table_records(
    file: CorpusFile, content: BufferedIOBase, keep_empty_lines: bool, columns: tuple[str, ...] | None
) -> Iterator[Record]:
    read_rows, what = (quoted_rows, "fields") if file.kind == "CSV" else (unquoted_rows, "tab-separated fields")
    header = None if columns is None else list(columns)
    for line, fields in read_rows(content, file.name, LONGEST_RECORD, keep_empty_lines):
        where = f"{file.name}:{line}"
        if line == 1:
            fields = [*(field.removeprefix(_BYTE_ORDER_MARK) for field in fields[:1]), *fields[1:]]
        if header is None:
            header = [decoded(field, where) for field in fields]
            if len(set(header)) != len(header):
                raise DamagedData(where, "two columns have the same name")
        elif len(fields) != len(header):
            wanted = f"where the header has {len(header)}" if columns is None else f"where {len(header)} are expected"
            raise DamagedData(where, f"has {len(fields)} {what} {wanted}")
        else:
            yield Record(where, {name: decoded(field, where) for name, field in zip(header, fields, strict=True)})
