"""Documents of a data set that `datasets` saved (`Dataset.save_to_disk`); needs the library `pyarrow`.

Its files are read as streams and checked: mapped into memory, as `datasets` has them, one that is cut short ends the
process.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.ipc

from albert.runtime.errors import AlbertError, DamagedData
from albert.runtime.input_files import open_input
from albert.runtime.strict_json import read_json_object
from albert.text.readers.arrow_columns import DAMAGES, check_column, documents_of_column, explained
from albert.text.readers.corpus_files import CorpusFile, size_and_time
from albert.text.readers.reading import CorpusReport, Document, Reading
from albert.text.readers.unpacking import changed

_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


def read(
    file: CorpusFile, reading: Reading, report: CorpusReport, reached: Callable[[int], None]
) -> Iterator[Document]:
    """The documents of a saved data set (see `albert.text.readers.reading.Reader`); null is no document."""
    row = behind = 0
    for part in _parts(file.path):
        for column, place in _batches(part, reading):
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


def _batches(part: Path, reading: Reading) -> Iterator[tuple[pa.Array, int]]:
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
