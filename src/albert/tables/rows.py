"""Rows of files as people have them: one reader for `finetune`, `evaluate`, `predict` and Python.

`open_table` looks at the beginning of a file and recognises its format, encoding, separator, quotes and header; every
recognition that is not the usual one is a line in `notes`. `records_of` then reads row by row, `read_table` all
rows. What may be read in two ways is refused, with the option to give. No line is skipped: each is a row, a comment
that is counted, or an error that names file and line."""

import gc
import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from albert.runtime.environment import lazy_import
from albert.runtime.errors import DamagedData, MissingInput, UsageError
from albert.runtime.manifest import PIPE_REMEDY
from albert.runtime.progress import Position, progress
from albert.tables.delimited import DelimitedRows, delimited_records, open_delimited, sample_rows
from albert.tables.encodings import SAMPLE_BYTES, lines_of, recognise_encoding, text_of_file
from albert.tables.excel import open_excel
from albert.tables.exports import CONVERT, refuse_raw_export
from albert.tables.fasttext import FASTTEXT, fasttext_records, open_fasttext
from albert.tables.fields import fields_of, null_names, text_of
from albert.tables.files import COMPRESSIONS, Advance, InputFile, input_file, open_input_file
from albert.tables.folders import read_folder
from albert.tables.json_tables import json_lines, open_json
from albert.tables.records import Record, read_records
from albert.tables.table import WORDS, Row, Table
from albert.tables.table_file import ENDINGS, Format, Layout, TableFile
from albert.tables.tagged import (
    LONG_SENTENCE,
    MAX_SENTENCE_LENGTH,
    TAGGED_SHARE,
    has_sentences,
    looks_tagged,
    open_tagged,
    tagged_records,
    without_blank_lines,
)

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
_KINDS: dict[Format, str] = {
    "csv": "CSV",
    "tsv": "TSV",
    "jsonl": "JSON lines",
    "json": "JSON",
    "conll": "tagged text",
    "fasttext": "labels and texts",
    "parquet": "Parquet",
    "xlsx": "Excel",
    "text": "text",
}


def records_of(
    table: TableFile,
    reached: Advance = lambda position: None,
    counts: Counter[str] | None = None,
    class_names: bool = False,
) -> Iterator[Record]:
    """Every row in order; see `open_table` for the errors.

    Args:
        counts: comments and marks of documents are counted.
        class_names: for Parquet written by `datasets`, the names of classes instead of their numbers.
    """
    if table.group is not None:
        return _sentences(replace(table, group=None), str(table.words), table.group, reached)
    counts = Counter() if counts is None else counts
    if table.rows is not None:
        return iter(table.rows)
    match table.format:
        case "csv" | "tsv":
            return delimited_records(table, reached)
        case "conll":
            return tagged_records(table, counts)
        case "fasttext":
            return fasttext_records(table)
        case "text":
            return _text_records(table)
        case "dataset":
            arrow = lazy_import("albert.tables.arrow", "data")
            return arrow.read_saved_records(table.file, class_names, reached)
        case _:
            return read_records(table.file, class_names=class_names, reached=reached)


def read_table(path: Path, layout: Layout | None = None) -> Table:
    """Every row of a table, with what was recognised in `notes`.

    Raises:
        UsageError: the file is no table, or may be read in two ways.
        MissingInput: no file, or no rows.
        Unavailable: Parquet or Excel, and its library is not installed.
        DamagedData: a row or line is damaged.
    """
    table = open_table(path, layout)
    if table.format == "text":
        raise _refused_lines(path, table)
    if table.tagged is not None and table.tagged.two_columns is not None:
        first, second = table.tagged.two_columns
        why = f"columns {first} and {second} both have tags of the same entities"
        raise UsageError(path, why, f"say --tags {first} or --tags {second}")
    counts: Counter[str] = Counter()
    unread: Counter[str] = Counter()
    rows: list[Row] | DelimitedRows
    with progress(f"Reading {path.name}", total=table.file.size / 1e6, unit="MB") as bar:
        reached = Position(lambda count: bar.advance(count / 1e6), least=1 << 16).reached
        if table.has_types:
            with without_collection():
                rows = []
                for number, record in enumerate(records_of(table, reached, counts, class_names=True)):
                    fields = fields_of(record.fields, record.where, unread)
                    nulls = tuple(null_names(record.fields))
                    rows.append(Row(str(number), record.where, fields, nulls=nulls))
        else:
            rows = DelimitedRows(table, reached)
    if not rows:
        raise MissingInput(path, "has no rows")
    notes = list(table.notes)
    if table.format == "conll" and len(rows) == 1:
        n_words = len(rows[0].texts(WORDS))
        if n_words > LONG_SENTENCE:
            notes.append(f"no blank line divides the lines: all {n_words:,} words are one sentence")
    for name, count in unread.items():
        notes.append(f"column {name!r} holds values that are neither texts nor lists of texts: {count:,} are not read")
    if unread:
        counts["fields_not_read"] = unread.total()
    names = table.names
    if not names:
        names = tuple(dict.fromkeys(chain.from_iterable(row.fields for row in rows)))
    return Table(rows, {"rows": len(rows), **counts}, tuple(notes), names, table.doubt, table.aliases)


_COARSE_AND_FINE = re.compile(r"[A-Z]{2,12}:[A-Za-z]+ \S")
"""A line of TREC: `NUM:date When was the war ?`."""


def _refused_lines(path: Path, table: TableFile) -> UsageError:
    """The error for a file of lines without columns, with what to write."""
    first = next(iter(records_of(table)), None)
    if first is not None and _COARSE_AND_FINE.match(str(first.fields[table.text_field])):
        why = f"has a label and a text on each line, such as {str(first.fields[table.text_field])[:40]!r}"
        remedy = f"write a tab after the label: sed 's/ /\\t/' {path.name} > train.tsv, then reading.columns=label,text"
        return UsageError(path, why, remedy)
    why = "has lines that are not words with tags, and no columns"
    remedy = (
        "a table is .csv, .tsv, .jsonl or .parquet; tagged text has a word and its tag a line; "
        f"labels in a file of their own: paste {path.name} LABELS > train.tsv, then reading.columns=text,label"
    )
    return UsageError(path, why, remedy)


@contextmanager
def without_collection() -> Iterator[None]:
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
    table = _open_file(path, layout or Layout(), name, pipe_remedy)
    if table.format in ("json", "jsonl"):
        for first in islice(records_of(table), 1):
            refuse_raw_export(table.file.name, first)
    return table


def _open_file(path: Path, layout: Layout, name: str | None, pipe_remedy: str) -> TableFile:
    """A file whose layout is recognised."""
    if path.is_dir():
        return _open_folder(path, layout, name or str(path))
    packed = path.suffix.lower() in COMPRESSIONS
    ending = ending_of(path)
    file = input_file(path, "", name, pipe_remedy)
    notes: tuple[str, ...] = ()
    if ending == ".zip" and not packed:
        packed = True
        file, note = _member_of(file)
        notes = (note,)
        ending = ending_of(Path(file.member))
    format = layout.format or ENDINGS.get(ending)
    if ending in _NO_TABLES and layout.format is None:
        raise UsageError(path, f"{ending} files are not read", _NO_TABLES[ending])
    if format is not None:
        file = replace(file, kind=_KINDS[format])
    if format in ("parquet", "xlsx"):
        if packed:
            raise UsageError(path, f"a packed {_KINDS[format]} file is not read", "unpack it")
        return TableFile(file=file, format=format) if format == "parquet" else open_excel(file, layout)
    encoding, note = recognise_encoding(file, layout.encoding)
    notes += note
    with text_of_file(file, encoding) as text:
        sample = text.read(SAMPLE_BYTES)
        if len(sample) == SAMPLE_BYTES:
            sample = sample[: sample.rfind("\n") + 1] or sample
    if not sample.strip():
        if layout.format is None and format is None:
            raise UsageError(path, "has lines that are not words with tags, and no columns", "it is empty")
        raise MissingInput(path, "has no rows")
    for beginning, why, remedy in _OTHER_FILES:
        if re.match(beginning, sample, re.IGNORECASE) and layout.format is None:
            raise DamagedData(name or path, why, remedy)
    is_table = layout.delimiter is not None or layout.columns is not None or layout.no_header
    if format is None and not is_table:
        format, note = _recognise_format(file, sample, layout.has_task)
        notes += (note,) if note else ()
    elif format is None:
        format = "csv"
    elif format == "csv" and layout.format is None and not layout.has_task and not is_table and has_sentences(sample):
        format = "conll"
        notes += ("read as a word and its tag on each line, because blank lines divide the lines (reading.format=csv)",)
    if format == "jsonl" and re.match(r"\s*\[\s*[{\]]", sample):
        format = "json"
        notes += ("one list of objects, not a line for each",)
    if format == "json" and layout.format is None and re.match(r"\s*\{.*\}\s*\n\s*\{", sample):
        format = "jsonl"
        notes += ("every line is an object: read as JSON lines",)
    file = replace(file, kind=_KINDS[format])
    match format:
        case "json":
            return open_json(file, encoding, notes, layout)
        case "jsonl":
            if encoding not in ("utf-8", "utf-8-sig"):
                rows = tuple(json_lines(file, encoding))
                return TableFile(file=file, format=format, encoding=encoding, notes=notes, rows=rows)
            return TableFile(file=file, format=format, encoding=encoding, notes=notes)
        case "conll":
            return open_tagged(file, encoding, notes, layout)
        case "fasttext":
            return open_fasttext(file, encoding, notes)
        case "text":
            return TableFile(file=file, format=format, encoding=encoding, notes=notes, names=("text",))
        case _:
            return open_delimited(file, format, encoding, notes, layout, sample, ending)


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
    if (path / "dataset_dict.json").is_file():
        splits = sorted(each.name for each in path.iterdir() if (each / "state.json").is_file())
        why = f"is a data set of several splits: {', '.join(splits) or 'none is there'}"
        example = "train" if "train" in splits else next(iter(splits), "")
        raise UsageError(name, why, f"name one, such as {name.rstrip('/')}/{example}" if splits else "save it again")
    if (path / "state.json").is_file() and (path / "dataset_info.json").is_file():
        return TableFile(file=input_file(path, "saved dataset", name), format="dataset")
    texts = read_folder(path, name, layout.encoding)
    return TableFile(
        file=input_file(path, "folder", name),
        format="folder",
        names=texts.names,
        notes=texts.notes,
        doubt=texts.doubt,
        rows=texts.records,
    )


def _recognise_format(file: InputFile, sample: str, has_task: bool) -> tuple[Format, str | None]:
    """The format of a file whose ending does not say it, and a line about it."""
    lines = [line.removesuffix("\r") for line in sample.split("\n")]
    filled = [line for line in lines if line.strip()]
    if re.match(r"\s*[{\[]", sample):
        try:
            json.loads(filled[0])
            return "jsonl", "every line is JSON"
        except ValueError:
            try:
                json.loads(sample)
                return "json", "the file is JSON"
            except ValueError:
                pass
    if re.match(r"#begin document \(.*\);", sample):
        return "conll", None
    if all(map(FASTTEXT.match, filled)):
        return "fasttext", None
    if all(map(_COARSE_AND_FINE.match, filled)):
        return "text", None
    if not has_task and looks_tagged(lines):
        if any(not line.strip() for line in lines[:-1]):
            return "conll", None
        if len(filled) > MAX_SENTENCE_LENGTH:
            why = f"has a word and a tag on each of its {len(filled):,} lines, and no blank line between sentences"
            size = len(filled[0].split("\t" if "\t" in sample else None))
            raise UsageError(file.name, why, without_blank_lines(size, "\t" if "\t" in sample else None))
        if not any(" " in field for line in filled for field in line.split("\t")) or "\t" not in sample:
            return "conll", None
    for delimiter in ("\t", ";", "|", ","):
        widths = Counter(line.count(delimiter) for line in filled)
        width, count = widths.most_common(1)[0]
        total = len(filled)
        if '"' in sample and count < TAGGED_SHARE * total:
            quoted, is_right = sample_rows(sample, delimiter)
            if is_right:
                width, count = Counter(len(row) - 1 for row in quoted).most_common(1)[0]
                total = len(quoted)
        if width == 0 or count < TAGGED_SHARE * total:
            continue
        if delimiter == ",":
            # Texts have commas, too: the first line must look like names of columns, short and no sentences.
            names = filled[0].split(delimiter)
            if not all(0 < len(name.strip()) <= 30 and not re.search(r"[.?!]\s*$", name) for name in names):
                continue
        return "csv", None
    return "text", None


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


def _text_records(table: TableFile) -> Iterator[Record]:
    for number, line in lines_of(table.file, table.encoding):
        text = line.removeprefix("\ufeff") if number == 1 else line
        yield Record(f"{table.file.name}:{number}", {table.text_field: text})
