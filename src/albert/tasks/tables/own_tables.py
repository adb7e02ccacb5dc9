"""Tables to a declared task: every row as the task wants it, and what is wrong with rows said with its number."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from albert.runtime.errors import DamagedData, InvalidConfiguration, did_you_mean
from albert.tasks.examples import is_labelled, to_examples
from albert.tasks.rows import Row, Rows
from albert.tasks.tables.answer_columns import answers_of
from albert.tasks.tables.formats import read_table
from albert.tasks.tables.inferred_task import unfolded_options
from albert.tasks.tables.option_labels import place_of_option
from albert.tasks.tables.table_kinds import NO_QUESTION, NO_TEXT
from albert.tasks.tables.table_task import TableTask
from albert.tasks.task import Choice, Option, Score, Task


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

    Args:
        task: with its kind.
        rows: as they were read.
        source: what they are called in errors.

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
