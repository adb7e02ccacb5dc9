"""Readers of Hugging Face data sets: streamed from the Hub (`datasets`), or saved with `save_to_disk` (`pyarrow`).

Of the Hub one commit is read: the one that the revision stands for when reading begins."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

import datasets
import pyarrow as pa
import pyarrow.ipc
from huggingface_hub import HfApi, constants
from huggingface_hub.errors import (
    HFValidationError,
    HTTPError,  # pyright: ignore[reportPrivateImportUsage] (httpx's, whichever httpx it is)
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from albert.runtime.errors import AlbertError, DamagedData, Unavailable, UsageError
from albert.runtime.input_files import open_input
from albert.runtime.json_files import read_json_object
from albert.text.parquet_reader import DAMAGES, ROWS_AT_A_TIME, check_column, documents_of_column, explained
from albert.text.readers import HUB, CorpusFile, CorpusReport, Document, Reading, changed, size_and_time

FORMATS = ("arrow", "csv", "json", "parquet", "text")
"""Files that are read; what is in others is no text, or would have to be unpickled."""


def read_hub_dataset(
    file: CorpusFile, reading: Reading, report: CorpusReport, reached: Callable[[int], None]
) -> Iterator[Document]:
    """The documents of a data set of the Hub (see `albert.text.readers.Reader`); null is no document."""
    row = 0
    for column in _batches(file, reading, report):
        yield from documents_of_column(column, row + 1, file.name, file.name, reading, report)
        row += len(column)
    reached(file.size)


def _batches(file: CorpusFile, reading: Reading, report: CorpusReport) -> Iterator[pa.ChunkedArray]:
    address = HUB.fullmatch(str(file.path))
    assert address is not None  # as the search has made sure
    try:
        commit = HfApi().dataset_info(address["id"], revision=address["revision"]).sha
        report.noted[f"data set read at commit {commit}: {file.name}"] += 1
        builder = datasets.load_dataset_builder(address["id"], address["config"], revision=commit)
        form = type(builder).__module__.rpartition(".")[2]
        if form not in FORMATS:
            raise UsageError(file.name, f"holds {form} files", f"those that are read are {', '.join(FORMATS)}")
        rows = cast(datasets.IterableDataset, builder.as_streaming_dataset(split=address["split"]))
        columns = rows.column_names or list(next(iter(rows), {}))
        check_column(file.name, columns, reading.text_field)
        for table in rows.select_columns([reading.text_field]).with_format("arrow").iter(ROWS_AT_A_TIME):
            yield cast(pa.Table, table).column(0)
    except AlbertError:
        raise
    except (HTTPError, HFValidationError, *DAMAGES) as error:
        raise _explained(error, file.name) from error


def _explained(error: Exception, name: str) -> AlbertError:
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
# Documents of a data set that `datasets` saved (`Dataset.save_to_disk`); needs the library `pyarrow`.
#
# Its files are read as streams and checked: mapped into memory, as `datasets` has them, one that is cut short ends
# the process.

_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


def read_saved_dataset(
    file: CorpusFile, reading: Reading, report: CorpusReport, reached: Callable[[int], None]
) -> Iterator[Document]:
    """The documents of a saved data set (see `albert.text.readers.Reader`); null is no document."""
    row = behind = 0
    for part in _parts(file.path):
        for column, place in _batches_of_saved_dataset(part, reading):
            reached(behind + place)
            yield from documents_of_column(column, row + 1, file.path, file.name, reading, report)
            row += len(column)
        behind += part.stat().st_size
    if size_and_time(file.path) != (file.size, file.modified):
        raise changed(file)


def _parts(folder: Path) -> list[Path]:
    """The files that `state.json` names."""
    state = read_json_object(folder / "state.json")
    try:
        names = [part["filename"] for part in state["_data_files"]]
        known = all(name == Path(name).name for name in names) and not state.get("_indices_data_files")
    except (LookupError, TypeError) as error:
        raise DamagedData(folder / "state.json", "does not name the files of a data set") from error
    if not known:
        raise DamagedData(folder / "state.json", "is not as `Dataset.save_to_disk` writes it", "save it again")
    return [folder / name for name in names]


def _batches_of_saved_dataset(part: Path, reading: Reading) -> Iterator[tuple[pa.Array, int]]:
    """Some rows of the column at a time, and how many bytes are behind them."""
    try:
        with open_input(part) as stream:
            _check_end(stream, part)
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


def _check_end(stream: BinaryIO, part: Path) -> None:
    """Refuse a file that is cut short, between two batches even, which the stream alone does not tell."""
    stream.seek(-min(len(_END_OF_STREAM), part.stat().st_size), 2)
    if stream.read() != _END_OF_STREAM:
        raise DamagedData(part, "damaged Arrow file (it ends too early)", "fetch or write it again")
    stream.seek(0)
