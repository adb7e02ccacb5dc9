"""What people write into the cells of a table: lists and objects as text."""

import ast
import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from albert.runtime.errors import DamagedData
from albert.tables.fields import fields_of
from albert.tables.table import Field, Row, Table

_BETTER = "write the rows as .jsonl or .parquet, where lists are lists"


def has_lists(table: Table, column: str) -> bool:
    """Return whether a column has lists, or texts that are written as lists."""
    return any(isinstance(value, tuple) for value in table.values(column)) or lists_are_text(table, column)


def lists_are_text(table: Table, column: str) -> bool:
    """Return whether all texts of a column that are not empty are written as lists, and at least one is there."""
    found = False
    for value in table.values(column):
        if isinstance(value, tuple):
            return False
        value = (value or "").strip()
        if value:
            if not (value.startswith("[") and value.endswith("]")):
                return False
            found = True
    return found


def lists_read(table: Table, columns: Iterable[str | None]) -> Table:
    """The table with lists where columns have lists that are written as text: `['a', 'b']` and `["a", "b"]`."""
    for column in columns:
        if column is not None and lists_are_text(table, column):
            table = table.changed(column, list_of_text)
            note = f"the lists in {column!r} are written as text, and read as lists"
            table = replace(table, notes=(*table.notes, note))
    return table


def list_of_text(row: Row, value: Field) -> Field:
    """The list that a text is, in JSON, in Python, or with words between brackets."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if not text:
        return ()
    if re.search(r"""(['"])\s+(['"])""", re.sub(r"""(['"])\s*,\s*(['"])""", ",", text)):
        raise DamagedData(row.where, f"{text[:40]!r} is a list without commas", _BETTER)
    items: Any = None
    try:
        items = json.loads(text)
    except ValueError:
        try:
            items = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            inner = text[1:-1].strip()
            if inner and not re.search(r"""['"\[\]{}]""", inner):
                items = [part.strip() for part in (inner.split(",") if "," in inner else inner.split())]
    if not isinstance(items, list) or any(isinstance(item, list | dict | tuple) for item in items):
        raise DamagedData(row.where, f"{text[:40]!r} is not a list of texts", _BETTER)
    return tuple(str(item) for item in items if item is not None)


def objects_read(table: Table, columns: Iterable[str]) -> Table:
    """The table with columns with a dot in the name, as those of JSON, for objects that are written as text:
    `{'text': ['red'], 'answer_start': [6]}` and `[{"start": 0, "end": 4, ...}]`."""
    for column in columns:
        values = table.values(column)
        first = next((value for value in values if isinstance(value, str) and value.strip()), "")
        if not isinstance(first, str) or not re.match(r"\s*(\{\s*['\"]|\[\s*\{)", first):
            continue
        rows = []
        for row, value in zip(table.rows, values, strict=True):
            fields = {name: cell for name, cell in row.fields.items() if name != column}
            if isinstance(value, str) and value.strip():
                fields |= fields_of({column: _object_of_text(value, row, column)}, row.where, Counter())
            rows.append(replace(row, fields=fields))
        note = f"the objects in {column!r} are written as text, and read as objects"
        names = tuple(name for name in table.names if name != column)
        names += tuple(dict.fromkeys(name for row in rows for name in row.fields if name not in names))
        table = replace(table, rows=rows, names=names, notes=(*table.notes, note))
    return table


def _object_of_text(text: str, row: Row, column: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        pass
    # as pandas writes the arrays of a Parquet file into CSV
    plain = re.sub(r"array\((\[.*?\])(,\s*dtype=\w+)?\)", r"\1", text, flags=re.DOTALL)
    try:
        return ast.literal_eval(plain.strip())
    except (ValueError, SyntaxError) as error:
        why = f"{text[:40]!r} in column {column!r} is not an object"
        raise DamagedData(row.where, why, "write the rows as .jsonl or .parquet") from error
