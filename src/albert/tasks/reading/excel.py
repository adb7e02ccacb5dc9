"""Excel: the first sheet with a table."""

import io
from collections import Counter

from albert.runtime.environment import lazy_import
from albert.runtime.errors import DamagedData, MissingInput
from albert.tasks.reading.table_file import Layout, TableFile
from albert.text.readers import (
    CorpusFile,
    Record,
    open_corpus_file,
)


def open_excel(file: CorpusFile, layout: Layout) -> TableFile:
    """The first sheet of an Excel file."""
    library = lazy_import("openpyxl", "excel")
    with open_corpus_file(file) as (content, _):
        data = content.read()
        if not data.startswith(b"PK"):
            remedy = "name its format with --format, such as csv; an .xls file: save it as .xlsx or .csv"
            raise DamagedData(file.name, "is not an .xlsx file, whatever its ending is", remedy)
        try:
            book = library.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
        except Exception as error:
            raise DamagedData(file.name, f"damaged Excel file ({error})", "save it again, or as .csv") from error
        sheets = book.sheetnames
        tables = {}
        chosen = sheets[0]
        for name in sheets:
            rows = [list(row) for row in book[name].iter_rows(values_only=True)]
            filled = [
                (number, row) for number, row in enumerate(rows, start=1) if any(cell is not None for cell in row)
            ]
            tables[name] = filled
            is_table = len(filled) > 1 and any(sum(cell is not None for cell in row) > 1 for _, row in filled)
            if is_table:
                chosen = name
                break
    cells = tables[chosen]
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
