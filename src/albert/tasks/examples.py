"""Rows to examples: the columns a task names, its labels as ids, its scores as numbers, each checked."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from albert.runtime.errors import DamagedData, did_you_mean
from albert.tasks.task import Answer, Choice, Option, Pair, QuestionInContext, Row, Score, Single, Span, Task


@dataclass(frozen=True)
class Example:
    """One thing to learn from or to answer.

    `texts` holds one or two texts (question first, then context). `target` is a label id, the place of an option, or a
    number, and None for a span, whose gold is `answers`. Examples with the same `group` are scored together too.
    """

    identifier: str
    where: str
    texts: tuple[str, ...]
    target: int | float | None = None
    answers: tuple[Answer, ...] = ()
    options: tuple[str, ...] = ()
    group: str = ""


def is_labelled(task: Task, rows: Sequence[Row]) -> bool:
    """Whether the rows say what the right answers are: as soon as one of them does."""
    if isinstance(task.target, Span):
        return any(row.answers is not None for row in rows)
    return any(task.target.column in row.fields for row in rows)


def to_examples(task: Task, rows: list[Row], labelled: bool = True) -> list[Example]:
    """One example per row, in order; those of rows that are not labelled have no target and no answers.

    Raises:
        DamagedData: a column is absent, a label unknown, a score no number or out of range; the row is named.
    """
    columns = text_columns(task)
    asked = (task.target.column,) if labelled and not isinstance(task.target, Span) else ()
    options = task.target.options if isinstance(task.target, Option) else ()
    needed = (*columns, *options, *asked)
    labels = task.target.labels if isinstance(task.target, Choice) else options
    label_ids = {label: index for index, label in enumerate(labels)}
    examples = []
    for row in rows:
        _check_columns(needed, row)
        texts = tuple(row.fields[column] for column in columns)
        if labelled and row.answers is None:
            raise DamagedData(row.where, "has no 'answers'", "expected the SQuAD JSON layout")
        target = _target(task, row, label_ids) if labelled else None
        offered = tuple(row.fields[option] for option in options)
        examples.append(Example(row.identifier, row.where, texts, target, row.answers or (), offered, row.group))
    return examples


def text_columns(task: Task) -> tuple[str, ...]:
    """The columns that hold the task's text or texts."""
    match task.inputs:
        case Single(text):
            return (text,)
        case Pair(first, second):
            return first, second
        case QuestionInContext(question, context):
            return question, context


def _check_columns(needed: tuple[str, ...], row: Row) -> None:
    for column in needed:
        if column not in row.fields:
            raise DamagedData(row.where, f"has no column {column!r}", did_you_mean(column, row.fields))


def _target(task: Task, row: Row, label_ids: dict[str, int]) -> int | float | None:
    match task.target:
        case Choice(labels, column):
            value = row.fields[column]
            if value not in label_ids:
                raise DamagedData(row.where, f"unknown label {value!r} in column {column!r}", _known(labels))
            return label_ids[value]
        case Option(options, column):
            value = row.fields[column]
            if value not in label_ids:
                raise DamagedData(row.where, f"{value!r} in column {column!r} names no option", _known(options))
            return label_ids[value]
        case Score(column, low, high):
            return _number(row, column, low, high)
        case Span():
            return None


def _known(labels: tuple[str, ...]) -> str:
    shown = ", ".join(repr(label) for label in labels[:8])
    return f"known: {shown}" + (", ..." if len(labels) > 8 else "")


def _number(row: Row, column: str, low: float | None, high: float | None) -> float:
    try:
        value = float(row.fields[column])
    except ValueError as error:
        raise DamagedData(row.where, f"{row.fields[column]!r} in column {column!r} is not a number") from error
    if not math.isfinite(value):
        raise DamagedData(row.where, f"{row.fields[column]!r} in column {column!r} is not a finite number")
    if (low is not None and value < low) or (high is not None and value > high):
        raise DamagedData(row.where, f"{value:g} in column {column!r} is not between {low:g} and {high:g}")
    return value
