"""`Task`, the declaration of a task, and its parts: rows, sources, inputs, targets, recipe, published scores.

A declaration names where the rows come from, which columns are the text, what is asked (the *target*), how
answers are scored, the published recipe and the published scores. The kind of target (`Choice`, `Labels`, `Tags`,
`Score`, `Option`, `Span`) decides features, head and decoding; nothing in the package asks for a task's name."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from albert.runtime.errors import DamagedData, InvalidConfiguration, did_you_mean

# --------------------------------------------------------------------------------------------------------------------
# What a file holds, row by row, and what gives it: the ground that declarations stand on.


@dataclass(frozen=True)
class Answer:
    """A gold answer: its text and where it begins in the context (characters), None when that place is
    unknown.
    """

    text: str
    start: int | None


Field = str | tuple[str, ...]
"""What a column holds in one row: a text, or a list of texts where the format has lists."""


@dataclass(frozen=True)
class Row:
    """One row of a file: its identifier, `file:line` for messages, its fields, gold answers of a span task (None where
    the file says nothing of any), and the part of the data that is scored apart, where there are such.
    """

    identifier: str
    where: str
    fields: Mapping[str, Field]
    answers: tuple[Answer, ...] | None = ()
    group: str = ""

    def text(self, column: str) -> str:
        """The text in a column.

        Raises:
            DamagedData: there is no such column, or it holds a list.
        """
        value = self._value(column)
        if not isinstance(value, str):
            raise DamagedData(self.where, f"has a list in column {column!r} where a text is expected")
        return value

    def texts(self, column: str, separator: str | None = None) -> tuple[str, ...]:
        """The list in a column, or the parts of the text in it: between separators, or between blanks without one.

        An empty text has no parts, and the blanks around a part do not belong to it; a list stays as it is.

        Raises:
            DamagedData: there is no such column.
        """
        value = self._value(column)
        if not isinstance(value, str):
            return value
        return tuple(part.strip() for part in value.split(separator)) if value.strip() else ()

    def _value(self, column: str) -> Field:
        if column not in self.fields:
            raise DamagedData(self.where, f"has no column {column!r}", did_you_mean(column, self.fields))
        return self.fields[column]


@dataclass(frozen=True)
class Rows:
    """All rows of a split in file order, and what had to be counted while reading them."""

    rows: list[Row]
    counts: Mapping[str, int]


@runtime_checkable
class Source(Protocol):
    """Where a task's rows come from."""

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that can be read, e.g. `("train", "dev")`."""
        ...

    def with_files(self, files: Mapping[str, Path]) -> "Source":
        """The same source with other files, in the same layout, for some splits."""
        ...

    def read(self, data: Path, split: str) -> Rows:
        """Every row of a split. Raises MissingInput and DamagedData with the file (and line) named."""
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
    """A question and the text that holds its answer: `[CLS] question [SEP] context [SEP]`."""

    question: str
    context: str


@dataclass(frozen=True)
class Words:
    """A text that comes in words: `[CLS] words [SEP]`, in overlapping windows where it is long.

    The column holds a list of them, or a text whose words stand between blanks.
    """

    words: str


@dataclass(frozen=True)
class Choice:
    """One of several classes. `labels` are the values found in `column`; a label's place in the tuple is its
    id.

    `names` says the labels in words where the files hold only digits; a model directory shows the names.
    """

    labels: tuple[str, ...]
    column: str
    names: tuple[str, ...] | None = None

    @property
    def shown(self) -> tuple[str, ...]:
        return self.names if self.names is not None else self.labels


@dataclass(frozen=True)
class Labels:
    """Any number of classes at once, none of them included (multi-label classification).

    `column` holds a list of labels, or a text of them with `separator` between; an empty one says that none is
    true. A label's place in the tuple is its id. The items of a list are taken as they are: only in a text does the
    separator mean something, and there the blanks around a label are no part of it.
    """

    labels: tuple[str, ...]
    column: str
    separator: str = "|"

    @property
    def shown(self) -> tuple[str, ...]:
        return self.labels


@dataclass(frozen=True)
class Tags:
    """One of several classes for every word (token classification): `column` holds a list of as many tags as there are
    words, or a text with blanks between them. A tag's place in the tuple is its id.
    """

    labels: tuple[str, ...]
    column: str

    @property
    def shown(self) -> tuple[str, ...]:
        return self.labels


@dataclass(frozen=True)
class Score:
    """A number (regression); values outside `low`..`high` are errors in the data. None means no limit."""

    column: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Option:
    """One of the options that come with each question: `options` are the columns of their texts, `column` holds the
    name of the right one's column.
    """

    options: tuple[str, ...]
    column: str


SpanHeadKind = Literal["joint", "independent"]
"""joint: the end given the start, and a decision of its own that there is no answer (the paper's SQuAD 2.0 models);
independent: start and end logits, both at [CLS] for no answer (what transformers calls question answering)."""


PairEncoding = Literal["together", "separately"]
"""How the two texts of a pair are read: as one sequence, where attention sees both (a cross-encoder), or each by itself
(a bi-encoder), where the head compares the means of their states."""


ThresholdFrom = Literal["train", "dev"]
"""Which questions choose the no-answer threshold: some held out of training, or those that are scored."""


@dataclass(frozen=True)
class Span:
    """A piece of the context; `may_be_absent` when a question may have no answer there."""

    may_be_absent: bool = False
    max_answer_tokens: int = 30
    head: SpanHeadKind = "independent"


Inputs = Single | Pair | QuestionInContext | Words
Target = Choice | Labels | Tags | Score | Option | Span
Metric = Callable[[Any, Any], float | dict[str, float | None] | None]


@dataclass(frozen=True, kw_only=True)
class TaskRecipe:
    """How a task is fine-tuned. Lengths are in tokens, special tokens included; dropouts are probabilities.

    Exactly one of `steps` and `epochs` is set. `examples` is the training set size that `steps` was chosen
    for: with another number of rows the number of epochs is kept, not the number of steps.
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
        """Optimiser updates for a training set of that size.

        Raises InvalidConfiguration when both or neither of `steps` and `epochs` are set.
        """
        if (self.steps is None) == (self.epochs is None):
            raise InvalidConfiguration(
                "recipe", "exactly one of steps and epochs must be set", "give --steps or --epochs"
            )
        if self.epochs is not None:
            return max(1, round(self.epochs * training_examples / self.batch_size))
        assert self.steps is not None
        if self.examples is not None and training_examples != self.examples:
            return max(1, round(self.steps * training_examples / self.examples))
        return self.steps

    def check(self) -> None:
        """Raises InvalidConfiguration, naming the field, when a value cannot work."""
        for name in ("learning_rate", "batch_size", "steps", "epochs", "max_length", "question_length", "stride"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InvalidConfiguration(name, f"must be above 0, is {value}")
        for name in ("warmup_share", "encoder_dropout", "head_dropout"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise InvalidConfiguration(name, f"must be at least 0 and below 1, is {value}")
        if self.max_length < 8:
            raise InvalidConfiguration("max_length", f"must be at least 8 tokens, is {self.max_length}")
        self.total_steps(1)


@dataclass(frozen=True)
class Published:
    """A score from the literature, in the metric's own scale (points of 100); on the development set unless its source
    says otherwise.
    """

    model: str
    metric: str
    score: float
    source: str


UNNAMED = "custom"
"""The name of a table's task that was given none."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A declared task. A metric gives one score, called as it is, or several by name; a model is chosen by the first.

    `second_recipe` is that of the models of the second release where it differs. `further_splits` are scored after a
    fine-tuning too, where their files are. `submission` maps the splits whose answers only the benchmark's server knows
    to the names of the files that it takes. `intermediate` names the task from whose model the paper starts this one.
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
    """The tasks that a file of this folder declares, in its order; `glue.toml` says what its keys mean.

    Args:
        metrics: those that it may name.
        parts: source, inputs and target of an entry.
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
