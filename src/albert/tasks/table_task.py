"""A task on the user's tables as plain values (options, task file, `task.json`), its declaration, and row statistics.

A user's file may leave out settings that can be inferred from the rows; the file in a run's directory has them all."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from albert.recipes.finetuning import RecipeChanges, TaskRecipe
from albert.runtime.errors import InvalidConfiguration, UsageError, did_you_mean
from albert.runtime.json_files import convert_value, from_json, read_json_object, save_versioned, to_json
from albert.runtime.manifest import LAYOUT, require_layout
from albert.runtime.random_streams import stream
from albert.tables.table import Field, Row, Table
from albert.tables.table_file import Format, Layout
from albert.tasks import metrics
from albert.tasks.answers import open_question_scores, span_exact_match, span_f1
from albert.tasks.declared import UNNAMED, DeclaredTask
from albert.tasks.examples import encode_all
from albert.tasks.inputs import Pair, QuestionInContext, Single, Words, without_outer_blanks
from albert.tasks.metrics import Metric
from albert.tasks.multi_label import MultiLabel
from albert.tasks.multiple_choice import MultipleChoice, question_with_option
from albert.tasks.regression import Regression
from albert.tasks.single_label import SingleLabel
from albert.tasks.source import Source
from albert.tasks.span import Span
from albert.tasks.tagging import TokenTagging
from albert.text.tokenizer import Tokenizer
from albert.text.unknown import MAX_TEXTS, unknown_warning

TASK_FILE = "task.json"
Kind = Literal[
    "classification", "regression", "multi-label", "token-classification", "multiple-choice", "question-answering"
]
OptionLabels = Literal["name", "letter", "from-0", "from-1", "text"]
"""A label is the row's own name of an option (in a list beside the options, or of its column), or its letter, its
number from 0 or 1, or its text."""
COLUMNS_OF_KIND: dict[Kind, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "classification": (("text", "label"), ("pair",)),
    "regression": (("text", "label"), ("pair",)),
    "multi-label": (("text", "label"), ("pair",)),
    "token-classification": (("words", "tags"), ()),
    "multiple-choice": (("options", "label"), ("text", "question")),
    "question-answering": (("question", "context", "answer"), ("answer_start",)),
}
"""The columns that a kind needs, and further ones that it may have."""
KINDS_WITH: dict[str, tuple[Kind, ...]] = {
    "labels": ("classification", "multi-label", "token-classification"),
    "separator": ("multi-label",),
    "option_labels": ("multiple-choice",),
}
"""Settings that only some kinds have."""
COLUMNS = (*("text", "pair", "label", "words", "tags", "options"), *("question", "context", "answer", "answer_start"))


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """The share of the training file that is held out as development set; `digest` is that of the file, once read."""

    share: float = 0.1
    seed: int = 0
    digest: str | None = None

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise InvalidConfiguration("held-out share", f"is {self.share:g}, must be above 0 and below 1")


@dataclass(frozen=True, kw_only=True)
class TableTask:
    """A task on tables, by the names of its columns; None is unused, or to be inferred (`kind`, `labels`, `metrics`).

    Attributes:
        train, dev: files; relative paths start at the folder of the task file.
        separator: between several labels in a text.
        label_names: readable names for labels that are digits in the file.
        option_labels: meaning of the label of a multiple choice.
        may_be_absent: whether a question may have no answer.
        format, delimiter, encoding, columns, no_header: see `albert.tables.table_file.Layout`.
        group: the column that numbers the sentences of a table with one word in each row.
        label_columns: several columns of labels; `label` is then their names.
        label_cells: what they hold: 0 or 1 for the label that is their name ("switches"), or a label or nothing.
        spans: the columns of a text, and of the parts of it that are marked with a label.
        decimal: the decimal sign of numbers to predict; a point when not set.
        drop_unlabelled: whether rows without a label are left out.
        positive: of two classes, the one whose F1 is reported.
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
    format: Format | None = None
    delimiter: str | None = None
    encoding: str | None = None
    columns: tuple[str, ...] | None = None
    no_header: bool = False
    group: str | None = None
    label_columns: tuple[str, ...] | None = None
    label_cells: Literal["switches", "labels"] | None = None
    spans: tuple[str, str] | None = None
    decimal: Literal[",", "."] | None = None
    drop_unlabelled: bool = False
    positive: str | None = None
    held_out: HeldOut = field(default_factory=HeldOut)
    recipe: RecipeChanges = field(default_factory=RecipeChanges)

    def __post_init__(self) -> None:
        if self.labels is not None and len(set(self.labels)) != len(self.labels):
            raise InvalidConfiguration("labels", "a label occurs twice")

    @property
    def given_columns(self) -> tuple[str, ...]:
        return tuple(name for name in COLUMNS if getattr(self, name) is not None)

    @property
    def layout(self) -> Layout:
        """What is said about the files of the task."""
        return Layout(
            format=self.format,
            delimiter=self.delimiter,
            encoding=self.encoding,
            columns=self.columns,
            no_header=self.no_header,
            has_task=self.text is not None or self.label is not None,
            words=self.words,
            tags=self.tags,
        )


def load_table_task(path: Path) -> TableTask:
    """Read a task file: a run's, or one that a user wrote, which states no layout."""
    values = read_json_object(path)
    if LAYOUT in values:
        require_layout(path, values.pop(LAYOUT))
    task = from_json(TableTask, values, str(path))
    folder = path.resolve().parent
    files = {name: folder / file for name in ("train", "dev") if (file := getattr(task, name)) is not None}
    return replace(task, **files)


def read_label_names(values: Sequence[str]) -> dict[str, str]:
    """Names of labels, from `0=negative 1=positive` or from a file.

    A file is a JSON object, or has a line for each label: its name, or the label and its name with `=`, a tab, a comma
    or blanks between them. Names alone are those of the labels 0, 1, 2 and so on.
    """
    if len(values) == 1 and Path(values[0]).is_file():
        path = Path(values[0])
        if path.suffix.lower() == ".json":
            content = convert_value(dict[str, str | int], read_json_object(path), str(path))
            named = {label: str(name) for label, name in content.items()}
            if all(name.isdecimal() for name in named.values()) and not any(label.isdecimal() for label in named):
                return {name: label for label, name in named.items()}  # label2id
            return named
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
        pairs = [re.fullmatch(r"(\d+)\s*[=,;:\t ]\s*(\S.*)", line) for line in lines]
        if all(pairs):
            return {pair[1]: pair[2].partition("\t")[0].strip() for pair in pairs if pair is not None}
        return {str(number): line for number, line in enumerate(lines)}
    names = {}
    for value in values:
        label, equals, name = value.partition("=")
        if not equals or not label or not name:
            remedy = "write 0=negative 1=positive, or name a file with a name on each line"
            raise UsageError("label_names", f"{value!r} is neither a file nor LABEL=NAME", remedy)
        names[label] = name
    return names


def save_table_task(directory: Path, task: TableTask) -> None:
    """Write the task into a run's directory, without values that are None."""
    values = to_json(task)
    values |= {name: {k: v for k, v in values[name].items() if v is not None} for name in ("held_out", "recipe")}
    save_versioned(directory / TASK_FILE, {name: value for name, value in values.items() if value not in (None, False)})


def table_task_of(model_directory: Path) -> TableTask | None:
    """The task that a run saved beside its model, None if there is none."""
    for folder in (model_directory, model_directory.parent):
        if (folder / TASK_FILE).is_file():
            return load_table_task(folder / TASK_FILE)
    return None


# --------------------------------------------------------------------------------------------------------------------
# The declaration of each kind of task on a table: inputs, target, metrics, and the default recipe.

NO_QUESTION = "(no question)"
NO_TEXT = "(no text)"
"""Empty columns for a multiple choice without question or text."""
OWN_RECIPE = TaskRecipe(learning_rate=2e-5, batch_size=32, epochs=3.0, warmup_share=0.1, max_length=512)
SPAN_RECIPE = TaskRecipe(
    learning_rate=3e-5, batch_size=32, epochs=2.0, max_length=384, question_length=64, stride=128, encoder_dropout=0.0
)
OPTION_RECIPE = TaskRecipe(learning_rate=2e-5, batch_size=32, epochs=3.0, max_length=512, question_length=128)
MAX_NAMED = 10
"""The largest number of labels that a description names."""
METRICS: dict[Kind, tuple[Metric, ...]] = {
    "classification": (metrics.accuracy, metrics.f1, metrics.macro_f1, metrics.matthews_correlation),
    "regression": (metrics.pearson, metrics.spearman, metrics.mean_absolute_error),
    "multi-label": (metrics.multi_label_scores,),
    "token-classification": (metrics.entity_scores, metrics.run_scores, metrics.word_scores),
    "multiple-choice": (metrics.accuracy,),
    "question-answering": (span_f1, span_exact_match),
}
"""Possible metrics of each kind; of two classes `f1` is that of one of them, and named after it."""


def declare_task(task: TableTask, source: Source, options: tuple[str, ...] = ()) -> DeclaredTask:
    """The declaration of a complete task; `options` are the columns of a multiple choice (see `expand_options`)."""
    n_labels = len(task.labels or ())
    texts = " and ".join(f"`{name}`" for name in (task.text, task.pair) if name)
    match task:
        case TableTask(kind="token-classification", words=str(words), tags=str(tags), labels=tuple(labels)):
            names = tuple((task.label_names or {}).get(name, name) for name in labels)
            inputs = Words(words)
            target = TokenTagging(labels, tags, names if task.label_names else None)
            what = f"Predicts the tag of each word of `{words}`, one of {n_labels}"
        case TableTask(kind="question-answering", question=str(question), context=str(context)):
            absent = bool(task.may_be_absent)
            inputs = QuestionInContext(question, context)
            target = Span(absent, head="joint" if absent else "independent")
            what = f"Answers `{question}` with a part of `{context}`"
        case TableTask(kind="multiple-choice", label=str(label)):
            inputs = QuestionInContext(task.question or NO_QUESTION, task.text or NO_TEXT)
            target = MultipleChoice(options, label)
            texts = " and ".join(f"`{name}`" for name in (task.question, task.text) if name)
            what = "Chooses among options" + (f", given {texts}" if texts else "")
        case TableTask(text=str(text), label=str(label)):
            inputs = Single(text) if task.pair is None else Pair(text, task.pair)
            if task.kind == "regression":
                target = Regression(label)
                what = f"Predicts the number `{label}` from {texts}"
            elif task.kind == "multi-label":
                names = tuple((task.label_names or {}).get(name, name) for name in task.labels or ())
                target = MultiLabel(
                    task.labels or (), label, task.separator or "|", names if task.label_names else None
                )
                what = f"Predicts which of {n_labels} labels `{label}` has, from {texts}"
            else:
                names = tuple((task.label_names or {}).get(name, name) for name in task.labels or ())
                target = SingleLabel(task.labels or (), label, names if task.label_names else None)
                classes = ", ".join(names) if n_labels <= MAX_NAMED else f"one of {n_labels} classes"
                what = f"Predicts `{label}` ({classes}) from {texts}"
        case _:
            why = f"lacks labels or columns of a {task.kind}"
            raise InvalidConfiguration("task", why, "set them, or give a training file")
    recipe = {"multiple-choice": OPTION_RECIPE, "question-answering": SPAN_RECIPE}.get(task.kind or "", OWN_RECIPE)
    return DeclaredTask(
        name=task.name,
        source=source,
        inputs=inputs,
        target=target,
        metrics=metrics_of(task),
        recipe=task.recipe.applied_to(recipe),
        description=" ".join(f"{what}, learned from a table.".split()),
    )


def metrics_of(task: TableTask) -> tuple[Metric, ...]:
    """The chosen metrics, or the default ones of the kind; the first selects models."""
    assert task.kind is not None
    labels = task.labels or ()
    possible = (open_question_scores,) if task.may_be_absent else METRICS[task.kind]
    names = {metric.__name__: metric for metric in possible}
    if task.kind == "classification":
        del names["f1"]
    if task.kind == "classification" and len(labels) == 2:
        own = {label: f1_of(at, (task.label_names or {}).get(label, label)) for at, label in enumerate(labels)}
        positive = own[task.positive or labels[1]]
        names |= {metric.__name__: metric for metric in own.values()} | {"f1": positive}
    for name in task.metrics or ():
        if name not in names:
            why = f"cannot be used with {task.kind}" + (f" of {len(labels)} labels" if labels else "")
            raise InvalidConfiguration(f"metric {name}", why, did_you_mean(name, names))
    if task.metrics is not None:
        return tuple(names[name] for name in task.metrics)
    if task.kind == "token-classification":
        return metrics.tag_metrics([(task.label_names or {}).get(label, label) for label in labels])
    if task.kind == "classification":
        default = ("accuracy", "f1", "macro_f1") if len(labels) == 2 else ("accuracy", "macro_f1")
        return tuple(names[name] for name in default)
    return possible


def f1_of(label: int, name: str) -> Metric:
    """F1 of one of two classes, named after it."""

    def f1(gold: Any, predicted: Any) -> float | None:
        return metrics.f1(np.asarray(gold) == label, np.asarray(predicted) == label)

    f1.__name__ = f"f1 ({name})"
    return f1


# --------------------------------------------------------------------------------------------------------------------
# Statistics of a task's rows: number, lengths, balance, defects.

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
    texts = [_texts_and_options(task, row) for row in rows]
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


def _texts_and_options(task: DeclaredTask, row: Row) -> tuple[list[str], list[str]]:
    """The texts that are read in one sequence, and the options, each of which is read in its own."""
    values = _values(row, *task.inputs.columns)
    texts = [value if isinstance(value, str) else " ".join(value or ()) for value in values]
    if not task.target.option_columns:
        return texts, []
    question, context = texts
    options = _values(row, *task.target.option_columns)
    return [context], [question_with_option(question, option) for option in options if isinstance(option, str)]


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
