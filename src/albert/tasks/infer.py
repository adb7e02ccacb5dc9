"""Inferring a task from a table: its kind, its labels, which option a label names; rows held out for development.

Everything inferred comes with its reason and with the option that says otherwise."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from albert.runtime.errors import DamagedData, InvalidConfiguration, UsageError, did_you_mean
from albert.runtime.random_streams import stream
from albert.tasks.examples import text_columns
from albert.tasks.table_task import (
    ALLOWED,
    NEEDED,
    TAGS,
    WORDS,
    HeldOut,
    Kind,
    OptionLabels,
    TableTask,
    as_number,
    columns_of,
)
from albert.tasks.task import Choice, QuestionInContext, Row, Rows, Task

# --------------------------------------------------------------------------------------------------------------------
# What a column of labels is: classes, numbers to predict, several labels at once, or a tag for each word.

MANY_VALUES = 20
"""Of so many different numbers each may be a class."""
MOST_CLASSES = 200
"""Of more different whole numbers none is taken for the id of a class."""


@dataclass(frozen=True)
class Inferred:
    """One thing that was inferred: what, the value found, why, and the flag that says otherwise."""

    what: str
    value: str
    why: str
    instead: str


def infer_kind(rows: Sequence[Row], text: str, label: str) -> tuple[Kind, str, str]:
    """The kind of task that the values of two columns suggest, why, and what to say where it is wrong.

    Lists beside lists are tags of words; lists beside texts are several labels. Numbers are to be predicted when there
    are more than 20 different ones, and also fewer ones with fractions of which hardly any is there twice. All else is
    a class. More than 20 whole numbers may be ids of classes as well: from 0 or 1 on, at most 200 of them, without
    gaps, mostly more than one row each. Whoever has such a column must say which it is.
    """
    lists = [isinstance(row.fields.get(label), tuple) for row in rows if label in row.fields]
    if any(lists):
        if any(isinstance(row.fields.get(text), tuple) for row in rows):
            return "token-classification", f"{text!r} and {label!r} hold lists", "--multi-label"
        return "multi-label", f"{label!r} holds lists", "a column of one label a row"
    given = [value for row in rows if label in row.fields and (value := str(row.fields[label]).strip())]
    values = set(given)
    numbers = {number for value in values if (number := as_number(value)) is not None}
    many = f"{len(values):,} different values in {label!r}"
    if any(as_number(value) is None for value in values):
        return "classification", f"{many}, not all of them numbers", "--regression, --multi-label"
    whole = all(number.is_integer() for number in numbers)
    repeated = len(given) >= 2 * len(values)
    if len(values) <= MANY_VALUES and (whole or repeated):
        return "classification", f"{many}, at most {MANY_VALUES}", "--regression, --multi-label"
    if not whole:
        return "regression", f"{many}, numbers with fractions", "--classes"
    low, high = min(numbers), max(numbers)
    without_gaps = low in (0, 1) and high - low + 1 == len(numbers)
    if without_gaps and repeated and len(numbers) <= MOST_CLASSES:
        why = f"holds every whole number from {low:.0f} to {high:.0f}, which may be classes or numbers to predict"
        raise UsageError(f"column {label!r}", why, "say --classes or --regression")
    return "regression", f"{many}, whole numbers from {low:.0f} to {high:.0f}", "--classes"


def label_values(rows: Sequence[Row], column: str, kind: Kind, separator: str | None) -> Iterator[str]:
    """Every label of every row, one by one; empty labels are skipped."""
    for row in rows:
        value = row.fields.get(column)
        if value is None:
            continue
        if kind == "classification":
            if isinstance(value, str) and value.strip():
                yield value
        else:
            yield from (item for item in row.texts(column, separator) if item)


def sort_labels(labels: set[str]) -> tuple[str, ...]:
    """Labels in the order of their ids: by value when every label is a finite number, else as text."""
    if all((number := as_number(label)) is not None and math.isfinite(number) for label in labels):
        return tuple(sorted(labels, key=lambda label: (float(label), label)))
    return tuple(sorted(labels))


# --------------------------------------------------------------------------------------------------------------------
# Which option a label means: the name of its column, its letter, its number from 0 or from 1, or its own text.


def option_index(label: str, kind: OptionLabels, names: Sequence[str], texts: Sequence[str]) -> int | None:
    """The place of the option that a label means, None when it means none."""
    match kind:
        case "name":
            return names.index(label) if label in names else None
        case "letter":
            place = ord(label.upper()) - ord("A") if len(label) == 1 and label.isascii() and label.isalpha() else -1
        case "from-0" | "from-1":
            number = label.removesuffix(".0")  # as a column with gaps has whole numbers
            is_place = number.isascii() and number.isdigit() and len(number) < 9
            place = int(number) - (kind == "from-1") if is_place else -1
        case "text":
            return texts.index(label) if texts.count(label) == 1 else None
    return place if 0 <= place < len(names) else None


def infer_option_labels(rows: Sequence[Row], names: tuple[str, ...], column: str) -> OptionLabels:
    """The one way in which the labels of all rows mean an option; where there is none, that in which most do."""
    read = []
    for row in rows:  # those that have a label and texts
        label, *texts = (row.fields.get(name) for name in (column, *names))
        if isinstance(label, str) and label.strip() and all(isinstance(text, str) for text in texts):
            read.append((label.strip(), texts))
    kinds: tuple[Any, ...] = get_args(OptionLabels)
    places = {kind: [option_index(label, kind, names, texts) for label, texts in read] for kind in kinds}
    fewest = min(found.count(None) for found in places.values())
    best = [kind for kind, found in places.items() if found.count(None) == fewest]
    first = best[0]
    others = [kind for kind in best if places[kind] != places[first]]
    if fewest == 0 and others:
        why = f"may name an option in two ways, {first} and {others[0]}"
        raise UsageError(f"column {column!r}", why, f"say --option-labels {first} or {others[0]}")
    return first


# --------------------------------------------------------------------------------------------------------------------
# The whole task: kind, labels and the meaning of options, each unless it is said.

MANY_LABELS = 8
TARGETS = ("label", "tags", "answer", "answer_start")
"""Columns that only tables with answers have."""


def infer_task(
    asked: TableTask, rows: Rows, source: object, to_learn: bool = True
) -> tuple[TableTask, tuple[Inferred, ...]]:
    """A task with kind, labels and the meaning of options filled in, and what of it was inferred.

    Args:
        to_learn: whether they are for training; others need no labels, and tell none.
    """
    columns = columns_of(rows)
    inferred: list[Inferred] = []
    task = asked if asked.kind is not None else _with_kind(asked, rows.rows, columns, source, inferred)
    kind = task.kind
    assert kind is not None
    if kind == "token-classification":  # tagged text names its columns itself
        words, tags = (name if name in columns else None for name in (WORDS, TAGS))
        task = replace(task, words=task.words or words, tags=task.tags or tags)
    _check_columns(task, kind, columns, source, () if to_learn else TARGETS)
    if kind in ("classification", "multi-label", "token-classification"):
        if task.labels is None and not to_learn:
            raise UsageError("labels", "a training file is needed to know them", "give --train")
        task = _with_labels(task, kind, rows.rows, source, inferred)
    if kind == "multiple-choice" and task.option_labels is None:
        assert task.label is not None
        meaning = infer_option_labels(*expand_options(task, rows.rows), task.label)
        why = f"every label in {task.label!r} can be read so"
        inferred.append(Inferred("labels of options", meaning, why, "--option-labels from-1"))
        task = replace(task, option_labels=meaning)
    return task, tuple(inferred)


def _with_kind(
    asked: TableTask, rows: Sequence[Row], columns: tuple[str, ...], source: object, inferred: list[Inferred]
) -> TableTask:
    tagged = asked.given_columns == () and {WORDS, TAGS} <= set(columns)
    if asked.options is not None:
        kind, why, instead = "multiple-choice", "options are named", "leave out --options"
    elif {"question", "context", "answer"} & set(asked.given_columns):
        kind, why = "question-answering", "a question, its context and an answer are named"
        instead = "name --text and --label"
    elif tagged or asked.words is not None or asked.tags is not None:
        kind, why, instead = "token-classification", "every word has a tag", "name --text and --label"
    else:
        _check_columns(asked, "classification", columns, source)
        assert asked.text is not None and asked.label is not None
        kind, why, instead = infer_kind(rows, asked.text, asked.label)
        if kind == "token-classification":
            asked = replace(asked, words=asked.text, tags=asked.label, text=None, label=None)
    inferred.append(Inferred("task", kind, why, instead))
    return replace(asked, kind=kind)


def _check_columns(
    task: TableTask, kind: Kind, columns: tuple[str, ...], source: object, may_be_absent: tuple[str, ...] = ()
) -> None:
    """Every column that is needed is named, every one named is there, and none is named in vain."""

    def flags(names: Sequence[str], joined: str = ", ") -> str:
        return joined.join("--" + name.replace("_", "-") for name in names)

    needed, allowed = NEEDED[kind], ALLOWED[kind]
    if missing := [name for name in needed if getattr(task, name) is None]:
        why = f"{flags(missing)} must be said for {kind}"
        raise UsageError("albert", why, f"{source} has the columns {', '.join(columns)}")
    for name in task.given_columns:
        if name not in (*needed, *allowed):
            takes = flags(needed) + (f", and perhaps {flags(allowed, ' and ')}" if allowed else "")
            raise UsageError(flags([name]), f"does not go with {kind}", f"it takes {takes}")
    if kind == "multiple-choice" and task.text is None and task.question is None:
        raise UsageError("albert", "a multiple choice needs --text or --question, or both")
    for name in (*task.given_columns, "id"):
        value = getattr(task, name)
        for column in value if isinstance(value, tuple) else [value]:
            if column is not None and column not in columns and name not in may_be_absent:
                raise DamagedData(source, f"has no column {column!r}", did_you_mean(column, columns))


def _with_labels(
    task: TableTask, kind: Kind, rows: Sequence[Row], source: object, inferred: list[Inferred]
) -> TableTask:
    column = task.tags if kind == "token-classification" else task.label
    assert column is not None
    if kind == "multi-label" and task.separator is None:
        task = replace(task, separator="|")
        if any(isinstance(row.fields.get(column), str) for row in rows):
            inferred.append(Inferred("separator", "|", "it is the usual one", "--separator ,"))
    if task.labels is None:
        labels = sort_labels(set(label_values(rows, column, kind, task.separator)))
        if len(labels) < 2:
            for row in rows:  # too few may be such that are missing
                if not isinstance(row.fields.get(column, ""), tuple) and not row.text(column).strip():
                    raise DamagedData(row.where, f"empty label in column {column!r}")
            why = f"every row has the label {labels[0]!r}" if labels else f"no row has a label in column {column!r}"
            raise InvalidConfiguration(source, why, "at least two are needed")
        more = f", and {len(labels) - MANY_LABELS} more" if len(labels) > MANY_LABELS else ""
        shown = ", ".join(labels[:MANY_LABELS]) + more
        inferred.append(Inferred(f"{len(labels)} labels", shown, f"the values in {column!r}", "--labels A B ..."))
        task = replace(task, labels=labels)
    for label in task.label_names or ():
        if label not in (task.labels or ()):
            raise InvalidConfiguration(
                "label_names", f"{label!r} is not a label", did_you_mean(label, task.labels or ())
            )
    return task


def expand_options(task: TableTask, rows: Sequence[Row]) -> tuple[list[Row], tuple[str, ...]]:
    """Rows with a column for each option, and the names of these columns; a single column is of lists of options.

    Rows whose list is not as long as the first have fewer columns, or more.
    """
    options = task.options or ()
    if len(options) != 1:
        return list(rows), options
    column = options[0]
    lists = [items if isinstance(items := row.fields.get(column), tuple) else None for row in rows]
    length = next((len(items) for items in lists if items is not None), 0)
    if length < 2:
        raise UsageError("--options", f"{column!r} has no lists of options", "name several columns, or one of lists")
    unfolded = [
        replace(row, fields={**row.fields, **{f"{column}[{i}]": item for i, item in enumerate(items or ())}})
        for row, items in zip(rows, lists, strict=True)
    ]
    return unfolded, tuple(f"{column}[{i}]" for i in range(length))


# --------------------------------------------------------------------------------------------------------------------
# Rows of a training file that are kept back as development set, where no file is given for that.
#
# Rows with the same text, or on the same context, stay together, so that nothing that is scored was learnt. Which
# rows they are is a pure function of the rows and the seed.

KEPT_BACK = "kept_back_for_dev"


def hold_out_rows(task: Task, rows: Rows, held_out: HeldOut) -> tuple[Rows, Rows]:
    """Rows to learn from, and a share of them to score, both in file order.

    Of classes each gives its share, at least one row where it has two texts or more; of all else the share is drawn
    from all rows. Of several rows with one text the first one says the class.
    """
    target, columns = task.target, text_columns(task)
    classes: dict[str, dict[tuple, list[int]]] = {}
    if isinstance(target, Choice):
        classes = {label: {} for label in target.labels}
    first: dict[tuple, str] = {}
    for place, row in enumerate(rows.rows):
        context = row.fields.get(columns[-1]) if isinstance(task.inputs, QuestionInContext) else None
        text = (context,) if context else tuple(row.fields.get(column) for column in columns)
        label = first.setdefault(text, str(row.fields.get(target.column)) if isinstance(target, Choice) else "")
        classes.setdefault(label, {}).setdefault(text, []).append(place)
    kept: set[int] = set()
    for number, same_text in enumerate(classes.values()):
        groups = list(same_text.values())
        order = stream("tables.held_out", held_out.seed, number).permutation(len(groups)).tolist()
        wanted, drawn = max(1, round(held_out.share * sum(map(len, groups)))), 0
        for place in order[:-1]:  # one at least is left to learn from
            if drawn < wanted:
                kept |= set(groups[place])
                drawn += len(groups[place])
    if not kept:
        why = f"{len(rows.rows)} rows are too few to keep some back for scoring"
        raise InvalidConfiguration("development set", why, "give more rows, or --dev")
    learnt = [row for place, row in enumerate(rows.rows) if place not in kept]
    scored = [row for place, row in enumerate(rows.rows) if place in kept]
    counts = {**rows.counts, "rows": len(learnt), KEPT_BACK: len(scored)}
    return Rows(learnt, counts), Rows(scored, {"rows": len(scored)})
