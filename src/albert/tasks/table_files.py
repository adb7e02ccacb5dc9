"""Reading tables of tasks: CSV, TSV, JSON lines, Parquet, tagged text; chosen by the ending of the name.

`.gz` may follow the ending of any text. CSV has quoting (RFC 4180); TSV has none, a tab always ends a field. JSON lines
hold one object a line, Parquet typed columns (it needs the library pyarrow). Tagged text has one word a line, also
under `.txt` where nearly all lines look like it. Columns of answers are read here too."""

import csv
import datetime
import decimal
import io
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from albert.runtime.environment import load_by_name
from albert.runtime.errors import DamagedData, MissingInput, UsageError
from albert.runtime.json_files import each_key_once
from albert.runtime.progress import progress
from albert.tasks.examples import is_unicode, lines_of, read_tab_separated, read_text
from albert.tasks.squad import placed_answer
from albert.tasks.task import Answer, Field, Row, Rows

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
        DamagedData: half of a surrogate pair, or two values of one name.
    """
    fields: dict[str, Field] = {}
    for name, value in _leaves(values, ""):
        if name in fields:
            raise DamagedData(where, f"two values are called {name!r}")
        items = value if isinstance(value, list) else [value]
        texts = tuple(text for item in items if (text := _text(item)) is not None)
        if len(texts) < len(items):
            counts[NOT_READ] += 1
            continue
        if not all(map(is_unicode, texts)):
            raise DamagedData(where, f"{name!r} holds half of a surrogate pair", "write the file as UTF-8 again")
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


# --------------------------------------------------------------------------------------------------------------------
# Tagged text as the CoNLL shared tasks have it: a word and its tags a line, a blank line after each sentence.
#
# Fields stand between tabs, or in a file without any between blanks. The first is the word, the last its tag, those
# between are read too. Lines that begin with -DOCSTART- mark documents and are counted (Tjong Kim Sang and De
# Meulder 2003).

WORDS, TAGS = "words", "tags"
_DOCUMENT = "-DOCSTART-"
_EVIDENT = 0.95
"""Of the lines with words: so many have one number of fields where a text is tagged. A line of prose has any."""


def looks_tagged(lines: Sequence[str]) -> bool:
    """Whether lines are words with their tags, by how many fields they have; a few lines may be damaged."""
    separator = _separator(lines)
    found = (_fields(line, separator) for line in lines if line.strip(" \t"))
    sizes = Counter(len(fields) for fields in found if fields[0] != _DOCUMENT)
    if not sizes:
        return False
    ((usual, count),) = sizes.most_common(1)
    return usual > 1 and count >= _EVIDENT * sizes.total()


def read_tagged_text(path: Path) -> Rows:
    """A row for each sentence: lists in the columns `words`, `tags` and, where there are more, `column 2` and so on.

    Raises:
        MissingInput: the file is absent or has no word.
        DamagedData: a line with another number of fields than the first has, or an empty one among them, by its line.
    """
    lines = lines_of(path)
    separator = _separator(lines)
    columns: tuple[str, ...] = ()
    rows: list[Row] = []
    sentence: list[list[str]] = []
    marks, began = 0, 1
    with progress(f"Reading {path.name}", total=len(lines), unit="lines") as bar:
        for number, line in enumerate([*lines, ""], start=1):
            bar.advance()
            fields = _fields(line, separator)
            if not line.strip(" \t"):
                if sentence:
                    rows.append(_row(len(rows), f"{path}:{began}", columns, sentence))
                sentence = []
                continue
            if fields[0] == _DOCUMENT:
                marks += 1
                continue
            columns = columns or _columns(len(fields))
            if len(fields) != len(columns):
                why = f"has {len(fields)} fields where the first word has {len(columns)}"
                raise DamagedData(f"{path}:{number}", why)
            if not all(field.strip() for field in fields):
                raise DamagedData(f"{path}:{number}", "an empty field", "every word needs its tag")
            began = number if not sentence else began
            sentence.append(fields)
    if not rows:
        raise MissingInput(path, "has no rows")
    return Rows(rows, {"rows": len(rows), "document_marks": marks})


def _separator(lines: Sequence[str]) -> str:
    return "\t" if any("\t" in line for line in lines) else " "


def _fields(line: str, separator: str) -> list[str]:
    fields = line.split(separator)
    return fields if separator == "\t" else [field for field in fields if field]


def _columns(count: int) -> tuple[str, ...]:
    """What the fields of a line are called; one alone is a word without its tag."""
    between = tuple(f"column {place}" for place in range(2, count))
    return (WORDS, *between, TAGS) if count > 1 else (WORDS,)


def _row(number: int, where: str, columns: tuple[str, ...], sentence: list[list[str]]) -> Row:
    fields = {column: tuple(word[place] for word in sentence) for place, column in enumerate(columns)}
    return Row(str(number), where, fields)


csv.field_size_limit(2**31 - 1)  # a field is as long as a text may be; the module's own limit is 131,072 characters

TAGGED_TEXT = (".conll", ".bio", ".iob", ".iob2")


def read_table(path: Path) -> Rows:
    """Every row of a table.

    Args:
        path: `.csv`, `.tsv`, `.jsonl`, `.conll`, `.bio`, `.iob`, `.iob2`, `.txt` (or the same with `.gz`), or
            `.parquet`.

    Raises:
        UsageError: another ending, or `.txt` with text that is not tagged.
        MissingInput: absent or without rows.
        Unavailable: a Parquet file, and pyarrow is not installed.
        DamagedData: a ragged row, broken quoting, a line that is no JSON object and the like, with file and line.
    """
    ending = Path(path.stem if path.suffix == ".gz" else path.name).suffix.lower()
    readers: dict[str, Callable[[Path], Rows]] = {
        ".csv": _read_comma_separated,
        ".tsv": read_tab_separated,
        ".jsonl": _read_json_lines,
        **dict.fromkeys(TAGGED_TEXT, read_tagged_text),
        ".txt": _read_text_that_is_tagged,
    }
    if ending == ".parquet" and path.suffix != ".gz":
        return load_by_name("albert.tasks.parquet_tables", "data").read_parquet(path)
    if ending == ".json":
        why = "is JSON, not JSON lines"
        raise UsageError(path, why, "SQuAD's layout goes with the task squad-1.1 or squad-2.0, a table with .jsonl")
    if ending not in readers:
        raise UsageError(path, "unknown kind of file", "use .csv, .tsv, .jsonl or .conll (also .gz), or .parquet")
    rows = readers[ending](path)
    if not rows.rows:
        raise MissingInput(path, "has no rows")
    return rows


def columns_of(rows: Rows) -> tuple[str, ...]:
    """The columns that any row has, in the order of their first appearance."""
    return tuple(dict.fromkeys(column for row in rows.rows for column in row.fields))


def _read_text_that_is_tagged(path: Path) -> Rows:
    if not looks_tagged(lines_of(path)):
        why = "is text whose lines are no words with tags"
        raise UsageError(
            path, why, "a table is .csv, .tsv, .jsonl or .parquet; tagged text has a word and its tag a line"
        )
    return read_tagged_text(path)


def _read_comma_separated(path: Path) -> Rows:
    text = read_text(path)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[Row] = []
    columns: list[str] | None = None
    line = 1
    try:
        with progress(f"Reading {path.name}", total=text.count("\n"), unit="lines") as bar:
            for fields in reader:
                bar.advance(reader.line_num + 1 - line)
                where, line = f"{path}:{line}", reader.line_num + 1
                if columns is None:
                    columns = fields
                    if len(set(columns)) != len(columns):
                        raise DamagedData(where, "two columns have the same name")
                elif len(fields) != len(columns):
                    raise DamagedData(where, f"has {len(fields)} fields where the header has {len(columns)}")
                else:
                    rows.append(Row(str(len(rows)), where, dict(zip(columns, fields, strict=True))))
    except csv.Error as error:
        raise DamagedData(f"{path}:{line}", f"broken CSV ({error})", "check the quotes of this row") from error
    return Rows(rows, {"rows": len(rows)})


def _read_json_lines(path: Path) -> Rows:
    rows: list[Row] = []
    lines = lines_of(path)
    counts: Counter[str] = Counter()
    with progress(f"Reading {path.name}", total=len(lines), unit="lines") as bar:
        for number, line in enumerate(lines, start=1):
            where = f"{path}:{number}"
            try:
                value = json.loads(line, object_pairs_hook=each_key_once)
            except (ValueError, RecursionError) as error:
                raise DamagedData(where, f"not JSON ({error})") from error
            if not isinstance(value, dict):
                raise DamagedData(where, "is not a JSON object")
            rows.append(Row(str(len(rows)), where, fields_of(value, where, counts)))
            bar.advance()
    return Rows(rows, {"rows": len(rows), **counts})


# --------------------------------------------------------------------------------------------------------------------
# Answers in columns: a text or a list of texts, and where they begin in the context, where the table says so.
#
# An empty answer, or none, says that the question has no answer in its context.


def answers_of(
    row: Row, context: str, answer: str, answer_start: str | None, counts: Counter[str]
) -> tuple[Answer, ...]:
    """The gold answers of a row, none where it has no answer.

    Args:
        row: a row of the table.
        context: the text that should hold them.
        answer, answer_start: columns; those of a row may be absent, and a start empty or -1: then it is looked for.
        counts: see `placed_answer`; `unanswerable` questions are added too.

    Raises:
        DamagedData: a start that is no whole number, or another number of starts than of answers.
    """
    texts = _items(row, answer)
    if not any(texts):
        counts["unanswerable"] += 1
        return ()
    starts: list[int | None] = [None] * len(texts)
    if answer_start is not None and answer_start in row.fields:
        starts = [_start(row, answer_start, item) for item in _items(row, answer_start)] or starts
    if len(starts) != len(texts):
        why = f"has {len(texts)} answers in {answer!r} and {len(starts)} starts in {answer_start!r}"
        raise DamagedData(row.where, why)
    return tuple(placed_answer(text, start, context, counts) for text, start in zip(texts, starts, strict=True))


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
        raise DamagedData(row.where, f"{value!r} in column {column!r} is no place in a text")
    return int(number) if number >= 0 else None
