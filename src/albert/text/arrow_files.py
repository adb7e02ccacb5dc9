"""Arrow: Parquet files, read and written; data sets saved with `Dataset.save_to_disk`; data sets of the Hub.

Needs the library `pyarrow`; data sets of the Hub need `datasets`. Of a corpus only the column of the text is read, one
group of rows at a time. Of the Hub one commit is read: the one that the revision stands for when reading begins."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

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

from albert.runtime.environment import load_by_name
from albert.runtime.errors import AlbertError, DamagedData, MissingInput, OutOfResources, Unavailable, UsageError
from albert.runtime.json_files import read_json_object
from albert.runtime.manifest import open_input
from albert.text.corpus import HUB
from albert.text.readers import (
    CorpusFile,
    CorpusReport,
    Reading,
    Record,
    Values,
    changed,
    check_column,
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
DAMAGES = (OSError, ValueError, LookupError, TypeError, AttributeError, pa.ArrowException, MemoryError)
"""What libraries raise who open or read a damaged file."""


def _values(column: pa.Array | pa.ChunkedArray, first_row: int, path: object, reading: Reading) -> Values:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not any(is_text(kind) for is_text in TEXT_TYPES):
        why = f"column {reading.text_field!r} is {column.type}, text is expected"
        raise DamagedData(path, why, "name another with --text-field")
    for row, data in enumerate(column.cast(pa.large_binary()).to_pylist(), start=first_row):
        try:
            value = data if data is None else data.decode("utf-8")
        except UnicodeDecodeError:
            value = data
        yield f":{row}", value


def explained(error: Exception, path: object, kind: str) -> AlbertError:
    """What one of `DAMAGES` means: a damaged file, or a disk that cannot read it."""
    if isinstance(error, OSError) and error.errno is not None:
        return MissingInput(path, error.strerror or "cannot be read")
    if isinstance(error, MemoryError):
        return OutOfResources(path, "asks for more memory than there is; it may be damaged")
    return DamagedData(path, f"damaged {kind} ({' '.join(str(error).split())[:200]})", "fetch or write it again")


# --------------------------------------------------------------------------------------------------------------------
# Parquet files: one column of a corpus, or all columns of a table.


def read_parquet(file: CorpusFile, reading: Reading, report: CorpusReport, reached: Callable[[int], None]) -> Values:
    """The documents of a Parquet file (see `albert.text.readers.Reader`)."""
    row = 0
    for batch, opened in _parquet_batches(file, file.path, ROWS_AT_A_TIME, reading.text_field):
        reached(file.size * (row + batch.num_rows) // opened.metadata.num_rows)
        yield from _values(batch.column(0), row + 1, file.path, reading)
        row += batch.num_rows


def read_parquet_records(
    file: CorpusFile, class_names: bool, reached: Callable[[int], None]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every row, its values as Python has them; for the rest see `albert.text.readers.read_records`.

    The place is the number of the row, from 1. A class number of -1 means no class.
    """
    row = 0
    for batch, opened in _parquet_batches(file, file.name, RECORDS_AT_A_TIME):
        classes = _named_classes(opened.schema_arrow.metadata or {}) if class_names else {}
        for fields in batch.to_pylist():
            row += 1
            named = {name: _by_name(fields[name], classes[name]) for name in classes if name in fields}
            yield f"{file.name}:{row}", fields | named
        reached(file.size * row // opened.metadata.num_rows)


def _parquet_batches(
    file: CorpusFile, name: object, rows: int, column: str | None = None
) -> Iterator[tuple[pa.RecordBatch, Any]]:
    """Some rows at a time, of one column or of all, and the opened file."""
    with open_corpus_file(file) as (content, _):
        try:
            opened = pyarrow.parquet.ParquetFile(content)
            names = opened.schema_arrow.names
            if column is not None:
                check_column(name, names, column)
            elif len(set(names)) != len(names):
                raise DamagedData(name, "two columns have the same name")
            columns = None if column is None else [column]
            for batch in opened.iter_batches(rows, columns=columns, use_threads=False):
                yield batch, opened
        except DAMAGES as error:
            raise explained(error, name, "Parquet file") from error


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
    """A class, or a list of them, by name; what is no number of a class stays."""
    if isinstance(value, list):
        return [_by_name(item, names) for item in value]
    if value == -1:
        return None
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else value


FILES_OF_DATASETS = ("arrow", "csv", "json", "parquet", "text")
"""Files that are read; what is in others is no text, or would have to be unpickled."""


def read_hub_dataset(
    file: CorpusFile, reading: Reading, report: CorpusReport, reached: Callable[[int], None]
) -> Values:
    """The documents of a data set of the Hub (see `albert.text.readers.Reader`)."""
    row = 0
    for column in _hub_batches(file, reading, report):
        yield from _values(column, row + 1, file.name, reading)
        row += len(column)
    reached(file.size)


def _hub_batches(file: CorpusFile, reading: Reading, report: CorpusReport) -> Iterator[pa.ChunkedArray]:
    address = HUB.fullmatch(str(file.path))
    assert address is not None  # as the search has made sure
    try:
        commit = HfApi().dataset_info(address["id"], revision=address["revision"]).sha
        report.noted[f"data set read at commit {commit}: {file.name}"] += 1
        builder = load_by_name("datasets", "data").load_dataset_builder(
            address["id"], address["config"], revision=commit
        )
        form = type(builder).__module__.rpartition(".")[2]
        if form not in FILES_OF_DATASETS:
            raise UsageError(
                file.name, f"holds {form} files", f"those that are read are {', '.join(FILES_OF_DATASETS)}"
            )
        rows = builder.as_streaming_dataset(split=address["split"])
        columns = rows.column_names or list(next(iter(rows), {}))
        check_column(file.name, columns, reading.text_field)
        for table in rows.select_columns([reading.text_field]).with_format("arrow").iter(ROWS_AT_A_TIME):
            yield table.column(0)
    except AlbertError:
        raise
    except (HTTPError, HFValidationError, *DAMAGES) as error:
        raise _explained_by_hub(error, file.name) from error


def _explained_by_hub(error: Exception, name: str) -> AlbertError:
    said = " ".join(str(error).split())[:200]
    if isinstance(error, RepositoryNotFoundError | RevisionNotFoundError):
        return Unavailable(name, "no such public data set, or revision of it, on the Hub", "set HF_TOKEN for others")
    if isinstance(error, pa.ArrowException):
        return explained(error, name, "file of the data set")
    if isinstance(error, ValueError):
        return UsageError(name, f"cannot be read ({said})", "write hf://OWNER/NAME[/CONFIG][@REVISION]:SPLIT")
    why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else f"the Hub cannot be reached ({said})"
    return Unavailable(name, why, "download it (`hf download --repo-type dataset`) and name its files")


# --------------------------------------------------------------------------------------------------------------------
# Documents of a data set that `datasets` saved (`Dataset.save_to_disk`).
#
# Its files are read as streams and checked: mapped into memory, as `datasets` has them, one that is cut short ends
# the process.

_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


def read_saved_dataset(
    file: CorpusFile, reading: Reading, report: CorpusReport, reached: Callable[[int], None]
) -> Values:
    """The documents of a saved data set (see `albert.text.readers.Reader`)."""
    row = behind = 0
    for part in _parts(file.path):
        for column, place in _saved_batches(part, reading):
            reached(behind + place)
            yield from _values(column, row + 1, file.path, reading)
            row += len(column)
        behind += part.stat().st_size
    if size_and_time(file.path) != (file.size, file.modified):
        raise changed(file)


def _parts(folder: Path) -> list[Path]:
    state = read_json_object(folder / "state.json")
    try:
        names = [part["filename"] for part in state["_data_files"]]
        known = all(name == Path(name).name for name in names) and not state.get("_indices_data_files")
    except (LookupError, TypeError) as error:
        raise DamagedData(folder / "state.json", "does not name the files of a data set") from error
    if not known:
        raise DamagedData(folder / "state.json", "is not as `Dataset.save_to_disk` writes it", "save it again")
    return [folder / name for name in names]


def _saved_batches(part: Path, reading: Reading) -> Iterator[tuple[pa.Array, int]]:
    """Some rows of the column at a time, and how many bytes are behind them."""
    try:
        with open_input(part) as stream:
            # A file that is cut between two batches is one that the stream alone takes for whole.
            stream.seek(-min(len(_END_OF_STREAM), part.stat().st_size), 2)
            if stream.read() != _END_OF_STREAM:
                raise DamagedData(part, "damaged Arrow file (it ends too early)", "fetch or write it again")
            stream.seek(0)
            columns = pyarrow.ipc.open_stream(stream).schema.names
            check_column(part, columns, reading.text_field)
            stream.seek(0)
            only = pyarrow.ipc.IpcReadOptions(included_fields=[columns.index(reading.text_field)], use_threads=False)
            for batch in pyarrow.ipc.open_stream(stream, options=only):
                column = batch.column(0)
                column = column.view(pa.binary()) if pa.types.is_string(column.type) else column
                column.validate(full=True)
                yield column, stream.tell()
    except AlbertError:
        raise
    except DAMAGES as error:
        raise explained(error, part, "Arrow file") from error


# --------------------------------------------------------------------------------------------------------------------
# Parquet as output of predictions.

_CLASHES = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError)
_TYPES = {"text": pa.string(), "number": pa.float64(), "count": pa.int64()}


class Parquet:
    """Parquet as an `albert.inference.files.OutputFormat`: columns of one type each, the input's, then the answers'.

    A Parquet file is only valid with its footer, so rows are kept as Arrow streams, one for each batch, and the file is
    made of them at the end, with a row group for each."""

    beginning = b""

    def __init__(self, schema: pa.Schema, gives: Mapping[str, Any]) -> None:
        answers = [pa.field(name, arrow_type(value)) for name, value in gives.items()]
        self.schema = pa.schema([*schema, *answers])

    def encode(self, rows: Sequence[Mapping[str, Any]]) -> bytes:
        fields = [(field.type, [row.get(field.name) for row in rows]) for field in self.schema]
        columns = [
            pa.array(
                [each.tolist() if isinstance(each, np.ndarray) else each for each in values], kind, from_pandas=False
            )
            for kind, values in fields
        ]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.schema) as stream:
            stream.write_batch(pa.record_batch(columns, schema=self.schema))
        return sink.getvalue().to_pybytes()

    def finish(self, written: Path, output: Path) -> None:
        size = os.path.getsize(written)
        with open(written, "rb") as file, pyarrow.parquet.ParquetWriter(output, self.schema) as writer:
            while file.tell() < size:
                with pa.ipc.open_stream(file) as stream:
                    writer.write_table(stream.read_all())


def arrow_type(value: Any) -> pa.DataType:
    """The type of a column for what its fields hold."""
    if isinstance(value, str):
        return _TYPES[value]
    if isinstance(value, list):
        return pa.list_(pa.float32() if value == ["number"] else arrow_type(value[0]))
    return pa.struct([pa.field(name, arrow_type(inner)) for name, inner in value.items()])


def input_schema(file: CorpusFile, columns: Sequence[str]) -> pa.Schema:
    """The columns of an input that is not JSON: a Parquet file's own, text in all others."""
    if file.kind != "Parquet":
        return pa.schema([(name, pa.string()) for name in columns])
    with open_corpus_file(file) as (content, _):
        try:
            return pyarrow.parquet.ParquetFile(content).schema_arrow
        except DAMAGES as error:
            raise explained(error, file.name, "Parquet file") from error


class ColumnTypes:
    """The types of columns, as more and more rows of JSON show them."""

    def __init__(self) -> None:
        self.schema = pa.schema([])

    def add(self, records: Sequence[Record]) -> None:
        """See some rows.

        Raises:
            DamagedData: a field holds what the others of its column do not, a number among texts say.
        """
        try:
            self.schema = self._with(records)
        except _CLASHES:
            for record in records:  # which of them?
                try:
                    self.schema = self._with([record])
                except _CLASHES as error:
                    why = f"does not fit the columns of the rows before ({' '.join(str(error).split())[:120]})"
                    raise DamagedData(record.where, why, "write .jsonl") from error

    def _with(self, records: Sequence[Record]) -> pa.Schema:
        names = dict.fromkeys(name for record in records for name in record.fields)
        columns = [(name, pa.array([record.fields.get(name) for record in records]).type) for name in names]
        return pa.unify_schemas([self.schema, pa.schema(columns)], promote_options="permissive")
