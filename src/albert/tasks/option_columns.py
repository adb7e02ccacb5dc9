"""A multiple choice in a table: its columns of options, and which option a label names.

A label is the row's own name of an option, or else, in one way for the whole table, its number from 0 or from 1, its
letter or its text."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from albert.runtime.errors import DamagedData, UsageError
from albert.tables.fields import text_of
from albert.tables.table import Row, Table, convert_rows
from albert.tasks.cells import list_of_text, lists_are_text
from albert.tasks.from_table import Inferred
from albert.tasks.table_task import OptionLabels, TableTask

NO_QUESTION = "(no question)"
NO_TEXT = "(no text)"
"""Empty columns for a multiple choice without question or text."""
LABELS_OF_OPTIONS = "number it from 0 or from 1, or write its letter or its text, in one way for all rows"
FITTING = 0.9
"""The share of the labels of a column that name an option, from which on it is a multiple choice."""
OPTION_LABELS = "(option labels)"
"""A column with how each option is called in the labels of the file, where that is not the name of its column."""


def labels_of_options(meaning: str, names: Sequence[str], texts: Sequence[str], listed: Sequence[str]) -> list[str]:
    """How a file with labels of this meaning (`TableTask.option_labels`) calls each option."""
    match meaning:
        case "letter":
            return [chr(ord("A") + index) for index in range(len(names))]
        case "from-0" | "from-1":
            return [str(index + (meaning == "from-1")) for index in range(len(names))]
        case "text":
            return list(texts)
    return [*listed, *[""] * len(names)][: len(names)] if listed else list(names)


def labels_of_record(meaning: str, fields: Mapping[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    """How the labels of the training file call the options of a row to predict that are not empty.

    Args:
        fields: of the row; parts of nested values have names with dots.
        names: the fields of the options, or the only one with a list of them.
    """
    texts: Sequence[Any] = [fields.get(name) or "" for name in names]
    listed: Sequence[str] = ()
    if len(names) == 1:
        (texts,) = texts
        column, dot, name = names[0].rpartition(".")
        beside = fields.get(f"{column}.label") if dot and name == "text" else None
        own = beside if isinstance(beside, list) else [beside] if beside else []
        listed = [text_of(label) or "" for label in own]
        names = tuple(f"{names[0]}[{number}]" for number in range(len(texts)))
    labels = labels_of_options(meaning, names, list(map(str, texts)), listed)
    return tuple(label for label, text in zip(labels, texts, strict=True) if str(text).strip())


# --------------------------------------------------------------------------------------------------------------------
# The columns of options.

_QUESTIONS = ("question", "question.stem")
_PASSAGES = ("context", "passage", "article")
_LISTS_OF_OPTIONS = ("choices.text", "question.choices.text", "choices", "options")
_RIGHT_OPTIONS = ("answerkey", "answer", "label")


def named_options(task: TableTask, table: Table, inferred: list[Inferred]) -> TableTask | None:
    """A multiple choice with usual names: a question, options in columns or a list, and which one is right."""
    known = {name.lower(): name for name in table.columns}

    def usual(names: Sequence[str]) -> str | None:
        return next((known[name] for name in names if name in known), None)

    question = usual(_QUESTIONS)
    label = usual(_RIGHT_OPTIONS)
    options = columns_of_options(table.columns)
    if not options:
        listed = usual(_LISTS_OF_OPTIONS)
        options = () if listed is None else (listed,)
    if question is None or label is None or not options or "answer_start" in known:  # an answer is a part of a text
        return None
    if len(options) == 1:
        if lists_are_text(table, options[0]):
            table = table.changed(options[0], list_of_text)
        if not any(isinstance(value, tuple) and len(value) > 1 for value in table.values(options[0])):
            return None
    named = replace(task, question=question, text=usual(_PASSAGES), options=options, label=label)
    if not _are_option_labels(named, table):
        return None
    inferred.append(Inferred("options", ", ".join(options), f"{label!r} names one of them", "--options"))
    return named


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


def option_names(task: TableTask, table: Table) -> tuple[str, ...]:
    """The columns of the options; a single column holds lists, of which each position becomes a column."""
    options = task.options or ()
    if len(options) > 1:
        return options
    column = options[0] if options else ""
    length = max((len(value) for value in table.values(column) if isinstance(value, tuple)), default=0)
    if length < 2:
        raise UsageError("--options", f"{column!r} has no lists of options", "name several columns, or one of lists")
    return tuple(f"{column}[{index}]" for index in range(length))


def _expanded(task: TableTask, row: Row, names: Sequence[str]) -> Row:
    """The row with a column for each option that is not empty: questions may have different numbers of options."""
    options = task.options or ()
    fields = dict(row.fields)
    cell = row.fields.get(options[0]) if len(options) == 1 else ()
    fields |= dict(zip(names, cell if isinstance(cell, tuple) else (), strict=False))
    for name in names:
        value = fields.get(name)
        if isinstance(value, str) and not value.strip():
            del fields[name]
    return replace(row, fields=fields)


def with_options(task: TableTask, table: Table) -> Table:
    """Rows with a column for each option, whose label is the column of the right one. A missing question or text is an
    empty column."""
    names = option_names(task, table)
    empty = {name: "" for name, used in ((NO_QUESTION, task.question), (NO_TEXT, task.text)) if used is None}

    def convert(row: Row) -> Row:
        row = _expanded(task, row, names)
        texts = [row.text(name) if name in row.fields else "" for name in names]
        labels = labels_of_options(str(task.option_labels), names, texts, _listed_labels(task, row))
        right = _right_option(task, row, names, texts)
        return replace(row, fields={**row.fields, **empty, OPTION_LABELS: tuple(labels), **right})

    return replace(table, rows=convert_rows(table.rows, convert))


def _right_option(task: TableTask, row: Row, names: Sequence[str], texts: Sequence[str]) -> dict[str, str]:
    """The label as the column of the right option; empty without a label."""
    assert task.label is not None and task.option_labels is not None
    label = row.text(task.label).strip() if task.label in row.fields else ""
    if not label:
        return {}
    index = option_index(label, task.option_labels, names, texts, _listed_labels(task, row))
    if index is not None and names[index] not in row.fields:
        why = f"{label!r} in column {task.label!r} names an option that is empty"
        raise DamagedData(row.where, why, "the right option needs a text")
    if index is None:
        why = f"{label!r} in column {task.label!r} names no option"
        remedy = f"the labels of this table are read as {task.option_labels}: {LABELS_OF_OPTIONS}"
        raise DamagedData(row.where, why, remedy)
    return {task.label: names[index]}


# --------------------------------------------------------------------------------------------------------------------
# Which option a label means.


def _listed_labels(task: TableTask, row: Row) -> tuple[str, ...]:
    """The names beside a list of options: `choices.label` beside `choices.text`; empty if there are none."""
    column, dot, name = (task.options or ("",))[0].rpartition(".")
    value = row.fields.get(f"{column}.label") if dot and name == "text" else None
    return value if isinstance(value, tuple) else ()


def option_index(
    label: str, meaning: OptionLabels, names: Sequence[str], texts: Sequence[str], listed: Sequence[str] = ()
) -> int | None:
    """The index of the option that a label means, None if it means none.

    Args:
        names: the columns of the options.
        listed: the row's own names of the options; empty for the names of the columns.
    """
    match meaning:
        case "name":
            own = listed or names
            return own.index(label) if label in own else None
        case "letter":
            index = ord(label.upper()) - ord("A") if len(label) == 1 and label.isascii() and label.isalpha() else -1
        case "from-0" | "from-1":
            number = label.removesuffix(".0")  # whole numbers of a column with missing values
            is_index = number.isascii() and number.isdigit() and len(number) < 9
            index = int(number) - (meaning == "from-1") if is_index else -1
        case "text":
            return texts.index(label) if texts.count(label) == 1 else None
    return index if 0 <= index < len(names) else None


def _meanings(task: TableTask, table: Table) -> dict[OptionLabels, list[int | None]]:
    """The options that the labels of all rows mean, for each way to read them."""
    names = option_names(task, table)
    ways: tuple[OptionLabels, ...] = get_args(OptionLabels)
    indices: dict[OptionLabels, list[int | None]] = {way: [] for way in ways}
    for row in table.rows:
        label = row.fields.get(str(task.label))
        if not isinstance(label, str) or not label.strip():
            continue
        fields = _expanded(task, row, names).fields
        texts = [text if isinstance(text := fields.get(name, ""), str) else "" for name in names]
        for way in ways:
            indices[way].append(option_index(label.strip(), way, names, texts, _listed_labels(task, row)))
    return indices


def infer_option_labels(task: TableTask, table: Table) -> OptionLabels:
    """The way to read the labels that fits those of all rows, or else of most.

    Raises:
        UsageError: several ways fit all labels, and mean different options.
    """
    indices = _meanings(task, table)
    if None not in indices["name"]:
        return "name"
    fewest = min(found.count(None) for found in indices.values())
    best: list[OptionLabels] = [way for way, found in indices.items() if found.count(None) == fewest]
    first = best[0]
    others = [way for way in best if indices[way] != indices[first]]
    if fewest == 0 and others:
        why = f"may name an option in two ways, {first} and {others[0]}"
        raise UsageError(f"column {task.label!r}", why, f"say option_labels={first} or {others[0]}")
    return first


def _are_option_labels(task: TableTask, table: Table) -> bool:
    """Return whether the labels of rows name options, in one way or another."""
    indices = _meanings(task, table)
    n_labels = len(indices["name"])
    fewest = min(found.count(None) for found in indices.values())
    return n_labels > 0 and n_labels - fewest >= FITTING * n_labels
