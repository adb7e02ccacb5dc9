"""Arrow: the rows of Parquet files and of data sets that `datasets` saved; Parquet as the output of predictions.

Needs `pyarrow`. Rows are read in batches, of one column or of all."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_type_hints, is_typeddict

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from albert.runtime.errors import AlbertError, DamagedData, MissingInput, OutOfResources
from albert.runtime.json_files import read_json_object
from albert.runtime.manifest import open_input
from albert.tables.files import Advance, InputFile, check_unchanged, open_input_file, size_and_time
from albert.tables.records import Record, check_column

RECORDS_AT_A_TIME = 256


@contextmanager
def damage_refused(path: object, kind: str) -> Iterator[None]:
    """Translate what libraries raise: for a damaged file, a disk error, or too little memory."""
    try:
        yield
    except AlbertError:
        raise
    except (OSError, ValueError, LookupError, TypeError, AttributeError, pa.ArrowException, MemoryError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise MissingInput(path, error.strerror or "cannot be read") from error
        if isinstance(error, MemoryError):
            raise OutOfResources(path, "asks for more memory than there is; it may be damaged") from error
        raise DamagedData(
            path,
            f"damaged {kind} ({one_line(error)})",
            "fetch or write it again, or name its format with reading.format",
        ) from error


def one_line(error: Exception) -> str:
    """The beginning of an error of a library, on one line."""
    return " ".join(str(error).split())[:200]


def read_parquet_records(file: InputFile, class_names: bool, reached: Advance) -> Iterator[Record]:
    """Yield every row with Python values, by batches.

    Args:
        class_names: whether classes that `datasets` wrote as numbers are given by their names.
        reached: called with the position in the file in bytes.
    """
    row = 0
    for batch, parquet in parquet_batches(file, file.name, RECORDS_AT_A_TIME):
        with damage_refused(file.name, "Parquet file"):
            classes = _class_names(parquet.schema_arrow.metadata or {}) if class_names else {}
            rows = batch.to_pylist()
        for fields in rows:
            row += 1
            named = {name: _name_classes(fields[name], classes[name]) for name in classes if name in fields}
            yield Record(f"{file.name}:{row}", fields | named)
        reached(file.size * row // parquet.metadata.num_rows)


def parquet_batches(
    file: InputFile, name: object, rows: int, column: str | None = None
) -> Iterator[tuple[pa.RecordBatch, Any]]:
    """Yield batches of rows, of one column or of all, each with the opened file."""
    with open_input_file(file) as (content, _), damage_refused(name, "Parquet file"):
        parquet = pyarrow.parquet.ParquetFile(content)
        names = parquet.schema_arrow.names
        if column is not None:
            check_column(name, names, column)
        elif len(set(names)) != len(names):
            raise DamagedData(name, "two columns have the same name")
        columns = None if column is None else [column]
        for batch in parquet.iter_batches(rows, columns=columns, use_threads=False):
            yield batch, parquet


def _class_names(metadata: Mapping[bytes, bytes]) -> dict[str, list[str]]:
    """Return the names of classes by column, if `datasets` wrote the file."""
    try:
        features = json.loads(metadata.get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    except (ValueError, AttributeError):
        return {}  # written by another program
    names = {}
    for column, feature in features.items() if isinstance(features, dict) else ():
        inner = feature.get("feature", feature) if isinstance(feature, dict) else feature
        if isinstance(inner, dict) and inner.get("_type") == "ClassLabel" and isinstance(inner.get("names"), list):
            names[column] = [str(name) for name in inner["names"]]
    return names


def _name_classes(value: Any, names: list[str]) -> Any:
    """Replace the number of a class, or each in a list, by its name; None for -1; other values stay."""
    if isinstance(value, list):
        return [_name_classes(item, names) for item in value]
    if value == -1:
        return None
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else value


# ---- Data sets that `datasets` saved (`Dataset.save_to_disk`) ------------------------------------------------------
#
# Their files are read as streams: `datasets` maps them into memory, where a file that is cut short crashes the process.

_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


def read_saved_records(file: InputFile, class_names: bool, reached: Advance) -> Iterator[Record]:
    """Yield every row of a saved data set with Python values (see `read_parquet_records`)."""
    row = 0
    for batch in saved_batches(file, reached):
        with damage_refused(file.name, "saved data set"):
            batch.validate(full=True)
            classes = _class_names(batch.schema.metadata or {}) if class_names else {}
            rows = batch.to_pylist()
        for fields in rows:
            row += 1
            named = {name: _name_classes(fields[name], classes[name]) for name in classes if name in fields}
            yield Record(f"{file.name}:{row}", fields | named)


def _saved_files(file: InputFile) -> list[Path]:
    """The Arrow files of a saved data set."""
    state_path = file.path / "state.json"
    state = read_json_object(state_path)
    try:
        names = [part["filename"] for part in state["_data_files"]]
        is_valid = all(name == Path(name).name for name in names) and not state.get("_indices_data_files")
    except (LookupError, TypeError) as error:
        raise DamagedData(state_path, "does not name the files of a data set") from error
    if not is_valid:
        raise DamagedData(state_path, "is not as `Dataset.save_to_disk` writes it", "save it again")
    return [file.path / name for name in names]


def saved_batches(file: InputFile, reached: Advance, column: str | None = None) -> Iterator[pa.RecordBatch]:
    """Yield batches of rows, of one column or of all."""
    offset = 0
    for part in _saved_files(file):
        with damage_refused(part, "Arrow file"), open_input(part) as stream:
            # pyarrow does not notice that a file is cut between two batches
            stream.seek(-min(len(_END_OF_STREAM), part.stat().st_size), 2)
            if stream.read() != _END_OF_STREAM:
                raise DamagedData(part, "damaged Arrow file (it ends too early)", "fetch or write it again")
            stream.seek(0)
            fields = None
            if column is not None:
                columns = pyarrow.ipc.open_stream(stream).schema.names
                check_column(part, columns, column)
                fields = [columns.index(column)]
                stream.seek(0)
            options = pyarrow.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
            for batch in pyarrow.ipc.open_stream(stream, options=options):
                reached(offset + stream.tell())
                yield batch
            offset += part.stat().st_size
    check_unchanged(file, *size_and_time(file.path, file.name))


# ---- Parquet as output of predictions ------------------------------------------------------------------------------

_TYPE_ERRORS = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError)
_TYPES = {str: pa.string(), float: pa.float64(), int: pa.int64(), bool: pa.bool_()}


class Parquet:
    """Parquet, with the methods of `albert.inference.output_formats.OutputFormat`."""

    is_continued = False

    def __init__(self, schema: pa.Schema, gives: Mapping[str, Any]) -> None:
        answers = [pa.field(name, arrow_type(value)) for name, value in gives.items()]
        self.schema = pa.schema([*schema, *answers])
        for column in self.schema:
            try:
                pyarrow.parquet.ParquetWriter(pa.BufferOutputStream(), pa.schema([column])).close()
            except _TYPE_ERRORS as error:
                why = f"does not fit a Parquet column ({one_line(error)})"
                raise DamagedData(f"field {column.name!r}", why, "write .jsonl") from error

    def write(self, batches: Iterable[Sequence[Mapping[str, Any]]], output: Path) -> None:
        with pyarrow.parquet.ParquetWriter(output, self.schema) as writer:
            for rows in batches:
                columns = []
                for column in self.schema:
                    values = (row.get(column.name) for row in rows)
                    plain = [value.tolist() if isinstance(value, np.ndarray) else value for value in values]
                    columns.append(pa.array(plain, column.type, from_pandas=False))
                writer.write_table(pa.Table.from_batches([pa.record_batch(columns, schema=self.schema)]))


def arrow_type(kind: Any) -> pa.DataType:
    """Return the type of a column: of `str`, `float`, `int`, `bool`, a TypedDict or a dict of types, or a list of one.

    Lists of numbers, which may be long vectors, are float32.
    """
    if isinstance(kind, list):
        return pa.list_(pa.float32() if kind == [float] else arrow_type(kind[0]))
    if isinstance(kind, type) and kind in _TYPES:
        return _TYPES[kind]
    fields = get_type_hints(kind) if is_typeddict(kind) else kind
    return pa.struct([pa.field(name, arrow_type(inner)) for name, inner in fields.items()])


def input_schema(file: InputFile, columns: Sequence[str]) -> pa.Schema:
    """Return the schema of an input that is not JSON: of a Parquet file its own, else text."""
    if file.kind == "saved dataset":
        with open_input(_saved_files(file)[0]) as stream, damage_refused(file.name, "saved data set"):
            return pyarrow.ipc.open_stream(stream).schema
    if file.kind != "Parquet":
        return pa.schema([(name, pa.string()) for name in columns])
    with open_input_file(file) as (content, _), damage_refused(file.name, "Parquet file"):
        return pyarrow.parquet.ParquetFile(content).schema_arrow


class ColumnTypes:
    """The types of the columns of JSON, inferred from all rows."""

    def __init__(self) -> None:
        self.schema = pa.schema([])

    def add(self, records: Sequence[Record]) -> None:
        """Infer from more rows; raises DamagedData if the values of a column have no common type."""
        try:
            self.schema = self._unify(records)
        except _TYPE_ERRORS:
            for where, name, value in ((each.where, *pair) for each in records for pair in each.fields.items()):
                try:
                    self.schema = self._unify([Record(where, {name: value})])
                except _TYPE_ERRORS as error:
                    why = f"field {name!r} does not fit a Parquet column with the rows before ({one_line(error)})"
                    raise DamagedData(where, why, "write .jsonl") from error

    def _unify(self, records: Sequence[Record]) -> pa.Schema:
        names = dict.fromkeys(name for record in records for name in record.fields)
        columns = [(name, pa.array([record.fields.get(name) for record in records]).type) for name in names]
        return pa.unify_schemas([self.schema, pa.schema(columns)], promote_options="permissive")
