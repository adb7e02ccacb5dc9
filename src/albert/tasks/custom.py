"""The user's own task: reading tables, and declaring a task from their columns; errors name file and line."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput, UsageError, did_you_mean
from albert.runtime.json_files import common_fields
from albert.runtime.manifest import file_hash
from albert.tasks.examples import example_of, is_labelled, read_rows, read_text
from albert.tasks.infer import Inferred, expand_options, hold_out_rows, infer_task, option_index
from albert.tasks.squad import locate_answer
from albert.tasks.table_task import NO_QUESTION, NO_TEXT, TAGS, WORDS, RecipeChanges, TableTask, declare_task
from albert.tasks.task import Answer, Choice, Option, Row, Rows, Score, Task, TaskRecipe
from albert.text.readers import COMPRESSIONS

# --------------------------------------------------------------------------------------------------------------------
# Tagged text as in the CoNLL shared tasks: a word and its tags per line, a blank line after each sentence.
#
# Fields are separated by tabs, or by spaces in a file without tabs. The first is the word, the last its tag. Lines that
# begin with -DOCSTART- mark documents and are counted (Tjong Kim Sang and De Meulder 2003).

_DOCUMENT = "-DOCSTART-"
_TAGGED_SHARE = 0.95
"""Share of the lines of a tagged text that have the same number of fields; lines of prose differ."""


def looks_tagged(lines: Sequence[str]) -> bool:
    """Whether lines are words with tags, by their number of fields; a few lines may be damaged."""
    sizes = Counter(len(fields) for fields in map(_splitter(lines), lines) if fields and fields[0] != _DOCUMENT)
    size, count = sizes.most_common(1)[0] if sizes else (0, 0)
    return size > 1 and count >= _TAGGED_SHARE * sizes.total()


def read_tagged_text(path: Path) -> Rows:
    """A row for each sentence: lists in the columns `words`, `tags` and, if there are more, `column 2` and so on.

    Raises:
        MissingInput: the file is absent or has no word.
        DamagedData: a line has another number of fields than the first, or an empty field.
    """
    lines = _lines_of(path)
    rows: list[Row] = []
    marks, size = 0, None
    for _, block in groupby(enumerate(map(_splitter(lines), lines), start=1), key=lambda line: bool(line[1])):
        words = [(number, fields) for number, fields in block if fields]
        sentence = [(number, fields) for number, fields in words if fields[0] != _DOCUMENT]
        marks += len(words) - len(sentence)
        for number, fields in sentence:
            size = size or len(fields)
            if len(fields) != size:
                raise DamagedData(f"{path}:{number}", f"has {len(fields)} fields where the first word has {size}")
            if not all(field.strip() for field in fields):
                raise DamagedData(f"{path}:{number}", "an empty field", "every word needs its tag")
        if sentence:
            names = [WORDS, *(f"column {number}" for number in range(2, size or 0)), TAGS][: size or 0]
            columns = zip(*(fields for _, fields in sentence), strict=True)
            rows.append(Row(str(len(rows)), f"{path}:{sentence[0][0]}", dict(zip(names, columns, strict=True))))
    if not rows:
        raise MissingInput(path, "has no rows")
    return Rows(rows, {"rows": len(rows), "document_marks": marks})


def _lines_of(path: Path) -> list[str]:
    """The lines of a text file, split at line feeds only (other Unicode line breaks are text)."""
    return [line.removesuffix("\r") for line in read_text(path).split("\n")]


def _splitter(lines: Sequence[str]) -> Callable[[str], list[str]]:
    """The function that divides a line into fields; a blank line has none."""
    if any("\t" in line for line in lines):
        return lambda line: line.split("\t") if line.strip(" \t") else []
    return lambda line: list(filter(None, line.split(" ")))


TAGGED_TEXT = (".conll", ".bio", ".iob", ".iob2")
_KINDS = {".csv": "CSV", ".tsv": "TSV", ".jsonl": "JSON lines", ".parquet": "Parquet"}


def read_table(path: Path) -> Rows:
    """Every row of a table.

    Args:
        path: `.csv`, `.tsv`, `.jsonl`, `.conll`, `.bio`, `.iob`, `.iob2`, `.txt` (or compressed: `.gz`, `.bz2`, `.xz`,
            `.zst`), or `.parquet`.

    Raises:
        UsageError: another ending, or `.txt` without tags.
        MissingInput: no file, or no rows.
        Unavailable: a Parquet file, and pyarrow is not installed.
        DamagedData: a row or line is damaged.
    """
    packed = path.suffix.lower() in COMPRESSIONS
    ending = Path(path.stem if packed else path.name).suffix.lower()
    if ending == ".json":
        why = "is JSON, not JSON lines"
        raise UsageError(path, why, "SQuAD's layout goes with the task squad-1.1 or squad-2.0, a table with .jsonl")
    if ending == ".txt" and not looks_tagged(_lines_of(path)):
        why = "has lines that are not words with tags"
        remedy = "a table is .csv, .tsv, .jsonl or .parquet; tagged text has a word and its tag a line"
        raise UsageError(path, why, remedy)
    if ending in (*TAGGED_TEXT, ".txt"):
        return read_tagged_text(path)
    if ending not in _KINDS or (ending == ".parquet" and packed):
        raise UsageError(path, "unknown kind of file", "use .csv, .tsv, .jsonl or .conll (also .gz), or .parquet")
    return read_rows(path, _KINDS[ending])


# --------------------------------------------------------------------------------------------------------------------
# Answers in columns: a text or a list of texts, and optionally their positions in the context.
#
# An empty or absent answer means that the question has no answer in its context.


def gold_answers(task: TableTask, row: Row, counts: Counter[str]) -> tuple[Answer, ...]:
    """The gold answers of a row; a start may be absent, empty or -1, and is then searched for.

    Args:
        counts: see `locate_answer`; `unanswerable` questions are counted too.
    """
    assert task.context is not None and task.answer is not None
    context, texts = row.text(task.context), _items(row, task.answer)
    if not any(texts):
        counts["unanswerable"] += 1
        return ()
    starts: list[int | None] = [None] * len(texts)
    if task.answer_start is not None:
        starts = [_start(row, task.answer_start, item) for item in _items(row, task.answer_start)] or starts
    if len(starts) != len(texts):
        why = f"has {len(texts)} answers in {task.answer!r} and {len(starts)} starts in {task.answer_start!r}"
        raise DamagedData(row.where, why)
    return tuple(locate_answer(text, start, context, counts) for text, start in zip(texts, starts, strict=True))


def _items(row: Row, column: str) -> tuple[str, ...]:
    value = row.fields.get(column, "")
    return ((value,) if value else ()) if isinstance(value, str) else value


def _start(row: Row, column: str, value: str) -> int | None:
    if not value.strip():
        return None
    try:
        number = float(value)
    except ValueError as error:
        raise DamagedData(row.where, f"{value!r} in column {column!r} is not a number") from error
    if number != int(number if abs(number) < 2**53 else 0):
        raise DamagedData(row.where, f"{value!r} in column {column!r} is not a position in a text")
    return int(number) if number >= 0 else None


# --------------------------------------------------------------------------------------------------------------------
# Tables to a declared task.


@dataclass(frozen=True)
class TableSource:
    """The splits of a task on tables, read and prepared; the data folder is not used."""

    table_task: TableTask
    tables: Mapping[str, Rows]

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.tables)

    def with_files(self, files: Mapping[str, Path]) -> "TableSource":
        tables = {split: prepare_rows(self.table_task, read_table(path)) for split, path in files.items()}
        return replace(self, tables={**self.tables, **tables})

    def read(self, data: Path, split: str) -> Rows:
        if split not in self.tables:
            raise InvalidConfiguration(f"split {split}", "no file was given for it", did_you_mean(split, self.tables))
        return self.tables[split]


def prepare_rows(task: TableTask, rows: Rows) -> Rows:
    """Rows with the identifiers, answers and options of a declared task.

    The label of a multiple choice is the column of the right option; its missing question or text is an empty column.
    Answers are None if no row has their column.
    """
    counts: Counter[str] = Counter()
    first: dict[str, str] = {}
    expanded, names = expand_options(task, rows.rows)
    is_choice, is_question = task.kind == "multiple-choice", task.kind == "question-answering"
    has_answers = is_question and any(task.answer in row.fields for row in expanded)
    empty = {name: "" for name, used in ((NO_QUESTION, task.question), (NO_TEXT, task.text)) if used is None}

    def convert(row: Row) -> Row:
        identifier, fields, answers = row.identifier, row.fields, row.answers
        if task.id is not None:
            identifier = row.text(task.id)
            if identifier in first:
                why = f"a second row has the id {identifier!r}"
                raise DamagedData(row.where, why, f"the first is at {first[identifier]}")
            first[identifier] = row.where
        if is_choice:
            fields = {**fields, **empty, **_right_option(task, row, names)}
        if is_question:
            answers = gold_answers(task, row, counts) if has_answers else None
        return replace(row, identifier=identifier, fields=fields, answers=answers)

    return Rows(convert_rows(expanded, convert), {**rows.counts, **counts})


def _right_option(task: TableTask, row: Row, names: Sequence[str]) -> dict[str, str]:
    """The label as the column of the right option; empty without a label."""
    assert task.label is not None and task.option_labels is not None
    label = row.text(task.label).strip() if task.label in row.fields else ""
    if not label:
        return {}
    index = option_index(label, task.option_labels, names, [row.text(name) for name in names])
    if index is None:
        why = f"{label!r} in column {task.label!r} names no option"
        raise DamagedData(row.where, why, f"labels are read as: {task.option_labels}")
    return {task.label: names[index]}


def convert_rows(rows: Sequence[Row], convert: Callable[[Row], Any]) -> list[Any]:
    """Convert every row; the first error is raised, with the number of further rows that have one."""
    converted = []
    first, more = None, 0
    for row in rows:
        try:
            converted.append(convert(row))
        except DamagedData as error:
            first, more = first or error, more + (first is not None)
    if first is not None:
        others = f"{more:,} more row{'s' * (more > 1)} like this" if more else None
        raise DamagedData(first.subject, first.why, "; ".join(filter(None, (first.remedy, others))) or None)
    return converted


def check_rows(task: Task, rows: Sequence[Row]) -> None:
    """Raise DamagedData if a row cannot be trained on or scored."""
    labelled = is_labelled(task, rows)
    column = task.target.column if labelled and isinstance(task.target, Choice | Score | Option) else None
    convert = example_of(task, labelled)

    def check(row: Row) -> None:
        if column is not None and isinstance(label := row.fields.get(column, ""), str) and not label.strip():
            raise DamagedData(row.where, f"empty label in column {column!r}")
        convert(row)

    convert_rows(rows, check)


@dataclass(frozen=True)
class ReadTask:
    """A task and its tables: `raw` are the rows as read, `inferred` the settings that were inferred."""

    task: Task
    table_task: TableTask
    raw: Mapping[str, Rows]
    inferred: tuple[Inferred, ...]

    @property
    def tables(self) -> Mapping[str, Rows]:
        assert isinstance(self.task.source, TableSource)
        return self.task.source.tables

    def check(self, *splits: str) -> "ReadTask":
        """Check the rows of some splits, or of all (see `check_rows`), and return the same object."""
        for split in splits or self.tables:
            check_rows(self.task, self.tables[split].rows)
        return self


def read_task(table_task: TableTask, hold_out: bool = True) -> ReadTask:
    """Read the tables of a task, infer missing settings, and declare it.

    Args:
        hold_out: without a development file, hold out a part of the training file.

    Raises:
        UsageError: no file; or columns are missing, unknown or contradictory.
        MissingInput, DamagedData: a table cannot be read, or has a wrong identifier, option or answer.
        InvalidConfiguration: too few labels or rows; or the training file is not the one whose rows were held out.
    """
    files = {split: path for split, path in (("train", table_task.train), ("dev", table_task.dev)) if path is not None}
    if not files:
        raise UsageError("albert", "no table to read", "name it with --train, or --dev")
    raw = {split: read_table(path) for split, path in files.items()}
    first = next(iter(files))
    complete, inferred = infer_task(table_task, raw[first], files[first], to_learn=first == "train")
    tables = {split: prepare_rows(complete, rows) for split, rows in raw.items()}
    if complete.kind == "question-answering" and complete.may_be_absent is None:
        absent = any(row.answers == () for rows in tables.values() for row in rows.rows)
        complete = replace(complete, may_be_absent=absent)
    options = ()
    for split, rows in raw.items() if complete.options else ():
        names = expand_options(complete, rows.rows)[1]
        options = options or names
        if names != options:
            raise DamagedData(files[split], f"has {len(names)} options, {files[first]} has {len(options)}")
    task = declare_task(complete, TableSource(complete, tables), options)
    if table_task.dev is None and hold_out:
        digest = file_hash(files["train"])
        if complete.held_out.digest not in (None, digest):
            why = "has changed since its rows were held out: they may have been trained on"
            raise InvalidConfiguration(files["train"], why, "give a file with --dev")
        complete = replace(complete, held_out=replace(complete.held_out, digest=digest))
        train, dev = hold_out_rows(task, tables["train"], complete.held_out)
        tables = {"train": train, "dev": dev}
    complete = replace(complete, metrics=tuple(metric.__name__ for metric in task.metrics))
    return ReadTask(replace(task, source=TableSource(complete, tables)), complete, raw, inferred)


def declare_custom_task(
    files: Mapping[str, Path],
    text: str,
    label: str,
    pair: str | None = None,
    regression: bool = False,
    labels: tuple[str, ...] | None = None,
    recipe: TaskRecipe | None = None,
) -> Task:
    """A task from columns: classification of `text` (or of `text` and `pair`) by `label`, or regression.

    Args:
        labels: None for those of the training file, sorted (as numbers if all are numbers).

    Raises:
        UsageError, MissingInput, DamagedData, InvalidConfiguration: see `read_task`.
    """
    table_task = TableTask(
        kind="regression" if regression else "classification",
        train=files.get("train"),
        dev=files.get("dev"),
        text=text,
        pair=pair,
        label=label,
        labels=None if regression else labels,
        recipe=RecipeChanges(**common_fields(RecipeChanges, recipe)),
    )
    task = read_task(table_task, hold_out=False).check().task
    return task if recipe is None else replace(task, recipe=recipe)
