"""Documents of Parquet files, group by group of rows and only the column of the text; needs the library `pyarrow`."""

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.parquet

from albert.text.readers.arrow_columns import DAMAGES, ROWS_AT_A_TIME, check_column, documents_of_column, explained
from albert.text.readers.corpus_files import CorpusFile
from albert.text.readers.reading import CorpusReport, Document, Reading
from albert.text.readers.unpacking import open_corpus_file


def read(
    file: CorpusFile, reading: Reading, report: CorpusReport, reached: Callable[[int], None]
) -> Iterator[Document]:
    """The documents of a Parquet file (see `albert.text.readers.reading.Reader`); null is no document."""
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
