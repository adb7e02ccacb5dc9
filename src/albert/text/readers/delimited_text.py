"""Documents of tables in text: CSV with quotes (RFC 4180), and TSV without any, where a tab always ends a field.

A header names the columns; every row is a document.
"""

import csv
from collections.abc import Callable, Iterator
from io import BufferedIOBase

from albert.runtime.errors import DamagedData
from albert.text.readers.corpus_files import CorpusFile
from albert.text.readers.decoding import decode, decode_from_file, similar_name
from albert.text.readers.long_documents import documents_of
from albert.text.readers.reading import CorpusReport, Document, Reading
from albert.text.readers.unpacking import open_corpus_file

csv.field_size_limit(2**31 - 1)  # the length of rows is limited here

Rows = Iterator[tuple[int, list[bytes]]]


def read(
    file: CorpusFile, reading: Reading, report: CorpusReport, reached: Callable[[int], None]
) -> Iterator[Document]:
    """The documents of a table (see `albert.text.readers.reading.Reader`)."""
    with open_corpus_file(file) as (content, raw):
        rows = (quoted_rows if file.kind == "CSV" else unquoted_rows)(content, file, reading.max_record_bytes)
        columns = column = 0
        for line, fields in rows:
            place = f"{file.path}:{line}"
            if not columns:
                columns, column = len(fields), _column(fields, file, place, reading.text_field)
                continue
            if len(fields) != columns:
                raise DamagedData(place, f"has {len(fields)} fields where the header has {columns}")
            text = decode(fields[column], place, 0, reading, report)
            if text is not None:
                yield from documents_of(text, f"{file.name}:{line}", reading, report)
            reached(raw.tell())


def _column(header: list[bytes], file: CorpusFile, place: str, name: str) -> int:
    strictly = Reading(), CorpusReport()
    first, *others = header
    names = [
        decode_from_file(first, file.path, 0, *strictly),
        *(decode(other, place, 0, *strictly) for other in others),
    ]
    if names.count(name) == 1:
        return names.index(name)
    if name in names:
        raise DamagedData(place, f"two columns are named {name!r}")
    raise DamagedData(place, f"has no column {name!r}", similar_name(name, names))


def quoted_rows(content: BufferedIOBase, file: CorpusFile, limit: int) -> Rows:
    """Rows of CSV, each with the line it begins on."""
    line, size = 1, 0

    def lines() -> Iterator[str]:
        nonlocal size
        for data in iter(lambda: content.readline(limit + 1), b""):
            first, size = size == 0 and line == 1, size + len(data)
            if size > limit:
                why = f"has a row longer than {limit / 1e6:,.0f} MB"
                raise DamagedData(f"{file.path}:{line}", why, "look for a quote that nothing closes")
            data = data.removeprefix(b"\xef\xbb\xbf") if first else data
            yield data.decode("latin-1")  # a character for a byte: quotes and commas are the same in UTF-8

    reader = csv.reader(lines(), strict=True)
    try:
        for fields in reader:
            if fields:  # an empty line is no row
                yield line, [field.encode("latin-1") for field in fields]
            line, size = reader.line_num + 1, 0
    except csv.Error as error:
        raise DamagedData(
            f"{file.path}:{line}", f"broken CSV ({str(error).partition(' - ')[0]})", "check the quotes of this row"
        ) from error


def unquoted_rows(content: BufferedIOBase, file: CorpusFile, limit: int) -> Rows:
    """Rows of TSV, each with its line."""
    for line, data in enumerate(iter(lambda: content.readline(limit + 1), b""), start=1):
        if len(data) > limit:
            raise DamagedData(f"{file.path}:{line}", f"is longer than {limit / 1e6:,.0f} MB")
        if data := data.removesuffix(b"\n").removesuffix(b"\r"):
            yield line, data.split(b"\t")
