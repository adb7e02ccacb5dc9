"""A file with a table: its layout as the user states it, and as it was recognised; and what each format can do."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from albert.tables.files import Advance, InputFile
from albert.tables.records import Record
from albert.tables.table import Row


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

    format: str | None = None
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
        format: the name of a format in `albert.tables.formats`.
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
        only_texts: whether every value is a text.
        words, group: if every row holds one word, the columns of the words and of their sentence. A record is then a
            sentence, with a list for every other column.
    """

    file: InputFile
    format: str
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
    only_texts: bool = False
    words: str | None = None
    group: str | None = None

    @property
    def used_names(self) -> tuple[str, ...]:
        """The columns that have a name."""
        return tuple(name for name in self.names if name is not None)

    @property
    def has_types(self) -> bool:
        """Whether values may be other than texts, so that they are converted by `fields_of`."""
        return self.group is not None or not self.only_texts


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """A file of text that is to be opened, and its beginning, by which it is recognised.

    Attributes:
        ending: of its name, in small letters.
        notes: what was recognised up to now.
    """

    file: InputFile
    encoding: str
    sample: str
    ending: str
    layout: Layout
    notes: tuple[str, ...]

    @property
    def lines(self) -> list[str]:
        return [line.removesuffix("\r") for line in self.sample.split("\n")]

    @property
    def filled_lines(self) -> list[str]:
        return [line for line in self.lines if line.strip()]


class TableFormat(ABC):
    """A format of tables, as a `TextFormat`, a `BinaryFormat` or a `FolderFormat`: how it is opened and read."""

    name: ClassVar[str]
    """As a user writes it, `reading.format=NAME`."""
    about: ClassVar[str]
    """As errors and notes call it."""
    endings: ClassVar[tuple[str, ...]] = ()
    """Of names of files that have it; of a file with an ending that no format has, the content decides."""

    @abstractmethod
    def records(self, table: TableFile, reached: Advance, counts: Counter[str], class_names: bool) -> Iterator[Record]:
        """Every row in order (see `albert.tables.rows.records_of`)."""

    def check(self, table: TableFile) -> None:
        """Raise UsageError if nothing can be learned from a file of this format as it is."""
        return None

    def remarks(self, rows: Sequence[Row]) -> tuple[str, ...]:
        """Notes on all rows of a file."""
        return ()


class TextFormat(TableFormat):
    """A format of files of text, of which the encoding and the beginning are looked at first."""

    def recognise(self, beginning: Beginning) -> str | None:
        """A note, perhaps empty, if the content of a file without a known ending has this format; otherwise None."""
        return None

    def otherwise(self, beginning: Beginning) -> tuple[str, str] | None:
        """The name of another format that a file with the ending of this one has by its content, and a note."""
        return None

    @abstractmethod
    def open(self, beginning: Beginning) -> TableFile:
        """The file, whose layout is recognised."""


class BinaryFormat(TableFormat):
    """A format of files that are not text; their ending or `reading.format` says that they have it."""

    @abstractmethod
    def is_in(self, path: Path, beginning: bytes) -> bool:
        """Whether a file without a known ending, such as standard input, has this format.

        Args:
            beginning: its first 8 bytes.
        """

    @abstractmethod
    def open(self, file: InputFile, layout: Layout) -> TableFile:
        """The file, with what its format says of its layout."""


class FolderFormat(TableFormat):
    """A format of folders."""

    @abstractmethod
    def open(self, path: Path, name: str, layout: Layout) -> TableFile | None:
        """The folder, which errors call `name`; None if it is not of this format."""


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
