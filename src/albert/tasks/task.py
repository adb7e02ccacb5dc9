"""`Task`, the declaration of a task, and its parts: rows, sources, inputs, targets, recipe, published scores.

The kind of target (`Choice`, `Labels`, `Tags`, `Score`, `Option`, `Span`) decides features, head and decoding; no other
code depends on the name of a task."""

import tomllib
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from albert.optim.recipe import refuse_implausible_rate
from albert.runtime.errors import DamagedData, InvalidConfiguration, did_you_mean, require_range

# --------------------------------------------------------------------------------------------------------------------
# Rows of files, and the sources that read them.


@dataclass(frozen=True)
class Answer:
    """A gold answer: its text and the position of its first character in the context, None if unknown."""

    text: str
    start: int | None


Field = str | tuple[str, ...]
"""The value of a column in one row: a text, or a list of texts if the format has lists."""


@dataclass(slots=True)
class Row:
    """One row of a file. It is not changed, but not frozen either: a million of them are made in a moment.

    Attributes:
        where: `file:line`, for error messages.
        answers: gold answers of a span task; None if the file has none for any question.
        group: part of the data that is scored separately too.
    """

    identifier: str
    where: str
    fields: Mapping[str, Field]
    answers: tuple[Answer, ...] | None = ()
    group: str = ""

    def text(self, column: str) -> str:
        """The text in a column; DamagedData if there is no such column, or it holds a list."""
        value = self._value(column)
        if not isinstance(value, str):
            raise DamagedData(self.where, f"has a list in column {column!r} where a text is expected")
        return value

    def texts(self, column: str, separator: str | None = None) -> tuple[str, ...]:
        """The list in a column, or the parts of its text that are not blank, stripped; DamagedData without the column.

        Args:
            separator: between the parts of a text; None for whitespace.
        """
        value = self._value(column)
        if not isinstance(value, str):
            return value
        if separator is None:
            return tuple(value.split())
        return tuple(filter(None, map(str.strip, value.split(separator))))

    def _value(self, column: str) -> Field:
        if column not in self.fields:
            raise DamagedData(self.where, f"has no column {column!r}", did_you_mean(column, self.fields))
        return self.fields[column]


class ColumnRows(Sequence[Row]):
    """Rows that are made when they are read; a column is read without them."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The columns, which every row has."""

    @abstractmethod
    def column(self, name: str) -> list[str]:
        """The value of every row in a column."""


@dataclass(frozen=True)
class Rows:
    """All rows of a split in file order.

    Attributes:
        counts: of what was noticed while reading.
        notes: what was recognised, a line each.
        names: the columns by position, None for one that is ignored.
        doubt: a remedy for a column that is not there, because the first row does not look like names.
    """

    rows: Sequence[Row]
    counts: Mapping[str, int]
    notes: tuple[str, ...] = ()
    names: tuple[str | None, ...] = ()
    doubt: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of all rows, in the order of their first appearance."""
        if isinstance(self.rows, ColumnRows):
            return self.rows.names
        return tuple(dict.fromkeys(column for row in self.rows for column in row.fields))

    def values(self, column: str) -> list[Field | None]:
        """The value of every row in a column, None where it is absent."""
        if isinstance(self.rows, ColumnRows):
            is_there = column in self.rows.names
            return [*self.rows.column(column)] if is_there else [None] * len(self.rows)
        return [row.fields.get(column) for row in self.rows]


@runtime_checkable
class Source(Protocol):
    """Where a task's rows come from."""

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that can be read, e.g. `("train", "dev")`."""
        ...

    def with_files(self, files: Mapping[str, Path]) -> "Source":
        """The same source with other files for some splits, in the same layout."""
        ...

    def read(self, data: Path, split: str) -> Rows:
        """All rows of a split; MissingInput and DamagedData name the file and line."""
        ...


@dataclass(frozen=True)
class Single:
    """One text: `[CLS] text [SEP]`."""

    text: str


@dataclass(frozen=True)
class Pair:
    """Two texts: `[CLS] first [SEP] second [SEP]`; the fields are column names."""

    first: str
    second: str


@dataclass(frozen=True)
class QuestionInContext:
    """A question and the text that contains its answer: `[CLS] question [SEP] context [SEP]`."""

    question: str
    context: str


@dataclass(frozen=True)
class Words:
    """A text split into words: `[CLS] words [SEP]`, in overlapping windows if it is long.

    The column holds a list of words, or a text with whitespace between them.
    """

    words: str


@dataclass(frozen=True)
class Choice:
    """One of several classes. `labels` are the values of `column`, in the order of their ids.

    `names` are readable names for labels that are digits in the files; a model directory shows the names.
    """

    labels: tuple[str, ...]
    column: str
    names: tuple[str, ...] | None = None

    @property
    def shown(self) -> tuple[str, ...]:
        """The names of the classes, or else their labels."""
        return self.names if self.names is not None else self.labels


@dataclass(frozen=True)
class Labels:
    """Any number of classes at once (multi-label classification). `labels` are in the order of their ids.

    `column` holds a list of labels, or a text with `separator` between them, where whitespace around labels is ignored,
    and a separator at an end; an empty value means no label.
    """

    labels: tuple[str, ...]
    column: str
    separator: str = "|"
    names: tuple[str, ...] | None = None

    @property
    def shown(self) -> tuple[str, ...]:
        """The names of the classes, or else their labels."""
        return self.names if self.names is not None else self.labels


@dataclass(frozen=True)
class Tags:
    """One of several classes for every word (token classification). `labels` are in the order of their ids.

    `column` holds a list with a tag for each word, or a text with whitespace between tags.
    """

    labels: tuple[str, ...]
    column: str
    names: tuple[str, ...] | None = None

    @property
    def shown(self) -> tuple[str, ...]:
        """The names of the tags, or else the tags themselves."""
        return self.names if self.names is not None else self.labels


@dataclass(frozen=True)
class Score:
    """A number (regression); values outside `low`..`high` are errors in the data, None is no limit."""

    column: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Option:
    """One of the options of each question: `options` are the columns of their texts, `column` holds the name of the
    right one's column. A question may have fewer options: the others are absent.
    """

    options: tuple[str, ...]
    column: str


SpanHeadKind = Literal["joint", "independent"]
"""joint: the end given the start, and a separate no-answer logit (the paper's SQuAD 2.0 models); independent: start and
end logits, both at [CLS] for no answer (question answering in transformers)."""


PairEncoding = Literal["together", "separately"]
"""together: both texts in one sequence (a cross-encoder); separately: one sequence each, whose mean states the head
compares (a bi-encoder)."""


ThresholdFrom = Literal["train", "dev"]
"""The questions that choose the no-answer threshold: some held out of training, or the scored ones."""


@dataclass(frozen=True)
class Span:
    """A part of the context; `may_be_absent` if a question may have no answer."""

    may_be_absent: bool = False
    max_answer_tokens: int = 30
    head: SpanHeadKind = "independent"


Inputs = Single | Pair | QuestionInContext | Words
Target = Choice | Labels | Tags | Score | Option | Span
Metric = Callable[[Any, Any], float | dict[str, float | None] | None]


@dataclass(frozen=True, kw_only=True)
class TaskRecipe:
    """Settings of fine-tuning. Lengths are in tokens, special tokens included; dropouts are probabilities.

    Exactly one of `steps` and `epochs` is set. `examples` is the training set size that `steps` was chosen for: with
    another number of examples the number of epochs stays the same, not the number of steps.
    """

    learning_rate: float
    batch_size: int
    steps: int | None = None
    examples: int | None = None
    epochs: float | None = None
    warmup_share: float = 0.1
    weight_decay: float = 0.01
    max_length: int = 512
    encoder_dropout: float | None = None
    head_dropout: float = 0.1
    question_length: int = 64
    stride: int = 128

    def total_steps(self, training_examples: int) -> int:
        """Optimiser updates for this number of examples; InvalidConfiguration unless one of steps and epochs is set."""
        if (self.steps is None) == (self.epochs is None):
            why = "exactly one of steps and epochs must be set"
            raise InvalidConfiguration("recipe", why, "give --steps or --epochs")
        if self.epochs is not None:
            return max(1, round(self.epochs * training_examples / self.batch_size))
        assert self.steps is not None
        if self.examples is not None and training_examples != self.examples:
            return max(1, round(self.steps * training_examples / self.examples))
        return self.steps

    def check(self) -> None:
        """Raise InvalidConfiguration, naming the field, if a value is out of range."""
        above_0 = "learning_rate", "batch_size", "steps", "epochs", "max_length", "question_length", "stride"
        require_range(self, "a number above 0", *above_0)
        refuse_implausible_rate(self.learning_rate)
        require_range(self, "a share from 0 to below 1", "warmup_share", "encoder_dropout", "head_dropout")
        if self.max_length < 8:
            raise InvalidConfiguration("max_length", f"must be at least 8 tokens, is {self.max_length}")
        self.total_steps(1)


@dataclass(frozen=True)
class Published:
    """A published score in points of 100, on the development set unless its source says otherwise."""

    model: str
    metric: str
    score: float
    source: str


UNNAMED = "custom"
"""The default name of a task on a table."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A declared task.

    Attributes:
        metrics: each returns one score, named like the function, or several by name; the first score selects models.
        second_recipe: recipe for models of the second release, if it differs.
        further_splits: also scored after fine-tuning, if their files exist.
        submission: file names that the benchmark's server expects, by split.
        intermediate: the task whose model the paper starts from.
    """

    name: str
    source: Source
    inputs: Inputs
    target: Target
    metrics: tuple[Metric, ...]
    recipe: TaskRecipe
    second_recipe: TaskRecipe | None = None
    further_splits: tuple[str, ...] = ()
    submission: Mapping[str, str] = field(default_factory=dict)
    intermediate: str | None = None
    published: tuple[Published, ...] = ()
    description: str = ""

    @property
    def title(self) -> str:
        return "your table" if self.name == UNNAMED else self.name


def load_tasks(
    file: str, metrics: Sequence[Metric], parts: Callable[[Mapping[str, Any]], tuple[Source, Inputs, Target]]
) -> tuple[Task, ...]:
    """The tasks that a file of this folder declares; `glue.toml` describes its keys.

    Args:
        metrics: those that entries may name.
        parts: returns source, inputs and target of an entry.
    """
    declared = tomllib.loads((files("albert.tasks") / file).read_text(encoding="utf-8"))
    known = {metric.__name__: metric for metric in metrics}
    tasks = []
    for entry in declared["task"]:
        entry = declared["defaults"] | entry
        recipe = dict(entry["recipe"])
        recipe = TaskRecipe(warmup_share=recipe.pop("warmup") / recipe["steps"], **recipe)
        source, inputs, target = parts(entry)
        task = Task(
            name=entry["name"],
            description=entry["description"],
            source=source,
            inputs=inputs,
            target=target,
            metrics=tuple(known[name] for name in entry["metrics"]),
            recipe=recipe,
            second_recipe=replace(recipe, **entry["second_recipe"]) if "second_recipe" in entry else None,
            further_splits=tuple(entry.get("further_splits", ())),
            submission=entry.get("submission", {}),
            intermediate=entry.get("intermediate"),
            published=tuple(
                Published(model, metric, score, declared["sources"][where])
                for metric, where, scores in entry.get("published", ())
                for model, score in scores.items()
            ),
        )
        tasks.append(task)
    return tuple(tasks)
