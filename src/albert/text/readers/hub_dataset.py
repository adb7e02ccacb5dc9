"""Documents of a data set of the Hugging Face Hub, streamed; needs the library `datasets`.

What is read is one commit: the one that the revision stands for when reading begins.
"""

from collections.abc import Callable, Iterator
from typing import cast

import datasets
import pyarrow as pa
from huggingface_hub import HfApi, constants
from huggingface_hub.errors import (
    HFValidationError,
    HTTPError,  # pyright: ignore[reportPrivateImportUsage] (httpx's, whichever httpx it is)
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from albert.runtime.errors import AlbertError, Unavailable, UsageError
from albert.text.readers.arrow_columns import DAMAGES, ROWS_AT_A_TIME, check_column, documents_of_column, explained
from albert.text.readers.corpus_files import HUB, CorpusFile
from albert.text.readers.reading import CorpusReport, Document, Reading

FORMATS = ("arrow", "csv", "json", "parquet", "text")
"""Files that are read; what is in others is no text, or would have to be unpickled."""


def read(
    file: CorpusFile, reading: Reading, report: CorpusReport, reached: Callable[[int], None]
) -> Iterator[Document]:
    """The documents of a data set of the Hub (see `albert.text.readers.reading.Reader`); null is no document."""
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
