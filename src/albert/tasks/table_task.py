"""A task on the user's tables as plain values (options, task file, `task.json`), and statistics of its rows.

A user's file may leave out all that can be inferred from the rows; the file in a run's directory holds everything. What
each kind of task is made of (inputs, target, metrics, recipe) is here too."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from albert.runtime.errors import InvalidConfiguration, did_you_mean
from albert.runtime.json_files import load_json, save_json, to_json
from albert.runtime.progress import progress
from albert.runtime.random_streams import stream
from albert.tasks import metrics
from albert.tasks.answers import open_question_scores, span_exact_match, span_f1
from albert.tasks.examples import text_columns
from albert.tasks.race import question_with_option
from albert.tasks.task import (
    UNNAMED,
    Choice,
    Field,
    Labels,
    Metric,
    Option,
    Pair,
    QuestionInContext,
    Row,
    Rows,
    Score,
    Single,
    Source,
    Span,
    Tags,
    Task,
    TaskRecipe,
    Words,
)
from albert.text.tokenizer import Tokenizer

TASK_FILE = "task.json"
WORDS, TAGS = "words", "tags"
"""The columns of tagged text."""
Kind = Literal[
    "classification",
    "regression",
    "multi-label",
    "token-classification",
    "multiple-choice",
    "question-answering",
]
OptionLabels = Literal["name", "letter", "from-0", "from-1", "text"]
"""How a label names an option: by its column, by a letter or a number in their order, or as its own text."""
NEEDED: dict[Kind, tuple[str, ...]] = {
    "classification": ("text", "label"),
    "regression": ("text", "label"),
    "multi-label": ("text", "label"),
    "token-classification": ("words", "tags"),
    "multiple-choice": ("options", "label"),
    "question-answering": ("question", "context", "answer"),
}
ALLOWED: dict[Kind, tuple[str, ...]] = {
    "classification": ("pair",),
    "regression": ("pair",),
    "multi-label": ("pair",),
    "token-classification": (),
    "multiple-choice": ("text", "question"),
    "question-answering": ("answer_start",),
}
COLUMNS = (
    *("text", "pair", "label", "words", "tags", "options"),
    *("question", "context", "answer", "answer_start"),
)


@dataclass(frozen=True, kw_only=True)
class RecipeChanges:
    """What of a recipe is another than the kind's own; what is None stays. At most one of `epochs` and `steps`."""

    learning_rate: float | None = None
    batch_size: int | None = None
    epochs: float | None = None
    steps: int | None = None
    warmup_share: float | None = None
    weight_decay: float | None = None
    max_length: int | None = None
    question_length: int | None = None
    stride: int | None = None
    encoder_dropout: float | None = None
    head_dropout: float | None = None

    def applied_to(self, recipe: TaskRecipe) -> TaskRecipe:
        chosen: dict[str, Any] = {name: value for name, value in to_json(self).items() if value is not None}
        if "steps" in chosen or "epochs" in chosen:
            if "steps" in chosen and "epochs" in chosen:
                raise InvalidConfiguration("recipe", "steps and epochs say the same thing twice", "give one of them")
            chosen = {"steps": None, "epochs": None, "examples": None, **chosen}
        return replace(recipe, **chosen)

    @classmethod
    def of(cls, recipe: TaskRecipe) -> "RecipeChanges":
        return cls(**{one.name: getattr(recipe, one.name) for one in fields(cls)})


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Rows of the training file that are kept back as development set: a share of them, drawn by a seed.

    `digest` is that of the file's rows; None before they were read.
    """

    share: float = 0.1
    seed: int = 0
    digest: str | None = None

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise InvalidConfiguration("held-out share", f"is {self.share:g}, must be above 0 and below 1")


@dataclass(frozen=True, kw_only=True)
class TableTask:
    """A task on tables. Columns are named; what is None is not used, or to be inferred (`kind`, `labels`, `metrics`).

    `train` and `dev` are files, beside the task file when they are relative. `label_names` says labels in words, where
    the file has only digits. `separator` stands between several labels in a text. `option_labels` says what the label
    of a multiple choice is, `may_be_absent` whether a question may have no answer.
    """

    name: str = UNNAMED
    kind: Kind | None = None
    train: Path | None = None
    dev: Path | None = None
    text: str | None = None
    pair: str | None = None
    label: str | None = None
    words: str | None = None
    tags: str | None = None
    options: tuple[str, ...] | None = None
    question: str | None = None
    context: str | None = None
    answer: str | None = None
    answer_start: str | None = None
    id: str | None = None
    separator: str | None = None
    labels: tuple[str, ...] | None = None
    label_names: dict[str, str] | None = None
    option_labels: OptionLabels | None = None
    may_be_absent: bool | None = None
    metrics: tuple[str, ...] | None = None
    held_out: HeldOut = field(default_factory=HeldOut)
    recipe: RecipeChanges = field(default_factory=RecipeChanges)

    def __post_init__(self) -> None:
        if self.labels is not None and len(set(self.labels)) != len(self.labels):
            raise InvalidConfiguration("labels", "one of them is there twice")

    @property
    def given_columns(self) -> tuple[str, ...]:
        return tuple(name for name in COLUMNS if getattr(self, name) is not None)


def load_table_task(path: Path) -> TableTask:
    """The task in a file."""
    task = load_json(TableTask, path)
    beside = path.resolve().parent
    return replace(
        task,
        train=None if task.train is None else beside / task.train,
        dev=None if task.dev is None else beside / task.dev,
    )


def save_table_task(directory: Path, task: TableTask) -> None:
    """Write the task into a run's directory, without what is None."""
    plain = to_json(task)
    plain |= {name: {k: v for k, v in plain[name].items() if v is not None} for name in ("held_out", "recipe")}
    save_json(directory / TASK_FILE, {name: value for name, value in plain.items() if value is not None})


def table_task_of(model_directory: Path) -> TableTask | None:
    """The task that a run kept beside its model, None when it kept none."""
    for place in (model_directory, model_directory.parent):
        if (place / TASK_FILE).is_file():
            return load_table_task(place / TASK_FILE)
    return None


# --------------------------------------------------------------------------------------------------------------------
# What each kind of task on a table is made of: inputs, target, metrics, and the recipe to begin with.

NO_QUESTION, NO_TEXT = "(no question)", "(no text)"
"""Columns that are empty in every row, where a multiple choice has no question, or nothing to read."""
OWN_RECIPE = TaskRecipe(learning_rate=2e-5, batch_size=32, epochs=3.0, warmup_share=0.1, max_length=512)
SPAN_RECIPE = TaskRecipe(
    learning_rate=3e-5, batch_size=32, epochs=2.0, max_length=384, question_length=64, stride=128, encoder_dropout=0.0
)
OPTION_RECIPE = TaskRecipe(learning_rate=2e-5, batch_size=32, epochs=3.0, max_length=512, question_length=128)
MOST_NAMED = 10
"""Labels that a description names; of more it gives the number."""
METRICS: dict[Kind, tuple[Metric, ...]] = {
    "classification": (metrics.accuracy, metrics.f1, metrics.macro_f1, metrics.matthews_correlation),
    "regression": (metrics.pearson, metrics.spearman, metrics.mean_absolute_error),
    "multi-label": (metrics.multi_label_scores,),
    "token-classification": (metrics.entity_scores, metrics.run_scores, metrics.word_scores),
    "multiple-choice": (metrics.accuracy,),
    "question-answering": (span_f1, span_exact_match),
}
"""What a kind can be scored by; `f1` is that of the second label of two."""


def declare_task(task: TableTask, source: Source, options: tuple[str, ...] = ()) -> Task:
    """A complete task as a declaration. `options` are the columns of a multiple choice, of lists one for each place."""
    n_labels, given = len(task.labels or ()), " and ".join(f"`{name}`" for name in (task.text, task.pair) if name)
    match task:
        case TableTask(kind="token-classification", words=str(words), tags=str(tags), labels=tuple(labels)):
            inputs, target = Words(words), Tags(labels, tags)
            what = f"Predicts the tag of each word of `{words}`, one of {n_labels}"
        case TableTask(kind="question-answering", question=str(question), context=str(context)):
            absent = bool(task.may_be_absent)
            inputs = QuestionInContext(question, context)
            target = Span(absent, head="joint" if absent else "independent")
            what = f"Answers `{question}` with a part of `{context}`"
        case TableTask(kind="multiple-choice", label=str(label)):
            inputs, target = (
                QuestionInContext(task.question or NO_QUESTION, task.text or NO_TEXT),
                Option(options, label),
            )
            read = " and ".join(f"`{name}`" for name in (task.question, task.text) if name)
            what = f"Chooses among options, given {read}" if read else "Chooses among options"
        case TableTask(text=str(text), label=str(label)):
            inputs = Single(text) if task.pair is None else Pair(text, task.pair)
            if task.kind == "regression":
                target, what = Score(label), f"Predicts the number `{label}` from {given}"
            elif task.kind == "multi-label":
                target = Labels(task.labels or (), label, task.separator or "|")
                what = f"Predicts which of {n_labels} labels `{label}` has, from {given}"
            else:
                words = tuple((task.label_names or {}).get(one, one) for one in task.labels or ())
                target = Choice(task.labels or (), label, words if task.label_names else None)
                classes = ", ".join(words) if n_labels <= MOST_NAMED else f"one of {n_labels} classes"
                what = f"Predicts `{label}` ({classes}) from {given}"
        case _:
            why = f"lacks labels or columns of a {task.kind}"
            raise InvalidConfiguration("task", why, "say them, or give a training file")
    recipe = {"multiple-choice": OPTION_RECIPE, "question-answering": SPAN_RECIPE}.get(task.kind or "", OWN_RECIPE)
    return Task(
        name=task.name,
        source=source,
        inputs=inputs,
        target=target,
        metrics=metrics_of(task),
        recipe=task.recipe.applied_to(recipe),
        description=" ".join(f"{what}, learnt from a table.".split()),
    )


def metrics_of(task: TableTask) -> tuple[Metric, ...]:
    """The metrics asked for, or the usual ones of the kind; a model is chosen by the first."""
    assert task.kind is not None
    labels = task.labels or ()
    possible = (open_question_scores,) if task.may_be_absent else METRICS[task.kind]
    if task.kind == "classification" and len(labels) != 2:
        possible = tuple(metric for metric in possible if metric is not metrics.f1)
    known = {metric.__name__: metric for metric in possible}
    for name in task.metrics or ():
        if name not in known:
            why = f"does not go with {task.kind}" + (f" of {len(labels)} labels" if labels else "")
            raise InvalidConfiguration(f"metric {name}", why, did_you_mean(name, known))
    if task.metrics is not None:
        return tuple(known[name] for name in task.metrics)
    if task.kind == "token-classification":
        return metrics.tag_metrics(labels)
    if task.kind == "classification":
        return metrics.accuracy, metrics.f1 if len(labels) == 2 else metrics.macro_f1
    return possible


# --------------------------------------------------------------------------------------------------------------------
# What a task's rows are like, before anything is learnt from them: how many, how long, how balanced, how clean.

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
        counts: what was noticed: `empty texts`, `missing labels`, `duplicates` (rows whose texts an earlier row has),
            `contradictions` (such with another label), `in train`, `labels unknown to train`; and what was counted when
            the file was read.
        labels: how often each label is there, most frequent first; for a score and for spans none.
        numbers: smallest, mean and largest number to predict, where that is the task.
    """

    rows: int
    counts: Mapping[str, int]
    labels: Mapping[str, int]
    numbers: tuple[float, float, float] | None
    lengths: Lengths | None


def table_statistics(
    task: Task, tables: Mapping[str, Rows], tokenizer: Tokenizer | None = None, max_length: int = 512
) -> dict[str, SplitStatistics]:
    """Every split in numbers; rows that cannot be used are counted like others."""
    options = task.target.options if isinstance(task.target, Option) else ()
    train = tables.get("train")
    known, known_labels = set(), set()
    if train is not None:
        known = {_values(row, *text_columns(task), *options) for row in train.rows}
        known_labels = {label for row in train.rows for label in labels_of(task, row)}
    found = {}
    for split, rows in tables.items():
        texts = [_values(row, *text_columns(task), *options) for row in rows.rows]
        labels = [labels_of(task, row) for row in rows.rows]
        counts = _noticed(task, rows.rows, texts, labels)
        counts |= {name.replace("_", " "): n for name, n in rows.counts.items() if name != "rows" and n}
        if split != "train" and train is not None:
            counts["in train"] = sum(each in known for each in texts)
            if not isinstance(task.target, Score | Span):
                counts["labels unknown to train"] = sum(not known_labels.issuperset(each) for each in labels)
        lengths = None if tokenizer is None else sequence_lengths(task, rows.rows, tokenizer, max_length)
        often, numbers = Counter(label for each in labels for label in each), None
        if isinstance(task.target, Score):
            read = np.array([as_number(label) for each in labels for label in each], np.float64)  # None becomes NaN
            read = read[np.isfinite(read)]
            numbers = (float(read.min()), float(read.mean()), float(read.max())) if len(read) else None
            often.clear()
        found[split] = SplitStatistics(len(rows.rows), counts, dict(often.most_common()), numbers, lengths)
    return found


def columns_of(rows: Rows) -> tuple[str, ...]:
    """The columns that any row has, in the order of their first appearance."""
    return tuple(dict.fromkeys(column for row in rows.rows for column in row.fields))


def as_number(value: str) -> float | None:
    """The number that a text holds; None when it is not a number. NaN counts as one."""
    try:
        return float(value)
    except ValueError:
        return None


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
            encoded = tokenizer.encode_batch([text for always, options in part for text in (*always, *options)])
            counted = map(len, encoded)
            for place, (always, options) in enumerate(part, start=start):
                fixed = sum(next(counted) for _ in always)
                tokens[place] = fixed + max((next(counted) for _ in options), default=0)
            bar.advance(len(part))
    tokens += 2 + isinstance(task.inputs, Pair | QuestionInContext)
    cut = float((tokens > max_length).mean())
    return Lengths(len(chosen), float(np.median(tokens)), float(np.quantile(tokens, 0.95)), int(tokens.max()), cut)


def _values(row: Row, *columns: str) -> tuple[Field | None, ...]:
    return tuple(row.fields.get(column) for column in columns)


def _noticed(
    task: Task, rows: Sequence[Row], texts: Sequence[tuple[Field | None, ...]], labels: Sequence[tuple[str, ...]]
) -> dict[str, int]:
    """Texts are what a model reads of each row, by which it is known again; options belong to them."""
    read = [column for column in text_columns(task) if any(row.fields.get(column) for row in rows)]
    counts = {"empty texts": 0, "missing labels": 0, "duplicates": 0, "contradictions": 0}
    first: dict[tuple[Field | None, ...], object] = {}
    for row, own, given in zip(rows, texts, labels, strict=True):
        fields = _values(row, *read)
        counts["empty texts"] += not all(each.strip() if isinstance(each, str) else each for each in fields)
        if not isinstance(task.target, Span | Labels):
            counts["missing labels"] += not given
        answer = row.answers if isinstance(task.target, Span) else given
        counts["duplicates"] += own in first
        counts["contradictions"] += first.setdefault(own, answer) != answer
    return counts


def _read_texts(task: Task, row: Row) -> tuple[list[str], list[str]]:
    """Texts that are all read in one sequence, and such of which one is."""
    values = _values(row, *text_columns(task))
    plain = [value if isinstance(value, str) else " ".join(value or ()) for value in values]
    if not isinstance(task.target, Option):
        return plain, []
    question, context = plain
    options = _values(row, *task.target.options)
    return [context], [question_with_option(question, option) for option in options if isinstance(option, str)]
