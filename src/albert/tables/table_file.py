"""A file with a table: its layout as the user states it, and as it was recognised."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from albert.tables.files import InputFile
from albert.tables.records import Record

Format = Literal["csv", "tsv", "jsonl", "json", "conll", "fasttext", "parquet", "xlsx", "text"]
"""csv: fields may be in quotes; tsv: quotes are text; conll: a word and its tags on each line; fasttext: a label, then
its text; xlsx: also .xls and .ods; text: a text on each line, without columns."""
FORMATS: tuple[str, ...] = get_args(Format)
ENDINGS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".tab": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".conll": "conll",
    ".conllu": "conll",
    ".conllup": "conll",
    ".bio": "conll",
    ".iob": "conll",
    ".iob2": "conll",
    ".parquet": "parquet",
    ".xlsx": "xlsx",
    ".xlsm": "xlsx",
    ".xls": "xlsx",
    ".ods": "xlsx",
}
"""Endings that say the format; of a file with another ending the content decides."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What the user says about a file; None is to be recognised.

    Attributes:
        delimiter: the character between columns; `tab` is a tab.
        columns: the names of the columns of a file without a header.
        no_header: the columns are called `column 1`, `column 2` and so on.
        has_task: whether `--text` or `--label` name columns, so that the file is a table and not tagged text.
        words, tags: the columns of tagged text that are used, for the note about them.
    """

    format: Format | None = None
    delimiter: str | None = None
    encoding: str | None = None
    columns: tuple[str, ...] | None = None
    no_header: bool = False
    has_task: bool = False
    words: str | None = None
    tags: str | None = None


@dataclass(frozen=True, kw_only=True)
class TableFile:
    """A file whose layout is known.

    Attributes:
        names: the name of each column by position, None for one without a name, which is ignored; empty if every record
            has its own names (JSON, Parquet).
        aliases: other names of columns: `column 1`, and those that a header of tagged text gives.
        escaped: whether a quote inside of quotes is written as \\".
        single_quotes: whether separators in single quotes divide many rows, for the error about their number of fields.
        preamble: lines before the header that are not read.
        header_lines: lines before the first row.
        notes: what was recognised.
        doubt: what to do if a named column is missing, because the first row looks like a row.
        tagged: how tagged text is divided.
        rows: the rows of a format that is read as a whole.
        words, group: if every row holds one word, the columns of the words and of their sentence. A record is then a
            sentence, with a list for every other column.
    """

    file: InputFile
    format: Format | Literal["folder", "dataset"]
    encoding: str = "utf-8"
    delimiter: str = ","
    quoted: bool = True
    escaped: bool = False
    single_quotes: bool = False
    preamble: int = 0
    names: tuple[str | None, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    header_lines: int = 0
    notes: tuple[str, ...] = ()
    doubt: str | None = None
    tagged: "Tagged | None" = None
    rows: Sequence[Record] | None = None
    text_field: str = "text"
    words: str | None = None
    group: str | None = None

    @property
    def used_names(self) -> tuple[str, ...]:
        """The columns that have a name."""
        return tuple(name for name in self.names if name is not None)

    @property
    def has_types(self) -> bool:
        """Whether values may be other than texts, so that they are converted by `fields_of`."""
        return self.group is not None or self.format not in ("csv", "tsv", "text")


@dataclass(frozen=True, kw_only=True)
class Tagged:
    """How the lines of tagged text are divided.

    Attributes:
        size: fields of a line; `drops_last` if every line ends in a separator.
        header: the line with the names of the columns, 0 for none.
        numbered: whether the first field numbers the words, so that `3-4` and `5.1` are not words (CoNLL-U).
        prefix: before every word, not a part of it (`en:` in WikiANN).
        cut: fields after this number are not read, because their number differs (CoNLL-2012); 0 for none.
        two_columns: the columns with tags of the same entities, as of marks inside of marks; a task reads one of them.
    """

    separator: str | None
    size: int
    drops_last: bool = False
    header: int = 0
    numbered: bool = False
    prefix: str = ""
    cut: int = 0
    two_columns: tuple[int, int] | None = None
