"""What a model reads of a row: one text, two texts, a question in a context, or words."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from albert.tables.table import Field, Row


class ReadColumns(ABC):
    """The columns of a row that a model reads."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns, in the order in which they are read."""

    def texts(self, row: Row) -> tuple[str, ...]:
        """The texts of a row, or the words of its only text; DamagedData without a column."""
        return tuple(row.text(column) for column in self.columns)

    def group(self, row: Row) -> tuple[Any, ...]:
        """What rows have in common that a split keeps together: their texts, or their context, without outer blanks."""
        return tuple(without_outer_blanks(row.fields.get(column)) for column in self.columns)


def without_outer_blanks(value: Field | None) -> Field | None:
    """A text as it is compared with others: tokenizers drop the blanks around it. A list stays as it is."""
    return value.strip() if isinstance(value, str) else value


@dataclass(frozen=True)
class Single(ReadColumns):
    """One text: `[CLS] text [SEP]`."""

    text: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.text,)


@dataclass(frozen=True)
class Pair(ReadColumns):
    """Two texts: `[CLS] first [SEP] second [SEP]`; the fields are column names."""

    first: str
    second: str

    @property
    def columns(self) -> tuple[str, ...]:
        return self.first, self.second


@dataclass(frozen=True)
class QuestionInContext(ReadColumns):
    """A question and the text that contains its answer: `[CLS] question [SEP] context [SEP]`."""

    question: str
    context: str

    @property
    def columns(self) -> tuple[str, ...]:
        return self.question, self.context

    def group(self, row: Row) -> tuple[Any, ...]:
        context = without_outer_blanks(row.fields.get(self.context))
        return (context,) if context else super().group(row)


@dataclass(frozen=True)
class Words(ReadColumns):
    """A text split into words: `[CLS] words [SEP]`, in overlapping windows if it is long.

    The column holds a list of words, or a text with whitespace between them.
    """

    words: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.words,)

    def texts(self, row: Row) -> tuple[str, ...]:
        return row.texts(self.words)
