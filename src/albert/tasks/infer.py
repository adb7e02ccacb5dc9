"""Inference of a task from a table: its kind, its labels, the meaning of option labels; rows held out for development.

Everything inferred comes with a reason and the option that overrides it."""

import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate

from albert.runtime.errors import DamagedData, InvalidConfiguration, UsageError, did_you_mean
from albert.runtime.random_streams import stream
from albert.tables.fields import as_number
from albert.tables.table import Field, Row, Table
from albert.tables.table_file import TAGS, WORDS
from albert.tasks.columns import (
    Inferred,
    changed_rows,
    check_numbers,
    clean_label,
    equal_labels,
    label_key,
    looks_like_a_written_number,
    read_columns,
    refuse_comma_numbers,
    single_labels,
)
from albert.tasks.declared import DeclaredTask
from albert.tasks.metrics import OUTSIDE, has_prefixes
from albert.tasks.multi_label import MultiLabel
from albert.tasks.option_columns import LABELS_OF_OPTIONS, expand_options, infer_option_labels, listed_labels
from albert.tasks.single_label import SingleLabel
from albert.tasks.table_task import (
    COLUMNS_OF_KIND,
    KINDS_WITH,
    HeldOut,
    Kind,
    TableTask,
)
from albert.tasks.tagging import TokenTagging

# --------------------------------------------------------------------------------------------------------------------
# The kind of a column of labels: classes, numbers, several labels at once, or a tag for each word.

MANY_VALUES = 20
"""Up to this number of different numbers may be classes."""
MAX_CLASSES = 200
"""More different whole numbers than this are not ids of classes."""


def infer_kind(rows: Table, text: str, label: str) -> tuple[Kind, str, str]:
    """The kind of task for two columns, the reason, and the options that override it.

    Lists beside lists are tags of words; lists beside texts are several labels. Numbers are targets of a regression if
    more than 20 are different, or if they have fractions. All other values are classes.

    Raises:
        UsageError: the numbers may be targets or ids of classes: more than 20 and at most 200 whole numbers from 0 or 1
            on, without gaps, with two rows each on average; or other values may be more than classes (see
            `refuse_doubtful_classes`).
    """
    labels = rows.values(label)
    if any(isinstance(value, tuple) for value in labels):
        if any(isinstance(value, tuple) for value in rows.values(text)):
            return "token-classification", f"{text!r} and {label!r} hold lists", "--kind multi-label"
        if all(value is None or len(value) == 1 for value in labels if not isinstance(value, str)):
            return "classification", f"every list in {label!r} has one label", "--kind multi-label"
        return "multi-label", f"{label!r} holds lists", "a column of one label a row"
    values = [value.strip() for value in labels if isinstance(value, str) and value.strip()]
    distinct = set(values)
    numbers = {number for value in distinct if (number := as_number(value)) is not None}
    count = f"{len(distinct):,} different values in {label!r}"
    if any(as_number(value) is None for value in distinct):
        refuse_doubtful_classes(values, label)
        return "classification", f"{count}, not all of them numbers", "--kind number, --kind multi-label"
    are_integers = all(number.is_integer() for number in numbers)
    repeated = len(values) >= 2 * len(distinct)
    if len(distinct) <= MANY_VALUES and are_integers:
        return "classification", f"{count}, at most {MANY_VALUES}", "--kind number, --kind multi-label"
    if not are_integers:
        return "regression", f"{count}, numbers with fractions", "--kind classification"
    low = min(numbers)
    high = max(numbers)
    without_gaps = low in (0, 1) and high - low + 1 == len(numbers)
    if without_gaps and repeated and len(numbers) <= MAX_CLASSES:
        why = f"holds every whole number from {low:.0f} to {high:.0f}, which may be classes or numbers to predict"
        raise UsageError(f"column {label!r}", why, "say --kind classification or --kind number")
    return "regression", f"{count}, whole numbers from {low:.0f} to {high:.0f}", "--kind classification"


_DATE = re.compile(r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2}))([T ]\d{1,2}:|\Z)")


def refuse_doubtful_classes(values: Sequence[str], label: str) -> None:
    """Raise UsageError for values that are hardly classes: numbers as people write them, several labels in one text, or
    a value of its own in nearly every row."""
    counts = Counter(values)
    few = len(counts) <= MANY_VALUES and len(values) >= 2 * len(counts)
    separator = separator_of(counts)
    if separator is not None:
        several = [value for value in counts if separator in value]
        parts = {part.strip() for value in several for part in value.split(separator)}
        if len(several) > 1 and parts <= set(counts):
            why = f"holds {several[0]!r}, and its parts alone: are they several labels?"
            remedy = f"say --kind multi-label --separator {separator!r}, or --kind classification"
            raise UsageError(f"column {label!r}", why, remedy)
    for separator in "|;":
        several = [value for value in counts if separator in value]
        in_values = Counter(part.strip() for value in counts for part in {*value.split(separator)})
        share = sum(counts[value] for value in several) / len(values)
        if len(several) > 1 and share >= 0.5 and max(in_values.values()) > 1:
            why = f"holds {separator!r} in {share:.0%} of its rows, such as {several[0]!r}: are they several labels?"
            remedy = f"say --kind multi-label --separator {separator!r}, or --kind classification"
            raise UsageError(f"column {label!r}", why, remedy)
    refuse_comma_numbers(counts, label)
    dates = sum(_DATE.match(value) is not None for value in counts)
    if not few and dates > 0.9 * len(counts):
        why = f"holds {len(counts):,} different dates such as {values[0]!r}, which are no classes"
        raise UsageError(f"column {label!r}", why, "name another --label, or say --kind classification")
    written = [value for value in counts if looks_like_a_written_number(value)]
    if not few and len(written) > 0.95 * len(counts):
        example = next(value for value in written if as_number(value) is None)
        why = f"holds {len(counts):,} different values such as {example!r}: are they numbers?"
        raise UsageError(f"column {label!r}", why, "write plain numbers (1164.5), or say --kind classification")
    if len(values) >= 20 and len(counts) > 0.8 * len(values):
        why = f"has {len(counts):,} different values in {len(values):,} rows, nearly every row has a label of its own"
        raise UsageError(f"column {label!r}", why, "name another --label, or say --kind classification")


SEPARATORS = ("|", ";", ",", "/", "+", "#", " ")


def separator_of(values: Iterable[str]) -> str | None:
    """The separator of several labels that leaves the fewest different labels; None if no value has one."""
    values = list(values)
    best = None
    fewest = len(values)
    for separator in SEPARATORS:
        if any(separator in value.strip() for value in values):
            parts = {part.strip() for value in values for part in value.split(separator)} - {""}
            if len(parts) < fewest or (best is None and len(parts) == fewest and separator in "|;,"):
                best = separator
                fewest = len(parts)
    return best


def sort_labels(labels: set[str]) -> tuple[str, ...]:
    """Labels in the order of their ids: by value if all are finite numbers, else as text."""
    numbers = map(as_number, labels)
    if all(number is not None and math.isfinite(number) for number in numbers):
        return tuple(sorted(labels, key=lambda label: (float(label), label)))
    return tuple(sorted(labels))


# --------------------------------------------------------------------------------------------------------------------
# The complete task: kind, labels and the meaning of option labels, unless they are set.

MANY_LABELS = 8
MAX_SHOWN = 60
"""At most as many labels, and characters of them, are shown."""
TARGETS = ("label", "tags", "answer", "answer_start")
"""Columns of targets, which unlabelled tables lack."""


def infer_task(
    task: TableTask, rows: Table, source: object, to_learn: bool = True
) -> tuple[TableTask, Table, tuple[Inferred, ...]]:
    """The task with kind, labels and the meaning of option labels, the rows with values that its kind understands (see
    `albert.tasks.columns`), and a list of what was inferred.

    Args:
        to_learn: whether the rows are for training; others need no labels, which are not inferred from them.
    """
    inferred: list[Inferred] = []
    had_kind = task.kind is not None
    task, rows = read_columns(task, rows, source, inferred, to_learn)
    if task.label_columns is not None and not had_kind and task.kind is not None:
        cells = "0 or 1" if task.label_cells == "switches" else "a label, or nothing,"
        why = f"--label names {len(task.label_columns)} columns, and each row has {cells} in each"
        inferred.append(Inferred("task", task.kind, why, "--kind classification"))
    if task.kind is None:
        task = _with_kind(task, rows, source, inferred)
    columns = rows.columns
    kind = task.kind
    assert kind is not None
    if kind == "regression":
        check_numbers(task, rows, to_learn)
    if kind in ("classification", "regression"):
        rows = single_labels(task, rows)
    for name, kinds in KINDS_WITH.items():
        if getattr(task, name) is not None and kind not in kinds:
            named = name if name in ("option_labels", "label_names", "positive") else "--" + name.replace("_", "-")
            raise UsageError(named, f"cannot be used with {kind}", f"it is for {', '.join(kinds)}")
    if kind == "token-classification":  # tagged text has fixed column names
        words, tags = (name if name in columns else None for name in (WORDS, TAGS))
        task = replace(task, words=task.words or words, tags=task.tags or tags)
    _check_columns(task, kind, rows, source, () if to_learn else TARGETS)
    if to_learn:
        rows = rows_with_text(task, rows, source)
    if kind in ("classification", "multi-label", "token-classification"):
        if task.labels is None and not to_learn:
            raise UsageError("labels", "a training file is needed to know them", "give --train")
        task = _with_labels(task, kind, rows, source, inferred, to_learn)
        rows = spelled_labels(task, rows)
    if kind == "multiple-choice" and any(isinstance(value, tuple) for value in rows.values(str(task.label))):
        why = "holds lists, and a multiple choice has one right option"
        raise UsageError(f"column {task.label!r}", why, LABELS_OF_OPTIONS)
    if kind == "multiple-choice" and task.option_labels is None:
        assert task.label is not None
        listed = [listed_labels(task, row) for row in rows.rows]
        meaning = infer_option_labels(*expand_options(task, rows.rows), task.label, listed)
        why = f"this way fits the labels in {task.label!r}"
        inferred.append(Inferred("labels of options", meaning, why, "option_labels=from-1"))
        task = replace(task, option_labels=meaning)
    return task, rows, tuple(inferred)


def rows_with_text(task: TableTask, rows: Table, source: object) -> Table:
    """Labelled rows with a text, or with words; the others, of which nothing can be learned or said, are counted.

    Of a question on a text or with options all rows are kept, and so are rows without labels, which are predicted.
    """
    present = {name for row in rows.rows for name in (*row.fields, *row.nulls)}
    columns = [name for name in (task.text, task.pair, task.words) if name in present]
    is_labelled = any(name in row.fields for row in rows.rows for name in (task.label, task.tags) if name)
    if not columns or not is_labelled or task.kind in ("multiple-choice", "question-answering"):
        return rows
    kept = [row for row in rows.rows if not all(_is_blank(row.fields.get(name)) for name in columns)]
    if rows.rows and not kept:
        raise DamagedData(source, f"every text in column {columns[0]!r} is empty", "name another column with --text")
    left_out = len(rows.rows) - len(kept)
    if not left_out:
        return rows
    return replace(rows, rows=kept, counts={**rows.counts, "rows": len(kept), "rows_without_text": left_out})


def _is_blank(value: Field | None) -> bool:
    return not "".join(value or "").strip()


def spelled_labels(task: TableTask, rows: Table) -> Table:
    """Rows with their labels spelled as the task has them: `1.0` becomes `1` if that is a label."""
    column = task.label
    if column is None or task.labels is None or task.kind not in ("classification", "multi-label"):
        return rows
    spelling = {label_key(label): label for label in task.labels}
    names = {name: label for label, name in (task.label_names or {}).items()}
    known = set(task.labels)
    if task.kind == "classification" and known.issuperset(rows.values(column)):
        return rows

    def spelled(label: str) -> str:
        if label in known:
            return label
        return spelling.get(label_key(label), names.get(label, label))

    def convert(row: Row, value: Field) -> Field:
        if isinstance(value, tuple):
            return tuple(map(spelled, value))
        if task.kind == "multi-label":
            separator = task.separator or "|"
            parts = [clean_label(part) for part in value.split(separator)]
            return tuple(spelled(part) for part in parts if part)
        return spelled(value)

    return changed_rows(rows, column, convert)


def _with_kind(task: TableTask, rows: Table, source: object, inferred: list[Inferred]) -> TableTask:
    tagged = task.given_columns == () and {WORDS, TAGS} <= set(rows.columns)
    if task.options is not None:
        kind = "multiple-choice"
        why = "options are named"
        override = "leave out --options"
    elif {"question", "context", "answer"} & set(task.given_columns):
        kind = "question-answering"
        why = "a question, its context and an answer are named"
        override = "name --text and --label"
    elif tagged or task.words is not None or task.tags is not None:
        kind = "token-classification"
        why = "every word has a tag"
        override = "name --text and --label"
    else:
        _check_columns(task, "classification", rows, source)
        assert task.text is not None and task.label is not None
        kind, why, override = infer_kind(rows, task.text, task.label)
        if kind == "token-classification":
            task = replace(task, words=task.text, tags=task.label, text=None, label=None)
    inferred.append(Inferred("task", kind, why, override))
    return replace(task, kind=kind)


LABEL_NAMES = ("label", "labels", "gold_label", "class", "category", "target", "score", "rating", "sentiment", "intent")
PAIR_NAMES = (("premise", "hypothesis"), ("question", "sentence"), ("query", "passage"))


def _proposal(missing: Sequence[str], task: TableTask, rows: Table) -> str:
    """Which columns look like the label, the text and a second text, as options that can be pasted into a shell.

    The label is a column with a usual name, else the one with the fewest values; the text is the one with the longest
    values; two texts are columns whose names differ in 1 and 2, or in a last a and b, or are usual names.
    """
    if not {*missing} <= {"text", "label"}:
        return ""
    first = [row.fields for row in rows.rows[:1000]]
    used = {task.text, task.label, task.pair}
    values = {
        name: [text for row in first if isinstance(text := row.get(name, ""), str)]
        for name in rows.columns
        if name and name not in used
    }
    options = []
    if "label" in missing:
        counts = {name: len({*texts}) for name, texts in values.items() if texts}
        few = {name: count for name, count in counts.items() if 2 <= count <= max(2, len(first) // 5)}
        usual = [name for name in counts if name.casefold() in LABEL_NAMES and counts[name] > 1]
        if not few and not usual:
            return ""
        label = (
            min(usual, key=lambda name: LABEL_NAMES.index(name.casefold())) if usual else min(few, key=few.__getitem__)
        )
        values.pop(label)
        options.append(f"--label {shlex.quote(label)}")
    if "text" in missing and values:
        lengths = {name: sum(map(len, texts)) for name, texts in values.items()}
        pairs = [pair for pair in map(_pair_of, values) if pair is not None and pair[1] in values]
        if pairs:
            pair = max(pairs, key=lambda pair: lengths[pair[0]] + lengths[pair[1]])
            options.append(f"--text {shlex.quote(pair[0])} --pair {shlex.quote(pair[1])}")
        else:
            options.append(f"--text {shlex.quote(max(values, key=lengths.__getitem__))}")
    return f"; perhaps {' '.join(options)}"


def _pair_of(column: str) -> tuple[str, str] | None:
    """A column and the name of the one that would have a second text beside it; None if its name says nothing."""
    name = column.casefold()
    for first, second in PAIR_NAMES:
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


def _check_columns(
    task: TableTask, kind: Kind, rows: Table, source: object, may_be_absent: tuple[str, ...] = ()
) -> None:
    """Check that required columns are named, and that named columns exist and belong to the kind."""
    columns = rows.columns
    needed, allowed = COLUMNS_OF_KIND[kind]
    missing = [name for name in needed if getattr(task, name) is None]
    if missing:
        why = f"needs {_flags(missing, ' and ')}"
        columns_there = f"{source} has the columns {', '.join(columns)}"
        raise UsageError(kind, why, rows.doubt or columns_there + _proposal(missing, task, rows))
    for name in task.given_columns:
        if name not in (*needed, *allowed):
            takes = _flags(needed)
            if allowed:
                takes += f", and optionally {_flags(allowed, ' and ')}"
            raise UsageError(_flags([name]), f"cannot be used with {kind}", f"it takes {takes}")
    if kind == "multiple-choice" and task.text is None and task.question is None:
        raise UsageError(kind, "needs --text or --question, or both")
    for name in (*task.given_columns, "id"):
        value = getattr(task, name)
        for column in value if isinstance(value, tuple) else [value]:
            if column is not None and column not in columns and name not in may_be_absent:
                raise DamagedData(source, f"has no column {column!r}", rows.doubt or did_you_mean(column, columns))


def _flags(names: Sequence[str], joined: str = ", ") -> str:
    return joined.join("--" + name.replace("_", "-") for name in names)


def _with_labels(
    task: TableTask, kind: Kind, rows: Table, source: object, inferred: list[Inferred], to_learn: bool
) -> TableTask:
    column = task.tags if kind == "token-classification" else task.label
    assert column is not None
    if kind == "multi-label" and task.separator is None:
        texts = [value for value in rows.values(column) if isinstance(value, str)]
        separator = separator_of(dict.fromkeys(texts))
        if separator is None:  # few combinations of many labels
            separator = next((each for each in "|;," if any(each in text.strip() for text in texts)), None)
        if separator is not None:
            share = sum(separator in text for text in texts) / len(texts)
            why = f"{share:.0%} of {len(texts):,} rows have it"
            inferred.append(Inferred("separator", repr(separator), why, "--separator ;"))
        elif texts and len(texts) == len(rows.rows):  # no row has a list
            inferred.append(Inferred("separator", "'|'", "no row has several labels", "--separator ;"))
        task = replace(task, separator=separator or "|")
    separated = MultiLabel((), column, task.separator or "|")
    target = {"multi-label": separated, "token-classification": TokenTagging((), column)}.get(
        kind, SingleLabel((), column)
    )
    if kind == "classification":
        counts = Counter(value for value in rows.values(column) if isinstance(value, str) and value.strip())
        if task.labels is None:
            refuse_comma_numbers(counts, column)
    else:
        counts = Counter(label for row in rows.rows for label in target.written_labels(row) if label)
    labels_are_inferred = task.labels is None
    if task.labels is None:
        spelling = equal_labels(counts) if kind != "token-classification" else {label: label for label in counts}
        labels = sort_labels(set(spelling.values()))
        if len(labels) < 2:
            for row in rows.rows:  # a missing label may be the reason
                label = row.fields.get(column, "")
                if isinstance(label, str) and not label.strip():
                    raise DamagedData(row.where, f"empty label in column {column!r}")
            why = f"every row has the label {labels[0]!r}" if labels else f"no row has a label in column {column!r}"
            raise InvalidConfiguration(source, why, "at least two are needed")
        lengths = accumulate(len(label) + 2 for label in labels)
        n_shown = max(1, min(MANY_LABELS, sum(length <= MAX_SHOWN for length in lengths)))
        more = f", and {len(labels) - n_shown} more" if len(labels) > n_shown else ""
        shown = ", ".join(labels[:n_shown]) + more
        inferred.append(Inferred(f"{len(labels)} labels", shown, f"the values in {column!r}", "--labels A B ..."))
        task = replace(task, labels=labels)
        no_labels = {"null", "nan", "none", "n/a", "na", "<na>", "-", "?", "--"}
        if "-1" in labels and len(labels) > 2 and {*labels} <= {"-1", *map(str, range(len(labels) - 1))}:
            no_labels.add("-1")  # beside 0, 1, 2 and so on
        for label in labels if kind != "token-classification" else ():
            if label.casefold() in no_labels:
                why = "a class of its own; a cell without a label is empty"
                inferred.append(Inferred("no label?", repr(label), why, "an empty cell, reading.drop_unlabelled=true"))
        for shown in similar_labels(labels) if kind != "token-classification" else ():
            inferred.append(Inferred("similar labels", shown, "they are different classes", "one spelling"))
    known = task.labels or ()
    if kind == "classification" and len(known) == 2 and task.positive is None and to_learn:
        frequency = Counter({label: 0 for label in known})
        for label, count in counts.items():
            frequency[label_key(label)] += count
        first, second = known
        is_rarer = frequency[label_key(first)] < frequency[label_key(second)]
        task = replace(task, positive=first if is_rarer else second)
        why = "the rarer class" if frequency[label_key(first)] != frequency[label_key(second)] else "the second class"
        inferred.append(Inferred("F1 is that of", str(task.positive), why, "positive=LABEL"))
    if task.positive is not None and task.positive not in known:
        named = {name: label for label, name in (task.label_names or {}).items()}
        if task.positive not in named:
            raise UsageError("positive", f"{task.positive!r} is not a label", did_you_mean(task.positive, known))
        task = replace(task, positive=named[task.positive])
    if kind == "classification" and task.metrics is None and to_learn:
        task = _with_metrics_of_rare_classes(task, counts, inferred)
    labels = task.labels or ()
    names = task.label_names or {}
    counted = [str(number) for number in range(len(names))]
    if list(names) == counted and labels and "0" not in labels and set(labels) <= {*counted[1:], str(len(names))}:
        names = {str(int(number) + 1): name for number, name in names.items()}
        inferred.append(Inferred("label names", f"1 is {names['1']}", "there is no label 0", "label_names=1=NAME"))
    names = {label: name for label, name in names.items() if label in labels or list(task.label_names or {}) != counted}
    task = replace(task, label_names=names or None)
    for label, name in names.items():
        if label not in labels:
            raise InvalidConfiguration("label_names", f"{label!r} is not a label", did_you_mean(label, labels))
        others = [other for other in labels if other != label]
        if name in (*others, *map(names.get, others)):
            why = f"{name!r}, the name of {label!r}, is another label or its name"
            raise InvalidConfiguration("label_names", why, "choose another name")
    if kind == "token-classification" and task.metrics is None and labels_are_inferred:
        task = _with_tag_metrics(task, counts, inferred)
    return task


def similar_labels(labels: Sequence[str]) -> list[str]:
    """The labels that differ only in case and blanks, such as `'Good' and 'good'`."""
    same: dict[str, list[str]] = {}
    for label in labels:
        same.setdefault("".join(label.casefold().split()), []).append(label)
    return [" and ".join(map(repr, group)) for group in same.values() if len(group) > 1]


MOSTLY_ONE_CLASS = 0.8
"""The share of the most frequent class from which on accuracy says little, so that F1 chooses the best evaluation."""
RARE_CLASS = 0.5
"""A class is rare, so that F1 chooses, too, if its share is below this part of that of equally frequent classes."""
MIN_RARE_ROWS = 10
"""A class with fewer rows does not count as rare: its F1 is that of a few rows."""


def _with_metrics_of_rare_classes(task: TableTask, counts: Counter[str], inferred: list[Inferred]) -> TableTask:
    """The task with F1 of the rare class, or macro F1 of several classes, as its first score if one class has most of
    the rows or another one is rare."""
    keys = Counter[str]()
    for label, count in counts.items():
        keys[label_key(label)] += count
    labels = task.labels or ()
    most = max(labels, key=lambda label: keys[label_key(label)])
    total = max(1, keys.total())
    share = keys[label_key(most)] / total
    counted = [label for label in labels if keys[label_key(label)] >= MIN_RARE_ROWS]
    rarest = min(counted, key=lambda label: keys[label_key(label)], default=most)
    share_of_rarest = keys[label_key(rarest)] / total
    has_rare = share_of_rarest < RARE_CLASS / max(1, len(labels))
    if (share < MOSTLY_ONE_CLASS and not has_rare) or task.positive == most:
        return task
    names = ("f1", "accuracy", "macro_f1") if len(labels) == 2 else ("macro_f1", "accuracy")
    what = f"f1 of {task.positive}" if len(labels) == 2 else "macro_f1"
    all_rows = f"all {total:,} rows with a label"  # also those that are kept back for dev
    why = f"{share:.0%} of {all_rows} have the label {most!r}, so that accuracy says little"
    if share < MOSTLY_ONE_CLASS:
        why = f"{share_of_rarest:.1%} of {all_rows} have the label {rarest!r}, of which accuracy says little"
        if len(counted) < len(labels):
            why += f" (labels with fewer than {MIN_RARE_ROWS} rows do not count)"
    inferred.append(Inferred("first score", what, why, f"--metrics accuracy {names[0]}"))
    return replace(task, metrics=names)


RARE_OUTSIDE = 0.01
"""If fewer of the tags are O, it is not the tag of words outside of entities."""


def _with_tag_metrics(task: TableTask, counts: Counter[str], inferred: list[Inferred]) -> TableTask:
    """The task scored by words if its tags are not of entities though they look like it."""
    names = task.label_names or {}
    labels = [names.get(label, label) for label in task.labels or ()]
    if has_prefixes(labels):
        return task
    share = sum(count for label, count in counts.items() if names.get(label, label) == OUTSIDE) / counts.total()
    if OUTSIDE in labels and share < RARE_OUTSIDE:
        why = f"{OUTSIDE} is {share:.2%} of all {counts.total():,} tags, too rare for the words outside of entities"
        inferred.append(Inferred("scored by", "word_scores", why, "--metrics run_scores"))
        return replace(task, metrics=("word_scores",))
    if has_prefixes([label.upper() for label in labels]):
        why = f"tags such as {labels[0]!r} are in small letters, and entities need B-, I- and O"
        inferred.append(Inferred("scored by", "words", why, "capitals in the file"))
    return task


# --------------------------------------------------------------------------------------------------------------------
# Rows of the training file that are held out as development set if there is no file for it.
#
# Rows with the same text or context, but for blanks around it, stay together, so that no scored text was trained on.
# Rows and seed alone decide which rows are chosen.


def hold_out_rows(task: DeclaredTask, rows: Table, held_out: HeldOut) -> tuple[Table, Table]:
    """Split rows into training and development rows, both in file order.

    Every class contributes its share, at least one row if it has two texts or more; without classes, the share is drawn
    from all rows. Table with the same text belong to the class of the first.
    """
    target = task.target
    classes: dict[str, dict[tuple, list[int]]] = {label: {} for label in target.strata}
    first: dict[tuple, str] = {}
    for index, row in enumerate(rows.rows):
        text = task.inputs.group(row)
        label = first.setdefault(text, str(row.fields.get(target.gold_column or "")) if target.strata else "")
        classes.setdefault(label, {}).setdefault(text, []).append(index)
    chosen: set[int] = set()
    for number, same_text in enumerate(classes.values()):
        groups = list(same_text.values())
        order = stream("tables.held_out", held_out.seed, number).permutation(len(groups)).tolist()
        wanted = max(1, round(held_out.share * sum(map(len, groups))))
        drawn = 0
        for group in order[:-1]:  # at least one is left for training
            if drawn < wanted:
                chosen |= set(groups[group])
                drawn += len(groups[group])
    if not chosen:
        why = f"{len(rows.rows)} rows are too few to keep some back for scoring"
        remedy = "give more rows, or --dev"
        if target.strata:
            why = f"none can be kept back, every label in column {target.gold_column!r} occurs in one text only"
            remedy += "; or is it a number (--kind number, with decimal points), or the wrong column?"
        raise InvalidConfiguration("development set", why, remedy)
    train = [row for index, row in enumerate(rows.rows) if index not in chosen]
    dev = [row for index, row in enumerate(rows.rows) if index in chosen]
    counts = {**rows.counts, "rows": len(train), "kept_back_for_dev": len(dev)}
    return Table(train, counts), Table(dev, {"rows": len(dev)})
