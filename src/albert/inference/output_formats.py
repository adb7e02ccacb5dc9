"""How predicted rows are written: JSON lines, CSV, vectors, tagged text. Parquet is in `albert.tables.arrow`."""

import csv
import datetime
import decimal
import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from albert.runtime.errors import UsageError

Row = Mapping[str, Any]


class OutputFormat:
    """How rows are written: one JSON object per line, or as a derived class says; `beginning` comes before them."""

    beginning = b""
    is_continued = True
    """Whether an output that was stopped is continued: its rows stand one after the other, without an end."""

    def encode(self, rows: Sequence[Row]) -> bytes:
        return "".join(_json(row) + "\n" for row in rows).encode()

    def write(self, batches: Iterable[Sequence[Row]], output: Path) -> None:
        with open(output, "wb") as file:
            file.write(self.beginning)
            for rows in batches:
                file.write(self.encode(rows))


class Csv(OutputFormat):
    """CSV (RFC 4180) with a header; lists and objects are JSON in their cell, null is empty."""

    def __init__(self, columns: Sequence[str], delimiter: str = ",") -> None:
        self.columns = tuple(columns)
        self.delimiter = delimiter
        self.beginning = self._lines([self.columns])

    def encode(self, rows: Sequence[Row]) -> bytes:
        return self._lines([_cell(row.get(name)) for name in self.columns] for row in rows)

    def _lines(self, rows: Iterable[Sequence[str]]) -> bytes:
        text = io.StringIO()
        csv.writer(text, delimiter=self.delimiter).writerows(rows)
        return text.getvalue().encode()


class Vectors(OutputFormat):
    """Only the vectors, float32 [rows, H], in NumPy's format."""

    is_continued = False

    def __init__(self, field: str, rows: int, width: int) -> None:
        self.field = field
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (rows, width)})
        self.beginning = header.getvalue()

    def encode(self, rows: Sequence[Row]) -> bytes:
        return np.asarray([row[self.field] for row in rows], "<f4").tobytes()


class Conll(OutputFormat):
    """A word on each line, the other columns of tagged text, and the predicted tag; a blank line after a sentence."""

    is_continued = False

    def __init__(self, field: str, columns: Sequence[str]) -> None:
        self.field = field
        self.columns = tuple(columns)

    def encode(self, rows: Sequence[Row]) -> bytes:
        lines = []
        for row in rows:
            words = [entry["word"] for entry in row[self.field] or ()]
            others = [row[name] for name in self.columns if len(row[name]) == len(words)]
            tags = [entry["entity"] for entry in row[self.field] or ()]
            for cells in zip(words, *others, tags, strict=True):
                if any(len(cell.split()) != 1 for cell in cells):
                    why = "has a word that is empty or has blanks inside, which .conll cannot hold"
                    raise UsageError(" ".join(words)[:80], why, "write .jsonl")
                lines.append("\t".join(cells))
            lines.append("")
        return "".join(line + "\n" for line in lines).encode()


def as_json_value(value: Any) -> Any:
    """Convert values without a JSON type: vectors to lists, dates to ISO 8601, decimal numbers to strings."""
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
    """JSON; NaN and infinity, which it lacks, become null."""
    try:
        return json.dumps(value, ensure_ascii=False, default=as_json_value, allow_nan=False)
    except ValueError:
        text = json.dumps(value, default=as_json_value)
        return json.dumps(json.loads(text, parse_constant=lambda name: None), ensure_ascii=False)


def escaped(lines: str) -> str:
    """JSON for standard output; characters beyond ASCII are escaped if its encoding may lack them."""
    if (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf"):
        return lines
    return "".join(letter if letter.isascii() else json.dumps(letter)[1:-1] for letter in lines)


def _cell(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    text = _json(value)
    cell = json.loads(text)
    return cell or "" if cell is None or isinstance(cell, str) else text  # dates and decimal numbers without quotes
