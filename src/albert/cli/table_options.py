"""The options that say what is asked of the user's own tables, the same for `albert finetune` and `albert evaluate`."""

from dataclasses import dataclass, fields, replace
from pathlib import Path

from albert.runtime.errors import UsageError
from albert.tasks.tables.table_task import COLUMNS, Kind, OptionLabels, TableTask, load_table_task


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Your own tables: their columns, and what is not to be inferred from the rows."""

    task_file: Path | None = None
    """Your own tables: a JSON file that says what these flags say, e.g. {"train": "my.csv", "text": "review", "label":
    "stars"}. Flags go before it. A run writes a complete one, its task.json."""
    text: str | None = None
    """Your own tables: the column of the text; of a multiple choice, the passage."""
    pair: str | None = None
    """Your own tables: the column of a second text."""
    label: str | None = None
    """Your own tables: the column of the label or number; with lists, or --multi-label, of several labels."""
    words: str | None = None
    """Token classification: the column of lists of words."""
    tags: str | None = None
    """Token classification: the column of lists of tags, one a word."""
    options: tuple[str, ...] | None = None
    """Multiple choice: the columns of the options, or one column of lists; --label is the right one's column, letter,
    number or text."""
    question: str | None = None
    """Questions on a text, or a multiple choice: the column of the question."""
    context: str | None = None
    """Questions on a text: the column of the text that holds the answer."""
    answer: str | None = None
    """Questions on a text: the column of the answer, or of lists of right ones; an empty one: there is none."""
    answer_start: str | None = None
    """Questions on a text: the column of the place where the answer begins, in characters from 0."""
    id: str | None = None
    """Your own tables: the column of a name for each row, for the predictions; its number when not set."""
    classes: bool = False
    """Your own tables: the labels are classes, though they are numbers."""
    regression: bool = False
    """Your own tables: the label is a number to predict."""
    multi_label: bool = False
    """Your own tables: any number of labels is right at once."""
    separator: str | None = None
    """What stands between several labels in a text."""
    labels: tuple[str, ...] | None = None
    """All labels, in their order; those of the training file when not set."""
    option_labels: OptionLabels | None = None
    """What the label of a multiple choice is, where that is not plain."""
    metrics: tuple[str, ...] | None = None
    """What your own task is scored by, the first one decides; the usual ones of its kind when not set."""

    def given(self) -> list[str]:
        """The flags that were used."""
        return [
            "--" + one.name.replace("_", "-") for one in fields(self) if getattr(self, one.name) not in (None, False)
        ]

    def task(self, base: TableTask | None = None, train: Path | None = None, dev: Path | None = None) -> TableTask:
        """What is asked: by the flags, and where they say nothing by the task file, or by `base`.

        Raises:
            UsageError: flags contradict each other.
            MissingInput, DamagedData, InvalidConfiguration: the task file cannot be read.
        """
        if self.task_file is not None:
            base = load_table_task(self.task_file)
        base = base or TableTask()
        plain = (*COLUMNS, "id", "separator", "labels", "option_labels", "metrics")
        said = {name: getattr(self, name) for name in plain if getattr(self, name) is not None}
        kind = self._kind()
        if kind is not None and kind != base.kind:  # what was complete for another kind is so no more
            base = replace(base, kind=kind, metrics=None, labels=None)
        files = {name: path for name, path in (("train", train), ("dev", dev)) if path is not None}
        return replace(base, **files, **said)

    def _kind(self) -> Kind | None:
        said: dict[Kind, bool] = {
            "classification": self.classes,
            "regression": self.regression,
            "multi-label": self.multi_label,
        }
        chosen: list[Kind] = [kind for kind, is_said in said.items() if is_said]
        if len(chosen) > 1:
            raise UsageError("--classes, --regression, --multi-label", "contradict each other", "give one of them")
        return chosen[0] if chosen else None
