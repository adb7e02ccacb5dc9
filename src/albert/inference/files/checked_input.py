"""A file is looked through before anything is predicted: its last row may be a bad one, and hours come before it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from albert.inference.files.asked_fields import Fields, Inputs
from albert.inference.files.asking import Value
from albert.inference.files.records import Record, read_records
from albert.runtime.errors import DamagedData, MissingInput
from albert.runtime.late_modules import load_by_name
from albert.runtime.manifests import file_hash
from albert.runtime.progress import progress
from albert.text.readers.corpus_files import CorpusFile

BATCH_ROWS = 256
BATCH_CHARACTERS = 1_000_000
_TYPED = "albert.inference.files.parquet_output"


@dataclass(frozen=True)
class CheckedInput:
    """What is known of a file that can be predicted on.

    Attributes:
        rows: how many there are.
        columns: the names of their fields, in the order in which they first come.
        schema: the types of these, for Parquet; None where nobody asked.
        sha256: of the file.
    """

    rows: int
    columns: tuple[str, ...]
    schema: Any
    sha256: str


def check_input(
    file: CorpusFile,
    inputs: Callable[[Record, Fields], Inputs],
    fields: Fields,
    gives: Mapping[str, Value],
    typed: bool,
) -> CheckedInput:
    """Read every row once.

    Args:
        file: the input.
        inputs: takes from a row what is asked about.
        fields: how its fields are called.
        gives: the fields of an answer, under their names in the output.
        typed: whether the columns' types are needed.

    Raises:
        MissingInput: there are no rows.
        DamagedData: a row cannot be read, lacks what is asked about, or has a field of the answer's name; with its
            place.
    """
    columns: dict[str, None] = {}
    types = _types_of(file, typed)
    rows = 0
    with progress("Checking the input", total=None, unit="rows") as bar:
        for batch in batches_of(read_records(file, fields.text)):
            for record in batch:
                columns.update(dict.fromkeys(record.fields))
                inputs(record, fields)
                _refuse_answered(record, gives)
            if types is not None:
                types.add(batch)
            rows += len(batch)
            bar.advance(len(batch))
    if not rows:
        raise MissingInput(file.name, "holds no rows")
    schema = None
    if typed:
        known = load_by_name(_TYPED, "data")
        schema = known.input_schema(file, tuple(columns)) if types is None else types.schema
    return CheckedInput(rows, tuple(columns), schema, file_hash(file.path))


def batches_of(records: Iterator[Record]) -> Iterator[list[Record]]:
    """Rows that are predicted together: 256 of them, or fewer long ones. Where one ends the rows alone decide."""
    batch: list[Record] = []
    characters = 0
    for record in records:
        batch.append(record)
        characters += sum(len(value) for value in record.fields.values() if isinstance(value, str))
        if len(batch) == BATCH_ROWS or characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _types_of(file: CorpusFile, typed: bool) -> Any:
    """Collects the types of JSON's columns; the other kinds of files say theirs."""
    return load_by_name(_TYPED, "data").ColumnTypes() if typed and file.kind == "JSON lines" else None


def _refuse_answered(record: Record, gives: Mapping[str, Value]) -> None:
    for name in gives:
        if name in record.fields:
            raise DamagedData(record.where, f"has a field {name!r} already", "--prefix calls the answers' otherwise")
