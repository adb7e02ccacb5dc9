"""Rows of files as people have them: one reader for `finetune`, `evaluate`, `predict` and Python.

`open_table` looks at the beginning of a file and recognises its format, encoding, separator, quotes and header; every
recognition that is not the usual one is a line in `notes`. `TableFile.records` then reads row by row, `read_table` all
rows. What may be read in two ways is refused, with the option to give. No line is skipped: each is a row, a comment
that is counted, or an error that names file and line."""

import codecs
import csv
import datetime
import decimal
import gc
import io
import json
import re
import zipfile
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate, chain, islice, pairwise
from pathlib import Path
from typing import Any, Literal, get_args, overload

import numpy as np

from albert.runtime.environment import lazy_import
from albert.runtime.errors import DamagedData, MissingInput, UsageError
from albert.runtime.json_files import unique_keys
from albert.runtime.manifest import PIPE_REMEDY
from albert.runtime.progress import Position, progress
from albert.tasks.annotations import Convert, is_of_spacy, nested_layout, row_of_spacy
from albert.tasks.encodings import SAMPLE_BYTES, lines_of, recognise_encoding, text_of_file
from albert.tasks.folders import read_folder
from albert.tasks.label_files import check_equal_lines, labels_beside, read_lines, tags_beside
from albert.tasks.source import ColumnRows, Field, Row, Rows
from albert.text.readers import (
    COMPRESSIONS,
    MAX_RECORD_LENGTH,
    PYTHON_DICT_REMEDY,
    Advance,
    CorpusFile,
    Record,
    input_file,
    open_corpus_file,
    read_records,
)

Format = Literal["csv", "tsv", "jsonl", "json", "conll", "fasttext", "parquet", "xlsx", "text"]
"""csv: fields may be in quotes; tsv: quotes are text; conll: a word and its tags on each line; fasttext: a label, then
its text; text: a text on each line, without columns."""
FORMATS: tuple[str, ...] = get_args(Format)
_ENDINGS: dict[str, Format] = {
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
}
"""Endings that say the format; of a file with another ending the content decides."""
_NO_TABLES = {
    ".xls": "save it as .xlsx or .csv",
    ".ods": "save it as .xlsx or .csv",
    ".tar": "unpack it",
    ".tgz": "unpack it",
    ".tbz2": "unpack it",
    ".txz": "unpack it",
    ".rar": "unpack it",
    ".gzip": "name it .gz",
    ".ann": "write .jsonl instead, with the marked parts of each text as [start, end, label]",
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
WORDS = "words"
TAGS = "tags"
"""The columns of tagged text."""
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
        nested: how the rows of an annotation tool are made flat.
        words, group: if every row holds one word, the columns of the words and of their sentence. A record is then a
            sentence, with a list for every other column.
    """

    file: CorpusFile
    format: Format | Literal["folder", "dataset", "lines"]
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
    nested: Convert | None = None
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

    def records(
        self,
        reached: Advance = lambda position: None,
        counts: Counter[str] | None = None,
        class_names: bool = False,
    ) -> Iterator[Record]:
        """Every row in order; see `open_table` for the errors.

        Args:
            counts: comments and marks of documents are counted.
            class_names: for a task: for Parquet written by `datasets`, the names of classes instead of their numbers;
                and rows of annotation tools that are not annotated are left out and counted.
        """
        if self.group is not None:
            return _sentences(replace(self, group=None), str(self.words), self.group, reached)
        if self.nested is not None:
            convert = self.nested
            to_learn = counts if class_names else None
            rows = replace(self, nested=None).records(reached, counts, class_names)
            return chain.from_iterable(convert(row, to_learn) for row in rows)
        counts = Counter() if counts is None else counts
        if self.rows is not None:
            return iter(self.rows)
        match self.format:
            case "csv" | "tsv":
                return _delimited_records(self, reached)
            case "conll":
                return _tagged_records(self, counts)
            case "fasttext":
                return _fasttext_records(self)
            case "text":
                return _text_records(self)
            case "dataset":
                arrow_files = lazy_import("albert.text.arrow_files", "data")
                return arrow_files.read_saved_records(self.file, class_names, reached)
            case _:
                return read_records(self.file, class_names=class_names, reached=reached)


def read_table(path: Path, layout: Layout | None = None) -> Rows:
    """Every row of a table, with what was recognised in `notes`.

    Raises:
        UsageError: the file is no table, or may be read in two ways.
        MissingInput: no file, or no rows.
        Unavailable: Parquet or Excel, and its library is not installed.
        DamagedData: a row or line is damaged.
    """
    table = _open_lines_with_labels(path, layout or Layout()) or open_table(path, layout)
    if table.format == "text":
        why = "has lines that are not words with tags, and no columns"
        remedy = (
            "a table is .csv, .tsv, .jsonl or .parquet; tagged text has a word and its tag a line; "
            f"the labels of the lines may be in {path.stem}.labels"
        )
        raise UsageError(path, why, remedy)
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
                for number, record in enumerate(table.records(reached, counts, class_names=True)):
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
        if n_words > _LONG_SENTENCE:
            notes.append(f"no blank line divides the lines: all {n_words:,} words are one sentence")
    for name, count in unread.items():
        notes.append(f"column {name!r} holds values that are neither texts nor lists of texts: {count:,} are not read")
    notes += [f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items() if count and table.nested]
    if unread:
        counts["fields_not_read"] = unread.total()
    if table.format == "jsonl" and "label" not in rows[0].fields:
        notes += _add_labels_beside(path, rows)
    names = table.names
    if not names:
        names = tuple(dict.fromkeys(chain.from_iterable(row.fields for row in rows)))
    return Rows(rows, {"rows": len(rows), **counts}, tuple(notes), names, table.doubt, table.aliases)


def _open_lines_with_labels(path: Path, layout: Layout) -> TableFile | None:
    """A file with a text on each line, whose labels are the lines of a file beside it; None if there are none.

    A file beside it with another number of lines is an error, unless the file is a table by itself.
    """
    is_table = layout.delimiter is not None or layout.columns is not None or layout.no_header
    if is_table or layout.format not in (None, "text") or path.is_dir() or ending_of(path) in _ENDINGS:
        return None
    beside = labels_beside(path)
    if beside is None or not path.is_file():
        return None
    texts, notes = read_lines(path, layout.encoding)
    labels, _ = read_lines(beside, layout.encoding)
    if len(texts) != len(labels) and layout.format is None:
        try:
            other = open_table(path, layout)
        except UsageError:
            other = None
        is_one_sentence = other is not None and other.format == "conll" and all(text.strip() for text in texts)
        if other is not None and other.format != "text" and not is_one_sentence:
            return None
    check_equal_lines(path, len(texts), beside, len(labels))
    columns = {"text": texts, "label": [label.strip() for label in labels]}
    notes += (f"a text on each line; the labels are the lines of {beside.name}",)
    tags = tags_beside(path)
    if tags is not None:
        columns["tags"], _ = read_lines(tags, layout.encoding)
        check_equal_lines(path, len(texts), tags, len(columns["tags"]))
        notes += (f"the tags of the words are the lines of {tags.name} (--words text --tags tags)",)
    records = []
    for number, values in enumerate(zip(*columns.values(), strict=True), start=1):
        records.append(Record(f"{path}:{number}", dict(zip(columns, values, strict=True))))
    return TableFile(
        file=input_file(path, "text"), format="lines", names=tuple(columns), notes=notes, rows=tuple(records)
    )


def _add_labels_beside(path: Path, rows: Sequence[Row]) -> list[str]:
    """Labels for rows of JSON lines, from a file beside them, if there is one (`train-labels.lst`)."""
    beside = labels_beside(path)
    if beside is None:
        return []
    labels, _ = read_lines(beside, None)
    check_equal_lines(path, len(rows), beside, len(labels), "rows")
    for row, label in zip(rows, labels, strict=True):
        row.fields = {**row.fields, "label": label.strip()}
    return [f"the lines of {beside.name} are the column 'label'"]


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


# --------------------------------------------------------------------------------------------------------------------
# Recognition.


def ending_of(path: Path) -> str:
    """The ending of a file's name in small letters, without that of its compression: `.csv` of `rows.csv.gz`."""
    is_packed = path.suffix.lower() in COMPRESSIONS
    return Path(path.stem if is_packed else path.name).suffix.lower()


def open_table(
    path: Path, layout: Layout | None = None, *, name: str | None = None, pipe_remedy: str = PIPE_REMEDY
) -> TableFile:
    """Recognise the layout of a file, and of rows that are nested in one another.

    Args:
        name: of the file in errors; its path when not set.

    Raises:
        UsageError: the format is unknown, or the layout may be understood in two ways.
        MissingInput: the file cannot be read.
        DamagedData: it is not text, or not of its format.
    """
    table = _open_file(path, layout or Layout(), name, pipe_remedy)
    if table.format not in ("json", "jsonl", "parquet", "dataset"):
        return table
    rows = table.rows if table.rows is not None else tuple(islice(table.records(), 100))
    nested = nested_layout(rows)
    return table if nested is None else replace(table, nested=nested.convert, notes=(*table.notes, nested.note))


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
    format = layout.format or _ENDINGS.get(ending)
    if ending in _NO_TABLES and layout.format is None:
        raise UsageError(path, f"{ending} files are not read", _NO_TABLES[ending])
    if format is not None:
        file = replace(file, kind=_KINDS[format])
    if format in ("parquet", "xlsx"):
        if packed:
            raise UsageError(path, f"a packed {_KINDS[format]} file is not read", "unpack it")
        return TableFile(file=file, format=format) if format == "parquet" else _open_excel(file, layout)
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
    elif format == "csv" and layout.format is None and not layout.has_task and not is_table and _has_sentences(sample):
        format = "conll"
        notes += ("read as a word and its tag on each line, because blank lines divide the lines (--format csv)",)
    if format == "jsonl" and re.match(r"\s*\[\s*[{\]]", sample):
        format = "json"
        notes += ("one list of objects, not a line for each",)
    if format == "json" and layout.format is None and re.match(r"\s*\{.*\}\s*\n\s*\{", sample):
        format = "jsonl"
        notes += ("every line is an object: read as JSON lines",)
    file = replace(file, kind=_KINDS[format])
    match format:
        case "json":
            return _open_json(file, encoding, notes, layout)
        case "jsonl":
            is_spacy = re.match(r"\s*\[\s*\"", sample) is not None
            if is_spacy:
                notes += (_SPACY_NOTE,)
            if is_spacy or encoding not in ("utf-8", "utf-8-sig"):
                rows = tuple(_json_lines(file, encoding))
                return TableFile(file=file, format=format, encoding=encoding, notes=notes, rows=rows)
            return TableFile(file=file, format=format, encoding=encoding, notes=notes)
        case "conll":
            return _open_tagged(file, encoding, notes, layout)
        case "fasttext":
            return _open_fasttext(file, encoding, notes, sample)
        case "text":
            return TableFile(file=file, format=format, encoding=encoding, notes=notes, names=("text",))
        case _:
            return _open_delimited(file, format, encoding, notes, layout, sample, ending)


def _member_of(file: CorpusFile) -> tuple[CorpusFile, str]:
    """The only table in a zip archive, with a line about it."""
    with open_corpus_file(file) as (content, _):
        try:
            with zipfile.ZipFile(content) as archive:
                names = [entry.filename for entry in archive.infolist() if not entry.is_dir()]
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise DamagedData(file.name, f"damaged zip file ({error})", "fetch it again") from error
    plain = [name for name in names if not name.startswith("__MACOSX/") and not Path(name).name.startswith(".")]
    tables = [name for name in plain if ending_of(Path(name)) in _ENDINGS]
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
    is_file = {"--format": layout.format, "--delimiter": layout.delimiter, "--columns": layout.columns}
    for option, value in (is_file | {"--no-header": layout.no_header or None}).items():
        if value is not None:
            raise UsageError(option, f"{name} is a folder", "leave it out, or name a file")
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


_FASTTEXT = re.compile(r"__label__\S+(\s|$)")
_COARSE_AND_FINE = re.compile(r"[A-Z]{2,12}:[A-Za-z]+ \S")


def _recognise_format(file: CorpusFile, sample: str, has_task: bool) -> tuple[Format, str | None]:
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
    if all(map(_FASTTEXT.match, filled)):
        return "fasttext", None
    if all(map(_COARSE_AND_FINE.match, filled)):
        return "fasttext", None
    if not has_task and _looks_tagged(lines):
        if any(not line.strip() for line in lines[:-1]):
            return "conll", None
        if len(filled) > _MAX_SENTENCE_LENGTH:
            why = f"has a word and a tag on each of its {len(filled):,} lines, and no blank line between sentences"
            size = len(filled[0].split("\t" if "\t" in sample else None))
            raise UsageError(file.name, why, _without_blank_lines(size, "\t" if "\t" in sample else None))
        if not any(" " in field for line in filled for field in line.split("\t")) or "\t" not in sample:
            return "conll", None
    for delimiter in ("\t", ";", "|", ","):
        widths = Counter(line.count(delimiter) for line in filled)
        width, count = widths.most_common(1)[0]
        total = len(filled)
        if '"' in sample and count < _TAGGED_SHARE * total:
            quoted, is_right = _sample_rows(sample, delimiter)
            if is_right:
                width, count = Counter(len(row) - 1 for row in quoted).most_common(1)[0]
                total = len(quoted)
        if width == 0 or count < _TAGGED_SHARE * total:
            continue
        if delimiter == ",":
            # Texts have commas, too: the first line must look like names of columns, short and no sentences.
            names = filled[0].split(delimiter)
            if not all(0 < len(name.strip()) <= 30 and not re.search(r"[.?!]\s*$", name) for name in names):
                continue
        return "csv", None
    return "text", None


# --------------------------------------------------------------------------------------------------------------------
# Columns with a separator.

SEPARATORS = {",": "','", ";": "';'", "\t": "a tab", "|": "'|'"}


MANY_COLUMNS = 8
"""Of more columns not every name is written out in a message."""


def _open_delimited(
    file: CorpusFile,
    format: Format,
    encoding: str,
    notes: tuple[str, ...],
    layout: Layout,
    sample: str,
    ending: str,
) -> TableFile:
    usual = "\t" if ending in (".tsv", ".tab") or format == "tsv" else ","
    delimiter = layout.delimiter
    preamble = 0
    declared = re.match(r"sep=(.)\r?\n", sample)
    if declared is not None and delimiter in (None, declared[1]):
        delimiter = declared[1]
        preamble = 1
        notes += (f"the first line says that {SEPARATORS.get(delimiter, repr(delimiter))} separates the columns",)
    else:
        preamble = _comment_lines(sample)
        if preamble:
            what = (
                "line, which begins with # and has no columns, is"
                if preamble == 1
                else "lines, which begin with #, are"
            )
            notes += (f"the first {'' if preamble == 1 else f'{preamble} '}{what} not read",)
    sample = "".join(sample.splitlines(keepends=True)[preamble:])
    if delimiter is not None:
        delimiter = {"tab": "\t", "\\t": "\t", "space": " "}.get(delimiter, delimiter)
        if len(delimiter) != 1:
            raise UsageError("--delimiter", f"{delimiter!r} is not one character", "for example ';', tab or '|'")
    elif format == "tsv":
        delimiter = "\t"
    else:
        delimiter = _recognise_delimiter(file, sample, usual, ending)
        if delimiter != usual:
            notes += (f"columns are separated by {SEPARATORS[delimiter]}",)
    quoted = format != "tsv"
    escaped = quoted and '\\"' in sample and _are_quotes_escaped(sample, delimiter)
    if escaped:
        sample = sample.replace('\\"', '""')
        notes += ('quotes inside of texts are written as \\"',)
    if quoted and layout.format is None:
        quoted, note = _recognise_quotes(sample, delimiter)
        notes += (note,) if note else ()
    try:
        first, *others = islice(_split_rows(io.StringIO(sample, newline=""), delimiter, quoted), 1000)
    except csv.Error:
        first, *others = [line.split(delimiter) for line in sample.split("\n")[:1000]]
    others = [row for row in others if row]
    width = Counter(map(len, others)).most_common(1)[0][0] if others else len(first)
    cells = [(cell[:1], cell[-1:]) for row in others for cell in map(str.strip, row) if len(cell) > 1]
    in_single_quotes = sum(ends == ("'", "'") for ends in cells)
    if in_single_quotes > 1 and in_single_quotes > 0.2 * len(cells):
        why = f"{in_single_quotes:,} of the first {len(cells):,} fields are in single quotes, which are read as text"
        notes += (f"{why}: only double quotes enclose a field",)
    stripped = [cell.strip().removeprefix("\ufeff").strip('"').strip() for cell in first]
    header_lines = 0
    doubt = None
    if layout.columns is not None:
        names: list[str | None] = list(layout.columns)
        if len(set(names)) < len(names):
            raise UsageError("--columns", "a name occurs twice", "give every column another name")
        if len(names) > max(width, len(first)):
            why = f"names {len(names)} columns, {file.name} has {max(width, len(first))}"
            raise UsageError("--columns", why, f"the first row is {', '.join(map(repr, stripped))[:120]}")
        if [name.casefold() for name in stripped[: len(names)]] == [str(name).casefold() for name in names]:
            header_lines = 1
            notes += ("the first row holds the names of --columns, it is not a row",)
        elif len(names) < len(first):
            notes += (f"the last {len(first) - len(names)} of {len(first)} columns have no name and are ignored",)
        names += [None] * (max(width, len(first)) - len(names))
    elif layout.no_header:
        names = [f"column {number}" for number in range(1, max(width, len(first)) + 1)]
    else:
        header_lines = 1
        if width == len(first) + 1 and others and all(row[0].strip('"').isdigit() for row in others if row):
            stripped = ["", *stripped]  # R's row names, whose column has no name
        names = [None if not name or re.fullmatch(r"Unnamed: \d+", name) else name for name in stripped]
        unnamed = sum(name is None for name in names)
        if looks_like_a_row(stripped, others):
            shown = ", ".join(repr(name if len(name) < 30 else name[:29] + "…") for name in stripped[:4])
            flags = " ".join(f"NAME{number}" for number in range(1, len(names) + 1))
            if len(names) > MANY_COLUMNS:
                flags = f"NAME1 ... NAME{len(names)}"
            doubt = f"the first row looks like a row ({shown}): name the columns with --columns {flags}, or --no-header"
            notes += (doubt,)
        clash = next((name for name, count in Counter(names).items() if name is not None and count > 1), None)
        if clash is not None:
            remedy = doubt or "rename one of them, or name all with --columns"
            raise DamagedData(f"{file.name}:1", f"two columns have the same name, {clash!r}", remedy)
        if unnamed:
            is_one = unnamed == 1
            verbs = "column without a name is" if is_one else "columns without a name are"
            notes += (f"{unnamed} {verbs} ignored",)
        if unnamed == len(names):
            raise DamagedData(f"{file.name}:1", "the columns have no names", "name them with --columns")
    return TableFile(
        file=file,
        format=format,
        encoding=encoding,
        delimiter=delimiter,
        quoted=quoted,
        escaped=escaped,
        preamble=preamble,
        names=tuple(names),
        header_lines=header_lines,
        notes=notes,
        doubt=doubt,
        single_quotes=sum(map(_divides_single_quotes, others)) > 0.2 * len(others),
    )


def _split_rows(text: Any, delimiter: str, quoted: bool, strict: bool = False) -> Iterator[list[str]]:
    if quoted:
        return csv.reader(text, delimiter=delimiter, strict=strict)
    lines = (line.removesuffix("\n").removesuffix("\r") for line in text)
    return (line.split(delimiter) if line else [] for line in lines)


def _comment_lines(sample: str) -> int:
    """The number of lines with # at the beginning of a table, if they have fewer separators than the next line."""
    lines = sample.splitlines()
    count = 0
    while count < len(lines) and lines[count].startswith("#"):
        count += 1
    if count in (0, len(lines)):
        return 0
    most = max(lines[count].count(delimiter) for delimiter in SEPARATORS)
    fewer = all(max(line.count(delimiter) for delimiter in SEPARATORS) < most for line in lines[:count])
    return count if fewer else 0


def _are_quotes_escaped(sample: str, delimiter: str) -> bool:
    r"""Return whether a sample can be divided only if `\"` is a quote inside of a field, as MySQL writes it."""

    def fits(text: str) -> bool:
        try:
            rows = [row for row in _split_rows(io.StringIO(text, newline=""), delimiter, True, strict=True) if row]
        except csv.Error as error:
            return str(error).startswith("unexpected end") and text is not sample
        return all(len(row) == len(rows[0]) for row in rows)

    return not fits(sample) and fits(sample.replace('\\"', '""'))


@lru_cache(maxsize=4)
def _sample_rows(sample: str, delimiter: str) -> tuple[list[list[str]], bool]:
    """The rows of a sample with quotes around fields, and whether every quote is at its place."""
    try:
        return [row for row in _split_rows(io.StringIO(sample, newline=""), delimiter, True, strict=True) if row], True
    except csv.Error:
        return [row for row in _split_rows(io.StringIO(sample, newline=""), delimiter, True) if row], False


def _recognise_delimiter(file: CorpusFile, sample: str, usual: str, ending: str) -> str:
    """The separator that divides the first row, and nearly all others into as many fields."""
    shares: dict[str, float] = {}
    lines = [line for line in sample.splitlines() if line.strip()]
    for delimiter in SEPARATORS:
        if delimiter not in sample:
            continue
        readings = [[line.split(delimiter) for line in lines]]
        if '"' in sample:
            readings.append(_sample_rows(sample, delimiter)[0])
        for each in readings:
            width = len(each[0])
            fitting = sum(len(row) == width or (len(row) > width and not any(row[width:])) for row in each)
            if width > 1:
                shares[delimiter] = max(shares.get(delimiter, 0.0), fitting / len(each))
    good = [delimiter for delimiter, share in shares.items() if share >= 0.9]
    if not good:
        # R writes no name for its row names, so that the header has a field less
        for delimiter in SEPARATORS:
            rows = [row for row in _split_rows(io.StringIO(sample, newline=""), delimiter, True) if row]
            if len(rows) > 1 and len(rows[0]) > 1 and all(len(row) == len(rows[0]) + 1 for row in rows[1:]):
                return delimiter
        most = max(shares, key=lambda delimiter: shares[delimiter], default=usual)
        return usual if usual in shares or shares.get(most, 0.0) < 0.5 else most
    best = max(shares[delimiter] for delimiter in good)
    equal = [delimiter for delimiter in good if shares[delimiter] == best]
    if len(equal) == 1:
        return equal[0]
    if "\t" in equal:
        return "\t"
    if usual in equal and ending in _ENDINGS:
        others = " or ".join(SEPARATORS[delimiter] for delimiter in equal)
        header = sample.partition("\n")[0]
        if all(len([name for name in header.split(d) if name.strip()]) > 1 for d in equal):
            raise UsageError(file.name, f"columns may be separated by {others}", "say which with --delimiter")
    return equal[0]


def _recognise_quotes(sample: str, delimiter: str) -> tuple[bool, str | None]:
    """Return whether quotes around a field are not part of it, as pandas writes them and GLUE does not."""
    if '"' not in sample:
        return True, None
    raw = [line.split(delimiter) for line in sample.splitlines() if line]
    raw_fits = sum(len(row) == len(raw[0]) for row in raw) / len(raw)
    rows, is_right = _sample_rows(sample, delimiter)
    fits = sum(len(row) == len(rows[0]) for row in rows) / len(rows) if is_right else 0.0
    if fits < raw_fits and raw_fits > 0.9:
        return False, "quotes are read as text, because they do not enclose fields (--format csv)"
    if delimiter != "\t" or fits > raw_fits:
        return True, None
    opened = [cell for row in raw for cell in row if cell.startswith('"')]
    enclosed = [cell for cell in opened if re.fullmatch(r'"([^"]|"")*"', cell) and cell != '"']
    doubled = sum('""' in cell[1:-1] for cell in enclosed)
    columns = list(zip(*(row for row in raw[1:] if len(row) == len(raw[0])), strict=True))
    whole = bool(enclosed) and any(all(cell in enclosed for cell in column) for column in columns if column)
    if opened and len(enclosed) == len(opened) and (doubled or whole or raw[0][0] in enclosed):
        return True, None
    if enclosed:
        return False, f"{len(enclosed):,} fields are in quotes, which are read as text (--format csv removes them)"
    return False, None


def looks_like_a_row(header: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the cells of a header are values: long texts, numbers, or values that rows repeat."""
    for column, cell in enumerate(header):
        if len(cell) > 60 or re.fullmatch(r"[-+]?\d+([.,]\d+)*", cell) or re.search(r"\w\s+\w.*[.?!]$", cell):
            return True
        values = [row[column].strip() for row in rows if len(row) > column]
        if cell and cell in values and len(set(values)) < max(2, len(values)):
            return True
    return False


def _delimited_records(table: TableFile, reached: Advance) -> Iterator[Record]:
    names = table.used_names
    for block in _blocks(table, reached):
        for line, values in block.values(table):
            yield Record(f"{table.file.name}:{line}", dict(zip(names, values, strict=True)))


_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class _Block:
    """Some whole rows of a file with separators, as they are written, in UTF-8.

    Attributes:
        line: the line on which they begin.
        is_regular: every line is a row with all fields.
        has_quotes: if it is regular, whether fields are in quotes; without any, separators divide the fields.
        rows: each row's line and fields, if they have been divided already.
    """

    data: bytes
    line: int
    count: int
    is_regular: bool = False
    has_quotes: bool = False
    rows: Sequence[tuple[int, list[str]]] | None = None

    def values(self, table: TableFile) -> Iterator[tuple[int, Sequence[str]]]:
        """The line on which each row begins, and its values in the columns that have a name."""
        if self.is_regular:
            fields = self.fields(table)
            columns = [fields[index :: len(table.names)] for index in _used(table)]
            rows: Any = enumerate(zip(*columns, strict=True), start=self.line)
            return rows
        used = _used(table)
        return ((line, [values[index] for index in used]) for line, values in self._divided(table))

    def column(self, table: TableFile, index: int) -> list[str]:
        """The values of a column, by its position."""
        if not self.is_regular:
            return [values[index] for _, values in self._divided(table)]
        return self.fields(table)[index :: len(table.names)]

    def fields(self, table: TableFile) -> list[str]:
        """The fields of all rows, one after the other, of a regular block."""
        if self.has_quotes:
            fields = _quoted_fields(self.data, table.delimiter.encode())
            return fields or [field for _, values in self._divided(table) for field in values]
        fields = self.data.decode().replace("\n", table.delimiter).split(table.delimiter)
        del fields[-1]  # after the last line's end
        return fields

    def _divided(self, table: TableFile) -> Iterable[tuple[int, list[str]]]:
        if self.rows is not None:
            return self.rows
        if self.is_regular:
            lines = io.StringIO(self.data.decode(), newline="")
            return enumerate(_split_rows(lines, table.delimiter, True), start=self.line)
        rows, _, _ = _divide(table, self.data.decode(), self.line)
        return rows


def _used(table: TableFile) -> list[int]:
    """The positions of the columns that have a name."""
    return [index for index, name in enumerate(table.names) if name is not None]


def _blocks(table: TableFile, reached: Advance) -> Iterator[_Block]:
    """The rows of a file with separators, in blocks of whole rows; every row is checked.

    Fields in quotes are removed from a block, and then everything but separators and ends of lines. If `,\\n,\\n,\\n`
    is left, all rows have the right number of fields, and need not be divided before they are used. Blocks with ends
    of lines in quotes, empty lines or faults are divided here.
    """
    width = len(table.names)
    can_be_regular = width > 1 and table.delimiter.isascii() and table.delimiter not in '"\r\n'
    marks = table.delimiter + ("\r\n" if table.quoted else "\n")
    others = bytes(code for code in range(256) if chr(code) not in marks)
    row = table.delimiter.encode() * (width - 1) + b"\n"
    line = 1
    preamble = table.preamble
    header_lines = table.header_lines
    rest = b""
    enough = 0
    for chunk, is_last in _chunks(table, reached):
        data = rest + chunk
        if len(data) < enough and not is_last:
            rest = data
            continue
        if is_last and data and not data.endswith(b"\n"):
            data += b"\n"
        end = data.rfind(b"\n") + 1
        rest = data[end:]
        data = data[:end]
        if table.escaped:
            data = data.replace(b'\\"', b'""')
        while preamble and data:
            data = data.partition(b"\n")[2]
            preamble -= 1
            line += 1
        if data and header_lines:
            rows, n_lines, size = _divide(table, data.decode(), line, header_lines, is_last)
            if len(rows) < header_lines:  # lines without fields, or the header's quotes are still open
                rest = data + rest
                data = b""
            else:
                header_lines = 0
                data = data[size:]
                line += n_lines
        if data:
            has_quotes = table.quoted and b'"' in data
            skeleton = b""
            if can_be_regular and has_quotes:
                skeleton = _quoted_skeleton(data, table.delimiter.encode(), others.replace(b'"', b""))
            elif can_be_regular:
                skeleton = data.translate(None, others)
            if b"\r" in skeleton and data.count(b"\r") == data.count(b"\r\n"):
                skeleton = skeleton.replace(b"\r", b"")
            if skeleton and skeleton == row * (len(skeleton) // width):
                count = len(skeleton) // width
                if b"\r" in data:
                    data = data.replace(b"\r\n", b"\n")
                yield _Block(data=data, line=line, count=count, is_regular=True, has_quotes=has_quotes)
                line += count
            else:
                rows, n_lines, size = _divide(table, data.decode(), line, None, is_last)
                rest = data[size:] + rest
                if rows:
                    yield _Block(data=data[:size], line=line, count=len(rows), rows=rows)
                line += n_lines
        enough = 2 * len(rest)  # a long row is not tried after every part of it
        if len(rest) > MAX_RECORD_LENGTH:
            raise DamagedData(f"{table.file.name}:{line}", f"is longer than {MAX_RECORD_LENGTH / 1e6:,.0f} MB")


_QUOTE = 34
_LINE_END = 10
_RETURN = 13


def _quoted_skeleton(data: bytes, delimiter: bytes, others: bytes) -> bytes:
    """Separators and ends of lines outside of quotes; nothing if a quote does not enclose a field, or encloses a line.

    Args:
        data: whole lines.
        others: the bytes that are neither a separator, an end of a line nor a quote.
    """
    signs = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(signs == _QUOTE)
    if len(quotes) % 2:
        return b""
    closed = quotes[1::2]
    # Beside a quote there is a separator, an end of a line, or another quote: two in a field stand for one. Before the
    # first byte is, as index -1, the last one, which ends a line.
    allowed = np.zeros(256, bool)
    allowed[[delimiter[0], _LINE_END, _QUOTE]] = True
    if not allowed[signs[quotes[0::2] - 1]].all():
        return b""
    after = signs[closed + 1]
    wrong = closed[~allowed[after]]
    if len(wrong) and not ((signs[wrong + 1] == _RETURN) & (signs[wrong + 2] == _LINE_END)).all():
        return b""
    kept = np.frombuffer(data.translate(None, others), np.uint8)
    is_inside = np.cumsum(kept == _QUOTE, dtype=np.uint8) & 1 == 1
    inside = kept[is_inside]
    if ((inside == _LINE_END) | (inside == _RETURN)).any():
        return b""
    outside = kept[~is_inside]
    return outside[outside != _QUOTE].tobytes()


def _quoted_fields(data: bytes, delimiter: bytes) -> list[str] | None:
    """The fields of whole rows with quotes around some of them and no line in quotes; None if no sign is free.

    Separators and ends of lines outside of quotes are replaced by a byte that does not occur; quotes around fields and
    the first of two are removed.
    """
    sign = next((code for code in (31, 30, 29, 28, 0, 1, 2, 3) if bytes([code]) not in data), None)
    if sign is None:
        return None
    signs = np.frombuffer(data, np.uint8).copy()
    is_quote = signs == _QUOTE
    quotes = np.flatnonzero(is_quote)
    closed = quotes[1::2]
    is_doubled = signs[closed + 1] == _QUOTE
    is_inside = np.cumsum(is_quote, dtype=np.uint8) & 1 == 1
    signs[((signs == delimiter[0]) | (signs == _LINE_END)) & ~is_inside] = sign
    is_quote[closed[is_doubled]] = False
    fields = signs[~is_quote].tobytes().decode().split(chr(sign))
    del fields[-1]  # after the last line's end
    return fields


def _chunks(table: TableFile, reached: Advance) -> Iterator[tuple[bytes, bool]]:
    """The text of a file in UTF-8 and in parts of about a megabyte, and whether a part is the last one."""
    is_utf8 = table.encoding in ("utf-8", "utf-8-sig")
    decoder = codecs.getincrementaldecoder(table.encoding)()
    is_packed = table.file.path.suffix.lower() in COMPRESSIONS or bool(table.file.member)
    lines = 1
    with open_corpus_file(table.file) as (content, _):
        is_first = True
        is_last = False
        while not is_last:
            data = content.read(_BLOCK_BYTES)
            is_last = not data
            is_checked = is_utf8 and data.isascii() and not decoder.getstate()[0] and not is_last
            try:
                text = "" if is_checked else decoder.decode(data, final=is_last)
            except UnicodeDecodeError as error:
                name = table.encoding.removesuffix("-sig").upper()
                byte = error.object[error.start]
                before = lines + error.object[: error.start].count(b"\n")
                why = f"is not {name}: byte {byte:#04x} ({error.reason})"
                where = f"{table.file.name}:{before}" if is_utf8 else table.file.name
                raise DamagedData(where, why, "name its encoding with --encoding") from error
            if is_utf8:
                lines += data.count(b"\n")
                yield (data.removeprefix(codecs.BOM_UTF8) if is_first else data), is_last
            else:
                yield text.encode(), is_last
            is_first = False
            if not is_packed:
                reached(content.tell())


def _divide(
    table: TableFile, text: str, line: int, most: int | None = None, is_last: bool = True
) -> tuple[list[tuple[int, list[str]]], int, int]:
    """The rows of a text with their lines; the lines and the bytes that they take.

    With `most`, only the first rows are taken, as a header, and their number of fields is not checked. A row whose
    quotes are not closed is left for the next part of the file, unless this is the last one.
    """
    rows: list[tuple[int, list[str]]] = []
    lines = io.StringIO(text, newline="" if table.quoted else "\n")
    reader: Any = _split_rows(lines, table.delimiter, table.quoted, strict=True)
    width = len(table.names)
    n_lines = 0
    try:
        for values in reader:
            here = line + n_lines
            n_lines = reader.line_num if table.quoted else n_lines + 1
            if values:
                if len(values) != width and most is None:
                    values = _fitted(values, width, f"{table.file.name}:{here}", table)
                rows.append((here, values))
            if most is not None and len(rows) == most:
                break
        else:
            return rows, n_lines, len(text.encode())
    except csv.Error as error:
        if is_last or not str(error).startswith("unexpected end of data"):
            why = f"broken CSV ({str(error).partition(' - ')[0]})"
            remedy = (
                'check the quotes of this row (a quote in a text is doubled: ""), or --format tsv if quotes are text'
            )
            raise DamagedData(f"{table.file.name}:{line + n_lines}", why, remedy) from error
    lines.seek(0)
    return rows, n_lines, len("".join(islice(lines, n_lines)).encode())


class DelimitedRows(ColumnRows):
    """The rows of a file with separators. They are kept as they are written, and each is made when it is read."""

    def __init__(self, table: TableFile, reached: Advance = lambda position: None) -> None:
        self._table = table
        self._blocks = [replace(block, rows=None) for block in _blocks(table, reached)]
        self._starts = [0, *accumulate(block.count for block in self._blocks)]
        self._opened = -1
        self._rows: list[Row] = []

    @property
    def names(self) -> tuple[str, ...]:
        return self._table.used_names

    def column(self, name: str) -> list[str]:
        index = self._table.names.index(name)
        return [value for block in self._blocks for value in block.column(self._table, index)]

    def __len__(self) -> int:
        return self._starts[-1]

    def __iter__(self) -> Iterator[Row]:
        for number in range(len(self._blocks)):
            yield from self._rows_of(number)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(index)
        number = bisect_right(self._starts, at) - 1
        if number != self._opened:
            self._rows = list(self._rows_of(number))
            self._opened = number
        return self._rows[at - self._starts[number]]

    def _rows_of(self, number: int) -> Iterator[Row]:
        """The rows of a block."""
        names = self.names
        subject = f"{self._table.file.name}:"
        for at, (line, values) in enumerate(self._blocks[number].values(self._table), start=self._starts[number]):
            yield Row(str(at), subject + str(line), dict(zip(names, values, strict=True)))


def _divides_single_quotes(values: Sequence[str]) -> bool:
    """Return whether a field begins with a single quote, and a later one ends with it."""
    opened = [at for at, value in enumerate(values) if value.strip().startswith("'")]
    return bool(opened) and any(value.strip().endswith("'") for value in values[opened[0] + 1 :])


def _fitted(values: list[str], width: int, where: str, table: TableFile) -> list[str]:
    """A row without surplus fields that are empty; any other row of another width is an error."""
    if len(values) > width and not any(value.strip() for value in values[width:]):
        return values[:width]
    what = "tab-separated fields" if table.delimiter == "\t" else "fields"
    against = "the header has" if table.header_lines else "the first row has"
    shown = SEPARATORS.get(table.delimiter, repr(table.delimiter))
    remedy = f"columns are separated by {shown}, another separator is named by --delimiter"
    if len(values) > width and table.quoted:
        remedy += "; a text with the separator in it needs double quotes"
    if len(values) > width and table.delimiter == "\t":
        remedy += f"; the first {width} columns alone: cut -f 1-{width} FILE > NEW"
    if table.quoted and (table.single_quotes or _divides_single_quotes(values)):
        remedy = 'single quotes do not enclose a field: write double quotes (") in their place'
    raise DamagedData(where, f"has {len(values)} {what} where {against} {width}", remedy)


# --------------------------------------------------------------------------------------------------------------------
# Tagged text as in the CoNLL shared tasks: a word and its tags per line, a blank line after each sentence.
#
# Fields are separated by tabs, or by spaces in a file without tabs. The first is the word, the last its tag, unless the
# first numbers the words. Lines that begin with -DOCSTART- mark documents and are counted (Tjong Kim Sang and De
# Meulder 2003), as are comments.

_DOCUMENT = "-DOCSTART-"
_TAGGED_SHARE = 0.95
"""Share of the lines of a tagged text that have the same number of fields; lines of prose differ."""
_LONG_SENTENCE = 60
_MAX_SENTENCE_LENGTH = 300
_COMMENT = re.compile(r"#\s*[\w.:-]+(\s+[\w.:-]+)*\s*=|#\s+\S+\s+\S+\s+\S+")
_FIELDS_OF_2012 = 11
"""Of a line of CoNLL-2012: further ones, one for each predicate and the last, are not read."""
_BRACKETS = re.compile(r"\([A-Za-z_-]+(\*\)?|\))|\*\)?")
_TAG_OF_ENTITY = re.compile(r"O|[BIESLU]-\S+")
_CONLL_U: str = "ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC"
_NAMES_OF_WORDS = {"word", "words", "token", "tokens", "form", "text"}
_NAMES_OF_TAGS = {
    "tag",
    "tags",
    "label",
    "labels",
    "ner",
    "ner_tag",
    "ner_tags",
    "pos",
    "pos_tag",
    "bio",
    "iob",
    "upos",
}


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


def _fields_of_line(line: str, separator: str | None) -> list[str]:
    if separator is None:
        return [part for part in line.split(" ") if part]
    return line.split(separator) if line.strip(" \t") else []


def _looks_tagged(lines: Sequence[str]) -> bool:
    """Return whether lines are words with tags, by their number of fields; a few lines may be damaged."""
    separator = "\t" if any("\t" in line for line in lines) else None
    fields = [each for each in (_fields_of_line(line, separator) for line in lines) if each]
    fields = [each for each in fields if _DOCUMENT not in each and not each[0].startswith("#")]
    sizes = Counter(map(len, fields))
    size, count = sizes.most_common(1)[0] if sizes else (0, 0)
    if size < 2 or count < _TAGGED_SHARE * sizes.total():
        return False
    if any(not line.strip() for line in lines[:-1]):
        return True
    # without a blank line only words that are short, with few tags, are tagged text
    return all(len(field) <= 40 and " " not in field.strip() for each in fields for field in each)


def _has_sentences(sample: str) -> bool:
    """Return whether lines are words with tags, in blocks between blank lines; some blocks have several words."""
    lines = [line.removesuffix("\r") for line in sample.split("\n")]
    blank = [not line.strip() for line in lines]
    if not any(blank[at] and not blank[at - 1] for at in range(1, len(lines) - 1)):
        return False
    if not any(not blank[at] and not blank[at + 1] for at in range(len(lines) - 1)):
        return False
    has_texts = any(" " in line and "\t" in line and not line.startswith("#") for line in lines)
    return not has_texts and _looks_tagged(lines)


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
        if not _has_sentences("\n".join(first)) or len(set(last)) > 0.7 * len(last):
            return file
    layout = Layout(format="conll", encoding=file.encoding)
    tagged = open_table(file.file.path, layout, name=file.file.name)
    what = "a word and its tag" if most > 1 else "a word"
    note = f"read as {what} on each line, because blank lines divide the lines into sentences (--format text)"
    return replace(tagged, notes=(note, *tagged.notes))


def _declared_columns(lines: Sequence[str]) -> list[str]:
    """The names of the columns in the comment `# global.columns = ID FORM UPOS` of CoNLL-U Plus; empty without one."""
    for line in lines:
        line = line.removeprefix("\ufeff")
        if line.strip() and not line.startswith("#"):
            break
        declared = re.match(r"#\s*global\.columns\s*=(.*)", line)
        if declared is not None:
            return declared[1].split()
    return []


def _column_of_tags(headings: Sequence[str], usual: int) -> int:
    """The position of the tags among columns with names: named entities, else UPOS, else another usual name."""
    lowered = [heading.lower() for heading in headings]
    if TAGS in lowered:
        return lowered.index(TAGS)
    for at, heading in enumerate(lowered):
        if re.search(r"(^|[^a-z])ner$", heading):
            return at
    if "upos" in lowered:
        return lowered.index("upos")
    return max((at for at, heading in enumerate(lowered) if heading in _NAMES_OF_TAGS), default=usual)


def _open_tagged(file: CorpusFile, encoding: str, notes: tuple[str, ...], layout: Layout) -> TableFile:
    lines: list[str] = []
    for _, line in lines_of(file, encoding):
        lines.append(line)
        if len(lines) >= 20_000:
            break
    separator = "\t" if any("\t" in line for line in lines) else None
    cut = _FIELDS_OF_2012 if any(line.startswith("#begin document") for line in lines) else 0
    divided = [(line, _fields_of_line(line, separator)[: cut or None]) for line in lines]
    filled = [fields for _, fields in divided if fields and _DOCUMENT not in fields]
    sizes = Counter(len(fields) for fields in filled if not (fields[0].startswith("#") and len(fields) == 1))
    if not sizes:
        raise MissingInput(file.name, "has no rows")
    size = sizes.most_common(1)[0][0]
    if size == 1 and len(sizes) > 1:
        size = sizes.most_common(2)[1][0]
    rows = [fields for fields in filled if len(fields) == size]
    numbers = [fields for fields in rows if not fields[0].startswith("#")]
    if numbers and all(fields[0].strip().isdecimal() for fields in numbers):
        rows = numbers  # comments may have as many fields
    drops_last = size > 2 and sum(not fields[-1].strip() for fields in rows) >= _TAGGED_SHARE * len(rows)
    if drops_last:
        size -= 1
        notes += ("every line ends in a separator, which is ignored",)
    number, first = next(
        (at, fields)
        for at, (_, fields) in enumerate(divided, start=1)
        if fields and _DOCUMENT not in fields and not fields[0].startswith("#")
    )
    header = 0
    lowered = [field.strip().lower() for field in first]
    are_names = _NAMES_OF_WORDS & set(lowered) and (_NAMES_OF_TAGS & set(lowered) or len(lowered) > 2)
    if len(first) >= 2 and are_names and not layout.no_header:
        header = number
        rows = rows[1:]
        notes += (f"line {number} holds the names of the columns: {', '.join(first)}",)
    ids = [fields[0].strip() for fields in rows]
    plain = [int(each) for each in ids if each.isdecimal()]
    is_id = [bool(re.fullmatch(r"\d+([-.]\d+)?", each)) for each in ids]
    steps = [later - earlier for earlier, later in pairwise(plain)]
    starts = sum(later in (0, 1) for later in plain[1:])
    counted = sum(step == 1 for step in steps)
    in_order = counted > 0 and counted + starts >= 0.98 * len(steps)
    numbered = size > 1 and bool(ids) and all(is_id) and in_order and (size > 2 or starts > 0)
    names = [f"column {position}" for position in range(1, size + 1)]
    words_at = 1 if numbered else 0
    tags_at = size - 1
    headings: list[str] = []
    if numbered and size == 10:
        tags_at = 3
        headings = _CONLL_U.split()
    if cut and size == cut:
        words_at = 3
        tags_at = cut - 1
        numbered = False
        notes += ("CoNLL-2012: the named entities are the tags (--tags 5: parts of speech)",)
    two_columns: tuple[int, int] | None = None
    if size > 2 and not cut and not header:
        inner = [fields[size - 1] for fields in rows]
        outer = [fields[size - 2] for fields in rows]
        are_tags = all(map(_TAG_OF_ENTITY.fullmatch, [*inner, *outer]))
        shared = ({*inner} & {*outer}) - {"O"}
        if are_tags and shared and layout.tags is None:
            two_columns = (size - 1, size)
    tags_first = all(_TAG_OF_ENTITY.fullmatch(fields[0]) for fields in rows) and any(
        fields[0] != "O" for fields in rows
    )
    if tags_first and size == 2 and not all(_TAG_OF_ENTITY.fullmatch(fields[1]) for fields in rows):
        words_at = 1
        tags_at = 0
    declared = _declared_columns(lines)
    if declared and len(declared) != size:
        why = f"names {len(declared)} columns, the words have {size} fields"
        raise DamagedData(f"{file.name}: global.columns", why, "write a name for each column")
    if layout.columns is not None:
        declared = list(layout.columns)
        if len(declared) > size:
            why = f"names {len(declared)} columns, {file.name} has {size}"
            raise UsageError("--columns", why, f"the first row is {', '.join(map(repr, first))[:120]}")
        declared += names[len(declared) :]
    if declared:
        headings = declared
        lowered = [heading.lower() for heading in headings]
        words_at = next((at for at, each in enumerate(lowered) if each in _NAMES_OF_WORDS), words_at)
        tags_at = _column_of_tags(headings, tags_at)
        for at, heading in enumerate(headings):
            if heading not in (WORDS, TAGS) and headings.count(heading) == 1:
                names[at] = heading
    elif header:
        headings = [field.strip() for field in first[:size]]
        words_at = next(at for at, each in enumerate(lowered) if each in _NAMES_OF_WORDS)
        tags_at = max((at for at, each in enumerate(lowered[:size]) if each in _NAMES_OF_TAGS), default=tags_at)
    tags_name = TAGS
    if layout.tags in headings:  # the column that the user names keeps its name
        tags_at = headings.index(layout.tags)
        tags_name = layout.tags
    if tags_at != words_at:
        names[tags_at] = tags_name
    names[words_at] = WORDS
    aliases = {heading: name for heading, name in zip(headings, names, strict=False)}
    aliases |= {f"column {position}": name for position, name in enumerate(names, start=1)}
    if numbered:
        notes += ("column 1 numbers the words",)
    if words_at != 0 or size > 2 or declared:
        used = []
        for given, at in ((layout.words, words_at), (layout.tags, tags_at)):
            if given is not None and given.isdecimal():
                given = f"column {given}"
            name = aliases.get(given or "", given)
            at = names.index(name) if name in names else at
            heading = f" ({headings[at]!r})" if headings else ""
            used.append((f"column {at + 1}", heading))
        (words, its_name), (tags, their_name) = used
        note = f"the words are {words}{its_name}, the tags {tags} of {size}{their_name} (--words, --tags)"
        notes += (note if tags_at != words_at else f"the words are {words} of {size}{its_name} (--words)",)
    found = [re.match(r"[a-z]{2,3}:(?=.)", fields[words_at]) for fields in rows]
    prefix = found[0].group() if found and found[0] is not None else ""
    if prefix and len(rows) > 1 and all(each is not None and each.group() == prefix for each in found):
        notes += (f"every word begins with {prefix!r}, which is left out",)
    else:
        prefix = ""
    tagged = Tagged(
        separator=separator,
        size=size,
        drops_last=drops_last,
        header=header,
        numbered=numbered,
        prefix=prefix,
        cut=cut,
        two_columns=two_columns,
    )
    return TableFile(
        file=file,
        format="conll",
        encoding=encoding,
        notes=notes,
        names=tuple(names),
        aliases=aliases,
        tagged=tagged,
        quoted=False,
    )


def _tagged_records(table: TableFile, counts: Counter[str]) -> Iterator[Record]:
    """A record for each sentence: lists in the columns `words`, `tags` and, if there are more, `column 2` and so on."""
    how = table.tagged
    assert how is not None
    name = table.file.name
    names = [str(each) for each in table.names]
    counts["document_marks"] = 0
    sentence: list[list[str]] = []
    begin = 0
    for number, line in lines_of(table.file, table.encoding):
        fields = _fields_of_line(line.removeprefix("\ufeff") if number == 1 else line, how.separator)
        if not fields:
            if sentence:
                yield _tagged_sentence(f"{name}:{begin}", sentence, names, how.prefix, how.separator)
                sentence = []
            continue
        if number == how.header:
            continue
        fields = fields[: how.cut or None]
        if _DOCUMENT in fields:
            counts["document_marks"] += 1
            continue
        if len(fields) == how.size + 1 and not fields[-1].strip():
            fields = fields[:-1]
        if fields[0].startswith("#") and (how.numbered or len(fields) != how.size or _COMMENT.match(line)):
            counts["comments"] += 1
            continue
        if how.numbered and not fields[0].strip().isdecimal() and re.fullmatch(r"\d+[-.]\d+", fields[0].strip()):
            counts["multiword_lines"] += 1
            continue
        if len(fields) != how.size:
            why = f"has {len(fields)} fields where the other words have {how.size}"
            raise DamagedData(f"{name}:{number}", why, "a blank line ends a sentence; a table needs another ending")
        if not all(field.strip() for field in fields):
            if [field.strip() for field in fields] == ["", "O"]:  # in the Broad Twitter Corpus
                counts["blank_words_left_out"] += 1
                continue
            raise DamagedData(f"{name}:{number}", "an empty field", "every word needs its tag")
        if not sentence:
            begin = number
        sentence.append(fields)
    if sentence:
        yield _tagged_sentence(f"{name}:{begin}", sentence, names, how.prefix, how.separator)


def _without_blank_lines(size: int, separator: str | None) -> str:
    """What to do with lines of words and tags that no blank line divides."""
    columns = " ".join("ABCDEFGHIJKLMNOPQRSTUVWXYZ"[:size])
    delimiter = {None: "space", "\t": "tab"}.get(separator, separator)
    table = f"--format tsv --delimiter {delimiter} --columns {columns}"
    return f"write a blank line after each sentence; a table of single words and their labels is read with {table}"


def _tagged_sentence(
    where: str, sentence: Sequence[Sequence[str]], names: Sequence[str], prefix: str, separator: str | None
) -> Record:
    """The record of a sentence, of which the fields of each word are given."""
    if len(sentence) > 100 * _MAX_SENTENCE_LENGTH:
        why = f"is a sentence of {len(sentence):,} words: there is no blank line"
        raise DamagedData(where, why, _without_blank_lines(len(names), separator))
    columns = dict(zip(names, map(list, zip(*sentence, strict=True)), strict=True))
    columns[WORDS] = [word.removeprefix(prefix) for word in columns[WORDS]]
    for name, values in columns.items():
        if name != WORDS and all(map(_BRACKETS.fullmatch, values)):
            columns[name] = _tags_of_brackets(values)
    return Record(where, columns)


def _tags_of_brackets(values: Sequence[str]) -> list[str]:
    """Tags (IOB2) of marks with brackets as in CoNLL-2003's forerunners and CoNLL-2012: `(PERSON*`, `*`, `*)`."""
    tags = []
    label = ""
    for value in values:
        is_first = value.startswith("(")
        if is_first:
            label = value[1:].partition("*")[0].removesuffix(")")
        tags.append(f"{'B' if is_first else 'I'}-{label}" if label else "O")
        if value.endswith(")"):
            label = ""
    return tags


# --------------------------------------------------------------------------------------------------------------------
# A label, then its text: fastText's `__label__spam Win a prize` and TREC's `NUM:date When was ...`.


def _open_fasttext(file: CorpusFile, encoding: str, notes: tuple[str, ...], sample: str) -> TableFile:
    lines = [line for line in sample.splitlines() if line.strip()]
    is_coarse = all(map(_COARSE_AND_FINE.match, lines))
    if is_coarse:
        notes += ("every line is a label and its text; 'label' is what is before the colon, 'fine' all of it",)
    else:
        notes += ("every line is a label and its text",)
    names = ("text", "label", "fine") if is_coarse else ("text", "label")
    return TableFile(file=file, format="fasttext", encoding=encoding, notes=notes, names=names)


def _fasttext_records(table: TableFile) -> Iterator[Record]:
    is_coarse = len(table.names) == 3
    for number, line in lines_of(table.file, table.encoding):
        where = f"{table.file.name}:{number}"
        words = line.split()
        if not words:
            continue
        marked = 0
        while marked < len(words) and words[marked].startswith("__label__"):
            marked += 1
        labels = [word.removeprefix("__label__") for word in words[: marked or 1]]
        text = line.strip()
        for word in words[: marked or 1]:
            text = text[len(word) :].lstrip()
        if is_coarse:
            coarse, colon, _ = labels[0].partition(":")
            if not colon:
                raise DamagedData(where, f"begins with {labels[0]!r}, not with a label such as 'NUM:date'")
            yield Record(where, {"text": text, "label": coarse, "fine": labels[0]})
        else:
            yield Record(where, {"text": text, "label": labels if len(labels) > 1 else labels[0]})


def _sentences(table: TableFile, words: str, group: str, reached: Advance) -> Iterator[Record]:
    """Sentences of a table with one word in each row; rows without the name of a sentence continue the one before."""
    members: list[Record] = []
    name: Any = None
    for record in table.records(reached):
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


# --------------------------------------------------------------------------------------------------------------------
# JSON as one value: a list of objects, SQuAD's layout, or what pandas writes.


_SPACY_NOTE = "every row is a text with its entities or categories (spaCy): columns text and label"


def _json_lines(file: CorpusFile, encoding: str) -> Iterator[Record]:
    for number, line in lines_of(file, encoding):
        if not line.strip():
            continue
        try:
            value = json.loads(line, object_pairs_hook=unique_keys)
        except (ValueError, RecursionError) as error:
            raise DamagedData(f"{file.name}:{number}", f"is not JSON ({error})") from error
        if is_of_spacy(value):
            value = row_of_spacy(value)
        if not isinstance(value, dict):
            raise DamagedData(f"{file.name}:{number}", f"is {type(value).__name__}, a JSON object is expected")
        yield Record(f"{file.name}:{number}", value)


def _is_list_of_rows(value: Any) -> bool:
    """Return whether a value is a list of lists of texts or numbers, as many in each."""
    if not isinstance(value, list) or not value or not all(isinstance(row, list) and len(row) > 1 for row in value):
        return False
    plain = all(isinstance(cell, str | int | float | None) for row in value for cell in row)
    return plain and len(set(map(len, value))) == 1


def _are_rows_by_key(value: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether objects are rows and not columns: more of them than fields, and all with the same fields."""
    fields = next(iter(value.values()))
    same = all(row.keys() == fields.keys() for row in value.values())
    return same and len(value) > len(fields) and not all(name.isdecimal() for name in fields)


def _open_json(file: CorpusFile, encoding: str, notes: tuple[str, ...], layout: Layout) -> TableFile:
    value: Any
    with text_of_file(file, encoding) as text:
        try:
            value = json.loads(text.read(), object_pairs_hook=unique_keys)
        except (ValueError, RecursionError) as error:
            text.seek(0)
            remedy = PYTHON_DICT_REMEDY if re.match(r"\s*\{u?'", text.read(100)) else None
            raise DamagedData(file.name, f"is not JSON ({error})", remedy) from error
    if isinstance(value, dict) and len(value) == 1:
        name, inner = next(iter(value.items()))
        if isinstance(inner, dict) and any(isinstance(each, list) for each in inner.values()):
            notes += (f"the rows are in the object {name!r}",)
            value = inner
    if isinstance(value, dict) and isinstance(value.get("annotations"), list) and "classes" in value:
        value = [item for item in value["annotations"] if item is not None]
    if isinstance(value, dict):
        articles = value.get("data")
        if isinstance(articles, list) and articles and isinstance(articles[0], dict) and "paragraphs" in articles[0]:
            notes += ("SQuAD's layout: columns question, context, answers.text and answers.answer_start",)
            rows = tuple(_squad_records(file.name, articles))
            return TableFile(file=file, format="json", encoding=encoding, notes=notes, rows=rows)
        lists = {
            name: items
            for name, items in value.items()
            if isinstance(items, list) and items and all(isinstance(item, dict) for item in items)
        }
        if isinstance(value.get("columns"), list) and "index" in value and _is_list_of_rows(value.get("data")):
            names = [str(name) for name in value["columns"]]
            lists["data"] = [dict(zip(names, row, strict=False)) for row in value["data"]]
            notes += ("columns and rows are lists, as pandas writes them",)
        pairs = [name for name, items in value.items() if _is_list_of_rows(items)]
        if pairs and not lists:
            why = f"has {len(pairs)} lists of rows, {', '.join(map(repr, pairs[:8]))}"
            remedy = "write the one with your rows to a file of its own, as a list"
            raise DamagedData(file.name, why, remedy)
        if len(lists) == 1:
            ((name, value),) = lists.items()
            notes += (f"the rows are the list {name!r}",)
        elif lists:
            why = f"has several lists of objects, {', '.join(map(repr, lists))}"
            raise DamagedData(file.name, why, "write the one with the rows to a file of its own")
        elif value and all(isinstance(row, dict) for row in value.values()) and _are_rows_by_key(value):
            value = [{"key": key, **row} for key, row in value.items()]
            notes += ("each row is an object, and its name is the column 'key'",)
        elif value and all(isinstance(column, dict) for column in value.values()):
            keys = list(dict.fromkeys(chain.from_iterable(value.values())))
            value = [{name: column.get(key) for name, column in value.items()} for key in keys]
            notes += ("the columns are objects, as pandas writes them",)
        elif value and all(isinstance(column, list) for column in value.values()):
            lengths = {len(column) for column in value.values()}
            if len(lengths) > 1:
                raise DamagedData(file.name, "has lists of different lengths", "write one object for each row")
            value = [dict(zip(value, cells, strict=True)) for cells in zip(*value.values(), strict=True)]
            notes += ("the columns are lists",)
        else:
            known = ", ".join(map(repr, list(value)[:8]))
            why = f"is an object with {known or 'nothing in it'}, no list of rows"
            raise DamagedData(file.name, why, "write a list of objects, or JSON lines")
    if not isinstance(value, list):
        raise DamagedData(file.name, f"is {type(value).__name__}, a list of objects is expected")
    if _is_list_of_rows(value):
        width = max(map(len, value))
        names = layout.columns or tuple(f"column {number}" for number in range(1, width + 1))
        value = [dict(zip(names, row, strict=False)) for row in value]
        notes += ("every row is a list of values",)
    if value and all(map(is_of_spacy, value)):
        value = [row_of_spacy(item) for item in value]
        notes += (_SPACY_NOTE,)
    records = []
    for number, row in enumerate(value):
        if not isinstance(row, dict):
            why = f"is {type(row).__name__}, an object is expected"
            raise DamagedData(f"{file.name}: [{number}]", why, "write one object for each row")
        records.append(Record(f"{file.name}: [{number}]", row))
    return TableFile(file=file, format="json", encoding=encoding, notes=notes, rows=tuple(records))


def _squad_records(name: str, articles: Sequence[Any]) -> Iterator[Record]:
    for a, article in enumerate(articles):
        for p, paragraph in enumerate(article.get("paragraphs") or ()):
            for q, question in enumerate(paragraph.get("qas") or ()):
                where = f"{name}: data[{a}].paragraphs[{p}].qas[{q}]"
                fields = {
                    "id": question.get("id"),
                    "question": question.get("question"),
                    "context": paragraph.get("context"),
                }
                if "answers" in question:
                    answers = question["answers"] or []
                    if not isinstance(answers, list) or not all(isinstance(answer, dict) for answer in answers):
                        raise DamagedData(where, "'answers' is not a list of objects", "expected SQuAD's JSON layout")
                    fields["answers"] = {
                        "text": [answer.get("text") for answer in answers],
                        "answer_start": [answer.get("answer_start", -1) for answer in answers],
                    }
                yield Record(where, fields)


def _open_excel(file: CorpusFile, layout: Layout) -> TableFile:
    """The first sheet of an Excel file."""
    library = lazy_import("openpyxl", "excel")
    with open_corpus_file(file) as (content, _):
        data = content.read()
        if not data.startswith(b"PK"):
            remedy = "name its format with --format, such as csv; an .xls file: save it as .xlsx or .csv"
            raise DamagedData(file.name, "is not an .xlsx file, whatever its ending is", remedy)
        try:
            book = library.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
        except Exception as error:
            raise DamagedData(file.name, f"damaged Excel file ({error})", "save it again, or as .csv") from error
        sheets = book.sheetnames
        tables = {}
        chosen = sheets[0]
        for name in sheets:
            rows = [list(row) for row in book[name].iter_rows(values_only=True)]
            filled = [
                (number, row) for number, row in enumerate(rows, start=1) if any(cell is not None for cell in row)
            ]
            tables[name] = filled
            is_table = len(filled) > 1 and any(sum(cell is not None for cell in row) > 1 for _, row in filled)
            if is_table:
                chosen = name
                break
    cells = tables[chosen]
    notes: tuple[str, ...] = ()
    if len(sheets) > 1:
        others = ", ".join(repr(other) for other in sheets if other != chosen)
        notes += (f"the sheet {chosen!r} is read, the first one with a table; not read: {others}",)
    if not cells:
        raise MissingInput(file.name, "has no rows")
    first = ["" if cell is None else str(cell).strip() for cell in cells[0][1]]
    if layout.columns is not None:
        names: list[str | None] = [*layout.columns, *[None] * (len(first) - len(layout.columns))]
    elif layout.no_header:
        names = [f"column {number}" for number in range(1, len(first) + 1)]
    else:
        names = [name or None for name in first]
        cells = cells[1:]
        clash = next((name for name, count in Counter(names).items() if name is not None and count > 1), None)
        if clash is not None:
            raise DamagedData(f"{file.name}:1", f"two columns have the same name, {clash!r}", "rename one of them")
    records = []
    for number, row in cells:
        fields = {name: cell for name, cell in zip(names, row, strict=False) if name is not None}
        records.append(Record(f"{file.name}:{number}", fields))
    return TableFile(file=file, format="xlsx", notes=notes, names=tuple(names), rows=tuple(records), header_lines=1)


# --------------------------------------------------------------------------------------------------------------------
# Typed values of JSON, Parquet and Excel to the fields of a row: texts, and lists of texts.
#
# Numbers and booleans are written as in JSON. The entries of an object become columns with a dot in the name:
# `answers.text` is `text` in the object `answers`; of a list of objects they become lists: `choices.label`,
# `choices.text`. null and NaN are absent fields. Lists of spans `[start, end, label]` become lists of JSON texts. Other
# values are left out and counted.


def fields_of(values: Mapping[str, Any], where: str, unread: Counter[str]) -> dict[str, Field]:
    """The fields of a row; those that cannot be converted are counted in `unread` by name."""
    fields: dict[str, Field] = {}
    for name, value in _leaves(values, ""):
        if name in fields:
            raise DamagedData(where, f"two values are called {name!r}")
        if isinstance(value, str):
            fields[name] = value
            continue
        if isinstance(value, list | tuple) and value and all(map(_is_span, value)):
            fields[name] = tuple(json.dumps(list(item), ensure_ascii=False) for item in value)
            continue
        items = value if isinstance(value, list | tuple) else [value]
        texts = tuple(text for item in items if (text := text_of(item)) is not None)
        if len(texts) < len(items):
            unread[name] += 1
        else:
            fields[name] = texts if isinstance(value, list | tuple) else texts[0]
    return fields


def null_names(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The names of fields that are null or NaN, inside of objects with dotted names."""
    for name, value in values.items():
        if value is None or value != value:  # NaN is not equal to itself
            yield f"{prefix}{name}"
        elif isinstance(value, dict):
            yield from null_names(value, f"{prefix}{name}.")


def _is_span(item: Any) -> bool:
    """Return whether a value is `[start, end, label]`, as Doccano writes a marked part of a text."""
    if not isinstance(item, list | tuple) or len(item) != 3:
        return False
    start, end, label = item
    return type(start) is int and type(end) is int and isinstance(label, str)


def _is_one_text(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 1 and isinstance(value[0], str)


def _range_of(value: Any) -> tuple[int, int] | None:
    """The start and end in `[0, 3]`, or in a list of one such range, as BRAT's offsets are written; else None."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, list | tuple) and len(value) == 2 and all(type(each) is int for each in value):
        return value[0], value[1]
    return None


def _leaves(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """The values inside nested objects and lists of objects, with dotted names."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            keys = list(dict.fromkeys(chain.from_iterable(value)))
            plain = [key for key in keys if not any(isinstance(item.get(key), dict | list) for item in value)]
            for key in plain:
                yield f"{prefix}{name}.{key}", ["" if item.get(key) is None else item[key] for item in value]
            for key in keys:
                if key in plain:
                    continue
                if all(_is_one_text(item.get(key)) for item in value):
                    yield f"{prefix}{name}.{key}", [item[key][0] for item in value]
                    continue
                ranges = [_range_of(item.get(key)) for item in value]
                if None in ranges:
                    yield f"{prefix}{name}.{key}", [None]
                else:
                    yield f"{prefix}{name}.{key}.start", [each[0] for each in ranges if each is not None]
                    yield f"{prefix}{name}.{key}.end", [each[1] for each in ranges if each is not None]
        elif value is not None and value == value:  # NaN is not equal to itself
            yield f"{prefix}{name}", value


def text_of(value: Any) -> str | None:
    """A number, truth value, text or date as text; None for anything else."""
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    kinds = str | datetime.date | datetime.time | datetime.timedelta | decimal.Decimal
    return str(value) if isinstance(value, kinds) else None


_NUMBER = re.compile(r"[+-]?(0|[1-9][0-9]*|(?=\.[0-9]))(\.[0-9]*)?([eE][+-]?[0-9]+)?|[+-]?(nan|inf|infinity)", re.I)


def as_number(value: str) -> float | None:
    """The number in a text, also NaN; None for other texts, and for codes such as `0101`, `2_6` or other digits."""
    value = value.strip()
    return float(value) if _NUMBER.fullmatch(value) else None
