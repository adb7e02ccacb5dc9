"""Tables whose columns have a separator: separator, quotes and header are recognised, and rows are read in blocks."""

import codecs
import csv
import io
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, islice
from typing import Any, overload

import numpy as np

from albert.runtime.errors import DamagedData, UsageError
from albert.tables.files import COMPRESSIONS, Advance, InputFile, open_input_file
from albert.tables.records import MAX_RECORD_LENGTH, Record
from albert.tables.table import ColumnRows, Row
from albert.tables.table_file import ENDINGS, Format, Layout, TableFile

csv.field_size_limit(2**31 - 1)  # rows have their own limit

SEPARATORS = {",": "','", ";": "';'", "\t": "a tab", "|": "'|'"}
MANY_COLUMNS = 8
"""Of more columns not every name is written out in a message."""


def open_delimited(
    file: InputFile,
    format: Format,
    encoding: str,
    notes: tuple[str, ...],
    layout: Layout,
    sample: str,
    ending: str,
) -> TableFile:
    """A table whose columns have a separator: its quotes, names and lines before the first row are recognised."""
    usual = "\t" if ending in (".tsv", ".tab") or format == "tsv" else ","
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
    elif format == "tsv":
        delimiter = "\t"
    else:
        delimiter = _recognise_delimiter(file, sample, usual, ending)
        if delimiter != usual:
            notes += (f"columns are separated by {SEPARATORS[delimiter]}",)
    quoted = format != "tsv"
    escaped = quoted and '\\"' in sample and _are_quotes_escaped(sample, delimiter)
    if escaped:
        sample = sample.replace('\\"', '""')
        notes += ('quotes inside of texts are written as \\"',)
    if quoted and layout.format is None:
        quoted, note = _recognise_quotes(sample, delimiter)
        notes += (note,) if note else ()
    try:
        first, *others = islice(_split_rows(io.StringIO(sample, newline=""), delimiter, quoted), 1000)
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
        format=format,
        encoding=encoding,
        delimiter=delimiter,
        quoted=quoted,
        escaped=escaped,
        preamble=preamble,
        names=tuple(names),
        header_lines=header_lines,
        notes=notes,
        doubt=doubt,
        single_quotes=sum(map(_divides_single_quotes, others)) > 0.2 * len(others),
    )


def _split_rows(text: Any, delimiter: str, quoted: bool, strict: bool = False) -> Iterator[list[str]]:
    if quoted:
        return csv.reader(text, delimiter=delimiter, strict=strict)
    lines = (line.removesuffix("\n").removesuffix("\r") for line in text)
    return (line.split(delimiter) if line else [] for line in lines)


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
            rows = [row for row in _split_rows(io.StringIO(text, newline=""), delimiter, True, strict=True) if row]
        except csv.Error as error:
            return str(error).startswith("unexpected end") and text is not sample
        return all(len(row) == len(rows[0]) for row in rows)

    return not fits(sample) and fits(sample.replace('\\"', '""'))


@lru_cache(maxsize=4)
def sample_rows(sample: str, delimiter: str) -> tuple[list[list[str]], bool]:
    """The rows of a sample with quotes around fields, and whether every quote is at its place."""
    try:
        return [row for row in _split_rows(io.StringIO(sample, newline=""), delimiter, True, strict=True) if row], True
    except csv.Error:
        return [row for row in _split_rows(io.StringIO(sample, newline=""), delimiter, True) if row], False


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
            rows = [row for row in _split_rows(io.StringIO(sample, newline=""), delimiter, True) if row]
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
    if usual in equal and ending in ENDINGS:
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


def delimited_records(table: TableFile, reached: Advance) -> Iterator[Record]:
    """The rows of a table whose columns have a separator."""
    names = table.used_names
    for block in _blocks(table, reached):
        for line, values in block.values(table):
            yield Record(f"{table.file.name}:{line}", dict(zip(names, values, strict=True)))


_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class _Block:
    """Some whole rows of a file with separators, as they are written, in UTF-8.

    Attributes:
        line: the line on which they begin.
        is_regular: every line is a row with all fields.
        has_quotes: if it is regular, whether fields are in quotes; without any, separators divide the fields.
        rows: each row's line and fields, if they have been divided already.
    """

    data: bytes
    line: int
    count: int
    is_regular: bool = False
    has_quotes: bool = False
    rows: Sequence[tuple[int, list[str]]] | None = None

    def values(self, table: TableFile) -> Iterator[tuple[int, Sequence[str]]]:
        """The line on which each row begins, and its values in the columns that have a name."""
        if self.is_regular:
            fields = self.fields(table)
            columns = [fields[index :: len(table.names)] for index in _used(table)]
            rows: Any = enumerate(zip(*columns, strict=True), start=self.line)
            return rows
        used = _used(table)
        return ((line, [values[index] for index in used]) for line, values in self._divided(table))

    def column(self, table: TableFile, index: int) -> list[str]:
        """The values of a column, by its position."""
        if not self.is_regular:
            return [values[index] for _, values in self._divided(table)]
        return self.fields(table)[index :: len(table.names)]

    def fields(self, table: TableFile) -> list[str]:
        """The fields of all rows, one after the other, of a regular block."""
        if self.has_quotes:
            fields = _quoted_fields(self.data, table.delimiter.encode())
            return fields or [field for _, values in self._divided(table) for field in values]
        fields = self.data.decode().replace("\n", table.delimiter).split(table.delimiter)
        del fields[-1]  # after the last line's end
        return fields

    def _divided(self, table: TableFile) -> Iterable[tuple[int, list[str]]]:
        if self.rows is not None:
            return self.rows
        if self.is_regular:
            lines = io.StringIO(self.data.decode(), newline="")
            return enumerate(_split_rows(lines, table.delimiter, True), start=self.line)
        rows, _, _ = _divide(table, self.data.decode(), self.line)
        return rows


def _used(table: TableFile) -> list[int]:
    """The positions of the columns that have a name."""
    return [index for index, name in enumerate(table.names) if name is not None]


def _blocks(table: TableFile, reached: Advance) -> Iterator[_Block]:
    """The rows of a file with separators, in blocks of whole rows; every row is checked.

    Fields in quotes are removed from a block, and then everything but separators and ends of lines. If `,\\n,\\n,\\n`
    is left, all rows have the right number of fields, and need not be divided before they are used. Blocks with ends
    of lines in quotes, empty lines or faults are divided here.
    """
    width = len(table.names)
    can_be_regular = width > 1 and table.delimiter.isascii() and table.delimiter not in '"\r\n'
    marks = table.delimiter + ("\r\n" if table.quoted else "\n")
    others = bytes(code for code in range(256) if chr(code) not in marks)
    row = table.delimiter.encode() * (width - 1) + b"\n"
    line = 1
    preamble = table.preamble
    header_lines = table.header_lines
    rest = b""
    enough = 0
    for chunk, is_last in _chunks(table, reached):
        data = rest + chunk
        if len(data) < enough and not is_last:
            rest = data
            continue
        if is_last and data and not data.endswith(b"\n"):
            data += b"\n"
        end = data.rfind(b"\n") + 1
        rest = data[end:]
        data = data[:end]
        if table.escaped:
            data = data.replace(b'\\"', b'""')
        while preamble and data:
            data = data.partition(b"\n")[2]
            preamble -= 1
            line += 1
        if data and header_lines:
            rows, n_lines, size = _divide(table, data.decode(), line, header_lines, is_last)
            if len(rows) < header_lines:  # lines without fields, or the header's quotes are still open
                rest = data + rest
                data = b""
            else:
                header_lines = 0
                data = data[size:]
                line += n_lines
        if data:
            has_quotes = table.quoted and b'"' in data
            skeleton = b""
            if can_be_regular and has_quotes:
                skeleton = _quoted_skeleton(data, table.delimiter.encode(), others.replace(b'"', b""))
            elif can_be_regular:
                skeleton = data.translate(None, others)
            if b"\r" in skeleton and data.count(b"\r") == data.count(b"\r\n"):
                skeleton = skeleton.replace(b"\r", b"")
            if skeleton and skeleton == row * (len(skeleton) // width):
                count = len(skeleton) // width
                if b"\r" in data:
                    data = data.replace(b"\r\n", b"\n")
                yield _Block(data=data, line=line, count=count, is_regular=True, has_quotes=has_quotes)
                line += count
            else:
                rows, n_lines, size = _divide(table, data.decode(), line, None, is_last)
                rest = data[size:] + rest
                if rows:
                    yield _Block(data=data[:size], line=line, count=len(rows), rows=rows)
                line += n_lines
        enough = 2 * len(rest)  # a long row is not tried after every part of it
        if len(rest) > MAX_RECORD_LENGTH:
            raise DamagedData(f"{table.file.name}:{line}", f"is longer than {MAX_RECORD_LENGTH / 1e6:,.0f} MB")


_QUOTE = 34
_LINE_END = 10
_RETURN = 13


def _quoted_skeleton(data: bytes, delimiter: bytes, others: bytes) -> bytes:
    """Separators and ends of lines outside of quotes; nothing if a quote does not enclose a field, or encloses a line.

    Args:
        data: whole lines.
        others: the bytes that are neither a separator, an end of a line nor a quote.
    """
    signs = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(signs == _QUOTE)
    if len(quotes) % 2:
        return b""
    closed = quotes[1::2]
    # Beside a quote there is a separator, an end of a line, or another quote: two in a field stand for one. Before the
    # first byte is, as index -1, the last one, which ends a line.
    allowed = np.zeros(256, bool)
    allowed[[delimiter[0], _LINE_END, _QUOTE]] = True
    if not allowed[signs[quotes[0::2] - 1]].all():
        return b""
    after = signs[closed + 1]
    wrong = closed[~allowed[after]]
    if len(wrong) and not ((signs[wrong + 1] == _RETURN) & (signs[wrong + 2] == _LINE_END)).all():
        return b""
    kept = np.frombuffer(data.translate(None, others), np.uint8)
    is_inside = np.cumsum(kept == _QUOTE, dtype=np.uint8) & 1 == 1
    inside = kept[is_inside]
    if ((inside == _LINE_END) | (inside == _RETURN)).any():
        return b""
    outside = kept[~is_inside]
    return outside[outside != _QUOTE].tobytes()


def _quoted_fields(data: bytes, delimiter: bytes) -> list[str] | None:
    """The fields of whole rows with quotes around some of them and no line in quotes; None if no sign is free.

    Separators and ends of lines outside of quotes are replaced by a byte that does not occur; quotes around fields and
    the first of two are removed.
    """
    sign = next((code for code in (31, 30, 29, 28, 0, 1, 2, 3) if bytes([code]) not in data), None)
    if sign is None:
        return None
    signs = np.frombuffer(data, np.uint8).copy()
    is_quote = signs == _QUOTE
    quotes = np.flatnonzero(is_quote)
    closed = quotes[1::2]
    is_doubled = signs[closed + 1] == _QUOTE
    is_inside = np.cumsum(is_quote, dtype=np.uint8) & 1 == 1
    signs[((signs == delimiter[0]) | (signs == _LINE_END)) & ~is_inside] = sign
    is_quote[closed[is_doubled]] = False
    fields = signs[~is_quote].tobytes().decode().split(chr(sign))
    del fields[-1]  # after the last line's end
    return fields


def _chunks(table: TableFile, reached: Advance) -> Iterator[tuple[bytes, bool]]:
    """The text of a file in UTF-8 and in parts of about a megabyte, and whether a part is the last one."""
    is_utf8 = table.encoding in ("utf-8", "utf-8-sig")
    decoder = codecs.getincrementaldecoder(table.encoding)()
    is_packed = table.file.path.suffix.lower() in COMPRESSIONS or bool(table.file.member)
    lines = 1
    with open_input_file(table.file) as (content, _):
        is_first = True
        is_last = False
        while not is_last:
            data = content.read(_BLOCK_BYTES)
            is_last = not data
            is_checked = is_utf8 and data.isascii() and not decoder.getstate()[0] and not is_last
            try:
                text = "" if is_checked else decoder.decode(data, final=is_last)
            except UnicodeDecodeError as error:
                name = table.encoding.removesuffix("-sig").upper()
                byte = error.object[error.start]
                before = lines + error.object[: error.start].count(b"\n")
                why = f"is not {name}: byte {byte:#04x} ({error.reason})"
                where = f"{table.file.name}:{before}" if is_utf8 else table.file.name
                raise DamagedData(where, why, "name its encoding with reading.encoding") from error
            if is_utf8:
                lines += data.count(b"\n")
                yield (data.removeprefix(codecs.BOM_UTF8) if is_first else data), is_last
            else:
                yield text.encode(), is_last
            is_first = False
            if not is_packed:
                reached(content.tell())


def _divide(
    table: TableFile, text: str, line: int, most: int | None = None, is_last: bool = True
) -> tuple[list[tuple[int, list[str]]], int, int]:
    """The rows of a text with their lines; the lines and the bytes that they take.

    With `most`, only the first rows are taken, as a header, and their number of fields is not checked. A row whose
    quotes are not closed is left for the next part of the file, unless this is the last one.
    """
    rows: list[tuple[int, list[str]]] = []
    lines = io.StringIO(text, newline="" if table.quoted else "\n")
    reader: Any = _split_rows(lines, table.delimiter, table.quoted, strict=True)
    width = len(table.names)
    n_lines = 0
    try:
        for values in reader:
            here = line + n_lines
            n_lines = reader.line_num if table.quoted else n_lines + 1
            if values:
                if len(values) != width and most is None:
                    values = _fitted(values, width, f"{table.file.name}:{here}", table)
                rows.append((here, values))
            if most is not None and len(rows) == most:
                break
        else:
            return rows, n_lines, len(text.encode())
    except csv.Error as error:
        if is_last or not str(error).startswith("unexpected end of data"):
            why = f"broken CSV ({str(error).partition(' - ')[0]})"
            remedy = 'check the quotes of this row (a quote in a text is doubled: ""), or reading.format=tsv'
            raise DamagedData(f"{table.file.name}:{line + n_lines}", why, remedy) from error
    lines.seek(0)
    return rows, n_lines, len("".join(islice(lines, n_lines)).encode())


class DelimitedRows(ColumnRows):
    """The rows of a file with separators. They are kept as they are written, and each is made when it is read."""

    def __init__(self, table: TableFile, reached: Advance = lambda position: None) -> None:
        self._table = table
        self._blocks = [replace(block, rows=None) for block in _blocks(table, reached)]
        self._starts = [0, *accumulate(block.count for block in self._blocks)]
        self._opened = -1
        self._rows: list[Row] = []

    @property
    def names(self) -> tuple[str, ...]:
        return self._table.used_names

    def column(self, name: str) -> list[str]:
        index = self._table.names.index(name)
        return [value for block in self._blocks for value in block.column(self._table, index)]

    def __len__(self) -> int:
        return self._starts[-1]

    def __iter__(self) -> Iterator[Row]:
        for number in range(len(self._blocks)):
            yield from self._rows_of(number)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(index)
        number = bisect_right(self._starts, at) - 1
        if number != self._opened:
            self._rows = list(self._rows_of(number))
            self._opened = number
        return self._rows[at - self._starts[number]]

    def _rows_of(self, number: int) -> Iterator[Row]:
        """The rows of a block."""
        names = self.names
        subject = f"{self._table.file.name}:"
        for at, (line, values) in enumerate(self._blocks[number].values(self._table), start=self._starts[number]):
            yield Row(str(at), subject + str(line), dict(zip(names, values, strict=True)))


def _divides_single_quotes(values: Sequence[str]) -> bool:
    """Return whether a field begins with a single quote, and a later one ends with it."""
    opened = [at for at, value in enumerate(values) if value.strip().startswith("'")]
    return bool(opened) and any(value.strip().endswith("'") for value in values[opened[0] + 1 :])


def _fitted(values: list[str], width: int, where: str, table: TableFile) -> list[str]:
    """A row without surplus fields that are empty; any other row of another width is an error."""
    if len(values) > width and not any(value.strip() for value in values[width:]):
        return values[:width]
    what = "tab-separated fields" if table.delimiter == "\t" else "fields"
    against = "the header has" if table.header_lines else "the first row has"
    shown = SEPARATORS.get(table.delimiter, repr(table.delimiter))
    remedy = f"columns are separated by {shown}, another separator is named by reading.delimiter"
    if len(values) > width and table.quoted:
        remedy += "; a text with the separator in it needs double quotes"
    if len(values) > width and table.delimiter == "\t":
        remedy += f"; the first {width} columns alone: cut -f 1-{width} FILE > NEW"
    if table.quoted and (table.single_quotes or _divides_single_quotes(values)):
        remedy = 'single quotes do not enclose a field: write double quotes (") in their place'
    raise DamagedData(where, f"has {len(values)} {what} where {against} {width}", remedy)
