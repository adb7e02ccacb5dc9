"""Rows to the bytes of a file: JSON lines, CSV, Parquet, or vectors alone as numpy's `.npy`.

What is written row after row can be cut off at a row and gone on with; where a format has more than its rows, a head or
a foot, that is made at the end.
"""

import datetime
import decimal
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from albert.inference.files.asking import Value
from albert.runtime.errors import UsageError
from albert.runtime.late_modules import load_by_name

Row = Mapping[str, Any]
ENDINGS = (".jsonl", ".csv", ".parquet", ".npy")


@runtime_checkable
class OutputFormat(Protocol):
    """How rows are written."""

    @property
    def beginning(self) -> bytes:
        """What stands before the first row."""
        ...

    def encode(self, rows: Sequence[Row]) -> bytes:
        """Some rows."""
        ...

    def finish(self, written: Path, output: Path) -> None:
        """Make the file of what `encode` gave, which stays as it is."""
        ...


class JsonLines:
    """One object a line; numbers, lists and objects as they are."""

    beginning = b""

    def encode(self, rows: Sequence[Row]) -> bytes:
        """One line a row."""
        return "".join(_json(row) + "\n" for row in rows).encode()

    def finish(self, written: Path, output: Path) -> None:
        """The lines are the file."""
        _same_file(written, output)


class Csv:
    """Comma-separated with quotes (RFC 4180) and a header; lists and objects are JSON in their cell, null is empty."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        self.beginning = self._line(self.columns)

    def encode(self, rows: Sequence[Row]) -> bytes:
        """One line a row, a field that it lacks being empty."""
        return b"".join(self._line([_cell(row.get(name)) for name in self.columns]) for row in rows)

    def finish(self, written: Path, output: Path) -> None:
        """The lines are the file."""
        _same_file(written, output)

    def _line(self, cells: Sequence[str]) -> bytes:
        quoted = [_quoted(cell) if any(sign in cell for sign in ',"\r\n') else cell for cell in cells]
        return (",".join(quoted) or '""').encode() + b"\r\n"  # a line with nothing on it would be no row


class Vectors:
    """The vectors alone, float32 [rows, H], as `numpy.load` opens them."""

    beginning = b""

    def __init__(self, field: str, width: int) -> None:
        self.field, self.width = field, width

    def encode(self, rows: Sequence[Row]) -> bytes:
        """The numbers, in the machine-independent order of bytes."""
        return np.asarray([row[self.field] for row in rows], "<f4").tobytes()

    def finish(self, written: Path, output: Path) -> None:
        """Numpy's head, then the numbers."""
        shape = (written.stat().st_size // (4 * self.width), self.width)
        with open(written, "rb") as numbers, open(output, "wb") as file:
            head = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, head)
            shutil.copyfileobj(numbers, file, 1 << 20)


def output_format(
    path: Path | None, columns: Sequence[str], gives: Mapping[str, Value], schema: Any, prefix: str, width: int
) -> OutputFormat:
    """The format that a name ends in; JSON lines without a name.

    Args:
        path: the output.
        columns: the input's, in the order of their first rows.
        gives: the fields of an answer, under their names in the output.
        schema: of the input's columns, for Parquet.
        prefix: of the fields of answers.
        width: numbers of a vector.

    Raises:
        UsageError: an unknown ending, or `.npy` for something that is no vector.
        Unavailable: Parquet, without pyarrow.
    """
    match path.suffix.lower() if path is not None else ".jsonl":
        case ".jsonl":
            return JsonLines()
        case ".csv":
            return Csv([*columns, *gives])
        case ".parquet":
            return load_by_name("albert.inference.files.parquet_output", "data").Parquet(schema, gives)
        case ".npy" if f"{prefix}embedding" in gives:
            return Vectors(f"{prefix}embedding", width)
        case ".npy":
            raise UsageError(path, "holds vectors alone", "say --ask embed, or use another ending")
    raise UsageError(path, "unknown kind of output", f"use {', '.join(ENDINGS)}")


def as_json_value(value: Any) -> Any:
    """What JSON has no word for: vectors as lists, dates as ISO 8601 says, decimal numbers as they are written.

    Raises:
        UsageError: something else, bytes say.
    """
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, datetime.date | datetime.time):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, decimal.Decimal | datetime.timedelta):
        return str(value)
    raise UsageError(
        f"a field with {type(value).__name__}", "has no form in text", "write .parquet, or drop the column"
    )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=as_json_value)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else _json(value)


def _quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"'


def _same_file(written: Path, output: Path) -> None:
    """One content under two names, until the first one goes."""
    try:
        os.link(written, output)
    except OSError:  # a file system without such links
        shutil.copyfile(written, output)
