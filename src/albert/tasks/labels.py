"""Labels as tables have them: how they are spelled, in which columns they stand, and which ones there are.

`single_label`, `multi_label` and `tagging` share this; what only one of them needs is in its own file."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from albert.runtime.errors import DamagedData, InvalidConfiguration, UsageError, did_you_mean
from albert.tables.fields import as_number
from albert.tables.table import Field, Row, Table
from albert.tasks.from_table import Inferred
from albert.tasks.table_task import TableTask

MANY_LABELS = 8
MAX_SHOWN = 60
"""At most as many labels, and characters of them, are shown."""

# --------------------------------------------------------------------------------------------------------------------
# Spelling: blanks and quotes around a label do not count, and 1.0 is 1.

_BLANKS = " \t\r\n\u00a0\u200b\u200c\u200d\u2060\ufeff"


def clean_label(text: str) -> str:
    """A label without blanks and a pair of quotes around it."""
    text = text.strip().strip(_BLANKS)
    if len(text) > 2 and text[0] == text[-1] and text[0] in "\"'" and text[0] not in text[1:-1]:
        text = text[1:-1].strip().strip(_BLANKS)
    return text


def label_key(text: str) -> str:
    """What makes two labels equal: `1.0` is `1`, and blanks around a label do not count."""
    text = clean_label(text)
    if re.fullmatch(r"[+-]?\d{1,15}\.0+", text) and as_number(text) is not None:
        return text.partition(".")[0]
    return text


def clean_labels(table: Table, column: str) -> Table:
    """The table with clean labels in a column; most tables have no others."""

    def cleaned(value: Field) -> Field:
        return clean_label(value) if isinstance(value, str) else tuple(map(clean_label, value))

    different = {value for value in table.values(column) if value is not None}
    if all(value == cleaned(value) for value in different):
        return table
    return table.changed(column, lambda row, value: cleaned(value))


def equal_labels(labels: Mapping[str, int]) -> dict[str, str]:
    """A spelling for each label that occurs, the shortest and most frequent of those that are equal.

    Labels such as 0.0 and 1.0 are whole numbers, which pandas writes so beside an empty cell. They become 0 and 1,
    unless another label has a fraction.
    """
    have_fractions = any(re.fullmatch(r"[+-]?\d*\.\d*[1-9]\d*", label) for label in map(clean_label, labels))
    groups: dict[str, list[str]] = {}
    for label in labels:
        groups.setdefault(label_key(label), []).append(label)
    spelling = {}
    for group in groups.values():
        best = min(group, key=lambda label: (len(label), -labels[label], label))
        if best.endswith(".0") and not have_fractions:
            best = label_key(best)
        spelling.update(dict.fromkeys(group, best))
    return spelling


def similar_labels(labels: Sequence[str]) -> list[str]:
    """The labels that differ only in case and blanks, such as `'Good' and 'good'`."""
    same: dict[str, list[str]] = {}
    for label in labels:
        same.setdefault("".join(label.casefold().split()), []).append(label)
    return [" and ".join(map(repr, group)) for group in same.values() if len(group) > 1]


def sort_labels(labels: set[str]) -> tuple[str, ...]:
    """Labels in the order of their ids: by value if all are finite numbers, else as text."""
    numbers = map(as_number, labels)
    if all(number is not None and math.isfinite(number) for number in numbers):
        return tuple(sorted(labels, key=lambda label: (float(label), label)))
    return tuple(sorted(labels))


def spelled_labels(task: TableTask, table: Table, separator: str | None = None) -> Table:
    """Rows with their labels spelled as the task has them: `1.0` becomes `1` if that is a label.

    Args:
        separator: between several labels in one text, which becomes a list.
    """
    assert task.label is not None and task.labels is not None
    spelling = {label_key(label): label for label in task.labels}
    names = {name: label for label, name in (task.label_names or {}).items()}
    known = set(task.labels)
    if separator is None and known.issuperset(table.values(task.label)):
        return table

    def spelled(label: str) -> str:
        if label in known:
            return label
        return spelling.get(label_key(label), names.get(label, label))

    def convert(row: Row, value: Field) -> Field:
        if isinstance(value, tuple):
            return tuple(map(spelled, value))
        if separator is None:
            return spelled(value)
        parts = [clean_label(part) for part in value.split(separator)]
        return tuple(spelled(part) for part in parts if part)

    return table.changed(task.label, convert)


def one_label(table: Table, column: str) -> Table:
    """Rows with a text in the place of a list of one label, for a task with one label in each row."""
    if not any(isinstance(value, tuple) for value in table.values(column)):
        return table

    def convert(row: Row, value: Field) -> Field:
        if isinstance(value, str):
            return value
        if len(value) > 1:
            raise DamagedData(row.where, f"has {len(value)} labels in column {column!r}", "say --kind multi-label")
        return value[0] if value else ""

    return table.changed(column, convert)


# --------------------------------------------------------------------------------------------------------------------
# Labels in several columns, and in vectors of 0 and 1.

_TRUE = {"1", "true", "yes", "y", "x", "t"}
_FALSE = {"0", "false", "no", "n", "", "f", "-"}


def with_label_cells(task: TableTask, table: Table) -> TableTask:
    """The task that says what several columns of labels hold: 0 or 1 for the label that is their name, or a label."""
    if task.label_columns is None or task.label_cells is not None:
        return task
    values = (value for name in task.label_columns for value in table.values(name))
    filled = [cell for value in values if isinstance(value, str) and (cell := label_key(value).lower())]
    n_one_hot = sum(cell in _TRUE | _FALSE for cell in filled)
    return replace(task, label_cells="labels" if n_one_hot < len(filled) / 2 else "one_hot")


def columns_joined(task: TableTask, table: Table, source: object) -> tuple[TableTask, Table]:
    """Several columns become one with a list of labels: the names of those with a 1, or what is in the columns."""
    names = task.label_columns
    if names is None:
        return task, table
    column = ", ".join(names)
    task = replace(with_label_cells(task, table), label=column)
    are_labels = task.label_cells == "labels"
    if not are_labels:
        task = replace(task, labels=task.labels or names)
    missing = [name for name in names if name not in table.columns]
    if len(missing) == len(names):
        return task, table  # rows without labels
    if missing:
        raise DamagedData(source, f"has no column {missing[0]!r}", did_you_mean(missing[0], table.columns))
    labels = task.labels or names
    if not are_labels and len(labels) != len(names):
        raise UsageError("--labels", f"has {len(labels)} names for {len(names)} columns", "name each")
    rows = []
    for row in table.rows:
        own: list[str] = []
        for at, name in enumerate(names):
            written = row.fields.get(name, "")
            if are_labels:
                own += map(clean_label, (written,) if isinstance(written, str) else written)
                continue
            text = label_key(written).lower() if isinstance(written, str) else "a list"
            if text not in _TRUE | _FALSE:
                why = f"{written!r} in column {name!r} is neither 0 nor 1"
                raise DamagedData(row.where, why, "several columns of --label hold 0 or 1 each, or a label each")
            if text in _TRUE:
                own.append(labels[at])
        rows.append(replace(row, fields={**row.fields, column: tuple(dict.fromkeys(filter(None, own)))}))
    notes = (*table.notes, f"the columns {column} hold a label each, or none") if are_labels else table.notes
    return task, replace(table, rows=rows, notes=notes)


def are_vectors(table: Table, column: str) -> bool:
    """Return whether a column holds vectors of 0 and 1, as many numbers in every row."""
    values = [value for value in table.values(column) if value is not None]
    if not values or not all(isinstance(value, tuple) for value in values):
        return False
    vectors = [tuple(map(label_key, value)) for value in values]
    are_flags = {flag for vector in vectors for flag in vector} <= {"0", "1"}
    return len(set(map(len, vectors))) == 1 and are_flags and any(len(set(each)) < len(each) for each in vectors)


def ones_of_vectors(table: Table, column: str) -> list[int]:
    """The number of ones in each vector of a column."""
    return [sum(label_key(item) == "1" for item in value) for value in table.values(column) if value is not None]


def vectors_read(task: TableTask, table: Table) -> tuple[TableTask, Table]:
    """Vectors of 0 and 1 become lists of the labels of the positions with a 1."""
    column = task.label
    if column is None or not are_vectors(table, column):
        return task, table
    size = next(len(value) for value in table.values(column) if value is not None)
    names = task.labels
    if names is None:
        why = f"holds vectors of {size} numbers 0 or 1, which have no names"
        raise UsageError(f"column {column!r}", why, f"name the label of each position: --labels A B ... ({size} names)")
    if len(names) != size:
        why = f"has {len(names)} names, the vectors in {column!r} have {size} numbers"
        raise UsageError("--labels", why, "name each")

    def convert(row: Row, value: Field) -> Field:
        return tuple(name for name, item in zip(names, value, strict=True) if label_key(item) == "1")

    return task, table.changed(column, convert)


def refuse_vectors_in_text(table: Table, column: str) -> None:
    """Raise UsageError for labels that are vectors of 0 and 1, written as text."""
    values = [value.strip() for value in table.values(column) if isinstance(value, str) and value.strip()]
    if values and all(re.fullmatch(r"\[[\s,]*([01](\.0*)?[\s,]+)+[01](\.0*)?[\s,]*\]", value) for value in values):
        why = f"holds vectors of 0 and 1 as text, such as {values[0][:40]!r}"
        remedy = "write a column of 0 and 1 for each label, and name them all: --label toxic rude threat"
        raise UsageError(f"column {column!r}", why, remedy)


# --------------------------------------------------------------------------------------------------------------------
# Which labels there are, and what they are called.

_NO_LABELS = {"null", "nan", "none", "n/a", "na", "<na>", "-", "?", "--"}
"""What people write into a cell that has no label."""


def labels_inferred(
    task: TableTask, table: Table, source: object, column: str, labels: set[str], inferred: list[Inferred]
) -> TableTask:
    """The task with the labels of the rows; at least two.

    Args:
        labels: those that occur, each in one spelling.
    """
    known = sort_labels(labels)
    if len(known) < 2:
        for row in table.rows:  # a missing label may be the reason
            label = row.fields.get(column, "")
            if isinstance(label, str) and not label.strip():
                raise DamagedData(row.where, f"empty label in column {column!r}")
        why = f"every row has the label {known[0]!r}" if known else f"no row has a label in column {column!r}"
        raise InvalidConfiguration(source, why, "at least two are needed")
    lengths = accumulate(len(label) + 2 for label in known)
    n_shown = max(1, min(MANY_LABELS, sum(length <= MAX_SHOWN for length in lengths)))
    more = f", and {len(known) - n_shown} more" if len(known) > n_shown else ""
    shown = ", ".join(known[:n_shown]) + more
    inferred.append(Inferred(f"{len(known)} labels", shown, f"the values in {column!r}", "--labels A B ..."))
    return replace(task, labels=known)


def doubtful_labels(labels: Sequence[str]) -> list[Inferred]:
    """A remark on each label that may be none, or be another one."""
    no_labels = set(_NO_LABELS)
    if "-1" in labels and len(labels) > 2 and {*labels} <= {"-1", *map(str, range(len(labels) - 1))}:
        no_labels.add("-1")  # beside 0, 1, 2 and so on
    remarks = []
    for label in labels:
        if label.casefold() in no_labels:
            why = "a class of its own; a cell without a label is empty"
            remarks.append(Inferred("no label?", repr(label), why, "an empty cell, reading.drop_unlabelled=true"))
    for shown in similar_labels(labels):
        remarks.append(Inferred("similar labels", shown, "they are different classes", "one spelling"))
    return remarks


def with_label_names(task: TableTask, inferred: list[Inferred]) -> TableTask:
    """The task with names for labels that it has, which differ from all other labels and names."""
    labels = task.labels or ()
    given = task.label_names or {}
    names = given
    positions = [str(number) for number in range(len(names))]
    are_of_positions = list(names) == positions
    if are_of_positions and labels and "0" not in labels and set(labels) <= {*positions[1:], str(len(names))}:
        names = {str(int(number) + 1): name for number, name in names.items()}
        inferred.append(Inferred("label names", f"1 is {names['1']}", "there is no label 0", "label_names=1=NAME"))
    names = {label: name for label, name in names.items() if label in labels or not are_of_positions}
    for label, name in names.items():
        if label not in labels:
            raise InvalidConfiguration("label_names", f"{label!r} is not a label", did_you_mean(label, labels))
        others = [other for other in labels if other != label]
        if name in (*others, *map(names.get, others)):
            why = f"{name!r}, the name of {label!r}, is another label or its name"
            raise InvalidConfiguration("label_names", why, "choose another name")
    return replace(task, label_names=names or None)


def refuse_unknown_labels(task: TableTask, to_learn: bool) -> None:
    """Raise UsageError for rows that are not for training, if nothing says which labels there are."""
    if task.labels is None and not to_learn:
        raise UsageError("labels", "a training file is needed to know them", "give --train")


def names_of_labels(task: TableTask) -> tuple[str, ...] | None:
    """The name of each label; None if none has one."""
    if not task.label_names:
        return None
    return tuple(task.label_names.get(label, label) for label in task.labels or ())
