"""A multiple choice in a table: its columns of options, and which option a label names.

A label is the row's own name of an option, or else, in one way for the whole table, its number from 0 or from 1, its
letter or its text."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import get_args

from albert.runtime.errors import UsageError
from albert.tables.table import Row, Table
from albert.tasks.table_task import OptionLabels, TableTask

LABELS_OF_OPTIONS = "number it from 0 or from 1, or write its letter or its text, in one way for all rows"


def columns_of_options(columns: Iterable[str]) -> tuple[str, ...]:
    """The columns A, B and so on, or such as option_a, choice 1 or ending0, in their order; empty if there are none."""
    groups: dict[str, dict[str, str]] = {}
    for column in columns:
        found = re.fullmatch(r"((?:option|choice|ending|sol)[ _-]?)?([A-H]|[0-9])", column, re.IGNORECASE)
        if found is not None and (found[1] or found[2].isalpha()):
            groups.setdefault(str(found[1]).lower(), {})[found[2].lower()] = column
    for group in groups.values():
        for mark in ("a", "0", "1"):
            names = []
            while mark in group:
                names.append(group[mark])
                mark = chr(ord(mark) + 1)
            if len(names) == len(group) > 1:
                return tuple(names)
    return ()


def expand_options(task: TableTask, rows: Sequence[Row]) -> tuple[list[Row], tuple[str, ...]]:
    """Rows with a column for each option, and the names of these columns.

    A single column holds lists, which are expanded. Questions may have different numbers of options: empty cells and
    missing entries are absent.
    """
    options = task.options or ()
    if len(options) > 1:
        return [_without_empty(row, options) for row in rows], options
    column = options[0] if options else ""
    cells = [row.fields.get(column) for row in rows]
    lists = [cell if isinstance(cell, tuple) else () for cell in cells]
    length = max(map(len, lists), default=0)
    if length < 2:
        raise UsageError("--options", f"{column!r} has no lists of options", "name several columns, or one of lists")
    names = tuple(f"{column}[{index}]" for index in range(length))
    expanded = []
    for row, items in zip(rows, lists, strict=True):
        fields = {**row.fields, **dict(zip(names, items, strict=False))}
        expanded.append(_without_empty(replace(row, fields=fields), names))
    return expanded, names


def _without_empty(row: Row, options: Sequence[str]) -> Row:
    """A row without the options that are empty."""
    empty = []
    for name in options:
        value = row.fields.get(name)
        if isinstance(value, str) and not value.strip():
            empty.append(name)
    if not empty:
        return row
    return replace(row, fields={name: value for name, value in row.fields.items() if name not in empty})


def listed_labels(task: TableTask, row: Row) -> tuple[str, ...]:
    """The names beside a list of options: `choices.label` beside `choices.text`; empty if there are none."""
    column, dot, name = (task.options or ("",))[0].rpartition(".")
    value = row.fields.get(f"{column}.label") if dot and name == "text" else None
    return value if isinstance(value, tuple) else ()


def option_index(
    label: str, kind: OptionLabels, names: Sequence[str], texts: Sequence[str], listed: Sequence[str] = ()
) -> int | None:
    """The index of the option that a label means, None if it means none.

    Args:
        names: the columns of the options.
        listed: the row's own names of the options; empty for the names of the columns.
    """
    match kind:
        case "name":
            own = listed or names
            return own.index(label) if label in own else None
        case "letter":
            index = ord(label.upper()) - ord("A") if len(label) == 1 and label.isascii() and label.isalpha() else -1
        case "from-0" | "from-1":
            number = label.removesuffix(".0")  # whole numbers of a column with missing values
            is_index = number.isascii() and number.isdigit() and len(number) < 9
            index = int(number) - (kind == "from-1") if is_index else -1
        case "text":
            return texts.index(label) if texts.count(label) == 1 else None
    return index if 0 <= index < len(names) else None


def _meanings(
    rows: Sequence[Row], names: Sequence[str], column: str, listed: Sequence[Sequence[str]]
) -> dict[OptionLabels, list[int | None]]:
    """The options that the labels of all rows mean, for each way to read them."""
    labelled: list[tuple[str, list[str], Sequence[str]]] = []
    for number, row in enumerate(rows):
        label = row.fields.get(column)
        if isinstance(label, str) and label.strip():
            texts = [value if isinstance(value := row.fields.get(name, ""), str) else "" for name in names]
            labelled.append((label.strip(), texts, listed[number] if listed else ()))
    kinds: tuple[OptionLabels, ...] = get_args(OptionLabels)
    indices: dict[OptionLabels, list[int | None]] = {}
    for kind in kinds:
        indices[kind] = [option_index(label, kind, names, texts, own) for label, texts, own in labelled]
    return indices


def infer_option_labels(
    rows: Sequence[Row], names: tuple[str, ...], column: str, listed: Sequence[Sequence[str]] = ()
) -> OptionLabels:
    """The way to read the labels that fits those of all rows, or else of most.

    Args:
        rows: with a column for each option, `names`.
        column: the labels.
        listed: the names of the options of each row, if they have any (see `listed_labels`).

    Raises:
        UsageError: several ways fit all labels, and mean different options.
    """
    indices = _meanings(rows, names, column, listed)
    if None not in indices["name"]:
        return "name"
    fewest = min(found.count(None) for found in indices.values())
    best: list[OptionLabels] = [kind for kind, found in indices.items() if found.count(None) == fewest]
    first = best[0]
    others = [kind for kind in best if indices[kind] != indices[first]]
    if fewest == 0 and others:
        why = f"may name an option in two ways, {first} and {others[0]}"
        raise UsageError(f"column {column!r}", why, f"say option_labels={first} or {others[0]}")
    return first


FITTING = 0.9
"""The share of the labels of a column that name an option, from which on it is a multiple choice."""


def are_option_labels(task: TableTask, rows: Table) -> bool:
    """Return whether the labels of rows name options, in one way or another."""
    assert task.label is not None
    listed = [listed_labels(task, row) for row in rows.rows]
    expanded, names = expand_options(task, rows.rows)
    indices = _meanings(expanded, names, task.label, listed)
    n_labels = len(indices["name"])
    fewest = min(found.count(None) for found in indices.values())
    return n_labels > 0 and n_labels - fewest >= FITTING * n_labels
