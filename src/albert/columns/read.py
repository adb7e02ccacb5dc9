"""A task on the user's tables: files → rows with line numbers → columns → a task. `read_task` has the steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from albert.columns.hold_out import hold_out_rows
from albert.columns.infer import infer_task
from albert.recipes.finetuning import RecipeChanges, TaskRecipe
from albert.runtime.errors import DamagedData, InvalidConfiguration, UsageError, did_you_mean
from albert.runtime.json_files import common_fields
from albert.runtime.manifest import input_hash
from albert.tables.rows import ending_of, gc_disabled, read_table
from albert.tables.table import Row, Table, convert_rows
from albert.tasks.declared import DeclaredTask
from albert.tasks.from_table import Inferred
from albert.tasks.metrics import Metric
from albert.tasks.pipelines import kind_named
from albert.tasks.table_task import TableTask


@dataclass(frozen=True)
class TableSource:
    """The splits of a task on tables, read and prepared; the data folder is not used."""

    table_task: TableTask
    tables: Mapping[str, Table]

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.tables)

    @property
    def has_one_split(self) -> bool:
        """Whether a development set was given or held out; otherwise the rows are divided into folds."""
        return self.table_task.dev is not None or self.table_task.held_out.digest is not None

    def with_files(self, files: Mapping[str, Path]) -> "TableSource":
        tables = {}
        for split, path in files.items():
            table = read_table(path, self.table_task.layout)
            complete, table, _ = infer_task(self.table_task, table, path, to_learn=False)
            tables[split] = prepare_rows(complete, table)
        return replace(self, tables={**self.tables, **tables})

    def read(self, data: Path, split: str) -> Table:
        if split not in self.tables:
            raise InvalidConfiguration(f"split {split}", "no file was given for it", did_you_mean(split, self.tables))
        return self.tables[split]


@dataclass(frozen=True)
class ReadTask:
    """A task and its tables: `raw` are the rows as read, `inferred` the settings that were inferred."""

    task: DeclaredTask
    table_task: TableTask
    raw: Mapping[str, Table]
    inferred: tuple[Inferred, ...]

    @property
    def tables(self) -> Mapping[str, Table]:
        assert isinstance(self.task.source, TableSource)
        return self.task.source.tables

    def check(self, *splits: str) -> "ReadTask":
        """Check the rows of some splits, or of all (see `check_rows`), and return the same object."""
        for split in splits or self.tables:
            check_rows(self.task, self.tables[split].rows)
        return self


def read_task(table_task: TableTask, hold_out: bool = True) -> ReadTask:
    """Read the tables of a task, infer missing settings, and declare it.

    Args:
        hold_out: without a development file, hold out a part of the training file.

    Raises:
        UsageError: no file; or columns are missing, unknown or contradictory.
        MissingInput, DamagedData: a table cannot be read, or has a wrong identifier, option or answer.
        InvalidConfiguration: too few labels or rows; or the training file is not the one whose rows were held out.
    """
    files = {split: path for split, path in (("train", table_task.train), ("dev", table_task.dev)) if path is not None}
    if not files:
        raise UsageError("--train", "is missing", "name a table with it, or with --dev")
    tables = {split: read_table(path, table_task.layout) for split, path in files.items()}
    complete, raw, inferred = _inferred(table_task, tables, files)
    prepared = {split: prepare_rows(complete, table) for split, table in raw.items()}
    task, complete = declare_task(complete, prepared)
    if table_task.dev is None and hold_out:
        complete = _with_held_out(complete, raw["train"], prepared["train"], files["train"])
        train, dev = hold_out_rows(task, prepared["train"], complete.held_out)
        prepared = {"train": train, "dev": dev}
    return ReadTask(replace(task, source=TableSource(complete, prepared)), complete, raw, inferred)


def _inferred(
    task: TableTask, tables: Mapping[str, Table], files: Mapping[str, Path]
) -> tuple[TableTask, Mapping[str, Table], tuple[Inferred, ...]]:
    """The task with what the first table says, by which the others are read, too."""
    first, *others = files
    raw = dict(tables)
    complete, raw[first], inferred = infer_task(task, tables[first], files[first], to_learn=first == "train")
    for split in others:
        _, raw[split], _ = infer_task(complete, tables[split], files[split], to_learn=False)
    return complete, raw, inferred


def prepare_rows(task: TableTask, table: Table) -> Table:
    """The rows as a declared task reads them, with the identifiers that the user names."""
    with gc_disabled():
        table = replace(table, rows=list(table.rows))
    if task.id is not None:
        table = _with_identifiers(table, task.id)
    return kind_named(str(task.kind)).prepared(task, table)


def _with_identifiers(table: Table, column: str) -> Table:
    """The rows with the identifiers of a column; DamagedData for one that two rows have."""
    first: dict[str, str] = {}

    def identified(row: Row) -> Row:
        identifier = row.text(column)
        if identifier in first:
            why = f"a second row has the id {identifier!r}, the first is at {first[identifier]}"
            raise DamagedData(row.where, why, "drop the repeated rows, or leave out --id")
        first[identifier] = row.where
        return replace(row, identifier=identifier)

    return replace(table, rows=convert_rows(table.rows, identified))


def declare_task(task: TableTask, tables: Mapping[str, Table]) -> tuple[DeclaredTask, TableTask]:
    """The declaration of a complete task whose rows are prepared; and the task with what all rows say, and metrics."""
    kind = kind_named(str(task.kind))
    declared = kind.of_table(task, tables)
    metrics = _metrics(declared.table_task)
    complete = replace(declared.table_task, metrics=tuple(metric.__name__ for metric in metrics))
    result = DeclaredTask(
        name=task.name,
        source=TableSource(complete, tables),
        inputs=declared.inputs,
        target=declared.target,
        metrics=metrics,
        recipe=task.recipe.applied_to(kind.table_recipe),
        description=" ".join(f"{declared.about}, learned from a table.".split()),
    )
    return result, complete


def _metrics(task: TableTask) -> tuple[Metric, ...]:
    """The chosen metrics, or the usual ones of the kind; the first selects models."""
    kind = kind_named(str(task.kind))
    if task.metrics is None:
        return kind.usual_metrics(task)
    possible = kind.possible_metrics(task)
    for name in task.metrics:
        if name not in possible:
            why = f"cannot be used with {task.kind}" + (f" of {len(task.labels)} labels" if task.labels else "")
            raise InvalidConfiguration(f"metric {name}", why, did_you_mean(name, possible))
    return tuple(possible[name] for name in task.metrics)


def _with_held_out(task: TableTask, raw: Table, prepared: Table, path: Path) -> TableTask:
    """The task with the file whose rows are held out, which must not change as long as it is trained."""
    digest = input_hash(path)
    if task.held_out.digest not in (None, digest):
        why = "has changed since its rows were held out: they may have been trained on"
        raise InvalidConfiguration(path, why, "give a file with --dev")
    is_tagged_text = bool(raw.aliases)
    if is_tagged_text and task.words is not None and len(prepared.rows) == 1:
        n_words = len(prepared.rows[0].texts(task.words))
        why = f"has no blank line between sentences, so that it is one sentence of {n_words:,} words"
        raise InvalidConfiguration(path, why, "write a blank line after each sentence")
    return replace(task, held_out=replace(task.held_out, digest=digest))


def check_rows(task: DeclaredTask, rows: Sequence[Row]) -> None:
    """Raise DamagedData if a row cannot be trained on or scored."""
    labelled = task.target.is_labelled(rows)

    def check(row: Row) -> None:
        if labelled:
            task.target.refuse_empty(row)
        task.target.example(row, task.inputs, labelled)

    convert_rows(rows, check)


def for_other_file(task: TableTask, path: Path) -> TableTask:
    """A saved task for a new file: what was said about its files holds for those with the same ending only."""
    endings = {ending_of(each) for each in (task.train, task.dev) if each is not None}
    if ending_of(path) in endings:
        return task
    return replace(task, format=None, delimiter=None, encoding=None, columns=None, no_header=False)


def declare_custom_task(
    files: Mapping[str, Path],
    text: str,
    label: str,
    pair: str | None = None,
    regression: bool = False,
    labels: tuple[str, ...] | None = None,
    recipe: TaskRecipe | None = None,
) -> DeclaredTask:
    """A task from columns: classification of `text` (or of `text` and `pair`) by `label`, or regression.

    Args:
        labels: None for those of the training file, sorted (as numbers if all are numbers).

    Raises:
        UsageError, MissingInput, DamagedData, InvalidConfiguration: see `read_task`.
    """
    table_task = TableTask(
        kind="regression" if regression else "classification",
        train=files.get("train"),
        dev=files.get("dev"),
        text=text,
        pair=pair,
        label=label,
        labels=None if regression else labels,
        recipe=RecipeChanges(**common_fields(RecipeChanges, recipe)),
    )
    task = read_task(table_task, hold_out=False).check().task
    return task if recipe is None else replace(task, recipe=recipe)
