"""Answers in the columns of a table, a text or a list of texts, and their positions in their contexts."""

import re
from collections import Counter
from dataclasses import replace

from albert.runtime.errors import DamagedData, UsageError
from albert.tables.table import Answer, Row, Table, convert_rows
from albert.tasks.table_task import TableTask

COUNTED = ("answers", "answers_relocated", "answers_found_more_than_once", "answers_not_found")


def with_answers(task: TableTask, table: Table) -> Table:
    """Rows with their gold answers; None if no row has their column. An empty answer means that there is none.

    Raises:
        UsageError: most answers are not in their context.
    """
    if not any(task.answer in row.fields for row in table.rows):
        return replace(table, rows=[replace(row, answers=None) for row in table.rows])
    counts: Counter[str] = Counter()
    rows = convert_rows(table.rows, lambda row: replace(row, answers=_gold_answers(task, row, counts)))
    n_missing = counts["answers_not_found"]
    if n_missing > counts["answers"] / 2:
        why = f"{n_missing:,} of {counts['answers']:,} answers are not in their context"
        remedy = "write them as in the text; of a multiple choice, name the columns with --options and --label"
        raise UsageError(f"column {task.answer!r}", why, remedy)
    return replace(table, rows=rows, counts={**table.counts, **counts})


def _gold_answers(task: TableTask, row: Row, counts: Counter[str]) -> tuple[Answer, ...]:
    """The gold answers of a row; a start may be absent, empty or -1, and is then searched for."""
    assert task.context is not None and task.answer is not None
    context = row.text(task.context)
    texts = _items(row, task.answer)
    if not any(texts):
        counts["unanswerable"] += 1
        return ()
    starts: list[int | None] = [None] * len(texts)
    if task.answer_start is not None:
        starts = [_start(row, task.answer_start, item) for item in _items(row, task.answer_start)] or starts
    if len(starts) != len(texts):
        why = f"has {len(texts)} answers in {task.answer!r} and {len(starts)} starts in {task.answer_start!r}"
        raise DamagedData(row.where, why)
    return tuple(locate_answer(text, start, context, counts) for text, start in zip(texts, starts, strict=True))


def _items(row: Row, column: str) -> tuple[str, ...]:
    value = row.fields.get(column, "")
    if not isinstance(value, str):
        return value
    return (value,) if value else ()


def _start(row: Row, column: str, value: str) -> int | None:
    if not value.strip():
        return None
    try:
        number = float(value)
    except ValueError as error:
        raise DamagedData(row.where, f"{value!r} in column {column!r} is not a number") from error
    if number != int(number if abs(number) < 2**53 else 0):
        raise DamagedData(row.where, f"{value!r} in column {column!r} is not a position in a text")
    return int(number) if number >= 0 else None


def locate_answer(text: str, start: int | None, context: str, counts: Counter[str]) -> Answer:
    """An answer with its position in the context.

    If the text is not at `start`, the occurrence nearest to it is taken: starts may be off by one, or count bytes or
    UTF-16 units. Without a start the first occurrence that is not a part of a longer word is taken, if there is one, or
    else the first one. Evaluation compares texts only.

    Args:
        start: position of its first character; None or negative if the file has none.
        counts: `answers`, `answers_relocated` (of those with a start), `answers_found_more_than_once` (of those
            without) and `answers_not_found` are incremented.
    """
    counts["answers"] += 1
    if start is not None and start >= 0 and context.startswith(text, start):
        return Answer(text, start)
    found = [match.start() for match in re.finditer(re.escape(text), context)] if text.strip() else []
    if not found:
        counts["answers_not_found"] += 1
        return Answer(text, None)
    if start is not None and start >= 0:
        counts["answers_relocated"] += 1
        return Answer(text, min(found, key=lambda position: abs(position - start)))
    counts["answers_relocated"] += start is not None
    whole = [match.start() for match in re.finditer(rf"(?<!\w){re.escape(text)}(?!\w)", context)] or found
    counts["answers_found_more_than_once"] += len(whole) > 1
    return Answer(text, whole[0])
