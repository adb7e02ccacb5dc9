"""Rows of a file one by one, each with its place: lines of text, JSON lines, CSV, TSV, Parquet, packed ones too.

Nothing is skipped but empty lines of JSON and of tables; what cannot be read is an error that names file and line.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedIOBase
from typing import Any

from albert.runtime.errors import DamagedData
from albert.runtime.late_modules import load_by_name
from albert.runtime.strict_json import each_key_once
from albert.text.readers.corpus_files import CorpusFile
from albert.text.readers.delimited_text import quoted_rows, unquoted_rows
from albert.text.readers.unpacking import open_corpus_file

LONGEST_RECORD = 128_000_000
"""Bytes; a longer one is most likely a file of another kind."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Record:
    """One row: where it stands ("reviews.csv:3"), and its fields as they are written."""

    where: str
    fields: dict[str, Any]


def read_records(file: CorpusFile, text_field: str) -> Iterator[Record]:
    """Every row of a file, in its order.

    Args:
        file: what to read.
        text_field: what the text of a plain line is called.

    Raises:
        MissingInput: it cannot be read.
        DamagedData: it is not what its name says, or changes while it is read.
        Unavailable: Parquet, without pyarrow.
    """
    if file.kind == "Parquet":
        yield from load_by_name("albert.inference.files.parquet_records", "data").read_parquet(file)
        return
    with open_corpus_file(file) as (content, _):
        match file.kind:
            case "CSV" | "TSV":
                yield from _table_rows(file, content)
            case "JSON lines":
                yield from _json_rows(file, content)
            case _:
                for where, line in _lines(file, content):
                    yield Record(where, {text_field: decoded(line, where)})


def decoded(data: bytes, where: str) -> str:
    """The text of some bytes.

    Raises:
        DamagedData: they are not UTF-8.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DamagedData(where, f"is not UTF-8: byte {error.start}", "convert the file to UTF-8") from error


def _lines(file: CorpusFile, content: BufferedIOBase) -> Iterator[tuple[str, bytes]]:
    """The lines without their ends; other Unicode line ends are text."""
    for number, line in enumerate(iter(lambda: content.readline(LONGEST_RECORD + 1), b""), start=1):
        where = f"{file.name}:{number}"
        if len(line) > LONGEST_RECORD:
            raise DamagedData(where, f"is longer than {LONGEST_RECORD / 1e6:,.0f} MB")
        line = line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line
        yield where, line.removesuffix(b"\n").removesuffix(b"\r")


def _json_rows(file: CorpusFile, content: BufferedIOBase) -> Iterator[Record]:
    for where, line in _lines(file, content):
        if not line.strip():
            continue
        text = decoded(line, where)
        try:
            fields = json.loads(text, object_pairs_hook=each_key_once)
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", None) or "too deep or too large a value"
            raise DamagedData(where, f"is not JSON ({reason})", "one object a line is expected") from error
        if not isinstance(fields, dict):
            raise DamagedData(where, f"is {type(fields).__name__}, a JSON object is expected")
        if "\\u" in text:
            _refuse_half_characters(fields, where)
        yield Record(where, fields)


def _refuse_half_characters(fields: dict[str, Any], where: str) -> None:
    """JSON's escapes may leave half of a surrogate pair, which nothing can write."""
    try:
        json.dumps(fields, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise DamagedData(where, "holds half of a surrogate pair", "write the file as UTF-8 again") from error


def _table_rows(file: CorpusFile, content: BufferedIOBase) -> Iterator[Record]:
    rows = (quoted_rows if file.kind == "CSV" else unquoted_rows)(content, file, LONGEST_RECORD)
    columns: list[str] = []
    for line, fields in rows:
        where = f"{file.name}:{line}"
        if not columns:
            fields[0] = fields[0].removeprefix(_BYTE_ORDER_MARK)
            columns = [decoded(field, where) for field in fields]
            if len(set(columns)) != len(columns):
                raise DamagedData(where, "two columns have the same name")
        elif len(fields) != len(columns):
            raise DamagedData(where, f"has {len(fields)} fields where the header has {len(columns)}")
        else:
            yield Record(where, {name: decoded(field, where) for name, field in zip(columns, fields, strict=True)})
