"""What a column of labels is: classes, numbers to predict, several labels at once, or a tag for each word."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from albert.runtime.errors import UsageError
from albert.tasks.rows import Row
from albert.tasks.tables.table_task import Kind

MANY_VALUES = 20
"""Of so many different numbers each may be a class."""
MOST_CLASSES = 200
"""Of more different whole numbers none is taken for the id of a class."""


@dataclass(frozen=True)
class KindFound:
    """Why a kind was inferred, and what to say where it is wrong."""

    why: str
    instead: str


def kind_of_label(rows: Sequence[Row], text: str, label: str) -> tuple[Kind, KindFound]:
    """The kind of task that the values of two columns suggest.

    Lists beside lists are tags of words; lists beside texts are several labels. Numbers are to be predicted when there
    are more than 20 different ones, and also fewer ones with fractions of which hardly any is there twice. All else is
    a class. More than 20 whole numbers may be ids of classes as well: from 0 or 1 on, at most 200 of them, without
    gaps, mostly more than one row each. Whoever has such a column must say which it is.

    Raises:
        UsageError: whole numbers that may be either.
    """
    lists = [isinstance(row.fields.get(label), tuple) for row in rows if label in row.fields]
    if any(lists):
        if any(isinstance(row.fields.get(text), tuple) for row in rows):
            found = KindFound(f"{text!r} and {label!r} hold lists", "--multi-label")
            return "token-classification", found
        return "multi-label", KindFound(f"{label!r} holds lists", "a column of one label a row")
    given = [value for row in rows if label in row.fields and (value := str(row.fields[label]).strip())]
    values = set(given)
    numbers = {number for value in values if (number := as_number(value)) is not None}
    many = f"{len(values):,} different values in {label!r}"
    if any(as_number(value) is None for value in values):
        return "classification", KindFound(f"{many}, not all of them numbers", "--regression, --multi-label")
    whole = all(number.is_integer() for number in numbers)
    repeated = len(given) >= 2 * len(values)
    if len(values) <= MANY_VALUES and (whole or repeated):
        return "classification", KindFound(f"{many}, at most {MANY_VALUES}", "--regression, --multi-label")
    if not whole:
        return "regression", KindFound(f"{many}, numbers with fractions", "--classes")
    low, high = min(numbers), max(numbers)
    without_gaps = low in (0, 1) and high - low + 1 == len(numbers)
    if without_gaps and repeated and len(numbers) <= MOST_CLASSES:
        why = f"holds every whole number from {low:.0f} to {high:.0f}, which may be classes or numbers to predict"
        raise UsageError(f"column {label!r}", why, "say --classes or --regression")
    return "regression", KindFound(f"{many}, whole numbers from {low:.0f} to {high:.0f}", "--classes")


def as_number(value: str) -> float | None:
    """The number that a text is, None when it is none; NaN is one."""
    try:
        return float(value)
    except ValueError:
        return None


def label_values(rows: Sequence[Row], column: str, kind: Kind, separator: str | None) -> Iterator[str]:
    """Every label of every row, one by one; empty ones are none."""
    for row in rows:
        value = row.fields.get(column)
        if value is None:
            continue
        if kind == "classification":
            if isinstance(value, str) and value.strip():
                yield value
        else:
            yield from (item for item in row.texts(column, separator) if item)


def sort_labels(labels: set[str]) -> tuple[str, ...]:
    """Labels in the order of their ids: by value when every label is a finite number, else as text."""
    if all((number := as_number(label)) is not None and math.isfinite(number) for label in labels):
        return tuple(sorted(labels, key=lambda label: (float(label), label)))
    return tuple(sorted(labels))
