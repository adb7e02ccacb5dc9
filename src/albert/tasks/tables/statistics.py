"""What a task's rows are like, before anything is learnt from them: how many, how long, how balanced, how clean."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from albert.runtime.progress import progress
from albert.runtime.randomness import stream
from albert.tasks.examples import text_columns
from albert.tasks.options import question_with_option
from albert.tasks.rows import Field, Row, Rows
from albert.tasks.task import Labels, Option, Pair, QuestionInContext, Score, Span, Tags, Task
from albert.text.tokenizer import Tokenizer

MEASURED = 10_000
"""Rows of a split whose tokens are counted; of more a sample is drawn, the same every time."""
_CHUNK = 2048


@dataclass(frozen=True)
class Lengths:
    """Tokens of a sequence, special ones included, uncut: of how many rows, and the share longer than a length."""

    measured: int
    median: float
    high: float
    """95 % are not longer."""
    longest: int
    cut: float


@dataclass(frozen=True)
class SplitStatistics:
    """A split in numbers.

    Attributes:
        rows: how many.
        counts: what was noticed: `empty texts`, `missing labels`, `duplicates` (rows whose texts an earlier row has),
            `contradictions` (such with another label), `in train`, `labels unknown to train`; and what was counted when
            the file was read.
        labels: how often each label is there, most frequent first; for a score and for spans none.
        numbers: smallest, mean and largest number to predict, where that is the task.
        lengths: None without a tokenizer.
    """

    rows: int
    counts: Mapping[str, int]
    labels: Mapping[str, int]
    numbers: tuple[float, float, float] | None
    lengths: Lengths | None


def table_statistics(
    task: Task, tables: Mapping[str, Rows], tokenizer: Tokenizer | None = None, max_length: int = 512
) -> dict[str, SplitStatistics]:
    """Every split in numbers; rows that cannot be used are counted like others.

    Args:
        task: the declaration.
        tables: rows by split; "train" is what others are compared with.
        tokenizer: to measure lengths.
        max_length: tokens from which on a sequence is cut.
    """
    train = tables.get("train")
    known = set() if train is None else {_texts(task, row) for row in train.rows}
    known_labels = set() if train is None else {label for row in train.rows for label in labels_of(task, row)}
    found = {}
    for split, rows in tables.items():
        counts = {**_noticed(task, rows.rows), **_others(rows.counts)}
        if split != "train" and train is not None:
            counts["in train"] = sum(_texts(task, row) in known for row in rows.rows)
            unknown = (set(labels_of(task, row)) - known_labels for row in rows.rows)
            if not isinstance(task.target, Score | Span):
                counts["labels unknown to train"] = sum(map(bool, unknown))
        labels = Counter(label for row in rows.rows for label in labels_of(task, row))
        values = np.array([number for row in rows.rows if (number := _number(task, row)) is not None], np.float64)
        numbers = (float(values.min()), float(values.mean()), float(values.max())) if len(values) else None
        lengths = None if tokenizer is None else sequence_lengths(task, rows.rows, tokenizer, max_length)
        shown = {} if isinstance(task.target, Score) else dict(labels.most_common())
        found[split] = SplitStatistics(len(rows.rows), counts, shown, numbers, lengths)
    return found


def labels_of(task: Task, row: Row) -> tuple[str, ...]:
    """The labels in a row, as they are there: one, several, or one a word; none where it says none."""
    target = task.target
    if isinstance(target, Span) or target.column not in row.fields:
        return ()
    if isinstance(target, Labels | Tags):
        return row.texts(target.column, target.separator if isinstance(target, Labels) else None)
    value = row.fields[target.column]
    return (value,) if isinstance(value, str) and value.strip() else ()


def sequence_lengths(task: Task, rows: Sequence[Row], tokenizer: Tokenizer, max_length: int) -> Lengths:
    """How long sequences are before they are cut, or a context is divided; of options the longest counts."""
    chosen = rows
    if len(rows) > MEASURED:
        members = stream("tables.measured", 0).permutation(len(rows))[:MEASURED]
        chosen = [rows[place] for place in sorted(members.tolist())]
    texts = [_read_texts(task, row) for row in chosen]
    tokens = np.zeros(len(chosen), np.int64)
    with progress("Measuring", total=len(chosen), unit="rows") as bar:
        for start in range(0, len(chosen), _CHUNK):
            part = texts[start : start + _CHUNK]
            counted = iter([len(ids) for ids in tokenizer.encode_batch([text for row in part for text in _flat(row)])])
            for place, row in enumerate(part, start=start):
                fixed = sum(next(counted) for _ in row[0])
                tokens[place] = fixed + max((next(counted) for _ in row[1]), default=0)
            bar.advance(len(part))
    tokens += 2 + isinstance(task.inputs, Pair | QuestionInContext)
    cut = float((tokens > max_length).mean())
    return Lengths(len(chosen), float(np.median(tokens)), float(np.quantile(tokens, 0.95)), int(tokens.max()), cut)


def _noticed(task: Task, rows: Sequence[Row]) -> dict[str, int]:
    """Empty texts, missing labels, duplicates and contradictions."""
    columns = text_columns(task)
    asked = [column for column in columns if any(row.fields.get(column) for row in rows)]
    counts: Counter[str] = Counter({"empty texts": 0, "missing labels": 0, "duplicates": 0, "contradictions": 0})
    first: dict[tuple[Field | None, ...], object] = {}
    for row in rows:
        counts["empty texts"] += any(_is_empty(row.fields.get(column)) for column in asked)
        if not isinstance(task.target, Span | Labels):
            counts["missing labels"] += not labels_of(task, row)
        texts, answer = _texts(task, row), row.answers if isinstance(task.target, Span) else labels_of(task, row)
        counts["duplicates"] += texts in first
        counts["contradictions"] += first.setdefault(texts, answer) != answer
    return dict(counts)


def _others(counts: Mapping[str, int]) -> dict[str, int]:
    """What was counted while reading; rows are told already."""
    return {name.replace("_", " "): count for name, count in counts.items() if name != "rows" and count}


def _is_empty(value: Field | None) -> bool:
    return not value or (isinstance(value, str) and not value.strip())


def _texts(task: Task, row: Row) -> tuple[Field | None, ...]:
    """What a model reads of a row, to know it again; options belong to it."""
    options = task.target.options if isinstance(task.target, Option) else ()
    return tuple(row.fields.get(column) for column in (*text_columns(task), *options))


def _read_texts(task: Task, row: Row) -> tuple[list[str], list[str]]:
    """Texts that are all read in one sequence, and such of which one is."""
    values = map(row.fields.get, text_columns(task))
    plain = [value if isinstance(value, str) else " ".join(value or ()) for value in values]
    if not isinstance(task.target, Option):
        return plain, []
    question, context = plain
    options = (row.fields.get(option) for option in task.target.options)
    return [context], [question_with_option(question, option) for option in options if isinstance(option, str)]


def _flat(row: tuple[list[str], list[str]]) -> list[str]:
    return [*row[0], *row[1]]


def _number(task: Task, row: Row) -> float | None:
    """The number to predict, None where there is none that can be."""
    value = row.fields.get(task.target.column) if isinstance(task.target, Score) else None
    try:
        number = float(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return number if number is not None and np.isfinite(number) else None
