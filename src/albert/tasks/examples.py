"""Files of a task to rows, and rows to examples: columns, labels and numbers, each checked."""

import gzip
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput, did_you_mean
from albert.runtime.input_files import read_input
from albert.tasks.task import (
    Answer,
    Choice,
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
            return read_tab_separated(path, self.columns)
        found = read_tab_separated(path)
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
    """A whole UTF-8 text file, gunzipped where its name ends in `.gz`; a byte order mark is dropped.

    Raises:
        MissingInput: the file is absent or cannot be read.
        DamagedData: damaged gzip, or bytes that are not UTF-8 (with the line).
    """
    try:
        raw = read_input(path)
        if path.suffix == ".gz":
            raw = gzip.decompress(raw)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DamagedData(path, f"damaged gzip ({error})", "fetch the file again") from error
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DamagedData(f"{path}:{line}", f"not UTF-8 (byte {error.start})", "convert the file to UTF-8") from error


def is_unicode(text: str) -> bool:
    """Whether the text can be written as UTF-8; JSON's escapes may leave half of a surrogate pair."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def lines_of(path: Path) -> list[str]:
    """The lines of a text file, split at line feeds only (other Unicode line ends are text)."""
    lines = read_text(path).split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def read_tab_separated(path: Path, columns: Sequence[str] | None = None) -> Rows:
    """Every line as a row, without any quoting; the header line names the columns unless `columns` does.

    Raises:
        MissingInput: the file is absent or has no rows.
        DamagedData: a row with another number of fields than there are columns.
    """
    lines = lines_of(path)
    first = 0
    if columns is None:
        columns, first = (lines[0].split("\t") if lines else []), 1
    if len(lines) <= first:
        raise MissingInput(path, "has no rows")
    if len(set(columns)) != len(columns):
        raise DamagedData(f"{path}:1", "two columns have the same name")
    rows = []
    for index, line in enumerate(lines[first:]):
        fields = line.split("\t")
        where = f"{path}:{first + index + 1}"
        if len(fields) != len(columns):
            raise DamagedData(where, f"has {len(fields)} tab-separated fields where {len(columns)} are expected")
        rows.append(Row(str(index), where, dict(zip(columns, fields, strict=True))))
    return Rows(rows, {"rows": len(rows)})
