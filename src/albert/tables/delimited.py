"""Tables whose columns have a separator, `csv` and `tsv`: separator, quotes and header are recognised."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import ClassVar

from albert.runtime.errors import DamagedData, UsageError
from albert.tables.delimited_rows import SEPARATORS, delimited_records, divides_single_quotes, split_rows
from albert.tables.files import Advance, InputFile
from albert.tables.records import Record
from albert.tables.table_file import Beginning, TableFile, TextFormat
from albert.tables.tagged import TAGGED_SHARE, has_sentences

MANY_COLUMNS = 8
"""Of more columns not every name is written out in a message."""
MAX_NAME_LENGTH = 30
"""Characters of the name of a column in a table with commas whose ending does not say that it is one."""


class Csv(TextFormat):
    """Fields may be in quotes; if only the ending says csv, that is recognised (in GLUE they are text)."""

    name: ClassVar[str] = "csv"
    about: ClassVar[str] = "CSV"
    endings: ClassVar[tuple[str, ...]] = (".csv", ".tsv", ".tab")

    def recognise(self, beginning: Beginning) -> str | None:
        """Nearly all lines have as many separators."""
        sample = beginning.sample
        filled = beginning.filled_lines
        for delimiter in ("\t", ";", "|", ","):
            width, count = Counter(line.count(delimiter) for line in filled).most_common(1)[0]
            total = len(filled)
            if '"' in sample and count < TAGGED_SHARE * total:
                rows, is_right = sample_rows(sample, delimiter)
                if is_right:
                    width, count = Counter(len(row) - 1 for row in rows).most_common(1)[0]
                    total = len(rows)
            if width == 0 or count < TAGGED_SHARE * total:
                continue
            # Texts have commas, too: the first line must look like names of columns, short and no sentences.
            names = filled[0].split(delimiter)
            if delimiter != "," or all(map(_may_be_a_name, names)):
                return ""
        return None

    def otherwise(self, beginning: Beginning) -> tuple[str, str] | None:
        """Tagged text, if blank lines divide the lines, and no columns are named."""
        layout = beginning.layout
        is_table = layout.delimiter is not None or layout.columns is not None or layout.no_header
        is_said = layout.format is not None or layout.has_task or is_table
        if is_said or not has_sentences(beginning.sample):
            return None
        return (
            "conll",
            "read as a word and its tag on each line, because blank lines divide the lines (reading.format=csv)",
        )

    def open(self, beginning: Beginning) -> TableFile:
        return _open(beginning, self.name)

    def records(self, table: TableFile, reached: Advance, counts: Counter[str], class_names: bool) -> Iterator[Record]:
        return delimited_records(table, reached)


class Tsv(Csv):
    """Columns have tabs between them, and quotes are text; only if a user says so."""

    name: ClassVar[str] = "tsv"
    about: ClassVar[str] = "TSV"
    endings: ClassVar[tuple[str, ...]] = ()

    def recognise(self, beginning: Beginning) -> str | None:
        return None


def _may_be_a_name(text: str) -> bool:
    return 0 < len(text.strip()) <= MAX_NAME_LENGTH and not re.search(r"[.?!]\s*$", text)


def _open(beginning: Beginning, name: str) -> TableFile:
    """A table whose columns have a separator: its quotes, names and lines before the first row are recognised."""
    file = beginning.file
    layout = beginning.layout
    notes = beginning.notes
    sample = beginning.sample
    usual = "\t" if beginning.ending in (".tsv", ".tab") or name == "tsv" else ","
    delimiter = layout.delimiter
    preamble = 0
    declared = re.match(r"sep=(.)\r?\n", sample)
    if declared is not None and delimiter in (None, declared[1]):
        delimiter = declared[1]
        preamble = 1
        notes += (f"the first line says that {SEPARATORS.get(delimiter, repr(delimiter))} separates the columns",)
    else:
        preamble = _comment_lines(sample)
        if preamble:
            what = (
                "line, which begins with # and has no columns, is"
                if preamble == 1
                else "lines, which begin with #, are"
            )
            notes += (f"the first {'' if preamble == 1 else f'{preamble} '}{what} not read",)
    sample = "".join(sample.splitlines(keepends=True)[preamble:])
    if delimiter is not None:
        delimiter = {"tab": "\t", "\\t": "\t", "space": " "}.get(delimiter, delimiter)
        if len(delimiter) != 1:
            raise UsageError("reading.delimiter", f"{delimiter!r} is not one character", "for example ';', tab or '|'")
    elif name == "tsv":
        delimiter = "\t"
    else:
        delimiter = _recognise_delimiter(file, sample, usual, beginning.ending)
        if delimiter != usual:
            notes += (f"columns are separated by {SEPARATORS[delimiter]}",)
    quoted = name != "tsv"
    escaped = quoted and '\\"' in sample and _are_quotes_escaped(sample, delimiter)
    if escaped:
        sample = sample.replace('\\"', '""')
        notes += ('quotes inside of texts are written as \\"',)
    if quoted and layout.format is None:
        quoted, note = _recognise_quotes(sample, delimiter)
        notes += (note,) if note else ()
    try:
        first, *others = islice(split_rows(io.StringIO(sample, newline=""), delimiter, quoted), 1000)
    except csv.Error:
        first, *others = [line.split(delimiter) for line in sample.split("\n")[:1000]]
    others = [row for row in others if row]
    width = Counter(map(len, others)).most_common(1)[0][0] if others else len(first)
    cells = [(cell[:1], cell[-1:]) for row in others for cell in map(str.strip, row) if len(cell) > 1]
    in_single_quotes = sum(ends == ("'", "'") for ends in cells)
    if in_single_quotes > 1 and in_single_quotes > 0.2 * len(cells):
        why = f"{in_single_quotes:,} of the first {len(cells):,} fields are in single quotes, which are read as text"
        notes += (f"{why}: only double quotes enclose a field",)
    stripped = [cell.strip().removeprefix("\ufeff").strip('"').strip() for cell in first]
    header_lines = 0
    doubt = None
    if layout.columns is not None:
        names: list[str | None] = list(layout.columns)
        if len(set(names)) < len(names):
            raise UsageError("reading.columns", "a name occurs twice", "give every column another name")
        if len(names) > max(width, len(first)):
            why = f"names {len(names)} columns, {file.name} has {max(width, len(first))}"
            raise UsageError("reading.columns", why, f"the first row is {', '.join(map(repr, stripped))[:120]}")
        if [name.casefold() for name in stripped[: len(names)]] == [str(name).casefold() for name in names]:
            header_lines = 1
            notes += ("the first row holds the names of reading.columns, it is not a row",)
        elif len(names) < len(first):
            notes += (f"the last {len(first) - len(names)} of {len(first)} columns have no name and are ignored",)
        names += [None] * (max(width, len(first)) - len(names))
    elif layout.no_header:
        names = [f"column {number}" for number in range(1, max(width, len(first)) + 1)]
    else:
        header_lines = 1
        if width == len(first) + 1 and others and all(row[0].strip('"').isdigit() for row in others if row):
            stripped = ["", *stripped]  # R's row names, whose column has no name
        names = [None if not name or re.fullmatch(r"Unnamed: \d+", name) else name for name in stripped]
        unnamed = sum(name is None for name in names)
        if looks_like_a_row(stripped, others):
            shown = ", ".join(repr(name if len(name) < 30 else name[:29] + "…") for name in stripped[:4])
            shown_names = ",".join(f"NAME{number}" for number in range(1, len(names) + 1))
            if len(names) > MANY_COLUMNS:
                shown_names = f"NAME1,...,NAME{len(names)}"
            doubt = f"the first row looks like a row ({shown}): name the columns with reading.columns={shown_names}"
            doubt += ", or reading.no_header=true"
            notes += (doubt,)
        clash = next((name for name, count in Counter(names).items() if name is not None and count > 1), None)
        if clash is not None:
            remedy = doubt or "rename one of them, or name all with reading.columns"
            raise DamagedData(f"{file.name}:1", f"two columns have the same name, {clash!r}", remedy)
        if unnamed:
            is_one = unnamed == 1
            verbs = "column without a name is" if is_one else "columns without a name are"
            notes += (f"{unnamed} {verbs} ignored",)
        if unnamed == len(names):
            raise DamagedData(f"{file.name}:1", "the columns have no names", "name them with reading.columns")
    return TableFile(
        file=file,
        format=name,
        encoding=beginning.encoding,
        delimiter=delimiter,
        quoted=quoted,
        escaped=escaped,
        preamble=preamble,
        names=tuple(names),
        header_lines=header_lines,
        notes=notes,
        doubt=doubt,
        only_texts=True,
        single_quotes=sum(map(divides_single_quotes, others)) > 0.2 * len(others),
    )


def _comment_lines(sample: str) -> int:
    """The number of lines with # at the beginning of a table, if they have fewer separators than the next line."""
    lines = sample.splitlines()
    count = 0
    while count < len(lines) and lines[count].startswith("#"):
        count += 1
    if count in (0, len(lines)):
        return 0
    most = max(lines[count].count(delimiter) for delimiter in SEPARATORS)
    fewer = all(max(line.count(delimiter) for delimiter in SEPARATORS) < most for line in lines[:count])
    return count if fewer else 0


def _are_quotes_escaped(sample: str, delimiter: str) -> bool:
    r"""Return whether a sample can be divided only if `\"` is a quote inside of a field, as MySQL writes it."""

    def fits(text: str) -> bool:
        try:
            rows = [row for row in split_rows(io.StringIO(text, newline=""), delimiter, True, strict=True) if row]
        except csv.Error as error:
            return str(error).startswith("unexpected end") and text is not sample
        return all(len(row) == len(rows[0]) for row in rows)

    return not fits(sample) and fits(sample.replace('\\"', '""'))


@lru_cache(maxsize=4)
def sample_rows(sample: str, delimiter: str) -> tuple[list[list[str]], bool]:
    """The rows of a sample with quotes around fields, and whether every quote is at its place."""
    try:
        return [row for row in split_rows(io.StringIO(sample, newline=""), delimiter, True, strict=True) if row], True
    except csv.Error:
        return [row for row in split_rows(io.StringIO(sample, newline=""), delimiter, True) if row], False


def _recognise_delimiter(file: InputFile, sample: str, usual: str, ending: str) -> str:
    """The separator that divides the first row, and nearly all others into as many fields."""
    shares: dict[str, float] = {}
    lines = [line for line in sample.splitlines() if line.strip()]
    for delimiter in SEPARATORS:
        if delimiter not in sample:
            continue
        readings = [[line.split(delimiter) for line in lines]]
        if '"' in sample:
            readings.append(sample_rows(sample, delimiter)[0])
        for each in readings:
            width = len(each[0])
            fitting = sum(len(row) == width or (len(row) > width and not any(row[width:])) for row in each)
            if width > 1:
                shares[delimiter] = max(shares.get(delimiter, 0.0), fitting / len(each))
    good = [delimiter for delimiter, share in shares.items() if share >= 0.9]
    if not good:
        # R writes no name for its row names, so that the header has a field less
        for delimiter in SEPARATORS:
            rows = [row for row in split_rows(io.StringIO(sample, newline=""), delimiter, True) if row]
            if len(rows) > 1 and len(rows[0]) > 1 and all(len(row) == len(rows[0]) + 1 for row in rows[1:]):
                return delimiter
        most = max(shares, key=lambda delimiter: shares[delimiter], default=usual)
        return usual if usual in shares or shares.get(most, 0.0) < 0.5 else most
    best = max(shares[delimiter] for delimiter in good)
    equal = [delimiter for delimiter in good if shares[delimiter] == best]
    if len(equal) == 1:
        return equal[0]
    if "\t" in equal:
        return "\t"
    if usual in equal and ending in Csv.endings:
        others = " or ".join(SEPARATORS[delimiter] for delimiter in equal)
        header = sample.partition("\n")[0]
        if all(len([name for name in header.split(d) if name.strip()]) > 1 for d in equal):
            raise UsageError(file.name, f"columns may be separated by {others}", "say which with reading.delimiter")
    return equal[0]


def _recognise_quotes(sample: str, delimiter: str) -> tuple[bool, str | None]:
    """Return whether quotes around a field are not part of it, as pandas writes them and GLUE does not."""
    if '"' not in sample:
        return True, None
    raw = [line.split(delimiter) for line in sample.splitlines() if line]
    raw_fits = sum(len(row) == len(raw[0]) for row in raw) / len(raw)
    rows, is_right = sample_rows(sample, delimiter)
    fits = sum(len(row) == len(rows[0]) for row in rows) / len(rows) if is_right else 0.0
    if fits < raw_fits and raw_fits > 0.9:
        return False, "quotes are read as text, because they do not enclose fields (reading.format=csv)"
    if delimiter != "\t" or fits > raw_fits:
        return True, None
    opened = [cell for row in raw for cell in row if cell.startswith('"')]
    enclosed = [cell for cell in opened if re.fullmatch(r'"([^"]|"")*"', cell) and cell != '"']
    doubled = sum('""' in cell[1:-1] for cell in enclosed)
    columns = list(zip(*(row for row in raw[1:] if len(row) == len(raw[0])), strict=True))
    whole = bool(enclosed) and any(all(cell in enclosed for cell in column) for column in columns if column)
    if opened and len(enclosed) == len(opened) and (doubled or whole or raw[0][0] in enclosed):
        return True, None
    if enclosed:
        return (
            False,
            f"{len(enclosed):,} fields have quotes, which are read as text (reading.format=csv removes them)",
        )
    return False, None


def looks_like_a_row(header: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the cells of a header are values: long texts, numbers, or values that rows repeat."""
    for column, cell in enumerate(header):
        if len(cell) > 60 or re.fullmatch(r"[-+]?\d+([.,]\d+)*", cell) or re.search(r"\w\s+\w.*[.?!]$", cell):
            return True
        values = [row[column].strip() for row in rows if len(row) > column]
        if cell and cell in values and len(set(values)) < max(2, len(values)):
            return True
    return False
