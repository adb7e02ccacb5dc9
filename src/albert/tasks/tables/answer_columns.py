"""Answers in columns: a text or a list of texts, and where they begin in the context, where the table says so.

An empty answer, or none, says that the question has no answer in its context.
"""

from collections import Counter

from albert.runtime.errors import DamagedData
from albert.tasks.answer_places import placed_answer
from albert.tasks.rows import Answer, Row


def answers_of(
    row: Row, context: str, answer: str, answer_start: str | None, counts: Counter[str]
) -> tuple[Answer, ...]:
    """The gold answers of a row, none where it has no answer.

    Args:
        row: a row of the table.
        context: the text that should hold them.
        answer, answer_start: columns; those of a row may be absent, and a start empty or -1: then it is looked for.
        counts: see `placed_answer`; `unanswerable` questions are added too.

    Raises:
        DamagedData: a start that is no whole number, or another number of starts than of answers.
    """
    texts = _items(row, answer)
    if not any(texts):
        counts["unanswerable"] += 1
        return ()
    starts: list[int | None] = [None] * len(texts)
    if answer_start is not None and answer_start in row.fields:
        starts = [_start(row, answer_start, item) for item in _items(row, answer_start)] or starts
    if len(starts) != len(texts):
        why = f"has {len(texts)} answers in {answer!r} and {len(starts)} starts in {answer_start!r}"
        raise DamagedData(row.where, why)
    return tuple(placed_answer(text, start, context, counts) for text, start in zip(texts, starts, strict=True))


def _items(row: Row, column: str) -> tuple[str, ...]:
    value = row.fields.get(column, "")
    return ((value,) if value else ()) if isinstance(value, str) else value


def _start(row: Row, column: str, value: str) -> int | None:
    if not value.strip():
        return None
    try:
        number = float(value)
    except ValueError as error:
        raise DamagedData(row.where, f"{value!r} in column {column!r} is not a number") from error
    if number != int(number if abs(number) < 2**53 else 0):
        raise DamagedData(row.where, f"{value!r} in column {column!r} is no place in a text")
    return int(number) if number >= 0 else None
