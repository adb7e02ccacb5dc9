"""Spreadsheets: .xlsx, .xls and .ods (through `albert.finetune`)."""

import datetime
import io
import json
import struct
import zipfile

import openpyxl
import pytest
from tests.tables.test_wild import MODEL, WORDS, read

import albert
from albert.cli.main import run
from albert.tasks.regression import Regression
from albert.tasks.single_label import SingleLabel

ROWS: list[tuple[str, str | int]] = [("text", "label"), *((text, n % 2) for n, text in enumerate(WORDS))]


def xlsx(*sheets: tuple[str, list]) -> bytes:
    """A workbook of these sheets."""
    book = openpyxl.Workbook()
    book.remove(book.worksheets[0])
    for name, rows in sheets:
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


ODF = "urn:oasis:names:tc:opendocument:xmlns"


def ods(rows: list) -> bytes:
    """The same as LibreOffice's format, with what a reader needs."""
    table = ""
    for row in rows:
        table += "<table:table-row>"
        for cell in row:
            if isinstance(cell, str):
                table += f'<table:table-cell office:value-type="string"><text:p>{cell}</text:p></table:table-cell>'
            else:
                table += f'<table:table-cell office:value-type="float" office:value="{cell}"/>'
        table += "</table:table-row>"
    names = " ".join(f'xmlns:{name}="{ODF}:{name}:1.0"' for name in ("office", "table", "text"))
    content = (
        f'<?xml version="1.0"?><office:document-content {names}><office:body><office:spreadsheet>'
        f'<table:table table:name="Rows">{table}</table:table>'
        "</office:spreadsheet></office:body></office:document-content>"
    )
    manifest = f'<?xml version="1.0"?><manifest:manifest xmlns:manifest="{ODF}:manifest:1.0"/>'
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr("META-INF/manifest.xml", manifest)
        archive.writestr("content.xml", content)
    return file.getvalue()


def xls(rows: list) -> bytes:
    """The same as Excel 97 wrote it: records of BIFF8 in the stream `Workbook` of an OLE file."""

    def record(kind: int, data: bytes) -> bytes:
        return struct.pack("<HH", kind, len(data)) + data

    def beginning(kind: int) -> bytes:
        return record(0x0809, struct.pack("<HHHHII", 0x0600, kind, 0, 1997, 0, 6))

    sheet = beginning(0x10)
    for at, row in enumerate(rows):
        for column, cell in enumerate(row):
            place = struct.pack("<HHH", at, column, 0)
            if isinstance(cell, str):
                sheet += record(0x0204, place + struct.pack("<HB", len(cell), 0) + cell.encode())
            else:
                sheet += record(0x0203, place + struct.pack("<d", cell))
    sheet += record(0x0A, b"")
    name = struct.pack("<BB", 4, 0) + b"Rows"
    size = len(beginning(5)) + len(record(0x85, bytes(6) + name)) + len(record(0x0A, b""))
    book = beginning(5) + record(0x85, struct.pack("<IBB", size, 0, 0) + name) + record(0x0A, b"")
    stream = (book + sheet).ljust(4096, b"\0")  # shorter streams are kept elsewhere
    free = 0xFFFFFFFF
    end = 0xFFFFFFFE
    sectors = [0xFFFFFFFD, end, *range(3, 10), end]
    fat = struct.pack("<128I", *sectors, *[free] * (128 - len(sectors)))
    header = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16)
    header += struct.pack("<HHHHH6x", 0x3E, 3, 0xFFFE, 9, 6)
    header += struct.pack("<IIIIIIIII", 0, 1, 1, 0, 4096, end, 0, end, 0)
    header += struct.pack("<109I", 0, *[free] * 108)
    folder = b""
    for title, kind, child, first, length in (("Root Entry", 5, 1, end, 0), ("Workbook", 2, free, 2, len(stream))):
        written = (title + "\0").encode("utf-16-le")
        folder += written.ljust(64, b"\0") + struct.pack("<HBBIII", len(written), kind, 1, free, free, child)
        folder += bytes(36) + struct.pack("<IQ", first, length)
    return header + fat + folder.ljust(512, b"\0") + stream


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.xlsx", xlsx(("Rows", ROWS), ("more", []))), ("a.xls", xls(ROWS)), ("a.ods", ods(ROWS))],
)
def test_a_spreadsheet_is_read(name, content, tmp_path):
    found = read(tmp_path, name, content).read
    assert found.task.target == SingleLabel(("0", "1"), "label")  # whole numbers
    rows = found.tables["train"].rows
    assert [row.fields["text"] for row in rows] == WORDS
    assert rows[0].where == f"{tmp_path / name}:2"
    assert any("not read: 'more'" in note for note in found.raw["train"].notes) == (name == "a.xlsx")


def test_the_first_sheet_with_a_table_is_read(tmp_path):
    content = xlsx(("About", [["These are our reviews"]]), ("Data", [*ROWS, *ROWS[1:]]))
    found = read(tmp_path, "book.xlsx", content).read
    assert len(found.tables["train"].rows) == 12
    assert any("'Data' is read" in note for note in found.raw["train"].notes)


def test_numbers_dates_and_empty_cells(tmp_path):
    day = datetime.datetime(2024, 1, 2)
    rows = [["text", "label", "when", "other"]]
    rows += [[f"text {n}", n / 2, day if n % 2 else day.replace(hour=3), None if n else True] for n in range(30)]
    found = read(tmp_path, "book.xlsx", xlsx(("Data", rows))).read
    assert found.task.target == Regression("label")
    first, second = found.tables["train"].rows[:2]
    assert dict(first.fields) == {"text": "text 0", "label": "0", "when": "2024-01-02 03:00:00", "other": "true"}
    assert dict(second.fields) == {"text": "text 1", "label": "0.5", "when": "2024-01-02 00:00:00"}
    assert second.nulls == ("other",)


def test_what_is_no_table_is_refused(tmp_path):
    with pytest.raises(albert.AlbertError, match="damaged Excel file"):
        read(tmp_path, "b.xlsx", b"PK no")
    with pytest.raises(albert.AlbertError, match="damaged Excel file"):
        read(tmp_path, "b.xls", xls(ROWS)[:700])
    with pytest.raises(albert.AlbertError, match="has no rows"):
        read(tmp_path, "c.xlsx", xlsx(("Empty", [])))
    with pytest.raises(albert.AlbertError, match="two columns have the same name"):
        read(tmp_path, "d.ods", ods([("text", "text"), ("a", 1)]))


def test_a_spreadsheet_is_answered(tmp_path):
    (tmp_path / "train.ods").write_bytes(ods(ROWS))
    files = {"train": tmp_path / "train.ods", "dev": tmp_path / "train.ods"}
    albert.finetune(**files, model=MODEL, output=tmp_path / "run", frozen=True, device="cpu")
    (tmp_path / "new.xls").write_bytes(xls(ROWS))
    output = tmp_path / "out.jsonl"
    command = ["predict", tmp_path / "run", "--input", tmp_path / "new.xls", "--output", output, "--device", "cpu"]
    assert run(list(map(str, command))) == 0
    answered = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["text"] for row in answered] == WORDS and {row["label"] for row in answered} == {0, 1}
