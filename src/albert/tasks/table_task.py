"""A task on the user's tables as plain values: options, a task file, `task.json`.

A user's file may leave out settings that can be inferred from the rows; the file in a run's directory has them all."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from albert.recipes.finetuning import RecipeChanges
from albert.runtime.errors import InvalidConfiguration, UsageError
from albert.runtime.json_files import convert_value, from_json, read_json_object, save_versioned, to_json
from albert.runtime.manifest import LAYOUT, require_layout
from albert.runtime.words import plain
from albert.tables.table_file import Layout

UNNAMED = "custom"
"""The default name of a task on a table."""
TASK_FILE = "task.json"
OptionLabels = Literal["name", "letter", "from-0", "from-1", "text"]
"""A label is the row's own name of an option (in a list beside the options, or of its column), or its letter, its
number from 0 or 1, or its text."""
COLUMNS = (*("text", "pair", "label", "words", "tags", "options"), *("question", "context", "answer", "answer_start"))
"""The fields of `TableTask` that name columns of texts and of what is learned."""
TARGETS = ("label", "tags", "answer", "answer_start")
"""Those of columns that unlabelled tables lack."""


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """The share of the training file that is held out as development set; `digest` is that of the file, once read."""

    share: float = 0.1
    seed: int = 0
    digest: str | None = None

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise InvalidConfiguration(
                "held_out.share", f"is {plain(self.share)}, a share above 0 and below 1 is needed"
            )


@dataclass(frozen=True, kw_only=True)
class TableTask:
    """A task on tables, by the names of its columns; None is unused, or to be inferred (`kind`, `labels`, `metrics`).

    Attributes:
        kind: that of a class in `albert.tasks.pipelines`.
        train, dev: files; relative paths start at the folder of the task file.
        separator: between several labels in a text.
        label_names: readable names for labels that are digits in the file.
        option_labels: meaning of the label of a multiple choice.
        may_be_absent: whether a question may have no answer.
        format, delimiter, encoding, columns, no_header: see `albert.tables.table_file.Layout`.
        group: the column that numbers the sentences of a table with one word in each row.
        label_columns: several columns of labels; `label` is then their names.
        label_cells: what they hold: 0 or 1 for the label that is their name ("one_hot"), or a label or nothing.
        spans: the columns of a text, and of the parts of it that are marked with a label.
        decimal: the decimal sign of numbers to predict; a point when not set.
        drop_unlabelled: whether rows without a label are left out.
        positive: of two classes, the one whose F1 is reported.
    """

    name: str = UNNAMED
    kind: str | None = None
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
    format: str | None = None
    delimiter: str | None = None
    encoding: str | None = None
    columns: tuple[str, ...] | None = None
    no_header: bool = False
    group: str | None = None
    label_columns: tuple[str, ...] | None = None
    label_cells: Literal["one_hot", "labels"] | None = None
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
    def columns_by_use(self) -> dict[str, str]:
        """The columns that a model reads, by the words of a request; a text beside options is their context."""
        text = self.spans[0] if self.spans is not None else self.text or self.words
        context = self.context if self.options is None else self.text
        uses = {"text": text, "pair": self.pair, "question": self.question, "context": context}
        return {use: column for use, column in uses.items() if column is not None}

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
