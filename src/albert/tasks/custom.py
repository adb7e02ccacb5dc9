"""The user's own task: tables whose columns are named, everything else inferred from the rows."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from albert.runtime.errors import InvalidConfiguration, UsageError
from albert.runtime.manifests import file_hash
from albert.tasks.rows import Rows
from albert.tasks.tables.formats import read_table
from albert.tasks.tables.held_out_rows import hold_out_rows
from albert.tasks.tables.inferred_task import Inferred, infer_task, unfolded_options
from albert.tasks.tables.own_tables import OwnTables, prepared_rows, refuse_bad_rows
from albert.tasks.tables.table_kinds import description_of, inputs_of, metrics_of, recipe_of, target_of
from albert.tasks.tables.table_task import RecipeChanges, TableTask
from albert.tasks.task import Task, TaskRecipe


@dataclass(frozen=True)
class ReadTask:
    """A task whose tables were read.

    Attributes:
        task: the declaration; its source holds the rows.
        asked: the same as plain values, complete: with it the task can be declared again.
        raw: the tables as they were read, by split; without what is held out.
        inferred: what nobody said.
    """

    task: Task
    asked: TableTask
    raw: Mapping[str, Rows]
    inferred: tuple[Inferred, ...]

    @property
    def files(self) -> dict[str, Path | None]:
        """The files of the splits."""
        return {"train": self.asked.train, "dev": self.asked.dev}

    @property
    def tables(self) -> Mapping[str, Rows]:
        """The rows by split, as the task has them."""
        assert isinstance(self.task.source, OwnTables)
        return self.task.source.tables

    def check(self, *splits: str) -> "ReadTask":
        """This, when every row of these splits, or of all, can be learnt from or scored; see `refuse_bad_rows`."""
        for split in splits or self.tables:
            refuse_bad_rows(self.task, self.tables[split].rows)
        return self


def read_task(asked: TableTask, hold_out: bool = True) -> ReadTask:
    """Read the tables of a task, infer what was not said, and declare it.

    Where there is no development file a part of the training file takes its place, unless `hold_out` says otherwise.

    Raises:
        UsageError: no file; columns that are missing, unknown or contradict each other.
        MissingInput, DamagedData: a table cannot be read, or an identifier, option or answer is not what it should be.
        InvalidConfiguration: too few labels or rows; or the training file is not the one whose rows were held out.
    """
    files = {split: path for split, path in (("train", asked.train), ("dev", asked.dev)) if path is not None}
    if not files:
        raise UsageError("albert", "no table to read", "name it with --train, or --dev")
    raw = {split: read_table(path) for split, path in files.items()}
    first = next(iter(files))
    complete, inferred = infer_task(asked, raw[first], files[first], to_learn=first == "train")
    tables = {split: prepared_rows(complete, rows, files[split]) for split, rows in raw.items()}
    if complete.kind == "question-answering" and complete.may_be_absent is None:
        absent = any(row.answers == () for rows in tables.values() for row in rows.rows)
        complete = replace(complete, may_be_absent=absent)
    options = unfolded_options(complete, raw[first].rows)[1] if complete.options else ()
    task = _declared(complete, tables, options)
    if asked.dev is None and hold_out:
        digest = file_hash(files["train"])
        if complete.held_out.digest not in (None, digest):
            why = "is not the file any more whose rows were held out: they may have been learnt"
            raise InvalidConfiguration(files["train"], why, "give a file with --dev")
        complete = replace(complete, held_out=replace(complete.held_out, digest=digest))
        learnt, scored = hold_out_rows(task, tables["train"], complete.held_out)
        tables = {"train": learnt, "dev": scored}
    complete = replace(complete, metrics=tuple(metric.__name__ for metric in task.metrics))
    return ReadTask(replace(task, source=OwnTables(complete, tables)), complete, raw, inferred)


def declare_custom_task(
    files: Mapping[str, Path],
    text: str,
    label: str,
    pair: str | None = None,
    regression: bool = False,
    labels: tuple[str, ...] | None = None,
    recipe: TaskRecipe | None = None,
) -> Task:
    """A task from columns: classification of `text` (or of `text` and `pair`) by `label`, or regression.

    Args:
        files: split to file, "train" or "dev" or both.
        text, label, pair: column names.
        regression: `label` is a number to predict.
        labels: the known labels; None takes those of the training file, sorted (as numbers when all are
            numbers).
        recipe: how to train, taken as it is; None fits the defaults to model and rows.

    Raises:
        UsageError, MissingInput, DamagedData, InvalidConfiguration: see `read_task`.
    """
    asked = TableTask(
        kind="regression" if regression else "classification",
        train=files.get("train"),
        dev=files.get("dev"),
        text=text,
        pair=pair,
        label=label,
        labels=None if regression else labels,
        recipe=RecipeChanges() if recipe is None else RecipeChanges.of(recipe),
    )
    task = read_task(asked, hold_out=False).check().task
    return task if recipe is None else replace(task, recipe=recipe)


def _declared(asked: TableTask, tables: Mapping[str, Rows], options: tuple[str, ...]) -> Task:
    return Task(
        name=asked.name,
        source=OwnTables(asked, tables),
        inputs=inputs_of(asked),
        target=target_of(asked, options),
        metrics=metrics_of(asked),
        recipe=recipe_of(asked),
        description=" ".join(description_of(asked).split()),
    )
