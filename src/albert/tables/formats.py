"""All formats of tables.

To add one, write its file and add it here: it is recognised, also in standard input, read by `finetune`, `evaluate` and
`predict`, and may be named by `reading.format`. To let `prepare` read it, too, add its endings to `FORMATS` of
`albert.text.corpus`, with `read_rows`."""

from typing import TYPE_CHECKING, Literal

from albert.tables.delimited import Csv, Tsv
from albert.tables.excel import Excel
from albert.tables.fasttext import FastText
from albert.tables.folders import FolderOfTexts
from albert.tables.json_tables import Json, JsonLines
from albert.tables.lines import Lines
from albert.tables.parquet import Parquet, SavedDataset
from albert.tables.table_file import BinaryFormat, FolderFormat, TableFormat, TextFormat
from albert.tables.tagged import TaggedText

FILES: tuple[TextFormat | BinaryFormat, ...] = (
    JsonLines(),
    Json(),
    FastText(),
    Lines(),
    TaggedText(),
    Csv(),
    Tsv(),
    Parquet(),
    Excel(),
)
"""In the order in which those of text are asked whether a file without a known ending is theirs."""
FOLDERS: tuple[FolderFormat, ...] = (SavedDataset(), FolderOfTexts())
FORMATS: dict[str, TableFormat] = {format.name: format for format in (*FILES, *FOLDERS)}
TEXT_FORMATS: dict[str, TextFormat] = {format.name: format for format in FILES if isinstance(format, TextFormat)}
BINARY_FORMATS: tuple[BinaryFormat, ...] = tuple(format for format in FILES if isinstance(format, BinaryFormat))
ENDINGS: dict[str, str] = {ending: format.name for format in FILES for ending in format.endings}
if TYPE_CHECKING:
    Format = str
else:
    Format = Literal[tuple(format.name for format in FILES)]
"""The name of a format of files, which a user may give."""
