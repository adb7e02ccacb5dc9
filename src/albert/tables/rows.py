"""Rows of files as people have them: one reader for `finetune`, `evaluate`, `predict` and Python.

`open_table` looks at the beginning of a file and recognises its format, encoding, separator, quotes and header; every
recognition that is not the usual one is a line in `notes`. `records_of` then reads row by row, `read_table` all
rows. What may be read in two ways is refused, with the option to give. No line is skipped: each is a row, a comment
that is counted, or an error that names file and line."""

import gc
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from albert.runtime.errors import DamagedData, MissingInput, UsageError, did_you_mean
from albert.runtime.manifest import PIPE_REMEDY
from albert.runtime.progress import Position, progress
from albert.tables.delimited_rows import DelimitedRows
from albert.tables.encodings import SAMPLE_BYTES, lines_of, recognise_encoding, text_of_file
from albert.tables.exports import CONVERT
from albert.tables.fields import fields_of, null_names, text_of
from albert.tables.files import COMPRESSIONS, Advance, InputFile, input_file, open_input_file
from albert.tables.formats import ENDINGS, FILES, FOLDERS, FORMATS, TEXT_FORMATS
from albert.tables.records import Record
from albert.tables.table import Row, Table
from albert.tables.table_file import Beginning, BinaryFormat, Layout, TableFile, TextFormat
from albert.tables.tagged import has_sentences

_NO_TABLES = {
    ".tar": "unpack it",
    ".tgz": "unpack it",
    ".tbz2": "unpack it",
    ".txz": "unpack it",
    ".rar": "unpack it",
    ".gzip": "name it .gz",
    ".ann": f"convert the folder: {CONVERT}",
    ".spacy": "write .jsonl instead",
    ".yml": "write .jsonl instead",
    ".yaml": "write .jsonl instead",
    ".7z": "unpack it",
    ".pkl": "write .csv, .jsonl or .parquet instead",
    ".pickle": "write .csv, .jsonl or .parquet instead",
    ".arff": "write .csv instead",
    ".xml": "write .jsonl instead",
    ".html": "write .csv or .jsonl instead",
    ".doc": "write .txt, .csv or .jsonl instead",
    ".docx": "write .csv or .jsonl instead",
    ".pdf": "write .csv or .jsonl instead",
    ".arrow": "write .parquet instead",
    ".feather": "write .parquet instead",
}
_OTHER_FILES = (
    (r"\s*<(!doctype html|html)\b", "is a web page (HTML), no table", "download the file itself, or save it as .csv"),
    (r"version https://git-lfs\.github\.com/spec/", "is a pointer of Git LFS, not the file", "fetch it: git lfs pull"),
    (r"\{\\rtf", "is a text document (RTF), no table", "save it as .txt or .csv"),
)
"""How files begin that are often saved in the place of a table."""


def records_of(
    table: TableFile,
    reached: Advance = lambda position: None,
    counts: Counter[str] | None = None,
    class_names: bool = False,
) -> Iterator[Record]:
    """Every row in order; see `open_table` for the errors.

    Args:
        reached: called with the position in the file in bytes.
        counts: comments and marks of documents are counted.
        class_names: for Parquet written by `datasets`, the names of classes instead of their numbers.
    """
    if table.group is not None:
        return _sentences(replace(table, group=None), str(table.words), table.group, reached)
    counts = Counter() if counts is None else counts
    return FORMATS[table.format].records(table, reached, counts, class_names)


def read_table(path: Path, layout: Layout | None = None) -> Table:
    """Every row of a table, with what was recognised in `notes`.

    Raises:
        UsageError: the file is no table, or may be read in two ways.
        MissingInput: no file, or no rows.
        Unavailable: Parquet or Excel, and its library is not installed.
        DamagedData: a row or line is damaged.
    """
    table = open_table(path, layout)
    FORMATS[table.format].check(table)
    counts: Counter[str] = Counter()
    unread: Counter[str] = Counter()
    rows: list[Row] | DelimitedRows
    with progress(f"Reading {path.name}", total=table.file.size / 1e6, unit="MB") as bar:
        reached = Position(lambda count: bar.advance(count / 1e6), least=1 << 16).reached
        if table.has_types:
            with gc_disabled():
                rows = []
                for number, record in enumerate(records_of(table, reached, counts, class_names=True)):
                    fields = fields_of(record.fields, record.where, unread)
                    nulls = tuple(null_names(record.fields))
                    rows.append(Row(str(number), record.where, fields, nulls=nulls))
        else:
            rows = DelimitedRows(table, reached)
    if not rows:
        raise MissingInput(path, "has no rows")
    notes = [*table.notes, *FORMATS[table.format].remarks(rows)]
    for name, count in unread.items():
        notes.append(f"column {name!r} holds values that are neither texts nor lists of texts: {count:,} are not read")
    if unread:
        counts["fields_not_read"] = unread.total()
    names = table.names
    if not names:
        names = tuple(dict.fromkeys(chain.from_iterable(row.fields for row in rows)))
    return Table(rows, {"rows": len(rows), **counts}, tuple(notes), names, table.doubt, table.aliases)


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Without Python's search for garbage, while a million small objects are made that are none."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def ending_of(path: Path) -> str:
    """The ending of a file's name in small letters, without that of its compression: `.csv` of `rows.csv.gz`."""
    is_packed = path.suffix.lower() in COMPRESSIONS
    return Path(path.stem if is_packed else path.name).suffix.lower()


def open_table(
    path: Path, layout: Layout | None = None, *, name: str | None = None, pipe_remedy: str = PIPE_REMEDY
) -> TableFile:
    """Recognise the layout of a file.

    Args:
        name: of the file in errors; its path when not set.

    Raises:
        UsageError: the format is unknown, or the layout may be understood in two ways; or the file is the raw export of
            an annotation tool.
        MissingInput: the file cannot be read.
        DamagedData: it is not text, or not of its format.
    """
    layout = layout or Layout()
    names = [format.name for format in FILES]
    if layout.format is not None and layout.format not in names:
        raise UsageError("reading.format", f"{layout.format!r} is unknown", did_you_mean(layout.format, names))
    if path.is_dir():
        return _open_folder(path, layout, name or str(path))
    is_packed = path.suffix.lower() in COMPRESSIONS
    ending = ending_of(path)
    file = input_file(path, "", name, pipe_remedy)
    notes: tuple[str, ...] = ()
    if ending == ".zip" and not is_packed:
        is_packed = True
        file, note = _member_of(file)
        notes = (note,)
        ending = ending_of(Path(file.member))
    if ending in _NO_TABLES and layout.format is None:
        raise UsageError(path, f"{ending} files are not read", _NO_TABLES[ending])
    format_name = layout.format or ENDINGS.get(ending, "")
    format = FORMATS.get(format_name)
    if not isinstance(format, BinaryFormat):
        return _open_text(file, TEXT_FORMATS.get(format_name), ending, notes, layout)
    if is_packed:
        raise UsageError(path, f"a packed {format.about} file is not read", "unpack it")
    return format.open(replace(file, kind=format.about), layout)


def _open_text(
    file: InputFile, format: TextFormat | None, ending: str, notes: tuple[str, ...], layout: Layout
) -> TableFile:
    """A file of text, whose format is given, said by its ending, or recognised by its content."""
    encoding, note = recognise_encoding(replace(file, kind=format.about if format else ""), layout.encoding)
    notes += note
    with text_of_file(file, encoding) as text:
        sample = text.read(SAMPLE_BYTES)
        if len(sample) == SAMPLE_BYTES:
            sample = sample[: sample.rfind("\n") + 1] or sample
    if not sample.strip():
        if format is None:
            raise UsageError(file.path, "has lines that are not words with tags, and no columns", "it is empty")
        raise MissingInput(file.path, "has no rows")
    for beginning, why, remedy in _OTHER_FILES:
        if re.match(beginning, sample, re.IGNORECASE) and layout.format is None:
            raise DamagedData(file.name, why, remedy)
    start = Beginning(file=file, encoding=encoding, sample=sample, ending=ending, layout=layout, notes=notes)
    if format is None:
        format, note = _recognised(start)
        start = replace(start, notes=(*start.notes, note) if note else start.notes)
    other = format.otherwise(start)
    if other is not None:
        format = TEXT_FORMATS[other[0]]
        start = replace(start, notes=(*start.notes, other[1]))
    return format.open(replace(start, file=replace(file, kind=format.about)))


def _recognised(start: Beginning) -> tuple[TextFormat, str]:
    """The format of a file by its content, and a note; a text on each line if nothing else is recognised."""
    layout = start.layout
    if layout.delimiter is not None or layout.columns is not None or layout.no_header:
        return TEXT_FORMATS["csv"], ""
    for format in TEXT_FORMATS.values():
        note = format.recognise(start)
        if note is not None:
            return format, note
    return TEXT_FORMATS["text"], ""


def _member_of(file: InputFile) -> tuple[InputFile, str]:
    """The only table in a zip archive, with a line about it."""
    with open_input_file(file) as (content, _):
        try:
            with zipfile.ZipFile(content) as archive:
                names = [entry.filename for entry in archive.infolist() if not entry.is_dir()]
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise DamagedData(file.name, f"damaged zip file ({error})", "fetch it again") from error
    plain = [name for name in names if not name.startswith("__MACOSX/") and not Path(name).name.startswith(".")]
    tables = [name for name in plain if ending_of(Path(name)) in ENDINGS]
    if not tables:
        texts = (".txt", ".text", ".data", ".label", ".labels", "")
        is_about = re.compile(r"(readme|licen[cs]e|notice|changelog)", re.IGNORECASE)
        tables = [name for name in plain if Path(name).suffix.lower() in texts and not is_about.match(Path(name).name)]
    if len(tables) != 1:
        shown = ", ".join((tables or plain)[:8]) + (", …" if len(tables or plain) > 8 else "")
        why = f"holds several tables: {shown}" if tables else f"holds no table{': ' + shown if shown else ''}"
        raise UsageError(file.name, why, "unpack it, and name one of its files")
    name = tables[0]
    if Path(name).suffix.lower() in COMPRESSIONS:
        raise UsageError(file.name, f"holds a packed file, {name}", "unpack it")
    return replace(file, name=f"{file.name}/{name}", member=name), f"{name} in the archive is read"


def _open_folder(path: Path, layout: Layout, name: str) -> TableFile:
    """A folder of texts, or a data set that `datasets` saved."""
    for key in ("format", "delimiter", "columns", "no_header"):
        if getattr(layout, key):
            raise UsageError(f"reading.{key}", f"{name} is a folder", "leave it out, or name a file")
    opened = (format.open(path, name, layout) for format in FOLDERS)
    return next(table for table in opened if table is not None)


def sentences_of_lines(file: TableFile) -> TableFile:
    """For a tagger: a text file with a word on each line, with or without tags, as sentences; another one as it is."""
    if file.format != "text":
        return file
    first: list[str] = []
    most = 0
    sentences = 0
    longest = 0
    length = 0
    for _, line in lines_of(file.file, file.encoding):
        if len(first) < 2000:
            first.append(line)
        count = len(line.split())
        most = max(most, count)
        length = length + 1 if count else 0
        longest = max(longest, length)
        sentences += length == 1
    if sentences < 2 or longest < 2:
        return file
    if most > 1:
        last = [line.split()[-1] for line in first if line.strip()]
        if not has_sentences("\n".join(first)) or len(set(last)) > 0.7 * len(last):
            return file
    layout = Layout(format="conll", encoding=file.encoding)
    tagged = open_table(file.file.path, layout, name=file.file.name)
    what = "a word and its tag" if most > 1 else "a word"
    note = f"read as {what} on each line, because blank lines divide the lines into sentences (reading.format=text)"
    return replace(tagged, notes=(note, *tagged.notes))


def _sentences(table: TableFile, words: str, group: str, reached: Advance) -> Iterator[Record]:
    """Sentences of a table with one word in each row; rows without the name of a sentence continue the one before."""
    members: list[Record] = []
    name: Any = None
    for record in records_of(table, reached):
        word = text_of(record.fields.get(words))
        if word is None or not word.strip():
            raise DamagedData(record.where, f"empty word in column {words!r}", "every row needs a word")
        if len(word.split()) > 1:
            why = f"has several words in column {words!r}, which the rows before do not"
            raise DamagedData(record.where, why, "write one word in each row, or a whole sentence")
        own = record.fields.get(group)
        if isinstance(own, str) and not own.strip():
            own = None
        if members and own is not None and own != name:
            yield _sentence_of(members, words, group, name)
            members = []
        if own is not None:
            name = own
        members.append(record)
    if members:
        yield _sentence_of(members, words, group, name)


def _sentence_of(members: Sequence[Record], words: str, group: str, name: Any) -> Record:
    """The record of a sentence from the rows of its words: a list in each column, the name in the column `group`."""
    others = dict.fromkeys(column for record in members for column in record.fields if column != group)
    columns = {column: [record.fields.get(column) for record in members] for column in others}
    columns[words] = [str(text_of(word)).strip() for word in columns[words]]
    return Record(members[0].where, {**columns, group: name})
