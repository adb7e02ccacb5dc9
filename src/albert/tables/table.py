"""Rows of a table, as a task reads them."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from albert.runtime.errors import DamagedData, did_you_mean

WORDS = "words"
TAGS = "tags"
"""The columns of tagged text."""


@dataclass(frozen=True)
class Answer:
    """A gold answer: its text and the position of its first character in the context, None if unknown."""

    text: str
    start: int | None


Field = str | tuple[str, ...]
"""The value of a column in one row: a text, or a list of texts if the format has lists."""


@dataclass(slots=True)
class Row:
    """One row of a file. It is not changed, but not frozen either: a million of them are made in a moment.

    Attributes:
        where: `file:line`, for error messages.
        answers: gold answers of a span task; None if the file has none for any question.
        group: part of the data that is scored separately too.
        nulls: columns whose cell is null or NaN (Excel, Parquet, JSON, data frames). They are not in `fields`, and are
            read as the empty text, which such a cell is in CSV.
    """

    identifier: str
    where: str
    fields: Mapping[str, Field]
    answers: tuple[Answer, ...] | None = ()
    group: str = ""
    nulls: tuple[str, ...] = ()

    def text(self, column: str) -> str:
        """The text in a column; DamagedData if there is no such column, or it holds a list."""
        value = self._value(column)
        if not isinstance(value, str):
            raise DamagedData(self.where, f"has a list in column {column!r} where a text is expected")
        return value

    def texts(self, column: str, separator: str | None = None) -> tuple[str, ...]:
        """The list in a column, or the parts of its text that are not blank, stripped; DamagedData without the column.

        Args:
            separator: between the parts of a text; None for whitespace.
        """
        value = self._value(column)
        if not isinstance(value, str):
            return value
        if separator is None:
            return tuple(value.split())
        return tuple(filter(None, map(str.strip, value.split(separator))))

    def _value(self, column: str) -> Field:
        if column in self.nulls and column not in self.fields:
            return ""
        if column not in self.fields:
            raise DamagedData(self.where, f"has no column {column!r}", did_you_mean(column, self.fields))
        return self.fields[column]


class ColumnRows(Sequence[Row]):
    """Rows that are made when they are read; a column is read without them."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The columns, which every row has."""

    @abstractmethod
    def column(self, name: str) -> list[str]:
        """The value of every row in a column."""


@dataclass(frozen=True, repr=False)
class Table:
    """All rows of a split in file order; `repr` counts them.

    Attributes:
        counts: of what was noticed while reading.
        notes: what was recognised, a line each.
        names: the columns by position, None for one that is ignored.
        doubt: a remedy for a column that is not there, because the first row does not look like names.
        aliases: other names of columns.
    """

    rows: Sequence[Row]
    counts: Mapping[str, int]
    notes: tuple[str, ...] = ()
    names: tuple[str | None, ...] = ()
    doubt: str | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Table: {len(self.rows):,} rows with the columns {', '.join(self.columns)}>"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of all rows that are not null in all of them, in the order of their first appearance."""
        if isinstance(self.rows, ColumnRows):
            return self.rows.names
        return tuple(dict.fromkeys(column for row in self.rows for column in row.fields))

    @property
    def null_columns(self) -> set[str]:
        """The columns that are null in some rows."""
        return set() if isinstance(self.rows, ColumnRows) else {name for row in self.rows for name in row.nulls}

    def values(self, column: str) -> list[Field | None]:
        """The value of every row in a column, None where it is absent."""
        if isinstance(self.rows, ColumnRows):
            is_there = column in self.rows.names
            return [*self.rows.column(column)] if is_there else [None] * len(self.rows)
        return [row.fields.get(column) for row in self.rows]

    def changed(self, column: str, convert: Callable[[Row, Field], Field | None]) -> "Table":
        """The table with other values in a column; None removes one."""
        rows = []
        for row in self.rows:
            value = row.fields.get(column)
            new = None if value is None else convert(row, value)
            if new is value or new == value:
                rows.append(row)
            elif new is None:
                rows.append(replace(row, fields={name: each for name, each in row.fields.items() if name != column}))
            else:
                rows.append(replace(row, fields={**row.fields, column: new}))
        return replace(self, rows=rows)


def convert_rows(rows: Sequence[Row], convert: Callable[[Row], Any]) -> list[Any]:
    """Convert every row; the first error is raised, with the number of further rows that have one."""
    converted = []
    first = None
    more = 0
    for row in rows:
        try:
            converted.append(convert(row))
        except DamagedData as error:
            more += first is not None
            first = first or error
    if first is not None:
        others = f"{more:,} more row{'s' * (more > 1)} like this" if more else None
        raise DamagedData(first.subject, first.why, "; ".join(filter(None, (first.remedy, others))) or None)
    return converted
