"""Tagged text as the CoNLL shared tasks have it: a word and its tags a line, a blank line after each sentence.

Fields stand between tabs, or in a file without any between blanks. The first is the word, the last its tag, those
between are read too. Lines that begin with -DOCSTART- mark documents and are counted (Tjong Kim Sang and De Meulder
2003).
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from albert.runtime.errors import DamagedData, MissingInput
from albert.runtime.progress import progress
from albert.tasks.rows import Row, Rows
from albert.tasks.sources import lines_of

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
