"""Which columns of a table are used: by name, position or usual name; and what to write if one is missing."""

import re
import shlex
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any

from albert.runtime.errors import DamagedData, UsageError, did_you_mean
from albert.tables.table import TAGS, WORDS, Table
from albert.tasks.from_table import Inferred
from albert.tasks.pipelines import KINDS
from albert.tasks.table_task import COLUMNS, TARGETS, TableTask
from albert.tasks.task import Task


def with_names_of_training(task: TableTask, table: Table) -> Table:
    """Tagged text, whose columns have fixed names, with the names of words and tags in the training file."""
    if not table.aliases:
        return table
    there = table.columns
    names = {}
    for name, usual in ((task.words, WORDS), (task.tags, TAGS)):
        is_known = name is None or name in (*there, *table.aliases) or name.isdecimal()
        if name is not None and not is_known and usual in there:
            names[usual] = name
    if not names:
        return table
    rows = []
    for row in table.rows:
        rows.append(replace(row, fields={names.get(name, name): value for name, value in row.fields.items()}))
    renamed = " and ".join(f"{usual!r} is the column {name!r} of training" for usual, name in names.items())
    columns = tuple(None if name is None else names.get(name, name) for name in table.names)
    return replace(table, rows=rows, names=columns, notes=(*table.notes, renamed))


def named_columns(task: TableTask, table: Table, inferred: list[Inferred]) -> TableTask:
    """The task with the names of its columns, also of those that it does not name and that have usual names."""
    task = _names_of_positions(task, table)
    possible = list(KINDS.values()) if task.kind is None else [KINDS[task.kind]]
    for kind in possible:
        named = kind.named_columns(task, table, inferred)
        if named is not None:
            return named
    if not any("label" in (*kind.needed_columns, *kind.further_columns) for kind in possible):
        return task
    if any(getattr(task, name) is not None for name in COLUMNS if name not in ("text", "pair", "label")):
        return task
    usual = {"text": "text", "label": "label"}
    if not task.given_columns and "text" in table.columns and "label" not in table.columns:
        usual["label"] = "labels"
    for name, column in usual.items():
        is_given = getattr(task, name) is not None or (name == "label" and task.label_columns is not None)
        if not is_given and column in table.columns:
            inferred.append(Inferred(name, column, "a column has this name", f"--{name}"))
            task = replace(task, **{name: column})
    return task


def _names_of_positions(task: TableTask, table: Table) -> TableTask:
    """Columns that are given by position (from 1), or by another name, with their names."""
    known = set(table.columns)
    changes: dict[str, Any] = {}
    for name in (*COLUMNS, "id", "group", "label_columns"):
        value = getattr(task, name)
        option = "--label" if name == "label_columns" else _option(name)
        if isinstance(value, tuple):
            columns = tuple(_column_name(option, each, table, known) for each in value)
            twice = [column for column, count in Counter(columns).items() if count > 1]
            if twice:
                raise UsageError(option, f"names the column {twice[0]!r} twice", "name it once")
            changes[name] = columns
        elif value is not None:
            changes[name] = _column_name(option, value, table, known)
    return replace(task, **changes)


def _column_name(option: str, value: str, table: Table, known: Container[str]) -> str:
    """The name of a column that is given by its name, another name of it, or its position."""
    if value in known or not value.isdecimal():
        return value if value in known else table.aliases.get(value, value)
    position = int(value)
    if not 1 <= position <= len(table.names):
        raise UsageError(option, f"there is no column {position}", f"there are {len(table.names)}")
    name = table.names[position - 1]
    if name is None:
        why = f"column {position} has no name"
        raise UsageError(option, why, "name the columns with reading.columns, or say reading.no_header=true")
    return name


def check_columns(task: TableTask, kind: type[Task], table: Table, source: object, to_learn: bool) -> None:
    """Check that required columns are named, and that named columns exist and belong to the kind."""
    columns = table.columns
    missing = [name for name in kind.needed_columns if getattr(task, name) is None]
    if missing:
        needs = f"needs {' and '.join(map(_option, missing))}"
        there = f"{source} has the columns {', '.join(columns)}{_proposal(missing, task, table)}"
        raise UsageError(kind.kind, needs, table.doubt or there)
    for name in task.given_columns:
        if name not in (*kind.needed_columns, *kind.further_columns):
            takes = f"it takes {', '.join(map(_option, kind.needed_columns))}"
            if kind.further_columns:
                takes += f", and optionally {' and '.join(map(_option, kind.further_columns))}"
            raise UsageError(_option(name), f"cannot be used with {kind.kind}", takes)
    for name in (*task.given_columns, "id"):
        value = getattr(task, name)
        may_be_absent = name in TARGETS and not to_learn
        for column in value if isinstance(value, tuple) else (value,):
            if column is not None and column not in columns and not may_be_absent:
                raise DamagedData(source, f"has no column {column!r}", table.doubt or did_you_mean(column, columns))


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


# --------------------------------------------------------------------------------------------------------------------
# Which columns look like the label, the text and a second text.

_LABELS = ("label", "labels", "gold_label", "class", "category", "target", "score", "rating", "sentiment", "intent")
_PAIRS = (("premise", "hypothesis"), ("question", "sentence"), ("query", "passage"))


def _proposal(missing: Sequence[str], task: TableTask, table: Table) -> str:
    """Which columns look like the label, the text and a second text, as options that can be pasted into a shell.

    The label is a column with a usual name, else the one with the fewest values; the text is the one with the longest
    values; two texts are columns whose names differ in 1 and 2, or in a last a and b, or are usual names.
    """
    if not {*missing} <= {"text", "label"}:
        return ""
    first = [row.fields for row in table.rows[:1000]]
    values = {
        name: [text for row in first if isinstance(text := row.get(name, ""), str)]
        for name in table.columns
        if name and name not in (task.text, task.label, task.pair)
    }
    options = []
    if "label" in missing:
        counts = {name: len({*texts}) for name, texts in values.items() if texts}
        few = {name: count for name, count in counts.items() if 2 <= count <= max(2, len(first) // 5)}
        usual = [name for name in counts if name.casefold() in _LABELS and counts[name] > 1]
        if not few and not usual:
            return ""
        label = min(few, key=few.__getitem__, default="")
        if usual:
            label = min(usual, key=lambda name: _LABELS.index(name.casefold()))
        values.pop(label)
        options.append(f"--label {shlex.quote(label)}")
    if "text" in missing and values:
        lengths = {name: sum(map(len, texts)) for name, texts in values.items()}
        pairs = [pair for pair in map(_pair_of, values) if pair is not None and pair[1] in values]
        if pairs:
            first, second = max(pairs, key=lambda pair: lengths[pair[0]] + lengths[pair[1]])
            options.append(f"--text {shlex.quote(first)} --pair {shlex.quote(second)}")
        else:
            options.append(f"--text {shlex.quote(max(values, key=lengths.__getitem__))}")
    return f"; perhaps {' '.join(options)}"


def _pair_of(column: str) -> tuple[str, str] | None:
    """A column and the name of the one that would have a second text beside it; None if its name says nothing."""
    name = column.casefold()
    for first, second in _PAIRS:
        if name == first:
            return column, second if column.islower() else second.capitalize()
    if name.startswith("column "):  # of a file without a header
        return None
    if "1" in column:
        return column, column.replace("1", "2")
    for first, second in (("a", "b"), ("A", "B")):
        if re.search(rf"[_ .-]{first}$", column):
            return column, column[:-1] + second
    return None
