"""The rows of a table whose columns have a separator, in blocks of whole rows; each row is made when it is read."""

import codecs
import csv
import io
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from typing import Any, overload

import numpy as np

from albert.runtime.errors import DamagedData
from albert.tables.files import COMPRESSIONS, Advance, open_input_file
from albert.tables.records import MAX_RECORD_LENGTH, Record
from albert.tables.table import ColumnRows, Row
from albert.tables.table_file import TableFile

csv.field_size_limit(2**31 - 1)  # rows have their own limit

SEPARATORS = {",": "','", ";": "';'", "\t": "a tab", "|": "'|'"}


def split_rows(text: Any, delimiter: str, quoted: bool, strict: bool = False) -> Iterator[list[str]]:
    """The rows of some lines, with or without quotes around fields; an empty line is an empty row."""
    if quoted:
        return csv.reader(text, delimiter=delimiter, strict=strict)
    lines = (line.removesuffix("\n").removesuffix("\r") for line in text)
    return (line.split(delimiter) if line else [] for line in lines)


def divides_single_quotes(values: Sequence[str]) -> bool:
    """Return whether a field begins with a single quote, and a later one ends with it."""
    opened = [at for at, value in enumerate(values) if value.strip().startswith("'")]
    return bool(opened) and any(value.strip().endswith("'") for value in values[opened[0] + 1 :])


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
            return enumerate(split_rows(lines, table.delimiter, True), start=self.line)
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
    reader: Any = split_rows(lines, table.delimiter, table.quoted, strict=True)
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
    if table.quoted and (table.single_quotes or divides_single_quotes(values)):
        remedy = 'single quotes do not enclose a field: write double quotes (") in their place'
    raise DamagedData(where, f"has {len(values)} {what} where {against} {width}", remedy)
