"""The user's own task: reading tables, and declaring a task from their columns; errors name file and line."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from albert.recipes.finetuning import RecipeChanges, TaskRecipe
from albert.runtime.errors import DamagedData, InvalidConfiguration, UsageError, did_you_mean
from albert.runtime.json_files import common_fields
from albert.runtime.manifest import input_hash
from albert.tables.rows import ending_of, read_table, without_collection
from albert.tables.table import Answer, Row, Table
from albert.tasks.columns import Inferred
from albert.tasks.declared import DeclaredTask
from albert.tasks.infer import hold_out_rows, infer_task, rows_with_text
from albert.tasks.multiple_choice import OPTION_LABELS, labels_of_options
from albert.tasks.option_columns import LABELS_OF_OPTIONS, expand_options, listed_labels, option_index
from albert.tasks.squad import locate_answer
from albert.tasks.table_task import NO_QUESTION, NO_TEXT, TableTask, declare_task

# --------------------------------------------------------------------------------------------------------------------
# Answers in columns: a text or a list of texts, and optionally their positions in the context.
#
# An empty or absent answer means that the question has no answer in its context.


def gold_answers(task: TableTask, row: Row, counts: Counter[str]) -> tuple[Answer, ...]:
    """The gold answers of a row; a start may be absent, empty or -1, and is then searched for.

    Args:
        counts: see `locate_answer`; `unanswerable` questions are counted too.
    """
    assert task.context is not None and task.answer is not None
    context = row.text(task.context)
    texts = _items(row, task.answer)
    if not any(texts):
        counts["unanswerable"] += 1
        return ()
    starts: list[int | None] = [None] * len(texts)
    if task.answer_start is not None:
        starts = [_start(row, task.answer_start, item) for item in _items(row, task.answer_start)] or starts
    if len(starts) != len(texts):
        why = f"has {len(texts)} answers in {task.answer!r} and {len(starts)} starts in {task.answer_start!r}"
        raise DamagedData(row.where, why)
    return tuple(locate_answer(text, start, context, counts) for text, start in zip(texts, starts, strict=True))


def _items(row: Row, column: str) -> tuple[str, ...]:
    value = row.fields.get(column, "")
    if not isinstance(value, str):
        return value
    return (value,) if value else ()


def _start(row: Row, column: str, value: str) -> int | None:
    if not value.strip():
        return None
    try:
        number = float(value)
    except ValueError as error:
        raise DamagedData(row.where, f"{value!r} in column {column!r} is not a number") from error
    if number != int(number if abs(number) < 2**53 else 0):
        raise DamagedData(row.where, f"{value!r} in column {column!r} is not a position in a text")
    return int(number) if number >= 0 else None


# --------------------------------------------------------------------------------------------------------------------
# Tables to a declared task.


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
            rows = read_table(path, self.table_task.layout)
            complete, rows, _ = infer_task(self.table_task, rows, path, to_learn=False)
            tables[split] = prepare_rows(complete, rows_with_text(complete, rows, path))
        return replace(self, tables={**self.tables, **tables})

    def read(self, data: Path, split: str) -> Table:
        if split not in self.tables:
            raise InvalidConfiguration(f"split {split}", "no file was given for it", did_you_mean(split, self.tables))
        return self.tables[split]


def prepare_rows(task: TableTask, rows: Table) -> Table:
    """Rows with the identifiers, answers and options of a declared task.

    The label of a multiple choice is the column of the right option; its missing question or text is an empty column.
    Answers are None if no row has their column.
    """
    counts: Counter[str] = Counter()
    first: dict[str, str] = {}
    is_choice = task.kind == "multiple-choice"
    is_question = task.kind == "question-answering"
    expanded, names = expand_options(task, rows.rows) if is_choice else (rows.rows, ())
    has_answers = is_question and any(task.answer in row.fields for row in expanded)
    empty = {name: "" for name, used in ((NO_QUESTION, task.question), (NO_TEXT, task.text)) if used is None}

    if task.id is None and not is_choice and not is_question:
        with without_collection():
            return replace(rows, rows=list(rows.rows))

    def convert(row: Row) -> Row:
        identifier = row.identifier
        fields = row.fields
        answers = row.answers
        if task.id is not None:
            identifier = row.text(task.id)
            if identifier in first:
                why = f"a second row has the id {identifier!r}"
                raise DamagedData(row.where, why, f"the first is at {first[identifier]}")
            first[identifier] = row.where
        if is_choice:
            texts = [row.text(name) if name in fields else "" for name in names]
            labels = labels_of_options(str(task.option_labels), names, texts, listed_labels(task, row))
            fields = {**fields, **empty, OPTION_LABELS: tuple(labels), **_right_option(task, row, names)}
        if is_question:
            answers = gold_answers(task, row, counts) if has_answers else None
        return replace(row, identifier=identifier, fields=fields, answers=answers)

    converted = convert_rows(expanded, convert)
    if counts["answers_not_found"] > counts["answers"] / 2:
        n_missing = counts["answers_not_found"]
        why = f"{n_missing:,} of {counts['answers']:,} answers are not in their context"
        remedy = "write them as in the text; of a multiple choice, name the columns with --options and --label"
        raise UsageError(f"column {task.answer!r}", why, remedy)
    return replace(rows, rows=converted, counts={**rows.counts, **counts})


def _right_option(task: TableTask, row: Row, names: Sequence[str]) -> dict[str, str]:
    """The label as the column of the right option; empty without a label."""
    assert task.label is not None and task.option_labels is not None
    label = row.text(task.label).strip() if task.label in row.fields else ""
    if not label:
        return {}
    texts = [row.text(name) if name in row.fields else "" for name in names]
    index = option_index(label, task.option_labels, names, texts, listed_labels(task, row))
    if index is not None and names[index] not in row.fields:
        why = f"{label!r} in column {task.label!r} names an option that is empty"
        raise DamagedData(row.where, why, "the right option needs a text")
    if index is None:
        why = f"{label!r} in column {task.label!r} names no option"
        remedy = f"the labels of this table are read as {task.option_labels}: {LABELS_OF_OPTIONS}"
        raise DamagedData(row.where, why, remedy)
    return {task.label: names[index]}


def convert_rows(rows: Sequence[Row], convert: Callable[[Row], Any]) -> list[Any]:
    """Convert every row; the first error is raised, with the number of further rows that have one."""
    converted = []
    first = None
    more = 0
    for row in rows:
        try:
            converted.append(convert(row))
        except DamagedData as error:
            first, more = first or error, more + (first is not None)
    if first is not None:
        others = f"{more:,} more row{'s' * (more > 1)} like this" if more else None
        raise DamagedData(first.subject, first.why, "; ".join(filter(None, (first.remedy, others))) or None)
    return converted


def check_rows(task: DeclaredTask, rows: Sequence[Row]) -> None:
    """Raise DamagedData if a row cannot be trained on or scored."""
    labelled = task.target.is_labelled(rows)

    def check(row: Row) -> None:
        if labelled:
            task.target.refuse_empty(row)
        task.target.example(row, task.inputs, labelled)

    convert_rows(rows, check)


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


def for_other_file(task: TableTask, path: Path) -> TableTask:
    """A saved task for a new file: what was said about its files holds for those with the same ending only."""
    endings = {ending_of(each) for each in (task.train, task.dev) if each is not None}
    if ending_of(path) in endings:
        return task
    return replace(task, format=None, delimiter=None, encoding=None, columns=None, no_header=False)


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
    raw = {split: read_table(path, table_task.layout) for split, path in files.items()}
    first = next(iter(files))
    complete, raw[first], inferred = infer_task(table_task, raw[first], files[first], to_learn=first == "train")
    for split in files:
        if split != first:
            _, raw[split], _ = infer_task(complete, raw[split], files[split], to_learn=False)
    tables = {split: prepare_rows(complete, rows_with_text(complete, raw[split], files[split])) for split in files}
    if complete.kind == "question-answering" and complete.may_be_absent is None:
        absent = any(row.answers == () for rows in tables.values() for row in rows.rows)
        complete = replace(complete, may_be_absent=absent)
    options: tuple[str, ...] = ()
    for rows in raw.values() if complete.options else ():
        options = max(options, expand_options(complete, rows.rows)[1], key=len)
    task = declare_task(complete, TableSource(complete, tables), options)
    if table_task.dev is None and hold_out:
        digest = input_hash(files["train"])
        if complete.held_out.digest not in (None, digest):
            why = "has changed since its rows were held out: they may have been trained on"
            raise InvalidConfiguration(files["train"], why, "give a file with --dev")
        complete = replace(complete, held_out=replace(complete.held_out, digest=digest))
        is_tagged_text = bool(raw["train"].aliases)
        if is_tagged_text and complete.words is not None and len(tables["train"].rows) == 1:
            n_words = len(tables["train"].rows[0].texts(complete.words))
            why = f"has no blank line between sentences, so that it is one sentence of {n_words:,} words"
            raise InvalidConfiguration(files["train"], why, "write a blank line after each sentence")
        train, dev = hold_out_rows(task, tables["train"], complete.held_out)
        tables = {"train": train, "dev": dev}
    complete = replace(complete, metrics=tuple(metric.__name__ for metric in task.metrics))
    return ReadTask(replace(task, source=TableSource(complete, tables)), complete, raw, inferred)


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
