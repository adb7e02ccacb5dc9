"""Rows of a Parquet file, group by group; needs the library `pyarrow`."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet

from albert.inference.files.records import Record
from albert.runtime.errors import DamagedData
from albert.text.readers.arrow_columns import DAMAGES, explained
from albert.text.readers.corpus_files import CorpusFile
from albert.text.readers.unpacking import open_corpus_file

ROWS_AT_A_TIME = 256


def read_parquet(file: CorpusFile) -> Iterator[Record]:
    """Every row, its values as Python has them; the place is the number of the row, from 1.

    Raises:
        MissingInput, DamagedData: it cannot be read, or is no whole Parquet file.
    """
    row = 0
    with open_corpus_file(file) as (content, _):
        try:
            opened = pyarrow.parquet.ParquetFile(content)
            names = opened.schema_arrow.names
            if len(set(names)) != len(names):
                raise DamagedData(file.name, "two columns have the same name")
            for batch in opened.iter_batches(ROWS_AT_A_TIME, use_threads=False):
                for fields in batch.to_pylist():
                    row += 1
                    yield Record(f"{file.name}:{row}", fields)
        except DAMAGES as error:
            raise explained(error, file.name, "Parquet file") from error


def parquet_schema(file: CorpusFile) -> pa.Schema:
    """The columns of a Parquet file."""
    with open_corpus_file(file) as (content, _):
        try:
            return pyarrow.parquet.ParquetFile(content).schema_arrow
        except DAMAGES as error:
            raise explained(error, file.name, "Parquet file") from error
