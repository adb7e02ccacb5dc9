"""Records: objects of JSON lines, and rows of a benchmark's TSV, where a tab always ends a field; errors name file and
line. A user's table is opened by `albert.tables.rows`."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedIOBase
from typing import Any

from albert.runtime.errors import DamagedData, did_you_mean
from albert.runtime.json_files import unique_keys
from albert.runtime.words import kind_of_value
from albert.tables.files import Advance, InputFile, open_input_file

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

MAX_RECORD_LENGTH = 128_000_000
"""Bytes; a longer record most likely means that the file has another format."""
JSON_LINES_REMEDY = "JSON lines have one object per line; `jq -c '.[]?' FILE` converts lists and indented objects"
PYTHON_DICT_REMEDY = (
    "it is a Python dict: python -c 'import ast, json, sys; "
    "[print(json.dumps(ast.literal_eval(line))) for line in sys.stdin]' < FILE > NEW.jsonl"
)
AFTER_LONE_RETURN = re.compile(rb"(?<=\r)(?!\n|\Z)")

Lines = Iterator[tuple[int, bytes]]
NumberedRows = Iterator[tuple[int, list[bytes]]]


@dataclass(frozen=True)
class Record:
    """One row: its file and line ("reviews.csv:3") and its fields as they are written."""

    where: str
    fields: dict[str, Any]


def json_line_records(file: InputFile, reached: Advance = lambda position: None) -> Iterator[Record]:
    """Yield every object of JSON lines in UTF-8, in order; empty lines are skipped.

    Args:
        reached: called with the position in the file in bytes.

    Raises:
        MissingInput: it cannot be read.
        DamagedData: the content is invalid, or changes while it is read.
    """
    with open_input_file(file) as (content, raw):
        for number, line in numbered_lines(content, file.name, MAX_RECORD_LENGTH):
            where = f"{file.name}:{number}"
            text = _decode_field(line, where)
            if not line.strip():
                continue
            values = json_object(text, where)
            if "\\ud" in text or "\\uD" in text:
                _check_surrogates(values, where)
            yield Record(where, values)
            reached(raw.tell())


def tab_separated_records(
    file: InputFile,
    columns: tuple[str, ...] | None = None,
    broken: Counter[str] | None = None,
    reached: Advance = lambda position: None,
) -> Iterator[Record]:
    """Yield every row of a benchmark's table in order, where quotes are text; empty lines are skipped.

    Args:
        columns: the names of the columns of a table without a header.
        broken: counts lines that have another number of fields than the header, which are then left out.
        reached: called with the position in the file in bytes.

    Raises:
        MissingInput, DamagedData: see `json_line_records`.
    """
    with open_input_file(file) as (content, raw):
        rows = _tab_separated_rows(content, file.name, columns, broken)
        for record in _table_records(file.name, rows, columns):
            yield record
            reached(raw.tell())


def _decode_field(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DamagedData(where, f"is not UTF-8: byte {error.start}", "convert the file to UTF-8") from error


def numbered_lines(content: BufferedIOBase, name: object, limit: int, remedy: str | None = None) -> Lines:
    """Yield lines with their numbers, from 1, without line ends and byte order mark; only a line feed ends a line."""
    for number, line in enumerate(iter(lambda: content.readline(limit + 1), b""), start=1):
        if len(line) > limit:
            raise DamagedData(f"{name}:{number}", f"is longer than {limit / 1e6:,.0f} MB", remedy)
        line = line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line
        yield number, line.removesuffix(b"\n").removesuffix(b"\r")


def json_object(text: str, where: str) -> dict[str, Any]:
    """Parse a line that holds a JSON object."""
    try:
        value = json.loads(text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", None) or "too deep or too large a value"
        remedy = JSON_LINES_REMEDY if text.strip() in ("{", "[") else None
        if re.match(r"\s*\{u?'", text):
            remedy = PYTHON_DICT_REMEDY
        raise DamagedData(where, f"is not JSON ({reason})", remedy) from error
    if not isinstance(value, dict):
        remedy = JSON_LINES_REMEDY if isinstance(value, list) else None
        raise DamagedData(where, f"is {kind_of_value(value)}, a JSON object {{...}} is expected", remedy)
    return value


def _tab_separated_rows(
    content: BufferedIOBase, name: object, header: tuple[str, ...] | None, broken: Counter[str] | None
) -> NumberedRows:
    """Yield rows with their lines; those that are not as wide as the header are errors, or counted in `broken`."""
    width = None if header is None else len(header)
    wanted = "the header has {}" if header is None else "{} are expected"
    for line, data in numbered_lines(content, name, MAX_RECORD_LENGTH):
        fields = data.split(b"\t")
        if fields == [b""]:
            continue
        width = len(fields) if width is None else width
        if len(fields) == width:
            yield line, fields
        elif broken is None:
            why = f"has {len(fields)} tab-separated fields where {wanted.format(width)}"
            raise DamagedData(f"{name}:{line}", why)
        else:
            broken["broken_lines"] += 1


def _table_records(name: str, rows: NumberedRows, header: tuple[str, ...] | None) -> Iterator[Record]:
    for line, data in rows:
        where = f"{name}:{line}"
        values = tuple(_decode_field(value, where) for value in data)
        if header is not None:
            yield Record(where, dict(zip(header, values, strict=True)))
            continue
        header = values
        if len(set(header)) != len(header):
            raise DamagedData(where, "two columns have the same name")


def _check_surrogates(values: dict[str, Any], where: str) -> None:
    """Raise DamagedData if an escape left half of a surrogate pair, which cannot be written."""
    for name, value in values.items():
        try:
            json.dumps([name, value], ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            why = f"{name!r} holds half of a surrogate pair"
            raise DamagedData(where, why, "write the file as UTF-8 again") from error


def suggest_name(name: str, names: Iterable[object]) -> str:
    """`did_you_mean` for names from a file, which may hold any characters."""
    hint = did_you_mean(name, [repr(str(known))[1:-1] for known in names])
    return f"{hint} (--text-field)" if hint else ""


def check_column(source: object, columns: Sequence[str | None], name: str) -> None:
    """Raise DamagedData unless exactly one column has the name."""
    if columns.count(name) > 1:
        raise DamagedData(source, f"two columns are named {name!r}")
    if name not in columns:
        raise DamagedData(source, f"has no column {name!r}", suggest_name(name, columns))
