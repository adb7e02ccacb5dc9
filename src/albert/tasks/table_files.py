"""Tables of own tasks: CSV, TSV, JSON lines, Parquet and tagged text, chosen by the ending; columns of answers.

Tagged text has one word a line, also under `.txt` where nearly all lines look like it."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from albert.runtime.errors import DamagedData, MissingInput, UsageError
from albert.runtime.progress import progress
from albert.tasks.examples import read_rows, read_text
from albert.tasks.squad import placed_answer
from albert.tasks.task import Answer, Row, Rows
from albert.text.readers import PACKINGS

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
    lines = _lines_of(path)
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


def _lines_of(path: Path) -> list[str]:
    """The lines of a text file, split at line feeds only (other Unicode line ends are text)."""
    lines = read_text(path).split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


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


TAGGED_TEXT = (".conll", ".bio", ".iob", ".iob2")
_KINDS = {".csv": "CSV", ".tsv": "TSV", ".jsonl": "JSON lines", ".parquet": "Parquet"}


def read_table(path: Path) -> Rows:
    """Every row of a table.

    Args:
        path: `.csv`, `.tsv`, `.jsonl`, `.conll`, `.bio`, `.iob`, `.iob2`, `.txt` (or the same packed: `.gz`, `.bz2`,
            `.xz`, `.zst`), or `.parquet`.

    Raises:
        UsageError: another ending, or `.txt` with text that is not tagged.
        MissingInput: absent or without rows.
        Unavailable: a Parquet file, and pyarrow is not installed.
        DamagedData: a ragged row, broken quoting, a line that is no JSON object and the like, with file and line.
    """
    packed = path.suffix.lower() in PACKINGS
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


def columns_of(rows: Rows) -> tuple[str, ...]:
    """The columns that any row has, in the order of their first appearance."""
    return tuple(dict.fromkeys(column for row in rows.rows for column in row.fields))


# --------------------------------------------------------------------------------------------------------------------
# Answers in columns: a text or a list of texts, and where they begin in the context, where the table says so.
#
# An empty answer, or none, says that the question has no answer in its context.


def answers_of(
    row: Row, context: str, answer: str, answer_start: str | None, counts: Counter[str]
) -> tuple[Answer, ...]:
    """The gold answers of a row, none where it has no answer.

    Args:
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
        raise DamagedData(row.where, f"{value!r} in column {column!r} is not a position in a text")
    return int(number) if number >= 0 else None
