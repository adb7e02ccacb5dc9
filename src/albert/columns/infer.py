"""What is inferred from a table: its columns, its kind, its labels. Everything comes with a reason and the option that
overrides it. Other files of the task are read as its training file was."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import compress

from albert.columns.names import check_columns, named_columns, with_names_of_training
from albert.runtime.errors import DamagedData, UsageError
from albert.tables.table import Field, Table
from albert.tasks.cells import lists_are_text, lists_read, objects_read
from albert.tasks.from_table import Inferred
from albert.tasks.labels import clean_labels, refuse_vectors_in_text
from albert.tasks.marked_texts import NAMES_OF_MARKS, has_marks, refuse_unaccepted_rows
from albert.tasks.numbers import decimal_points
from albert.tasks.pipelines import KINDS, kind_named
from albert.tasks.table_task import TableTask
from albert.tasks.task import Task


def infer_task(
    task: TableTask, table: Table, source: object, to_learn: bool = True
) -> tuple[TableTask, Table, tuple[Inferred, ...]]:
    """The complete task, the table with values that its kind understands, and a list of what was inferred.

    Args:
        to_learn: whether the rows are for training; others need no labels, which are not inferred from them.

    Raises:
        UsageError: columns are missing, unknown or contradictory, or may be read in several ways.
        DamagedData: a value cannot be read; named with its row.
    """
    inferred: list[Inferred] = []
    if task.kind is not None:
        kind_named(task.kind)
    if not to_learn:
        table = with_names_of_training(task, table)
    table = objects_read(table, _columns_of_objects(task, table))
    task = named_columns(task, table, inferred)
    refuse_unaccepted_rows(task, table, source)
    table = _labels_read(task, table, inferred if to_learn else [])
    if task.kind is None:
        task = _recognised(task, table, inferred)
    kind = kind_named(str(task.kind))
    _check_settings(task, kind)
    task, table = kind.converted(task, table, source, inferred)
    if task.drop_unlabelled:
        table = _labelled_rows(task, table)
    check_columns(task, kind, table, source, to_learn)
    table = _rows_with_text(task, table, source)
    task, table = kind.completed(task, table, source, inferred, to_learn)
    return task, table, tuple(inferred)


def _columns_of_objects(task: TableTask, table: Table) -> Iterator[str]:
    """The columns whose cells may be objects."""
    usual = ("answers", "choices", *NAMES_OF_MARKS)
    named = (task.label, task.answer, task.tags, *(task.options or ()), *(task.spans or ()), *usual)
    known = table.columns
    return (column for column in dict.fromkeys(named) if column is not None and column in known)


def _labels_read(task: TableTask, table: Table, inferred: list[Inferred]) -> Table:
    """The table with clean labels: lists that are written as text, blanks and quotes, decimal commas."""
    label = task.label
    if label is None or has_marks(table, label):
        return table
    if lists_are_text(table, label):
        if task.options is None:
            refuse_vectors_in_text(table, label)
        table = lists_read(table, (label,))
        if task.text is not None and lists_are_text(table, task.text):
            table = lists_read(table, (task.text,))
    table = clean_labels(table, label)
    are_numbers = task.kind is None or "decimal" in kind_named(task.kind).own_settings
    return decimal_points(task, table, inferred) if are_numbers else table


def _recognised(task: TableTask, table: Table, inferred: list[Inferred]) -> TableTask:
    """The task with the kind whose table it is."""
    found = (kind.recognised(task, table) for kind in KINDS.values())
    for kind, recognised in zip(KINDS.values(), found, strict=True):
        if recognised is not None:
            inferred.append(Inferred("task", kind.kind, recognised.why, recognised.override))
            return replace(recognised.task, kind=kind.kind)
    raise AssertionError("no kind takes what no other recognises")


_SHOWN = {
    "label_columns": "several columns of --label",
    "decimal": "reading.decimal",
    "option_labels": "option_labels",
    "label_names": "label_names",
    "positive": "positive",
}
"""How settings are called that are no option with their name."""


def _check_settings(task: TableTask, kind: type[Task]) -> None:
    """Raise UsageError for a setting that only other kinds have."""
    for name in dict.fromkeys(name for each in KINDS.values() for name in each.own_settings):
        if getattr(task, name) is not None and name not in kind.own_settings:
            owners = ", ".join(each.kind for each in reversed(KINDS.values()) if name in each.own_settings)
            shown = _SHOWN.get(name, "--" + name.replace("_", "-"))
            raise UsageError(shown, f"cannot be used with {kind.kind}", f"it is for {owners}")


def _labelled_rows(task: TableTask, table: Table) -> Table:
    """Rows with a label; the others are counted."""
    column = task.label or task.tags
    if column is None or column not in table.columns:
        return table
    kept = [row for row in table.rows if row.fields.get(column) not in (None, "")]
    counts = {**table.counts, "rows_without_label": len(table.rows) - len(kept)}
    return replace(table, rows=kept, counts=counts)


def _rows_with_text(task: TableTask, table: Table, source: object) -> Table:
    """Labelled rows with a text, or with words; the others, of which nothing can be learned or said, are counted.

    Rows without labels, which are predicted, are all kept.
    """
    known = table.columns
    columns = [name for name in kind_named(str(task.kind)).text_columns(task) if name in (*known, *table.null_columns)]
    if not columns or not {task.label, task.tags} & set(known):
        return table
    texts = zip(*(table.values(str(name)) for name in columns), strict=True)
    is_filled = [not all(map(_is_blank, values)) for values in texts]
    left_out = is_filled.count(False)
    if left_out == len(is_filled) > 0:
        raise DamagedData(source, f"every text in column {columns[0]!r} is empty", "name another column with --text")
    if not left_out:
        return table
    kept = list(compress(table.rows, is_filled))
    return replace(table, rows=kept, counts={**table.counts, "rows": len(kept), "rows_without_text": left_out})


def _is_blank(value: Field | None) -> bool:
    return not "".join(value or ()).strip()
