"""Numbers as people write them: with a decimal comma, a currency, or signs of thousands."""

import re
from collections.abc import Iterable

from albert.runtime.errors import DamagedData, UsageError
from albert.tables.fields import as_number
from albert.tables.table import Field, Row, Table
from albert.tasks.from_table import Inferred
from albert.tasks.table_task import TableTask

COMMA_NUMBER = re.compile(r"[+-]?\d+,\d+")
_IN_THOUSANDS = re.compile(r"[1-9]\d{0,2}\.\d{3}")
"""A number that may be one of thousands: 6.411."""
_WRITTEN = re.compile(r"[-+]?\s*[$€£¥₹]?\s*[-+]?\d[\d.,'’\u00a0\u202f ]*\s*(%|€|\$|£|¥|₹|[A-Za-z]{2,3})?")
_PLAIN_NUMBERS = "write digits with a decimal point, without signs of thousands, currencies and units: 1164.5"
_DECIMAL_COMMA = "say reading.decimal=, if the comma is the decimal sign; otherwise " + _PLAIN_NUMBERS


def looks_like_a_written_number(text: str) -> bool:
    """Return whether a text is a number with a currency, a unit, or separators of thousands."""
    return _WRITTEN.fullmatch(text) is not None and not re.fullmatch(r"0\d+|\d+([._]\d+){2,}", text)


def refuse_comma_numbers(values: Iterable[str], column: str) -> None:
    """Raise UsageError for labels that are numbers, of which some have a comma."""
    example = None
    for value in values:
        if COMMA_NUMBER.fullmatch(value):
            example = example or value
        elif as_number(value) is None:
            return
    if example is not None:
        raise UsageError(f"column {column!r}", f"holds numbers with a comma, such as {example!r}", _DECIMAL_COMMA)


def decimal_points(task: TableTask, table: Table, inferred: list[Inferred]) -> Table:
    """The table with a point in the place of the decimal comma of its numbers, if the task says that they have one."""
    column = task.label
    if task.decimal != "," or column is None:
        return table
    texts = (value for value in table.values(column) if isinstance(value, str))
    example = next((text for text in texts if COMMA_NUMBER.fullmatch(text)), None)
    if example is not None:
        point = example.replace(",", ".")
        why = "the decimal sign is a comma"
        inferred.append(Inferred("numbers", f"{example} as {point}", why, "reading.decimal=."))

    def convert(row: Row, value: Field) -> Field:
        if not isinstance(value, str):
            return value
        if "." in value and as_number(value.replace(",", "")) is not None:
            why = f"{value!r} in column {column!r} has a point, though the decimal sign is a comma"
            raise DamagedData(row.where, why, _PLAIN_NUMBERS)
        return value.replace(",", ".") if COMMA_NUMBER.fullmatch(value) else value

    return table.changed(column, convert)


def refuse_written_numbers(table: Table, column: str) -> None:
    """Raise UsageError for numbers to predict with a comma, a currency or a unit."""
    values = [value for value in table.values(column) if isinstance(value, str) and value]
    written = [value for value in values if as_number(value) is None and looks_like_a_written_number(value)]
    if written:
        remedy = _DECIMAL_COMMA if COMMA_NUMBER.fullmatch(written[0]) else _PLAIN_NUMBERS
        raise UsageError(f"column {column!r}", f"{written[0]!r} is not a plain number", remedy)


def refuse_signs_of_thousands(task: TableTask, table: Table, column: str) -> None:
    """Raise UsageError for numbers such as 6.411 beside 950, unless the task says what the point is."""
    if task.decimal is not None:
        return
    values = [value for value in table.values(column) if isinstance(value, str) and value]
    in_thousands = [value for value in values if _IN_THOUSANDS.fullmatch(value)]
    others = [value for value in values if not _IN_THOUSANDS.fullmatch(value)]
    if in_thousands and others and all(value.isdecimal() and len(value) <= 3 for value in others):
        why = f"{in_thousands[0]!r} beside {others[0]!r} may have a decimal point or a sign of thousands"
        thousands = in_thousands[0].replace(".", "")
        remedy = f"say reading.decimal=. if it is decimal, otherwise write {thousands}"
        raise UsageError(f"column {column!r}", why, remedy)
