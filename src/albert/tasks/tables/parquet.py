"""Tables in Parquet; needs the library `pyarrow`."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from albert.runtime.errors import DamagedData, MissingInput, OutOfResources
from albert.runtime.progress import progress
from albert.tasks.rows import Row, Rows
from albert.tasks.tables.json_fields import fields_of

ROWS_AT_A_TIME = 1024
_DAMAGES = (OSError, ValueError, LookupError, TypeError, pa.ArrowException)
"""What pyarrow raises on a damaged file."""


def read_parquet(path: Path) -> Rows:
    """Every row of a Parquet file, lists as lists; rows are counted from 1 in messages.

    Raises:
        MissingInput: absent, not readable, or without rows.
        DamagedData: no Parquet file, or two columns of one name.
    """
    if not path.is_file():
        raise MissingInput(path, "No such file or directory")
    rows: list[Row] = []
    counts: Counter[str] = Counter()
    try:
        opened = pyarrow.parquet.ParquetFile(path)
        names = opened.schema_arrow.names
        if len(set(names)) != len(names):
            raise DamagedData(path, "two columns have the same name")
        with progress(f"Reading {path.name}", total=opened.metadata.num_rows, unit="rows") as bar:
            for batch in opened.iter_batches(ROWS_AT_A_TIME, use_threads=False):
                for values in batch.to_pylist():
                    where = f"{path}:{len(rows) + 1}"
                    rows.append(Row(str(len(rows)), where, fields_of(values, where, counts)))
                bar.advance(batch.num_rows)
    except MemoryError as error:
        raise OutOfResources(path, "asks for more memory than there is; it may be damaged") from error
    except _DAMAGES as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise MissingInput(path, error.strerror or "cannot be read") from error
        why = f"damaged Parquet file ({' '.join(str(error).split())[:200]})"
        raise DamagedData(path, why, "fetch or write it again") from error
    if not rows:
        raise MissingInput(path, "has no rows")
    return Rows(rows, {"rows": len(rows), **counts})
