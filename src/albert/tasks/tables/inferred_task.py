"""What a table's rows say that nobody said: the kind of task, its labels, and how a label names an option.

Everything inferred comes with its reason and with what to say instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from albert.runtime.errors import DamagedData, InvalidConfiguration, UsageError, did_you_mean
from albert.tasks.rows import Row, Rows
from albert.tasks.tables.formats import columns_of
from albert.tasks.tables.kind_of_label import KindFound, kind_of_label, label_values, sort_labels
from albert.tasks.tables.option_labels import infer_option_labels
from albert.tasks.tables.table_task import ALLOWED, NEEDED, Kind, TableTask
from albert.tasks.tables.tagged_text import TAGS, WORDS

MANY_LABELS = 8
TARGETS = ("label", "tags", "answer", "answer_start")
"""Columns that only tables with answers have."""


@dataclass(frozen=True)
class Inferred:
    """One thing that was inferred: what, the value found, why, and the flag that says otherwise."""

    what: str
    value: str
    why: str
    instead: str


def infer_task(
    asked: TableTask, rows: Rows, source: object, to_learn: bool = True
) -> tuple[TableTask, tuple[Inferred, ...]]:
    """A task with kind, labels and the meaning of options filled in, and what of it was inferred.

    Args:
        asked: what was said.
        rows: the rows to infer from.
        source: what they are called in errors.
        to_learn: whether they are for training; others need no labels, and tell none.

    Raises:
        UsageError: columns are not named, do not go with the kind, or mean two things.
        DamagedData: the table has no such column.
        InvalidConfiguration: fewer than two labels.
    """
    columns = columns_of(rows)
    task, kind = _with_kind(asked, rows.rows, columns, source)
    found = [] if kind is None else [Inferred("task", str(task.kind), kind.why, kind.instead)]
    assert task.kind is not None
    _check_columns(task, task.kind, columns, source, () if to_learn else TARGETS)
    if task.kind in ("classification", "multi-label", "token-classification"):
        if task.labels is None and not to_learn:
            raise UsageError("labels", "a training file is needed to know them", "give --train")
        task, labels = _with_labels(task, rows.rows, source)
        found += labels
    if task.kind == "multiple-choice":
        task, more = _with_options(task, rows.rows)
        found += more
    return task, tuple(found)


def _with_kind(
    asked: TableTask, rows: Sequence[Row], columns: tuple[str, ...], source: object
) -> tuple[TableTask, KindFound | None]:
    """The task with its kind, and why it is that; None where it was said."""
    if asked.kind is not None:
        return _with_tagged_columns(asked, columns), None
    if asked.options is not None:
        return replace(asked, kind="multiple-choice"), KindFound("options are named", "leave out --options")
    if {"question", "context", "answer"} & set(asked.given_columns):
        why = "a question, its context and an answer are named"
        return replace(asked, kind="question-answering"), KindFound(why, "name --text and --label")
    tagged = asked.given_columns == () and {WORDS, TAGS} <= set(columns)
    if tagged or asked.words is not None or asked.tags is not None:
        task = replace(asked, kind="token-classification")
        return _with_tagged_columns(task, columns), KindFound("every word has a tag", "name --text and --label")
    _need(asked, "classification", columns, source)
    assert asked.text is not None and asked.label is not None
    _check_columns(replace(asked, kind=None), "classification", columns, source)
    kind, found = kind_of_label(rows, asked.text, asked.label)
    if kind == "token-classification":
        return replace(asked, kind=kind, words=asked.text, tags=asked.label, text=None, label=None), found
    return replace(asked, kind=kind), found


def _with_tagged_columns(task: TableTask, columns: tuple[str, ...]) -> TableTask:
    """Tagged text names its columns itself."""
    if task.kind != "token-classification":
        return task
    words = task.words or (WORDS if WORDS in columns else None)
    return replace(task, words=words, tags=task.tags or (TAGS if TAGS in columns else None))


def _need(task: TableTask, kind: Kind, columns: tuple[str, ...], source: object) -> None:
    missing = [name for name in NEEDED[kind] if getattr(task, name) is None]
    if missing:
        flags = ", ".join(_flag(name) for name in missing)
        raise UsageError("albert", f"{flags} must be said for {kind}", f"{source} has the columns {', '.join(columns)}")


def _check_columns(
    task: TableTask, kind: Kind, columns: tuple[str, ...], source: object, may_be_absent: tuple[str, ...] = ()
) -> None:
    """Every column that is needed is named, every one named is there, and none is named in vain."""
    _need(task, kind, columns, source)
    for name in task.given_columns:
        if name not in (*NEEDED[kind], *ALLOWED[kind]):
            raise UsageError(_flag(name), f"does not go with {kind}", f"it takes {_taken(kind)}")
    if kind == "multiple-choice" and task.text is None and task.question is None:
        raise UsageError("albert", "a multiple choice needs --text or --question, or both")
    for name in (*task.given_columns, "id"):
        value = getattr(task, name)
        for column in value if isinstance(value, tuple) else [value]:
            if column is not None and column not in columns and name not in may_be_absent:
                raise DamagedData(source, f"has no column {column!r}", did_you_mean(column, columns))


def _with_labels(task: TableTask, rows: Sequence[Row], source: object) -> tuple[TableTask, list[Inferred]]:
    found: list[Inferred] = []
    kind = task.kind
    assert kind is not None
    column = task.tags if task.kind == "token-classification" else task.label
    assert column is not None
    if task.kind == "multi-label" and task.separator is None:
        task = replace(task, separator="|")
        if any(isinstance(row.fields.get(column), str) for row in rows):
            found.append(Inferred("separator", "|", "it is the usual one", "--separator ,"))
    if task.labels is None:
        seen = set(label_values(rows, column, kind, task.separator))
        labels = sort_labels(seen)
        if len(labels) < 2:
            _refuse_rows_without(column, rows)
            why = f"every row has the label {labels[0]!r}" if labels else f"no row has a label in column {column!r}"
            raise InvalidConfiguration(source, why, "at least two are needed")
        more = f", and {len(labels) - MANY_LABELS} more" if len(labels) > MANY_LABELS else ""
        shown = ", ".join(labels[:MANY_LABELS]) + more
        found.append(Inferred(f"{len(labels)} labels", shown, f"the values in {column!r}", "--labels A B ..."))
        task = replace(task, labels=labels)
    known = task.labels or ()
    for label in task.label_names or ():
        if label not in known:
            raise InvalidConfiguration("label_names", f"{label!r} is no label", did_you_mean(label, known))
    return task, found


def _refuse_rows_without(column: str, rows: Sequence[Row]) -> None:
    """Too few labels may be such that are missing."""
    for row in rows:
        if not isinstance(row.fields.get(column, ""), tuple) and not row.text(column).strip():
            raise DamagedData(row.where, f"empty label in column {column!r}")


def _with_options(task: TableTask, rows: Sequence[Row]) -> tuple[TableTask, list[Inferred]]:
    assert task.options is not None and task.label is not None
    if task.option_labels is not None:
        return task, []
    rows, names = unfolded_options(task, rows)
    kind = infer_option_labels(rows, names, task.label)
    why = f"every label in {task.label!r} can be read so"
    return replace(task, option_labels=kind), [Inferred("labels of options", kind, why, "--option-labels from-1")]


def unfolded_options(task: TableTask, rows: Sequence[Row]) -> tuple[list[Row], tuple[str, ...]]:
    """Rows with a column for each option, and the names of these columns; a single column is of lists of options.

    Rows whose list is not as long as the first have fewer columns, or more.

    Raises:
        UsageError: one option, which is no choice.
    """
    options = task.options or ()
    if len(options) != 1:
        return list(rows), options
    column = options[0]
    length = next((len(row.fields[column]) for row in rows if isinstance(row.fields.get(column), tuple)), 0)
    if length < 2:
        raise UsageError("--options", f"{column!r} alone is no choice", "name several columns, or one of lists")
    unfolded = []
    for row in rows:
        items = row.texts(column) if isinstance(row.fields.get(column), tuple) else ()
        unfolded.append(replace(row, fields={**row.fields, **{f"{column}[{i}]": item for i, item in enumerate(items)}}))
    return unfolded, tuple(f"{column}[{i}]" for i in range(length))


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _taken(kind: Kind) -> str:
    allowed = " and ".join(_flag(name) for name in ALLOWED[kind])
    return ", ".join(_flag(name) for name in NEEDED[kind]) + (f", and perhaps {allowed}" if allowed else "")
