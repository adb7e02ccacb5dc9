"""The options of `albert finetune` and `albert evaluate` for the user's own tables."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from albert.runtime.json_files import common_fields
from albert.tables.table_file import Format
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


NO_READING = ReadingKeys()


@dataclass(frozen=True, kw_only=True)
class TableOptions(ReadingKeys):
    """Your own tables: their columns, and what is not inferred from the rows."""

    text: str | None = None
    """Your own tables: the column of the text; of a multiple choice, the passage."""
    pair: str | None = None
    """Your own tables: the column of a second text."""
    label: tuple[str, ...] | None = None
    """Your own tables: the column of the label or number; with lists, or --kind multi-label, of several labels. Several
    columns hold 0 or 1 each, one column for each label, or a label each, or nothing."""
    words: str | None = None
    """Token classification: the column of lists of words, or of one word in each row (--group)."""
    tags: str | None = None
    """Token classification: the column of lists of tags, one for each word, or of one tag in each row. Any column may
    be named by its position, from 1."""
    options: tuple[str, ...] | None = None
    """Multiple choice: the columns of the options, or one column of lists; --label names the right option by the row's
    own name of it, or its letter, number or text."""
    question: str | None = None
    """Questions on a text, or a multiple choice: the column of the question."""
    context: str | None = None
    """Questions on a text: the column of the text that holds the answer."""
    answer: str | None = None
    """Questions on a text: the column of the answer, or of lists of right answers; empty for no answer."""
    answer_start: str | None = None
    """Questions on a text: the column of the position where the answer begins, in characters from 0."""
    id: str | None = None
    """Your own tables: the column of a name for each row, for the predictions; the row number when not set."""
    group: str | None = None
    """Token classification: the column that numbers the sentences of a table with one word in each row."""
    kind: LabelKind | None = None
    """What is learned, if it is not recognised: classification, also of labels that are numbers; number; or
    multi-label, where a row may have any number of labels."""
    labels: tuple[str, ...] | None = None
    """All labels, in their order; those of the training file when not set."""
    separator: str | None = None
    """The separator of several labels in one text."""
    metrics: tuple[str, ...] | None = None
    """Metrics of your own task, the main one first; the usual ones of its kind when not set."""
    positive: str | None = field(default=None, metadata={"key": "positive"})
    """Of two classes, the one whose F1 is reported; the rarer one when not set."""
    label_names: tuple[str, ...] | None = field(default=None, metadata={"key": "label_names"})
    """Readable names of labels: a file with a name on each line, in the order of the labels, or pairs such as
    0=negative,1=positive."""
    option_labels: OptionLabels | None = field(default=None, metadata={"key": "option_labels"})
    """What the label of a multiple choice is, if that is ambiguous."""
    drop_unlabelled: bool = field(default=False, metadata={"key": "reading.drop_unlabelled"})
    """Leave out rows without a label, and count them; an error when not set."""
    decimal: Literal[",", "."] | None = field(default=None, metadata={"key": "reading.decimal"})
    """The decimal sign of the numbers to predict: a comma as in 39,75; a point when not set."""

    def task(self, base: TableTask | None = None, train: Path | None = None, dev: Path | None = None) -> TableTask:
        """The task that the options describe; other fields come from `base`."""
        base = base or TableTask()
        values = {name: value for name, value in common_fields(TableTask, self).items() if value not in (None, False)}
        if self.label is not None:
            values |= {"label": self.label[0], "label_columns": None} if len(self.label) == 1 else {"label": None}
            if len(self.label) > 1:
                values["label_columns"] = self.label
        if self.label_names is not None:
            values["label_names"] = read_label_names(self.label_names)
        if self.kind is not None:
            values["kind"] = "regression" if self.kind == "number" else self.kind
            if base.kind not in (None, values["kind"]):
                base = replace(base, metrics=None, labels=None, separator=None)  # are those of another kind
        files = {name: path for name, path in (("train", train), ("dev", dev)) if path is not None}
        return replace(base, **files, **values)


NO_TABLE = TableOptions()
