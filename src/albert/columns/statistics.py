"""Statistics of a task's rows: number, lengths, balance, defects."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from albert.runtime.random_streams import stream
from albert.tables.table import Field, Row, Table
from albert.tasks.declared import DeclaredTask
from albert.tasks.examples import encode_all
from albert.tasks.inputs import without_outer_blanks
from albert.text.tokenizer import Tokenizer
from albert.text.unknown import MAX_TEXTS, unknown_warning

MEASURED = 10_000
"""The largest number of rows of a split whose tokens are counted; otherwise a fixed sample is used."""


@dataclass(frozen=True)
class Lengths:
    """Tokens of untruncated sequences, special tokens included.

    Attributes:
        measured: number of rows.
        high: 95th percentile.
        cut: share of sequences longer than the maximal length.
    """

    measured: int
    median: float
    high: float
    longest: int
    cut: float


@dataclass(frozen=True)
class SplitStatistics:
    """Statistics of a split.

    Attributes:
        counts: `empty texts`, `missing labels`, `duplicates` (rows with the texts of an earlier row, but
            for blanks around them), `contradictions` (duplicates with another label), `in train`, `labels unknown to
            train`, and counts from reading the file.
        labels: frequency of each label, most frequent first, and 0 for labels of the task that no row has; empty for
            numbers and spans.
        without_labels: of several labels per row, the rows without any; None for other kinds.
        numbers: smallest, mean and largest number to predict.
        examples: for each label the text of the first row that has it; for tags the first word.
        unlabelled: where the first row without a label is.
    """

    rows: int
    counts: Mapping[str, int]
    labels: Mapping[str, int]
    numbers: tuple[float, float, float] | None
    lengths: Lengths | None
    examples: Mapping[str, str] = field(default_factory=dict)
    unlabelled: str | None = None
    without_labels: int | None = None


def table_statistics(
    task: DeclaredTask, tables: Mapping[str, Table], tokenizer: Tokenizer | None = None, max_length: int = 512
) -> dict[str, SplitStatistics]:
    """The statistics of every split, including rows that cannot be used."""
    target = task.target
    columns = (*task.inputs.columns, *target.option_columns)
    train = tables.get("train")
    train_texts = set()
    train_labels = set()
    if train is not None:
        train_texts = {_compared(row, *columns) for row in train.rows}
        train_labels = {label for row in train.rows for label in target.written_labels(row)}
    statistics = {}
    for split, rows in tables.items():
        texts = [_compared(row, *columns) for row in rows.rows]
        labels = [target.written_labels(row) for row in rows.rows]
        counts = _count_defects(task, rows.rows, texts, labels)
        counts |= {name.replace("_", " "): n for name, n in rows.counts.items() if name != "rows" and n}
        if split != "train" and train is not None:
            counts["in train"] = sum(values in train_texts for values in texts)
            if target.class_names or target.option_columns:
                counts["labels unknown to train"] = sum(not train_labels.issuperset(own) for own in labels)
        lengths = None if tokenizer is None else sequence_lengths(task, rows.rows, tokenizer, max_length)
        frequencies = Counter(label for own in labels for label in own)
        values = target.written_numbers(frequencies.elements())
        numbers = None
        if values is None:
            examples = label_examples(task, rows.rows, labels)
        else:
            numbers = (float(values.min()), float(values.mean()), float(values.max())) if len(values) else None
            frequencies.clear()
            examples = {}
        known = dict(frequencies.most_common())
        if values is None and split == "train":
            known |= {label: 0 for label in target.class_names if label not in known}
        without_labels = None
        if target.may_be_unlabelled and target.is_labelled(rows.rows):
            without_labels = sum(not own for own in labels)
        unlabelled = None
        if counts["missing labels"]:
            unlabelled = next(row.where for row, own in zip(rows.rows, labels, strict=True) if not own)
        statistics[split] = SplitStatistics(
            rows=len(rows.rows),
            counts=counts,
            labels=known,
            numbers=numbers,
            lengths=lengths,
            examples=examples,
            unlabelled=unlabelled,
            without_labels=without_labels,
        )
    return statistics


def label_examples(task: DeclaredTask, rows: Sequence[Row], labels: Sequence[tuple[str, ...]]) -> dict[str, str]:
    """For each label the text of the first row that has it; for tags the first word with it."""
    examples: dict[str, str] = {}
    columns = task.inputs.columns
    for row, own in zip(rows, labels, strict=True):
        for at, label in enumerate(own):
            if label in examples:
                continue
            texts = _values(row, *columns)
            first = texts[0]
            if task.target.per_token and isinstance(first, tuple):
                examples[label] = first[at] if at < len(first) else ""
            else:
                parts = [text if isinstance(text, str) else " ".join(text or ()) for text in texts]
                examples[label] = " / ".join(" ".join(part.split()) for part in parts if part)
    return examples


def sequence_lengths(task: DeclaredTask, rows: Sequence[Row], tokenizer: Tokenizer, max_length: int) -> Lengths:
    """Lengths of sequences before truncation or division into windows; of the options of a row the longest counts."""
    if len(rows) > MEASURED:
        members = stream("tables.measured", 0).permutation(len(rows))[:MEASURED]
        rows = [rows[index] for index in sorted(members.tolist())]
    texts = [task.target.sequences_of(row, task.inputs) for row in rows]
    encoded = encode_all([text for own, options in texts for text in (*own, *options)], tokenizer)
    counts = map(len, encoded)
    sizes = []
    for own, options in texts:
        size = sum(islice(counts, len(own)))
        if options:
            size += max(islice(counts, len(options)))
        sizes.append(size)
    tokens = np.array(sizes, np.int64) + 2 + (len(task.inputs.columns) == 2)
    cut = float((tokens > max_length).mean())
    return Lengths(len(rows), float(np.median(tokens)), float(np.quantile(tokens, 0.95)), int(tokens.max()), cut)


def _values(row: Row, *columns: str) -> tuple[Field | None, ...]:
    return tuple(row.fields.get(column) for column in columns)


def _compared(row: Row, *columns: str) -> tuple[Field | None, ...]:
    """The values by which rows with the same texts are found."""
    return tuple(map(without_outer_blanks, _values(row, *columns)))


def rows_with_texts_of(task: DeclaredTask, trained: Sequence[Row], rows: Sequence[Row]) -> int:
    """The number of rows whose texts, but for blanks and capitals, are those of a row that was trained on."""

    def texts(row: Row) -> int:
        values = _values(row, *task.inputs.columns)
        joined = (value if isinstance(value, str) else " ".join(value or ()) for value in values)
        return hash(tuple(" ".join(text.split()).casefold() for text in joined))

    known = set(map(texts, trained))
    return sum(texts(row) in known for row in rows)


def _count_defects(
    task: DeclaredTask,
    rows: Sequence[Row],
    texts: Sequence[tuple[Field | None, ...]],
    labels: Sequence[tuple[str, ...]],
) -> dict[str, int]:
    """Counts of bad rows; `texts` are the texts and options of each row."""
    columns = [column for column in task.inputs.columns if any(row.fields.get(column) for row in rows)]
    counts = {"empty texts": 0, "missing labels": 0, "duplicates": 0, "contradictions": 0}
    first_labels: dict[tuple[Field | None, ...], object] = {}
    for row, own_texts, own_labels in zip(rows, texts, labels, strict=True):
        values = _values(row, *columns)
        counts["empty texts"] += not all(value.strip() if isinstance(value, str) else value for value in values)
        if not task.target.may_be_unlabelled:
            counts["missing labels"] += not own_labels
        target = row.answers if task.target.gold_column is None else own_labels
        counts["duplicates"] += own_texts in first_labels
        first = first_labels.setdefault(own_texts, target)
        if target or task.target.may_be_unlabelled or task.target.gold_column is None:
            counts["contradictions"] += first != target
    return counts


def unknown_texts(task: DeclaredTask, tables: Mapping[str, Table], tokenizer: Tokenizer, model: str) -> tuple[str, ...]:
    """A line for each split of which the model's vocabulary does not know the text."""
    columns = (*task.inputs.columns, *task.target.option_columns)
    lines = []
    for split, rows in tables.items():
        values = (row.fields.get(column, "") for row in rows.rows[:MAX_TEXTS] for column in columns)
        texts = (value if isinstance(value, str) else " ".join(value) for value in values)
        warning = unknown_warning(tokenizer, texts, model)
        if warning is not None:
            lines.append(f"{split}: {warning}")
    return tuple(lines)
