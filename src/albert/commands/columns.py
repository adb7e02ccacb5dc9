"""The options and keys of the user's tables, which several commands have."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Literal, TypeVar, cast

from albert.cli.signature import option_name
from albert.runtime.errors import UsageError
from albert.runtime.json_files import common_fields
from albert.tables.formats import Format
from albert.tasks.table_task import OptionLabels, TableTask, read_label_names

LabelKind = Literal["classification", "number", "multi-label"]
"""What may be learned from a column of labels."""


@dataclass(frozen=True, kw_only=True)
class ReadingKeys:
    """How files are read; what is not set is recognised."""

    format: Format | None = field(default=None, metadata={"key": "reading.format"})
    """The format of your files, if it is not recognised: csv (fields may be in quotes), tsv (quotes are text), jsonl,
    json, conll (a word and its tag on each line), fasttext (a label, then its text), parquet, xlsx
    (also .xls and .ods)."""
    delimiter: str | None = field(default=None, metadata={"key": "reading.delimiter"})
    """The separator of the columns of your files, if it is not recognised: , ; | or tab."""
    encoding: str | None = field(default=None, metadata={"key": "reading.encoding"})
    """The encoding of your files, if it is not recognised: utf-8, cp1252 and so on."""
    columns: tuple[str, ...] | None = field(default=None, metadata={"key": "reading.columns"})
    """The names of the columns of files without a header, in their order."""
    no_header: bool = field(default=False, metadata={"key": "reading.no_header"})
    """The first row of your files is a row: the columns are called 'column 1', 'column 2' and so on."""


@dataclass(frozen=True, kw_only=True)
class TableKeys(ReadingKeys):
    """The keys of the user's tables, for what is not inferred from the rows."""

    positive: str | None = None
    """Of two classes, the one whose F1 is reported; the rarer one when not set."""
    label_names: tuple[str, ...] | None = None
    """Readable names of labels: a file with a name on each line, in the order of the labels, or pairs such as
    0=negative,1=positive."""
    option_labels: OptionLabels | None = None
    """What the label of a multiple choice is, if that is ambiguous."""
    drop_unlabelled: bool = field(default=False, metadata={"key": "reading.drop_unlabelled"})
    """Leave out rows without a label, and count them; an error when not set."""
    decimal: Literal[",", "."] | None = field(default=None, metadata={"key": "reading.decimal"})
    """The decimal sign of the numbers to predict: a comma as in 39,75; a point when not set."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The options that name the columns of the user's tables, and what is learned from them; None is inferred."""

    text: str | None = None
    pair: str | None = None
    label: str | Sequence[str] | None = None
    words: str | None = None
    tags: str | None = None
    options: str | Sequence[str] | None = None
    question: str | None = None
    context: str | None = None
    answer: str | None = None
    answer_start: str | None = None
    id: str | None = None
    group: str | None = None
    kind: LabelKind | None = None
    labels: str | Sequence[str] | None = None
    separator: str | None = None
    metrics: str | Sequence[str] | None = None

    def given(self) -> list[str]:
        """The options that were given, as the command line spells them."""
        return [option_name(field.name) for field in fields(self) if getattr(self, field.name) is not None]

    def task(
        self, keys: TableKeys, base: TableTask | None = None, train: Path | None = None, dev: Path | None = None
    ) -> TableTask:
        """The task that options and keys describe; other fields come from `base`."""
        base = base or TableTask()
        values = {**common_fields(TableTask, keys), **common_fields(TableTask, self)}
        values = {name: value for name, value in values.items() if value not in (None, False)}
        for name in ("options", "labels", "metrics"):
            if name in values:
                values[name] = tuple_of(values[name])
        if self.label is not None:
            columns = tuple_of(self.label)
            if self.text in columns:
                raise UsageError(f"--text and --label {self.text}", "are the same column", "name two different ones")
            values |= {"label": columns[0], "label_columns": None} if len(columns) == 1 else {"label": None}
            if len(columns) > 1:
                values["label_columns"] = columns
        if keys.label_names is not None:
            values["label_names"] = read_label_names(keys.label_names)
        if self.kind is not None:
            values["kind"] = "regression" if self.kind == "number" else self.kind
            if base.kind not in (None, values["kind"]):
                others = {"metrics": None, "labels": None, "separator": None, "positive": None, "label_names": None}
                base = replace(base, **others)  # are those of another kind
        files = {name: path for name, path in (("train", train), ("dev", dev)) if path is not None}
        return replace(base, **files, **values)


S = TypeVar("S", bound=str)


def tuple_of(value: S | Sequence[S]) -> tuple[S, ...]:
    """One or several values."""
    return (cast(S, value),) if isinstance(value, str) else tuple(value)
