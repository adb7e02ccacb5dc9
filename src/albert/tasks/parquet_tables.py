"""Tables in Parquet; needs the library `pyarrow`.

Columns that the library `datasets` wrote as numbers of named classes are read by these names; -1 is no class.
"""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from albert.runtime.errors import DamagedData, MissingInput, OutOfResources
from albert.runtime.input_files import open_input
from albert.runtime.progress import progress
from albert.tasks.table_files import fields_of
from albert.tasks.task import Row, Rows

ROWS_AT_A_TIME = 1024
_DAMAGES = (OSError, ValueError, LookupError, TypeError, pa.ArrowException)
"""What pyarrow raises on a damaged file."""


def read_parquet(path: Path) -> Rows:
    """Every row of a Parquet file, lists as lists; rows are counted from 1 in messages.

    Raises:
        MissingInput: absent, not readable, or without rows.
        DamagedData: no Parquet file, or two columns of one name.
    """
    rows: list[Row] = []
    counts: Counter[str] = Counter()
    open_input(path).close()  # refuses what is absent or a pipe
    try:
        opened = pyarrow.parquet.ParquetFile(path)
        names = opened.schema_arrow.names
        if len(set(names)) != len(names):
            raise DamagedData(path, "two columns have the same name")
        classes = _named_classes(opened.schema_arrow.metadata or {})
        with progress(f"Reading {path.name}", total=opened.metadata.num_rows, unit="rows") as bar:
            for batch in opened.iter_batches(ROWS_AT_A_TIME, use_threads=False):
                for values in batch.to_pylist():
                    where = f"{path}:{len(rows) + 1}"
                    named = values | {name: _by_name(values[name], classes[name]) for name in classes if name in values}
                    rows.append(Row(str(len(rows)), where, fields_of(named, where, counts)))
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


def _named_classes(metadata: Mapping[bytes, bytes]) -> dict[str, list[str]]:
    """The names of classes by column, where `datasets` kept them."""
    try:
        features = json.loads(metadata.get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    except (ValueError, AttributeError):
        return {}  # the note of another program
    found = {}
    for column, feature in features.items() if isinstance(features, dict) else ():
        inner = feature.get("feature", feature) if isinstance(feature, dict) else feature
        if isinstance(inner, dict) and inner.get("_type") == "ClassLabel" and isinstance(inner.get("names"), list):
            found[column] = [str(name) for name in inner["names"]]
    return found


def _by_name(value: Any, names: list[str]) -> Any:
    """A class, or a list of them, by name; what is no number of a class stays, and -1 is none."""
    if isinstance(value, list):
        return [_by_name(item, names) for item in value]
    if value == -1:
        return None
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else value
