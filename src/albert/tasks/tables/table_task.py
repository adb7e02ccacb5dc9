"""What is asked of a table, as plain values: what flags say, what a task file says, and what a run keeps as task.json.

A user's file may leave out all that can be inferred from the rows; the file in a run's directory holds everything.
"""

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from albert.runtime.errors import InvalidConfiguration
from albert.runtime.strict_json import load_json, save_json, to_json
from albert.tasks.task import TaskRecipe

TASK_FILE = "task.json"
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
        """The recipe wanted.

        Raises:
            InvalidConfiguration: both epochs and steps.
        """
        chosen: dict[str, Any] = {name: value for name, value in to_json(self).items() if value is not None}
        if "steps" in chosen or "epochs" in chosen:
            if "steps" in chosen and "epochs" in chosen:
                raise InvalidConfiguration("recipe", "steps and epochs say the same thing twice", "give one of them")
            chosen = {"steps": None, "epochs": None, "examples": None, **chosen}
        return replace(recipe, **chosen)

    @classmethod
    def of(cls, recipe: TaskRecipe) -> "RecipeChanges":
        """All that a recipe says."""
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


UNNAMED = "custom"
"""The name of a table's task that was given none."""


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
        """The fields that name columns and are set."""
        return tuple(name for name in COLUMNS if getattr(self, name) is not None)


def load_table_task(path: Path) -> TableTask:
    """The task in a file.

    Raises:
        MissingInput, DamagedData: it cannot be read, or is not JSON.
        InvalidConfiguration: an unknown key, a value of a wrong type.
    """
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
