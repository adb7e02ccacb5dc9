"""Reader of Parquet files, and the reading of Arrow text columns in general; needs the library `pyarrow`.

Only the column of the text is read, one group of rows at a time."""

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet

from albert.runtime.errors import AlbertError, DamagedData, MissingInput, OutOfResources
from albert.text.readers import (
    NULL,
    CorpusFile,
    CorpusReport,
    Document,
    Reading,
    decode,
    open_corpus_file,
    similar_name,
)
from albert.text.text_readers import documents_of

# --------------------------------------------------------------------------------------------------------------------
# Documents of a column in Arrow's memory, as Parquet files and `datasets` give it; needs the library `pyarrow`.

ROWS_AT_A_TIME = 1024
TEXT_TYPES = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_null,
)
DAMAGES = (OSError, ValueError, LookupError, TypeError, AttributeError, pa.ArrowException, MemoryError)
"""What libraries raise who open or read a damaged file."""


def check_column(source: object, columns: Sequence[str], name: str) -> None:
    """Refuse a table without the column of the text, or with two of that name.

    Raises:
        DamagedData: no column, or several.
    """
    if columns.count(name) > 1:
        raise DamagedData(source, f"two columns are named {name!r}")
    if name not in columns:
        raise DamagedData(source, f"has no column {name!r}", similar_name(name, columns))


def documents_of_column(
    column: pa.Array | pa.ChunkedArray, first_row: int, path: object, name: str, reading: Reading, report: CorpusReport
) -> Iterator[Document]:
    """The documents of some rows.

    Args:
        column: text, or bytes that may be.
        first_row: the number of the first of them, from 1.
        path, name: what the source is called in errors, and in records.
        reading, report: as everywhere.

    Raises:
        DamagedData: the column is of another type; a text is not UTF-8, with its row.
    """
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not any(is_text(kind) for is_text in TEXT_TYPES):
        why = f"column {reading.text_field!r} is {column.type}, text is expected"
        raise DamagedData(path, why, "name another with --text-field")
    for row, data in enumerate(column.cast(pa.large_binary()).to_pylist(), start=first_row):
        if data is None:
            report.drop(NULL, 0)
            continue
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            text = decode(data, f"{path}:{row}", 0, reading, report)
        if text is not None:
            yield from documents_of(text, f"{name}:{row}", reading, report)


def explained(error: Exception, path: object, kind: str) -> AlbertError:
    """What one of `DAMAGES` means: a damaged file, or a disk that cannot read it."""
    if isinstance(error, OSError) and error.errno is not None:
        return MissingInput(path, error.strerror or "cannot be read")
    if isinstance(error, MemoryError):
        return OutOfResources(path, "asks for more memory than there is; it may be damaged")
    return DamagedData(path, f"damaged {kind} ({' '.join(str(error).split())[:200]})", "fetch or write it again")


def read(
    file: CorpusFile, reading: Reading, report: CorpusReport, reached: Callable[[int], None]
) -> Iterator[Document]:
    """The documents of a Parquet file (see `albert.text.readers.Reader`); null is no document."""
    row = 0
    with open_corpus_file(file) as (content, _):
        for column, rows in _batches(content, file, reading):
            reached(file.size * (row + len(column)) // rows)
            yield from documents_of_column(column, row + 1, file.path, file.name, reading, report)
            row += len(column)


def _batches(content: object, file: CorpusFile, reading: Reading) -> Iterator[tuple[pa.Array, int]]:
    """Some rows of the column at a time, and how many rows there are."""
    try:
        opened = pyarrow.parquet.ParquetFile(content)
        check_column(file.path, opened.schema_arrow.names, reading.text_field)
        column = [reading.text_field]
        for batch in opened.iter_batches(ROWS_AT_A_TIME, columns=column, use_threads=False):
            yield batch.column(0), opened.metadata.num_rows
    except DAMAGES as error:
        raise explained(error, file.path, "Parquet file") from error
