"""Parquet as output of predictions; needs the library `pyarrow`.

A Parquet file is only valid with its footer, so rows are kept as Arrow streams, one for each batch, and the file is
made of them at the end, with a row group for each."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from albert.inference.abilities import Value
from albert.inference.files import OutputFormat
from albert.runtime.errors import DamagedData
from albert.text.arrow_readers import DAMAGES, explained
from albert.text.readers import CorpusFile, Record, open_corpus_file

_CLASHES = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError)
_TYPES = {"text": pa.string(), "number": pa.float64(), "count": pa.int64()}


class Parquet(OutputFormat):
    """Columns with one type each: those of the input, then those of the answers."""

    def __init__(self, schema: pa.Schema, gives: Mapping[str, Value]) -> None:
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
        """Every stream becomes a group of rows."""
        size = os.path.getsize(written)
        with open(written, "rb") as file, pyarrow.parquet.ParquetWriter(output, self.schema) as writer:
            while file.tell() < size:
                with pa.ipc.open_stream(file) as stream:
                    writer.write_table(stream.read_all())


def arrow_type(value: Value) -> pa.DataType:
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
