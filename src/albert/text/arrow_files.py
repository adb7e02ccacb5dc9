"""Arrow: Parquet files, read and written; data sets saved with `Dataset.save_to_disk`; data sets of the Hub.

Needs `pyarrow`, and `datasets` for the Hub. A corpus is read in batches of rows, only the column of the text."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_type_hints, is_typeddict

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
from huggingface_hub import HfApi, constants
from huggingface_hub.errors import (
    HFValidationError,
    HTTPError,  # pyright: ignore[reportPrivateImportUsage] (httpx's, whichever httpx it is)
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from albert.runtime.environment import lazy_import
from albert.runtime.errors import AlbertError, DamagedData, MissingInput, OutOfResources, Unavailable, UsageError
from albert.runtime.json_files import read_json_object
from albert.runtime.manifest import open_input
from albert.text.corpus import HUB
from albert.text.readers import (
    NULL,
    Advance,
    CorpusFile,
    CorpusReport,
    RawDocuments,
    Reading,
    Record,
    check_column,
    check_unchanged,
    decode,
    open_corpus_file,
    size_and_time,
)

ROWS_AT_A_TIME = 1024
RECORDS_AT_A_TIME = 256
TEXT_TYPES = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_null,
)


def _values(
    column: pa.Array | pa.ChunkedArray, first_row: int, path: object, reading: Reading, report: CorpusReport
) -> RawDocuments:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not any(is_text(kind) for is_text in TEXT_TYPES):
        why = f"column {reading.text_field!r} is {column.type}, text is expected"
        raise DamagedData(path, why, "name another with --text-field")
    for row, data in enumerate(column.cast(pa.large_binary()).to_pylist(), start=first_row):
        if data is None:
            report.drop(NULL, 0)
            continue
        try:
            yield data.decode("utf-8")
        except UnicodeDecodeError:
            yield decode(data, f"{path}:{row}", reading, report)


@contextmanager
def _damage_refused(path: object, kind: str) -> Iterator[None]:
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
            path, f"damaged {kind} ({_one_line(error)})", "fetch or write it again, or name its format with --format"
        ) from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


# ---- Parquet files: one column for a corpus, all columns for a table -----------------------------------------------


def read_parquet(file: CorpusFile, reading: Reading, report: CorpusReport, reached: Advance) -> RawDocuments:
    """Read a Parquet file (see `albert.text.readers.Reader`)."""
    row = 0
    for batch, parquet in _parquet_batches(file, file.path, ROWS_AT_A_TIME, reading.text_field):
        reached(file.size * (row + batch.num_rows) // parquet.metadata.num_rows)
        yield from _values(batch.column(0), row + 1, file.path, reading, report)
        row += batch.num_rows


def read_parquet_records(file: CorpusFile, class_names: bool, reached: Advance) -> Iterator[Record]:
    """Yield every row with Python values (see `albert.text.readers.read_records`)."""
    row = 0
    for batch, parquet in _parquet_batches(file, file.name, RECORDS_AT_A_TIME):
        classes = _class_names(parquet.schema_arrow.metadata or {}) if class_names else {}
        for fields in batch.to_pylist():
            row += 1
            named = {name: _name_classes(fields[name], classes[name]) for name in classes if name in fields}
            yield Record(f"{file.name}:{row}", fields | named)
        reached(file.size * row // parquet.metadata.num_rows)


def _parquet_batches(
    file: CorpusFile, name: object, rows: int, column: str | None = None
) -> Iterator[tuple[pa.RecordBatch, Any]]:
    """Yield batches of rows, of one column or of all, each with the opened file."""
    with open_corpus_file(file) as (content, _), _damage_refused(name, "Parquet file"):
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


DATASET_FORMATS = ("arrow", "csv", "json", "parquet", "text")
"""Formats that are read; others hold no text, or would have to be unpickled."""


def read_hub_dataset(file: CorpusFile, reading: Reading, report: CorpusReport, reached: Advance) -> RawDocuments:
    """Read a data set of the Hub (see `albert.text.readers.Reader`)."""
    row = 0
    for column in _hub_batches(file, reading, report):
        yield from _values(column, row + 1, file.name, reading, report)
        row += len(column)
    reached(file.size)


def _hub_batches(file: CorpusFile, reading: Reading, report: CorpusReport) -> Iterator[pa.ChunkedArray]:
    address = HUB.fullmatch(str(file.path))
    assert address is not None  # `find_corpus_files` has checked it
    try:  # the commit that the revision stands for now, even if it moves while it is read
        commit = HfApi().dataset_info(address["id"], revision=address["revision"]).sha
        report.noted[f"data set read at commit {commit}: {file.name}"] += 1
        builder = lazy_import("datasets", "data").load_dataset_builder(
            address["id"], address["config"], revision=commit
        )
        kind = type(builder).__module__.rpartition(".")[2]
        if kind not in DATASET_FORMATS:
            remedy = f"the formats that are read are {', '.join(DATASET_FORMATS)}"
            raise UsageError(file.name, f"holds {kind} files", remedy)
        rows = builder.as_streaming_dataset(split=address["split"])
        columns = rows.column_names or list(next(iter(rows), {}))
        check_column(file.name, columns, reading.text_field)
        for table in rows.select_columns([reading.text_field]).with_format("arrow").iter(ROWS_AT_A_TIME):
            yield table.column(0)
    except AlbertError:
        raise
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        why = "no such public data set, or revision of it, on the Hub"
        raise Unavailable(file.name, why, "set HF_TOKEN for others") from error
    except pa.ArrowException as error:
        why = f"damaged file of the data set ({_one_line(error)})"
        raise DamagedData(file.name, why, "fetch or write it again") from error
    except (HFValidationError, ValueError) as error:
        remedy = "write hf://OWNER/NAME[/CONFIG][@REVISION]:SPLIT"
        raise UsageError(file.name, f"cannot be read ({_one_line(error)})", remedy) from error
    except (HTTPError, OSError, LookupError, TypeError, AttributeError, MemoryError) as error:
        offline = constants.HF_HUB_OFFLINE
        why = "HF_HUB_OFFLINE is set" if offline else f"the Hub cannot be reached ({_one_line(error)})"
        remedy = "download it (`hf download --repo-type dataset`) and name its files"
        raise Unavailable(file.name, why, remedy) from error


# --------------------------------------------------------------------------------------------------------------------
# Data sets that `datasets` saved (`Dataset.save_to_disk`).
#
# Their files are read as streams: `datasets` maps them into memory, where a file that is cut short crashes the process.

_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


def read_saved_dataset(file: CorpusFile, reading: Reading, report: CorpusReport, reached: Advance) -> RawDocuments:
    """Read a saved data set (see `albert.text.readers.Reader`)."""
    row = 0
    for batch in _saved_batches(file, reached, reading.text_field):
        with _damage_refused(file.path, "Arrow file"):
            column = batch.column(0)
            column = column.view(pa.binary()) if pa.types.is_string(column.type) else column
            column.validate(full=True)
        yield from _values(column, row + 1, file.path, reading, report)
        row += len(column)


def read_saved_records(file: CorpusFile, class_names: bool, reached: Advance) -> Iterator[Record]:
    """Yield every row of a saved data set with Python values (see `albert.text.readers.read_records`)."""
    row = 0
    for batch in _saved_batches(file, reached):
        with _damage_refused(file.name, "saved data set"):
            batch.validate(full=True)
            classes = _class_names(batch.schema.metadata or {}) if class_names else {}
            rows = batch.to_pylist()
        for fields in rows:
            row += 1
            named = {name: _name_classes(fields[name], classes[name]) for name in classes if name in fields}
            yield Record(f"{file.name}:{row}", fields | named)


def _saved_files(file: CorpusFile) -> list[Path]:
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


def _saved_batches(file: CorpusFile, reached: Advance, column: str | None = None) -> Iterator[pa.RecordBatch]:
    """Yield batches of rows, of one column or of all."""
    offset = 0
    for part in _saved_files(file):
        with _damage_refused(part, "Arrow file"), open_input(part) as stream:
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
_TYPES = {str: pa.string(), float: pa.float64(), int: pa.int64()}


class Parquet:
    """Parquet as an `albert.inference.files.OutputFormat`: the columns of the input, then those of the answers."""

    is_continued = False

    def __init__(self, schema: pa.Schema, gives: Mapping[str, Any]) -> None:
        answers = [pa.field(name, arrow_type(value)) for name, value in gives.items()]
        self.schema = pa.schema([*schema, *answers])
        for column in self.schema:
            try:
                pyarrow.parquet.ParquetWriter(pa.BufferOutputStream(), pa.schema([column])).close()
            except _TYPE_ERRORS as error:
                why = f"does not fit a Parquet column ({_one_line(error)})"
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
    """Return the type of a column: of `str`, `float`, `int`, a TypedDict or a dict of types, or a list of one of these.

    Lists of numbers, which may be long vectors, are float32.
    """
    if isinstance(kind, list):
        return pa.list_(pa.float32() if kind == [float] else arrow_type(kind[0]))
    if isinstance(kind, type) and kind in _TYPES:
        return _TYPES[kind]
    fields = get_type_hints(kind) if is_typeddict(kind) else kind
    return pa.struct([pa.field(name, arrow_type(inner)) for name, inner in fields.items()])


def input_schema(file: CorpusFile, columns: Sequence[str]) -> pa.Schema:
    """Return the schema of an input that is not JSON: of a Parquet file its own, else text."""
    if file.kind == "saved dataset":
        with open_input(_saved_files(file)[0]) as stream, _damage_refused(file.name, "saved data set"):
            return pyarrow.ipc.open_stream(stream).schema
    if file.kind != "Parquet":
        return pa.schema([(name, pa.string()) for name in columns])
    with open_corpus_file(file) as (content, _), _damage_refused(file.name, "Parquet file"):
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
                    why = f"field {name!r} does not fit a Parquet column with the rows before ({_one_line(error)})"
                    raise DamagedData(where, why, "write .jsonl") from error

    def _unify(self, records: Sequence[Record]) -> pa.Schema:
        names = dict.fromkeys(name for record in records for name in record.fields)
        columns = [(name, pa.array([record.fields.get(name) for record in records]).type) for name in names]
        return pa.unify_schemas([self.schema, pa.schema(columns)], promote_options="permissive")
