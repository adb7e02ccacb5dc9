"""Rows to examples: the columns a task names, its labels as ids, its scores as numbers, each checked."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from albert.runtime.errors import DamagedData, did_you_mean
from albert.tasks.task import (
    Answer,
    Choice,
    Labels,
    Option,
    Pair,
    QuestionInContext,
    Row,
    Score,
    Single,
    Span,
    Tags,
    Task,
    Words,
)


@dataclass(frozen=True)
class Example:
    """One thing to learn from or to answer.

    `texts` holds one or two texts (question first, then context), or all words of one. `target` is a label id, the
    place of an option, a number, the ids of the labels that are true, or one id for each word; it is None for a span,
    whose gold is `answers`. Examples with the same `group` are scored together too.
    """

    identifier: str
    where: str
    texts: tuple[str, ...]
    target: int | float | tuple[int, ...] | None = None
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
        DamagedData: a column is absent, a label unknown, a score no number or out of range, or there are not as many
            tags as words; the row is named.
    """
    columns = text_columns(task)
    asked = (task.target.column,) if labelled and not isinstance(task.target, Span) else ()
    options = task.target.options if isinstance(task.target, Option) else ()
    labels = task.target.labels if isinstance(task.target, Choice | Labels | Tags) else options
    label_ids = {label: index for index, label in enumerate(labels)}
    examples = []
    for row in rows:
        _check_columns((*columns, *options, *asked), row)
        if labelled and row.answers is None:
            raise DamagedData(row.where, "has no 'answers'", "expected the SQuAD JSON layout")
        words = isinstance(task.inputs, Words)
        texts = row.texts(*columns) if words else tuple(row.text(column) for column in columns)
        target = _target(task, row, label_ids, len(texts)) if labelled else None
        offered = tuple(row.text(option) for option in options)
        examples.append(Example(row.identifier, row.where, texts, target, row.answers or (), offered, row.group))
    return examples


def text_columns(task: Task) -> tuple[str, ...]:
    """The columns that hold the task's text or texts."""
    match task.inputs:
        case Single(column) | Words(column):
            return (column,)
        case Pair(first, second):
            return first, second
        case QuestionInContext(question, context):
            return question, context


def _check_columns(needed: tuple[str, ...], row: Row) -> None:
    for column in needed:
        if column not in row.fields:
            raise DamagedData(row.where, f"has no column {column!r}", did_you_mean(column, row.fields))


def _target(task: Task, row: Row, label_ids: dict[str, int], n_words: int) -> int | float | tuple[int, ...] | None:
    match task.target:
        case Choice(labels, column):
            value = row.text(column)
            if value not in label_ids:
                raise DamagedData(row.where, f"unknown label {value!r} in column {column!r}", _known(labels))
            return label_ids[value]
        case Labels(labels, column, separator):
            return _labels(row, column, row.texts(column, separator), label_ids)
        case Tags(labels, column):
            return _tags(row, column, row.texts(column), label_ids, n_words)
        case Option(options, column):
            value = row.text(column)
            if value not in label_ids:
                raise DamagedData(row.where, f"{value!r} in column {column!r} names no option", _known(options))
            return label_ids[value]
        case Score(column, low, high):
            return _number(row, column, low, high)
        case Span():
            return None


def _labels(row: Row, column: str, given: tuple[str, ...], label_ids: dict[str, int]) -> tuple[int, ...]:
    """The ids in their order; a label that is said twice is true once."""
    for label in given:
        if label not in label_ids:
            raise DamagedData(row.where, f"unknown label {label!r} in column {column!r}", _known(tuple(label_ids)))
    return tuple(sorted({label_ids[label] for label in given}))


def _tags(row: Row, column: str, given: tuple[str, ...], label_ids: dict[str, int], n_words: int) -> tuple[int, ...]:
    if len(given) != n_words:
        why = f"has {len(given)} tags in column {column!r} for {n_words} words"
        raise DamagedData(row.where, why, "every word needs one")
    for place, tag in enumerate(given):
        if tag not in label_ids:
            why = f"unknown tag {tag!r} in column {column!r}, at word {place + 1}"
            raise DamagedData(row.where, why, _known(tuple(label_ids)))
    return tuple(label_ids[tag] for tag in given)


def _known(labels: tuple[str, ...]) -> str:
    shown = ", ".join(repr(label) for label in labels[:8])
    return f"known: {shown}" + (", ..." if len(labels) > 8 else "")


def _number(row: Row, column: str, low: float | None, high: float | None) -> float:
    text = row.text(column)
    try:
        value = float(text)
    except ValueError as error:
        raise DamagedData(row.where, f"{text!r} in column {column!r} is not a number") from error
    if not math.isfinite(value):
        raise DamagedData(row.where, f"{text!r} in column {column!r} is not a finite number")
    if (low is not None and value < low) or (high is not None and value > high):
        raise DamagedData(row.where, f"{value:g} in column {column!r} is not between {low:g} and {high:g}")
    return value
