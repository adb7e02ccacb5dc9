"""Corpora in Arrow: Parquet files, data sets saved with `Dataset.save_to_disk`, and data sets of the Hub.

Needs `pyarrow`, and `datasets` for the Hub. Batches of rows are read, only the column of the text."""

from collections.abc import Iterator

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
from albert.runtime.errors import AlbertError, DamagedData, Unavailable, UsageError
from albert.tables.arrow import damage_refused, one_line, parquet_batches, saved_batches
from albert.tables.files import Advance, InputFile
from albert.tables.records import check_column
from albert.text.corpus import HUB
from albert.text.readers import NULL, CorpusReport, RawDocuments, Reading, decode

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


def read_parquet(file: InputFile, reading: Reading, report: CorpusReport, reached: Advance) -> RawDocuments:
    """Read a Parquet file (see `albert.text.readers.Reader`)."""
    row = 0
    for batch, parquet in parquet_batches(file, file.path, ROWS_AT_A_TIME, reading.text_field):
        reached(file.size * (row + batch.num_rows) // parquet.metadata.num_rows)
        yield from _values(batch.column(0), row + 1, file.path, reading, report)
        row += batch.num_rows


DATASET_FORMATS = ("arrow", "csv", "json", "parquet", "text")
"""Formats that are read; others hold no text, or would have to be unpickled."""


def read_hub_dataset(file: InputFile, reading: Reading, report: CorpusReport, reached: Advance) -> RawDocuments:
    """Read a data set of the Hub (see `albert.text.readers.Reader`)."""
    row = 0
    for column in _hub_batches(file, reading, report):
        yield from _values(column, row + 1, file.name, reading, report)
        row += len(column)
    reached(file.size)


def _hub_batches(file: InputFile, reading: Reading, report: CorpusReport) -> Iterator[pa.ChunkedArray]:
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
        why = f"damaged file of the data set ({one_line(error)})"
        raise DamagedData(file.name, why, "fetch or write it again") from error
    except (HFValidationError, ValueError) as error:
        remedy = "write hf://OWNER/NAME[/CONFIG][@REVISION]:SPLIT"
        raise UsageError(file.name, f"cannot be read ({one_line(error)})", remedy) from error
    except (HTTPError, OSError, LookupError, TypeError, AttributeError, MemoryError) as error:
        offline = constants.HF_HUB_OFFLINE
        why = "HF_HUB_OFFLINE is set" if offline else f"the Hub cannot be reached ({one_line(error)})"
        remedy = "download it (`hf download --repo-type dataset`) and name its files"
        raise Unavailable(file.name, why, remedy) from error


def read_saved_dataset(file: InputFile, reading: Reading, report: CorpusReport, reached: Advance) -> RawDocuments:
    """Read a saved data set (see `albert.text.readers.Reader`)."""
    row = 0
    for batch in saved_batches(file, reached, reading.text_field):
        with damage_refused(file.path, "Arrow file"):
            column = batch.column(0)
            column = column.view(pa.binary()) if pa.types.is_string(column.type) else column
            column.validate(full=True)
        yield from _values(column, row + 1, file.path, reading, report)
        row += len(column)
