"""What a file holds, row by row, and what gives it: the ground that declarations stand on."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from albert.runtime.errors import DamagedData, did_you_mean


@dataclass(frozen=True)
class Answer:
    """A gold answer: its text and where it begins in the context (characters), None when that place is
    unknown.
    """

    text: str
    start: int | None


Field = str | tuple[str, ...]
"""What a column holds in one row: a text, or a list of texts where the format has lists."""


@dataclass(frozen=True)
class Row:
    """One row of a file: its identifier, `file:line` for messages, its fields, gold answers of a span task (None where
    the file says nothing of any), and the part of the data that is scored apart, where there are such.
    """

    identifier: str
    where: str
    fields: Mapping[str, Field]
    answers: tuple[Answer, ...] | None = ()
    group: str = ""

    def text(self, column: str) -> str:
        """The text in a column.

        Raises:
            DamagedData: there is no such column, or it holds a list.
        """
        value = self._value(column)
        if not isinstance(value, str):
            raise DamagedData(self.where, f"has a list in column {column!r} where a text is expected")
        return value

    def texts(self, column: str, separator: str | None = None) -> tuple[str, ...]:
        """The list in a column, or the parts of the text in it: between separators, or between blanks without one.

        An empty text has no parts, and the blanks around a part do not belong to it; a list stays as it is.

        Raises:
            DamagedData: there is no such column.
        """
        value = self._value(column)
        if not isinstance(value, str):
            return value
        return tuple(part.strip() for part in value.split(separator)) if value.strip() else ()

    def _value(self, column: str) -> Field:
        if column not in self.fields:
            raise DamagedData(self.where, f"has no column {column!r}", did_you_mean(column, self.fields))
        return self.fields[column]


@dataclass(frozen=True)
class Rows:
    """All rows of a split in file order, and what had to be counted while reading them."""

    rows: list[Row]
    counts: Mapping[str, int]


@runtime_checkable
class Source(Protocol):
    """Where a task's rows come from."""

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that can be read, e.g. `("train", "dev")`."""
        ...

    def with_files(self, files: Mapping[str, Path]) -> "Source":
        """The same source with other files, in the same layout, for some splits."""
        ...

    def read(self, data: Path, split: str) -> Rows:
        """Every row of a split. Raises MissingInput and DamagedData with the file (and line) named."""
        ...
