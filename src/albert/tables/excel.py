"""Spreadsheets of Excel and LibreOffice (.xlsx, .xls, .ods): the first sheet with a table."""

import datetime
import io
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from albert.runtime.environment import lazy_import
from albert.runtime.errors import DamagedData, MissingInput
from albert.tables.files import Advance, InputFile, open_input_file
from albert.tables.records import Record
from albert.tables.table_file import BinaryFormat, Layout, TableFile

_BEGINNINGS = (b"PK", b"\xd0\xcf\x11\xe0")
"""Of .xlsx and .ods, which are zip archives, and of .xls."""
MAX_WHOLE = 1e15
"""Larger numbers are not written as whole ones."""


class Excel(BinaryFormat):
    """A spreadsheet, also of LibreOffice."""

    name: ClassVar[str] = "xlsx"
    about: ClassVar[str] = "Excel"
    endings: ClassVar[tuple[str, ...]] = (".xlsx", ".xlsm", ".xls", ".ods")

    def is_in(self, path: Path, beginning: bytes) -> bool:
        """A zip archive with a workbook; of other archives `zipfile` reads the table."""
        if not beginning.startswith(b"PK\x03\x04"):
            return False
        try:
            with zipfile.ZipFile(path) as archive:
                return "xl/workbook.xml" in archive.namelist()
        except zipfile.BadZipFile:
            return False

    def open(self, file: InputFile, layout: Layout) -> TableFile:
        return _open_excel(file, layout)

    def records(self, table: TableFile, reached: Advance, counts: Counter[str], class_names: bool) -> Iterator[Record]:
        return iter(table.rows or ())


def _cell_value(cell: Any) -> Any:
    """A cell as the table has it: None for an empty one, whole numbers without a fraction, dates with a time."""
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < MAX_WHOLE:
        return int(cell)
    if isinstance(cell, datetime.date) and not isinstance(cell, datetime.datetime):
        return datetime.datetime.combine(cell, datetime.time())
    return None if isinstance(cell, str) and not cell else cell


def _filled_rows(cells: Sequence[Sequence[Any]]) -> list[tuple[int, list[Any]]]:
    """The rows that are not empty, with their numbers from 1."""
    rows = []
    for number, row in enumerate(cells, start=1):
        values = [_cell_value(cell) for cell in row]
        if any(value is not None for value in values):
            rows.append((number, values))
    return rows


def _open_excel(file: InputFile, layout: Layout) -> TableFile:
    """The first sheet with a table."""
    library = lazy_import("python_calamine", "excel")
    with open_input_file(file) as (content, _):
        data = content.read()
        if not data.startswith(_BEGINNINGS):
            remedy = "name its format with reading.format, such as csv"
            raise DamagedData(file.name, "is not an Excel file, whatever its ending is", remedy)
        try:
            book = library.load_workbook(io.BytesIO(data))
            worksheet = library.SheetTypeEnum.WorkSheet
            sheets = [sheet.name for sheet in book.sheets_metadata if sheet.typ == worksheet]
            tables = {}
            chosen = sheets[0] if sheets else ""
            for name in sheets:
                filled = _filled_rows(book.get_sheet_by_name(name).to_python(skip_empty_area=False))
                tables[name] = filled
                is_table = len(filled) > 1 and any(sum(cell is not None for cell in row) > 1 for _, row in filled)
                if is_table:
                    chosen = name
                    break
        except library.CalamineError as error:
            raise DamagedData(file.name, f"damaged Excel file ({error})", "save it again, or as .csv") from error
    cells = tables.get(chosen, [])
    notes: tuple[str, ...] = ()
    if len(sheets) > 1:
        others = ", ".join(repr(other) for other in sheets if other != chosen)
        notes += (f"the sheet {chosen!r} is read, the first one with a table; not read: {others}",)
    if not cells:
        raise MissingInput(file.name, "has no rows")
    first = ["" if cell is None else str(cell).strip() for cell in cells[0][1]]
    if layout.columns is not None:
        names: list[str | None] = [*layout.columns, *[None] * (len(first) - len(layout.columns))]
    elif layout.no_header:
        names = [f"column {number}" for number in range(1, len(first) + 1)]
    else:
        names = [name or None for name in first]
        cells = cells[1:]
        clash = next((name for name, count in Counter(names).items() if name is not None and count > 1), None)
        if clash is not None:
            raise DamagedData(f"{file.name}:1", f"two columns have the same name, {clash!r}", "rename one of them")
    records = []
    for number, row in cells:
        fields = {name: cell for name, cell in zip(names, row, strict=False) if name is not None}
        records.append(Record(f"{file.name}:{number}", fields))
    return TableFile(file=file, format="xlsx", notes=notes, names=tuple(names), rows=tuple(records), header_lines=1)
