"""Inferring a task from a table: its kind, its labels, which option a label names; rows held out for development.

Everything inferred comes with its reason and with the option that says otherwise."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from albert.runtime.errors import DamagedData, InvalidConfiguration, UsageError, did_you_mean
from albert.runtime.random_streams import stream
from albert.tasks.examples import text_columns
from albert.tasks.table_task import ALLOWED, NEEDED, TAGS, WORDS, HeldOut, Kind, OptionLabels, TableTask, columns_of
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


def kind_of_label(rows: Sequence[Row], text: str, label: str) -> tuple[Kind, str, str]:
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


def as_number(value: str) -> float | None:
    """The number that a text holds; None when it is not a number. NaN counts as one."""
    try:
        return float(value)
    except ValueError:
        return None


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


def place_of_option(label: str, kind: OptionLabels, names: Sequence[str], texts: Sequence[str]) -> int | None:
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
    whole = [row for row in rows if _is_whole(row, names, column)]
    labels = [(row.text(column).strip(), [row.text(name) for name in names]) for row in whole]
    kinds: tuple[OptionLabels, ...] = get_args(OptionLabels)
    found: dict[OptionLabels, list[int | None]] = {
        kind: [place_of_option(label, kind, names, texts) for label, texts in labels] for kind in kinds
    }
    fitting: dict[OptionLabels, list[int | None]] = {
        kind: places for kind, places in found.items() if None not in places
    }
    if not fitting:
        best = kinds[0]
        for kind in kinds:
            best = kind if found[kind].count(None) < found[best].count(None) else best
        return best
    first = next(iter(fitting))
    others = [kind for kind, places in fitting.items() if places != fitting[first]]
    if others:
        why = f"may name an option in two ways, {first} and {others[0]}"
        raise UsageError(f"column {column!r}", why, f"say --option-labels {first} or {others[0]}")
    return first


def _is_whole(row: Row, names: Sequence[str], column: str) -> bool:
    """Whether there are a label and texts to look at."""
    texts = [row.fields.get(name) for name in (column, *names)]
    return all(isinstance(text, str) for text in texts) and bool(str(texts[0]).strip())


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
    task, found = _with_kind(asked, rows.rows, columns, source)
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
) -> tuple[TableTask, list[Inferred]]:
    if asked.kind is not None:
        return _with_tagged_columns(asked, columns), []
    tagged = asked.given_columns == () and {WORDS, TAGS} <= set(columns)
    if asked.options is not None:
        kind, why, instead = "multiple-choice", "options are named", "leave out --options"
    elif {"question", "context", "answer"} & set(asked.given_columns):
        kind, why = "question-answering", "a question, its context and an answer are named"
        instead = "name --text and --label"
    elif tagged or asked.words is not None or asked.tags is not None:
        kind, why, instead = "token-classification", "every word has a tag", "name --text and --label"
    else:
        _need(asked, "classification", columns, source)
        assert asked.text is not None and asked.label is not None
        _check_columns(asked, "classification", columns, source)
        kind, why, instead = kind_of_label(rows, asked.text, asked.label)
        if kind == "token-classification":
            asked = replace(asked, words=asked.text, tags=asked.label, text=None, label=None)
    return _with_tagged_columns(replace(asked, kind=kind), columns), [Inferred("task", kind, why, instead)]


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
            for row in rows:  # too few may be such that are missing
                if not isinstance(row.fields.get(column, ""), tuple) and not row.text(column).strip():
                    raise DamagedData(row.where, f"empty label in column {column!r}")
            why = f"every row has the label {labels[0]!r}" if labels else f"no row has a label in column {column!r}"
            raise InvalidConfiguration(source, why, "at least two are needed")
        more = f", and {len(labels) - MANY_LABELS} more" if len(labels) > MANY_LABELS else ""
        shown = ", ".join(labels[:MANY_LABELS]) + more
        found.append(Inferred(f"{len(labels)} labels", shown, f"the values in {column!r}", "--labels A B ..."))
        task = replace(task, labels=labels)
    known = task.labels or ()
    for label in task.label_names or ():
        if label not in known:
            raise InvalidConfiguration("label_names", f"{label!r} is not a label", did_you_mean(label, known))
    return task, found


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
    """
    options = task.options or ()
    if len(options) != 1:
        return list(rows), options
    column = options[0]
    length = next((len(row.fields[column]) for row in rows if isinstance(row.fields.get(column), tuple)), 0)
    if length < 2:
        raise UsageError("--options", f"{column!r} has no lists of options", "name several columns, or one of lists")
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


# --------------------------------------------------------------------------------------------------------------------
# Rows of a training file that are kept back as development set, where no file is given for that.
#
# Rows with the same text, or on the same context, stay together, so that nothing that is scored was learnt. Which
# rows they are is a pure function of the rows and the seed.

KEPT_BACK = "kept_back_for_dev"


def hold_out_rows(task: Task, rows: Rows, held_out: HeldOut) -> tuple[Rows, Rows]:
    """Rows to learn from, and a share of them to score, both in file order.

    Of classes each gives its share, at least one row where it has two texts or more; of all else the share is drawn
    from all rows.
    """
    kept: set[int] = set()
    for number, members in enumerate(_strata(task, rows.rows)):
        groups = _groups(task, rows.rows, members)
        order = stream("tables.held_out", held_out.seed, number).permutation(len(groups)).tolist()
        wanted, drawn = max(1, round(held_out.share * len(members))), 0
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


def _strata(task: Task, rows: Sequence[Row]) -> list[list[int]]:
    """Rows by their class, in the order of the labels; all rows together where there are no classes.

    Of several rows with one text the first one says the class.
    """
    if not isinstance(task.target, Choice):
        return [list(range(len(rows)))]
    classes: dict[str, list[int]] = {label: [] for label in task.target.labels}
    first: dict[tuple, str] = {}
    for place, row in enumerate(rows):
        label = first.setdefault(_unit(task, row), str(row.fields.get(task.target.column)))
        classes.setdefault(label, []).append(place)
    return list(classes.values())


def _groups(task: Task, rows: Sequence[Row], members: Sequence[int]) -> list[list[int]]:
    groups: dict[tuple, list[int]] = {}
    for place in members:
        groups.setdefault(_unit(task, rows[place]), []).append(place)
    return list(groups.values())


def _unit(task: Task, row: Row) -> tuple:
    """What must not be both learnt from and scored: a context, or where there is none all texts."""
    columns = text_columns(task)
    if isinstance(task.inputs, QuestionInContext) and row.fields.get(task.inputs.context):
        columns = (task.inputs.context,)
    return tuple(row.fields.get(column) for column in columns)
