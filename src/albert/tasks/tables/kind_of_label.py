"""What a column of labels is: classes, numbers to predict, several labels at once, or a tag for each word."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from albert.tasks.rows import Row
from albert.tasks.tables.table_task import Kind

MANY_VALUES = 20


@dataclass(frozen=True)
class KindFound:
    """Why a kind was inferred, and what to say where it is wrong."""

    why: str
    instead: str


def kind_of_label(rows: Sequence[Row], text: str, label: str) -> tuple[Kind, KindFound]:
    """The kind of task that the values of two columns suggest.

    Lists beside lists are tags of words; lists beside texts are several labels. Numbers are to be predicted when there
    are more than 20 different ones, unless they are whole and without gaps, as the ids of classes are. All else is a
    class.
    """
    lists = [isinstance(row.fields.get(label), tuple) for row in rows if label in row.fields]
    if any(lists):
        if any(isinstance(row.fields.get(text), tuple) for row in rows):
            found = KindFound(f"{text!r} and {label!r} hold lists", "--multi-label")
            return "token-classification", found
        return "multi-label", KindFound(f"{label!r} holds lists", "a column of one label a row")
    values = {str(row.fields[label]).strip() for row in rows if label in row.fields} - {""}
    numbers = [number for value in values if (number := as_number(value)) is not None]
    many = f"{len(values):,} different values in {label!r}"
    if len(numbers) < len(values):
        return "classification", KindFound(f"{many}, not all of them numbers", "--regression, --multi-label")
    if len(values) <= MANY_VALUES:
        return "classification", KindFound(f"{many}, at most {MANY_VALUES}", "--regression, --multi-label")
    if all(number.is_integer() for number in numbers) and max(numbers) - min(numbers) + 1 == len(set(numbers)):
        return "classification", KindFound(f"{many}, whole numbers without gaps", "--regression")
    return "regression", KindFound(f"{many}, all of them numbers", "--classes")


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
