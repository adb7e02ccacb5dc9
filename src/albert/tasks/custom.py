"""The user's own task: a declaration made from tables whose columns are named; bad rows are refused by number."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from albert.runtime.errors import DamagedData, InvalidConfiguration, UsageError, did_you_mean
from albert.runtime.manifest import file_hash
from albert.tasks.examples import is_labelled, to_examples
from albert.tasks.infer import Inferred, hold_out_rows, infer_task, place_of_option, unfolded_options
from albert.tasks.table_files import answers_of, read_table
from albert.tasks.table_task import (
    NO_QUESTION,
    NO_TEXT,
    RecipeChanges,
    TableTask,
    description_of,
    inputs_of,
    metrics_of,
    recipe_of,
    target_of,
)
from albert.tasks.task import Choice, Option, Row, Rows, Score, Task, TaskRecipe

# --------------------------------------------------------------------------------------------------------------------
# Tables to a declared task: every row as the task wants it, and what is wrong with rows said with its number.


@dataclass(frozen=True)
class OwnTables:
    """The splits of a task on tables, read and prepared; the data folder is not looked at."""

    asked: TableTask
    tables: Mapping[str, Rows]

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits given."""
        return tuple(self.tables)

    def with_files(self, files: Mapping[str, Path]) -> "OwnTables":
        """The same task with other files for some splits."""
        read = {split: prepared_rows(self.asked, read_table(path), path) for split, path in files.items()}
        return replace(self, tables={**self.tables, **read})

    def read(self, data: Path, split: str) -> Rows:
        """Every row of a split."""
        if split not in self.tables:
            raise InvalidConfiguration(f"split {split}", "no file was given for it", did_you_mean(split, self.tables))
        return self.tables[split]


def prepared_rows(task: TableTask, rows: Rows, source: object) -> Rows:
    """Rows with their identifiers, answers and options as a declared task has them; none is left out.

    Raises:
        DamagedData: two rows with one identifier, a label that means no option, starts of answers that are none.
    """
    found = rows.rows if task.id is None else _identified(rows.rows, task.id)
    counts: Counter[str] = Counter()
    if task.kind == "multiple-choice":
        found = _with_options(task, found)
    if task.kind == "question-answering":
        found = _with_answers(task, found, counts)
    return Rows(found, {**rows.counts, **counts})


def refuse_bad_rows(task: Task, rows: Sequence[Row]) -> None:
    """See to it that every row can be learnt from or scored.

    Raises:
        DamagedData: a column or label is missing, a label unknown, a number none, and so on: the first such row, and
            how many there are.
    """
    labelled = is_labelled(task, rows)
    try:
        _refuse_empty_label(task, rows if labelled else ())
        to_examples(task, list(rows), labelled)
    except DamagedData:
        raise_first(error for row in rows if (error := _refusal(task, row, labelled)) is not None)


def raise_first(errors: Iterable[DamagedData]) -> None:
    """Raise the first error, if any, and tell how many others there are like it."""
    first, more = None, 0
    for error in errors:
        first, more = first or error, more + (first is not None)
    if first is not None:
        others = f"{more:,} more row{'s' * (more > 1)} like this" if more else None
        raise DamagedData(first.subject, first.why, "; ".join(part for part in (first.remedy, others) if part) or None)


def _refusal(task: Task, row: Row, labelled: bool) -> DamagedData | None:
    try:
        _refuse_empty_label(task, [row] if labelled else ())
        to_examples(task, [row], labelled)
    except DamagedData as error:
        return error
    return None


def _refuse_empty_label(task: Task, rows: Sequence[Row]) -> None:
    if not isinstance(task.target, Choice | Score | Option):
        return
    for row in rows:
        if row.fields.get(task.target.column) == "" or str(row.fields.get(task.target.column, "-")).isspace():
            raise DamagedData(row.where, f"empty label in column {task.target.column!r}")


def _identified(rows: Sequence[Row], column: str) -> list[Row]:
    """The rows, called by what a column says."""
    seen: dict[str, str] = {}
    errors = []
    for row in rows:
        name = row.text(column)
        if name in seen:
            errors.append(DamagedData(row.where, f"a second row has the id {name!r}", f"the first is at {seen[name]}"))
        seen.setdefault(name, row.where)
    raise_first(errors)
    return [replace(row, identifier=row.text(column)) for row in rows]


def _with_options(task: TableTask, rows: Sequence[Row]) -> list[Row]:
    """Rows whose label is the column of the right option, and which have a question and a text, empty if need be."""
    assert task.label is not None and task.option_labels is not None
    rows, names = unfolded_options(task, rows)
    found, errors = [], []
    for row in rows:
        fields = dict(row.fields)
        if task.question is None:
            fields[NO_QUESTION] = ""
        if task.text is None:
            fields[NO_TEXT] = ""
        label = row.text(task.label).strip() if task.label in row.fields else ""
        if label:
            texts = [row.text(name) for name in names]
            place = place_of_option(label, task.option_labels, names, texts)
            if place is None:
                why = f"{label!r} in column {task.label!r} names no option"
                errors.append(DamagedData(row.where, why, f"labels are read as: {task.option_labels}"))
                continue
            fields[task.label] = names[place]
        found.append(replace(row, fields=fields))
    raise_first(errors)
    return found


def _with_answers(task: TableTask, rows: Sequence[Row], counts: Counter[str]) -> list[Row]:
    """Rows with their gold answers; None for all of them where no row has the column."""
    assert task.context is not None and task.answer is not None
    if not any(task.answer in row.fields for row in rows):
        return [replace(row, answers=None) for row in rows]
    found, errors = [], []
    for row in rows:
        try:
            answers = answers_of(row, row.text(task.context), task.answer, task.answer_start, counts)
            found.append(replace(row, answers=answers))
        except DamagedData as error:
            errors.append(error)
    raise_first(errors)
    return found


@dataclass(frozen=True)
class ReadTask:
    """A task whose tables were read.

    Attributes:
        task: the declaration; its source holds the rows.
        asked: the same as plain values, complete: with it the task can be declared again.
        raw: the tables as they were read, by split; without what is held out.
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
