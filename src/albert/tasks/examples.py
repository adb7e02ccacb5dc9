"""Files of a task to rows, and rows to examples: columns, labels and numbers, each checked."""

import datetime
import decimal
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput, did_you_mean
from albert.runtime.progress import Position, progress
from albert.tasks.task import (
    Answer,
    Choice,
    Field,
    Labels,
    Option,
    Pair,
    QuestionInContext,
    Row,
    Rows,
    Score,
    Single,
    Span,
    Tags,
    Task,
    Words,
)
from albert.text.readers import Kind, one_file, open_corpus_file
from albert.text.records import read_records


@dataclass(frozen=True)
class Example:
    """One thing to learn from or to answer.

    `texts` holds one or two texts (question first, then context), or all words of one. `target` is a label id, the
    place of an option, a number, the ids of the labels that are true, or one id for each word; it is None for a span,
    whose gold is `answers`. Examples with the same `group` are scored together too.
    """

    identifier: str
    where: str
    texts: tuple[str, ...]
    target: int | float | tuple[int, ...] | None = None
    answers: tuple[Answer, ...] = ()
    options: tuple[str, ...] = ()
    group: str = ""


def is_labelled(task: Task, rows: Sequence[Row]) -> bool:
    """Whether the rows say what the right answers are: as soon as one of them does."""
    if isinstance(task.target, Span):
        return any(row.answers is not None for row in rows)
    return any(task.target.column in row.fields for row in rows)


def to_examples(task: Task, rows: list[Row], labelled: bool = True) -> list[Example]:
    """One example per row, in order; those of rows that are not labelled have no target and no answers.

    Raises:
        DamagedData: a column is absent, a label unknown, a score no number or out of range, or there are not as many
            tags as words; the row is named.
    """
    columns = text_columns(task)
    asked = (task.target.column,) if labelled and not isinstance(task.target, Span) else ()
    options = task.target.options if isinstance(task.target, Option) else ()
    labels = task.target.labels if isinstance(task.target, Choice | Labels | Tags) else options
    label_ids = {label: index for index, label in enumerate(labels)}
    examples = []
    for row in rows:
        _check_columns((*columns, *options, *asked), row)
        if labelled and row.answers is None:
            raise DamagedData(row.where, "has no 'answers'", "expected the SQuAD JSON layout")
        words = isinstance(task.inputs, Words)
        texts = row.texts(*columns) if words else tuple(row.text(column) for column in columns)
        target = _target(task, row, label_ids, len(texts)) if labelled else None
        offered = tuple(row.text(option) for option in options)
        examples.append(Example(row.identifier, row.where, texts, target, row.answers or (), offered, row.group))
    return examples


def text_columns(task: Task) -> tuple[str, ...]:
    """The columns that hold the task's text or texts."""
    match task.inputs:
        case Single(column) | Words(column):
            return (column,)
        case Pair(first, second):
            return first, second
        case QuestionInContext(question, context):
            return question, context


def _check_columns(needed: tuple[str, ...], row: Row) -> None:
    for column in needed:
        if column not in row.fields:
            raise DamagedData(row.where, f"has no column {column!r}", did_you_mean(column, row.fields))


def _target(task: Task, row: Row, label_ids: dict[str, int], n_words: int) -> int | float | tuple[int, ...] | None:
    match task.target:
        case Choice(labels, column):
            value = row.text(column)
            if value not in label_ids:
                raise DamagedData(row.where, f"unknown label {value!r} in column {column!r}", _known(labels))
            return label_ids[value]
        case Labels(labels, column, separator):
            return _labels(row, column, row.texts(column, separator), label_ids)
        case Tags(labels, column):
            return _tags(row, column, row.texts(column), label_ids, n_words)
        case Option(options, column):
            value = row.text(column)
            if value not in label_ids:
                raise DamagedData(row.where, f"{value!r} in column {column!r} names no option", _known(options))
            return label_ids[value]
        case Score(column, low, high):
            return _number(row, column, low, high)
        case Span():
            return None


def _labels(row: Row, column: str, given: tuple[str, ...], label_ids: dict[str, int]) -> tuple[int, ...]:
    """The ids in their order; a label that is said twice is true once."""
    for label in given:
        if label not in label_ids:
            raise DamagedData(row.where, f"unknown label {label!r} in column {column!r}", _known(tuple(label_ids)))
    return tuple(sorted({label_ids[label] for label in given}))


def _tags(row: Row, column: str, given: tuple[str, ...], label_ids: dict[str, int], n_words: int) -> tuple[int, ...]:
    if len(given) != n_words:
        why = f"has {len(given)} tags in column {column!r} for {n_words} words"
        raise DamagedData(row.where, why, "every word needs one")
    for place, tag in enumerate(given):
        if tag not in label_ids:
            why = f"unknown tag {tag!r} in column {column!r}, at word {place + 1}"
            raise DamagedData(row.where, why, _known(tuple(label_ids)))
    return tuple(label_ids[tag] for tag in given)


def _known(labels: tuple[str, ...]) -> str:
    shown = ", ".join(repr(label) for label in labels[:8])
    return f"known: {shown}" + (", ..." if len(labels) > 8 else "")


def _number(row: Row, column: str, low: float | None, high: float | None) -> float:
    text = row.text(column)
    try:
        value = float(text)
    except ValueError as error:
        raise DamagedData(row.where, f"{text!r} in column {column!r} is not a number") from error
    if not math.isfinite(value):
        raise DamagedData(row.where, f"{text!r} in column {column!r} is not a finite number")
    if (low is not None and value < low) or (high is not None and value > high):
        raise DamagedData(row.where, f"{value:g} in column {column!r} is not between {low:g} and {high:g}")
    return value


# --------------------------------------------------------------------------------------------------------------------
# Files to rows: where a task's files are looked for, and tab-separated tables read exactly as they are.
#
# Nothing is skipped: every line is a row or an error that names file and line.


@dataclass(frozen=True)
class TabSeparated:
    """Tables of a benchmark: tab-separated, no quoting, one file per split in `DATA/<folder>/` or in DATA
    itself.

    `files` maps a split to a file name (`.gz` is tried too). `columns` names the columns of files without a
    header; those of the splits in `numbered` have one, and a column of it numbers their rows. `renamed` maps columns to
    what they are called in the other files.
    """

    folder: str
    files: Mapping[str, str]
    columns: tuple[str, ...] | None = None
    numbered: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)

    @property
    def splits(self) -> tuple[str, ...]:
        """The declared splits."""
        return tuple(self.files)

    def with_files(self, files: Mapping[str, Path]) -> "TabSeparated":
        """The same source with other files for some splits."""
        return replace(self, files={**self.files, **absolute_names(files)})

    def read(self, data: Path, split: str) -> Rows:
        """Every row of a split; ragged rows are errors, and so are two rows with one number."""
        path = find_split(data, self.folder, self.files, split)
        if split not in self.numbered:
            return read_rows(path, "TSV", self.columns)
        found = read_rows(path, "TSV")
        rows = by_number(found.rows, self.numbered[split])
        named = [{self.renamed.get(name, name): value for name, value in row.fields.items()} for row in rows]
        return Rows([replace(row, fields=fields) for row, fields in zip(rows, named, strict=True)], found.counts)


def by_number(rows: Sequence[Row], column: str) -> list[Row]:
    """The rows, called by the number in a column.

    Raises:
        DamagedData: it is absent or no number, or two rows have the same.
    """
    seen: dict[str, str] = {}
    for row in rows:
        number = row.text(column)
        if not (number.isascii() and number.isdigit()):
            raise DamagedData(row.where, f"{number!r} in column {column!r} is not a number")
        if number in seen:
            raise DamagedData(row.where, f"a second row has the number {number}", f"the first is at {seen[number]}")
        seen[number] = row.where
    return [replace(row, identifier=row.text(column)) for row in rows]


def absolute_names(files: Mapping[str, Path]) -> dict[str, str]:
    """File names that `find_split` finds whatever the data folder is."""
    return {split: str(path.resolve()) for split, path in files.items()}


def find_split(data: Path, folder: str, files: Mapping[str, str], split: str) -> Path:
    """The file of a split, in `data/folder` or in `data`, plain or `.gz`.

    Raises:
        InvalidConfiguration: no such split.
        MissingInput: no such file; the message says what is expected where.
    """
    if split not in files:
        raise InvalidConfiguration(f"split {split}", "unknown", did_you_mean(split, files))
    name = files[split]
    for place in (data / folder, data):
        for candidate in (place / name, place / f"{name}.gz"):
            if candidate.is_file():
                return candidate
    raise MissingInput(data, f"has no {name}", f"expected {data / folder / name} or {data / name} (or the same .gz)")


def read_text(path: Path) -> str:
    """A whole UTF-8 text file, unpacked where its name says that it is packed; a byte order mark is dropped.

    Raises:
        MissingInput: the file is absent or cannot be read.
        DamagedData: a damaged packed file, or bytes that are not UTF-8 (with the line).
    """
    with open_corpus_file(one_file(path, "text")) as (content, _):
        raw = content.read()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DamagedData(f"{path}:{line}", f"is not UTF-8: byte {error.start}", "convert the file to UTF-8") from error


def read_rows(path: Path, kind: Kind, columns: Sequence[str] | None = None) -> Rows:
    """Every row of a table, none skipped; the header names the columns unless `columns` does.

    Values that are not text become text as JSON writes it; see `fields_of`.

    Args:
        kind: its format: "CSV", "TSV", "JSON lines" or "Parquet".

    Raises:
        MissingInput: the file is absent or has no rows.
        Unavailable: a Parquet file, and pyarrow is not installed.
        DamagedData: a row with another number of fields than there are columns, a line that is no JSON object and so
            on, with file and line.
    """
    file = one_file(path, kind)
    rows: list[Row] = []
    counts: Counter[str] = Counter()
    typed = kind in ("JSON lines", "Parquet")
    with progress(f"Reading {path.name}", total=file.size / 1e6, unit="MB") as bar:
        reached = Position(lambda count: bar.advance(count / 1e6), least=1 << 16).reached
        names = None if columns is None else tuple(columns)
        for record in read_records(file, keep_empty_lines=True, columns=names, class_names=True, reached=reached):
            fields = fields_of(record.fields, record.where, counts) if typed else record.fields
            rows.append(Row(str(len(rows)), record.where, fields))
    if not rows:
        raise MissingInput(path, "has no rows")
    return Rows(rows, {"rows": len(rows), **counts})


# --------------------------------------------------------------------------------------------------------------------
# Typed values, of JSON and of Parquet, to the fields of a row: texts, and lists of texts.
#
# Numbers and truth values are written as JSON writes them. An object's entries become columns of their own with a
# dot in the name: `answers.text` is `text` in the object `answers`. null is an absent field; so is what is neither
# text nor list of texts (a list of lists or of objects, bytes), and that is counted.

NOT_READ = "fields_not_read"


def fields_of(values: Mapping[str, Any], where: str, counts: Counter[str]) -> dict[str, Field]:
    """The fields of a row; those that cannot be read are added to `counts`.

    Raises:
        DamagedData: two values of one name.
    """
    fields: dict[str, Field] = {}
    for name, value in _leaves(values, ""):
        if name in fields:
            raise DamagedData(where, f"two values are called {name!r}")
        items = value if isinstance(value, list) else [value]
        texts = tuple(text for item in items if (text := _text(item)) is not None)
        if len(texts) < len(items):
            counts[NOT_READ] += 1
        else:
            fields[name] = texts if isinstance(value, list) else texts[0]
    return fields


def _leaves(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """What is no object, with the names of the objects around it."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", value


def _text(value: Any) -> str | None:
    """A single value as a text, None for what is none."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta | decimal.Decimal):
        return str(value)
    return None
