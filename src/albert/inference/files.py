"""Prediction on files: all rows are validated first, then predicted batch by batch.

`opened_input` recognises the file. `predict_file` reads each row once to check it (`check_input`), then again: the
pipeline makes an example of a row (`FilePrediction.example`), `Predictor.replies_or_errors` answers a batch, and the
pipeline makes columns of each reply (`FilePrediction.answers`). Memory does not grow with the file.

Output is JSON lines, CSV, `.npy`, `.conll` or Parquet (`albert.inference.output_formats`). JSON lines and CSV are
continued after a stop (`albert.inference.partial_output`); the other formats begin anew."""

import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from albert import __version__
from albert.checkpoints.hub import model_hash
from albert.inference.output_formats import Conll, Csv, OutputFormat, Row, Vectors, escaped
from albert.inference.partial_output import PartialOutput, partial_output
from albert.inference.predictor import Predictor
from albert.runtime.environment import lazy_import
from albert.runtime.errors import DamagedData, MissingInput, UsageError
from albert.runtime.files import new_file
from albert.runtime.manifest import input_hash
from albert.runtime.progress import progress
from albert.tables.encodings import lines_of
from albert.tables.fields import fields_of, null_names
from albert.tables.files import COMPRESSIONS
from albert.tables.formats import BINARY_FORMATS
from albert.tables.records import Record
from albert.tables.rows import open_table, records_of
from albert.tables.table_file import Layout, TableFile
from albert.tasks.examples import Example
from albert.tasks.pipeline import ENDINGS, ERROR, Fields, RowPipeline, UnansweredTexts
from albert.training.run_folder import Stopped, stop_signals

STANDARD_INPUT = "-"
_CHUNK = 1 << 20
PIPE_REMEDY = "pipe it into standard input: --input -"


_PACKED = {
    b"\x1f\x8b": ".gz",
    b"BZh": ".bz2",
    b"\xfd7zXZ": ".xz",
    b"\x28\xb5\x2f\xfd": ".zst",
    b"PK\x03\x04": ".zip",
}
"""How standard input begins that is compressed, and the ending of such a file."""


@contextmanager
def opened_input(
    source: str,
    layout: Layout | None = None,
    text: str = "text",
    is_named: bool = False,
    others: Collection[str] = (),
) -> Iterator[TableFile]:
    """The input file of a path; for `-`, standard input, copied to a temporary file.

    Files are read as for training. A `.txt` file and standard input have a text on each line, unless they are JSON, a
    table by what `layout` says, or begin with a line that names columns.

    Args:
        text: the column of texts, or of words.
        is_named: whether the user names it; a file that looks like tagged text without this column is a table.
        others: further columns that are read.

    Raises:
        UsageError: it may be a table whose columns have other names, or no header.
    """
    layout = layout or Layout()
    if source != STANDARD_INPUT:
        path = Path(source)
        packed = path.suffix.lower() in COMPRESSIONS
        is_text = Path(path.stem if packed else path.name).suffix.lower() in (".txt", "")
        if is_text and not path.is_dir():
            table = _open_lines(path, layout, text, is_named, others, source)
        else:
            table = open_table(path, layout, pipe_remedy=PIPE_REMEDY)
        is_column = text.isdecimal() or text in table.names or text in table.aliases
        if table.format == "conll" and layout.format is None and is_named and not is_column:
            other = open_table(path, replace(layout, has_task=True), pipe_remedy=PIPE_REMEDY)
            table = table if other.format == "text" else other
        if table.format == "text" and not is_text and layout.format is None:
            known = ".txt, .csv, .tsv, .jsonl, .json, .parquet, .xlsx, .ods or .conll"
            raise UsageError(source, "unknown kind of file", f"use {known}, or say reading.format")
        yield table
        return
    with tempfile.TemporaryDirectory(prefix="albert-") as folder:
        path = Path(folder) / "input"
        with open(path, "wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file, _CHUNK)
        with open(path, "rb") as file:
            beginning = file.read(8)
        if not beginning:
            raise MissingInput("standard input", "has no rows")
        name = "standard input"
        binary = next((each.endings[0] for each in BINARY_FORMATS if each.is_in(path, beginning)), "")
        packed = next((ending for start, ending in _PACKED.items() if beginning.startswith(start)), "")
        path = path.rename(path.with_suffix(binary or packed))
        if binary or packed == ".zip":
            yield open_table(path, layout, name=name, pipe_remedy=PIPE_REMEDY)
        else:
            yield _open_lines(path, layout, text, is_named, others, name)


def _open_lines(path: Path, layout: Layout, text: str, is_named: bool, others: Collection[str], name: str) -> TableFile:
    """A file with a text on each line, or a table.

    It is a table if its first line names one of the columns, and JSON or labels with texts (fastText) are recognised.
    A file whose lines have equal numbers of separators may be a table: this is refused or said.
    """
    is_given = layout.delimiter is not None or layout.columns is not None or layout.no_header
    if layout.format is not None or is_given:
        return open_table(path, layout, name=name, pipe_remedy=PIPE_REMEDY)
    lines = open_table(path, replace(layout, format="text"), name=name, pipe_remedy=PIPE_REMEDY)
    lines = replace(lines, text_field=text)
    first = next((line for _, line in lines_of(lines.file, lines.encoding)), "").removeprefix("\ufeff")
    delimiter = _delimiter_of_header(first, text, others)
    if delimiter is not None:
        table = open_table(path, replace(layout, delimiter=delimiter), name=name, pipe_remedy=PIPE_REMEDY)
        if len(table.names) == 1:
            said = f"the first line is the name of the column {text!r} (reading.format=text reads it as a text)"
            return replace(table, notes=(*table.notes, said))
        return table
    try:
        table = open_table(path, layout, name=name, pipe_remedy=PIPE_REMEDY)
    except UsageError:
        return lines
    if table.format in ("json", "jsonl") or text in table.names:
        return table
    if table.format == "fasttext":
        return table if is_named else replace(table, aliases={**table.aliases, text: "text"})
    if table.format != "csv":
        return lines
    if is_named:
        return table  # whose columns are named in the error
    shown = {"\t": "tabs", ",": "commas", ";": "semicolons"}.get(table.delimiter, repr(table.delimiter))
    names = [column.strip('"') for column in first.split(table.delimiter)]  # a text has a blank after a comma
    has_names = all(re.fullmatch(r"[A-Za-z_][\w.-]*", column, re.ASCII) for column in names)
    n_rows = sum(1 for _ in islice(lines_of(lines.file, lines.encoding), 2))
    if table.delimiter == "\t" or (has_names and n_rows > 1):
        why = f"has {len(table.names)} columns, separated by {shown}, and none is called {text!r}"
        remedy = "name the one with the texts with --text, or all with reading.columns; "
        remedy += "reading.format=text reads a text per line"
        raise UsageError(name, why, remedy)
    if n_rows > 1:
        said = f"{name} is read as one text per line; "
        said += f"reading.format=csv reads it as a table (columns separated by {shown})"
        return replace(lines, notes=(*lines.notes, said))
    return lines


def _delimiter_of_header(line: str, text: str, others: Collection[str]) -> str | None:
    """The separator in a first line that names the column of texts, or two others that are read; else None."""
    for delimiter in ("\t", ",", ";", "|"):
        names = {name.strip().strip('"').strip() for name in line.split(delimiter)}
        if text in names or len(names.intersection(others)) > 1:
            return delimiter
    return None


# --------------------------------------------------------------------------------------------------------------------
# Prediction on a file: all rows are validated first, because a bad last row would be found only after hours.

TYPED = "albert.tables.arrow"
"""The module for column types; it needs pyarrow."""
BATCH_ROWS = 256
BATCH_CHARACTERS = 1_000_000
MAX_ERRORS_SHOWN = 3  # Rows without a prediction that are listed


@dataclass(frozen=True)
class FilePrediction:
    """Options of a prediction on a file; without `output`, JSON lines go to standard output."""

    file: TableFile
    output: Path | None
    pipeline: RowPipeline  # With the settings
    fields: Fields = field(default_factory=Fields)
    prefix: str = "predicted_"
    replace: bool = False  # Overwrite an existing output, or an unfinished one with other settings
    command: Mapping[str, Any] = field(default_factory=dict)  # The options as they were given
    known: set[str] = field(default_factory=set, compare=False)  # The names of fields in the rows so far

    @property
    def read_fields(self) -> tuple[str, ...]:
        """The fields with texts that the task reads, without options."""
        named = {
            "--text": self.fields.text,
            "--pair": self.fields.pair,
            "--question": self.fields.question,
            "--context": self.fields.context,
        }
        return tuple(name for option, name in named.items() if name and option in self.pipeline.file_options)

    def example(self, record: Record) -> Example:
        """What the pipeline reads of a row; parts of nested values have names with dots, as in training.

        A field that this row lacks and an earlier one has is empty here, as in training.
        """
        names = {self.fields.text, self.fields.pair, self.fields.question, self.fields.context, *self.fields.options}
        if self.file.has_types and any("." in name and name not in record.fields for name in names):
            inner = fields_of(record.fields, record.where, Counter())
            lists = {name: list(value) if isinstance(value, tuple) else value for name, value in inner.items()}
            nulls = dict.fromkeys(null_names(record.fields))
            record = Record(record.where, {**lists, **nulls, **record.fields})
        absent = dict.fromkeys(name for name in names & self.known if name not in record.fields)
        self.known.update(record.fields)
        if absent:
            record = Record(record.where, {**record.fields, **absent})
        try:
            return self.pipeline.read(record, self.fields)
        except DamagedData as error:
            if self.file.doubt is None or "has no field" not in error.why:
                raise
            raise DamagedData(error.subject, error.why, self.file.doubt) from error

    def is_blank(self, record: Record, name: str) -> bool:
        """Whether a field is empty, or missing in this row alone."""
        if name in record.fields:
            return _is_blank(record.fields[name])
        return name in self.known

    def batches(self) -> Iterator[list[Record]]:
        """The rows of the file, in batches."""
        return batches_of(records_of(self.file))

    def answers(self, predictor: Predictor, batch: Sequence[Record]) -> list[dict[str, Any]]:
        """The columns of a batch of rows; where a row has no reply all are null but `error`."""
        names = self.pipeline.cell_types()
        answers = []
        for reply in predictor.replies_or_errors(self.pipeline, [self.example(record) for record in batch]):
            if isinstance(reply, UnansweredTexts):
                cells: Mapping[str, Any] = {ERROR: reply.reasons[0][0]}
            else:
                cells = {"tokens_cut": 0, "empty": False, **self.pipeline.cells(reply)}
            answers.append({name: cells.get(name) for name in names})
        return answers

    def output_row(self, record: Record, answer: Mapping[str, Any]) -> Row:
        """A row with the fields of its answer."""
        return {**record.fields, **{f"{self.prefix}{name}": value for name, value in answer.items()}}


class CheckedInput(NamedTuple):
    """A validated input file: number of rows and of those without a text, for each field that is read the number of
    other rows in which it is empty, names of all fields in order of appearance, the Arrow schema for Parquet output
    (else None), and the file's SHA-256."""

    rows: int
    empty: int
    empty_in: Mapping[str, int]
    columns: tuple[str, ...]
    schema: Any
    sha256: str


def check_input(args: FilePrediction, answers: Iterable[str], of_pairs: bool = False) -> CheckedInput:
    """Validate every row; `answers` are the names of the predicted fields in the output.

    Args:
        of_pairs: the model was trained on pairs of texts, so that a row with one is refused.
    """
    file = args.file.file
    columns = dict[str, None]()
    rows = 0
    empty = 0
    empty_in = Counter[str]()
    typed = args.output is not None and args.output.suffix.lower() == ".parquet"
    # column types of JSON lines are inferred from the rows; other formats declare them
    is_grouped = args.file.group is not None
    is_inferred = typed and args.file.has_types and (is_grouped or file.kind not in ("Parquet", "saved dataset"))
    types = lazy_import(TYPED, "data").ColumnTypes() if is_inferred else None
    with progress("Checking the input", total=None, unit="rows") as bar:
        for batch in args.batches():
            for record in batch:
                columns.update(dict.fromkeys(record.fields))
                example = args.example(record)
                if of_pairs and len(example.texts) < 2:
                    why = f"has no field {args.fields.pair!r}, and the model was trained on pairs of texts"
                    raise DamagedData(record.where, why, "--pair names the column of the second text")
                if not any(text.strip() for text in (*example.texts, *example.options)):
                    empty += 1
                else:
                    empty_in.update(name for name in args.read_fields if args.is_blank(record, name))
                duplicates = [name for name in answers if name in record.fields]
                if duplicates:
                    why = f"has a field {duplicates[0]!r} already"
                    raise DamagedData(record.where, why, "--prefix changes the names of the answers")
            if types is not None:
                types.add(batch)
            rows += len(batch)
            bar.advance(len(batch))
    if not rows:
        raise MissingInput(file.name, "holds no rows")
    schema = types.schema if types is not None else None
    if typed and types is None:
        schema = lazy_import(TYPED, "data").input_schema(file, tuple(columns))
    return CheckedInput(rows, empty, empty_in, tuple(columns), schema, input_hash(file.path))


def _is_blank(value: Any) -> bool:
    """Return whether the value of a field is null, NaN, or a text without a character that is not blank."""
    return not value.strip() if isinstance(value, str) else value is None or value != value


def batches_of(records: Iterator[Record]) -> Iterator[list[Record]]:
    """Batches of 256 rows, or fewer long ones; batch boundaries depend only on the rows."""
    batch: list[Record] = []
    characters = 0
    for record in records:
        batch.append(record)
        characters += sum(len(value) for value in record.fields.values() if isinstance(value, str))
        if len(batch) == BATCH_ROWS or characters >= BATCH_CHARACTERS:
            yield batch
            batch = []
            characters = 0
    if batch:
        yield batch


@dataclass
class FileSummary:
    """Counts of a predicted file.

    Attributes:
        empty: rows whose texts are all empty or blank.
        empty_in: for a field that is read, the number of other rows in which it is empty.
        cut: texts of which tokens were cut.
        unanswered: rows without an answer; `first_unanswered` says why the first of them have none.
        continued_after: rows that an earlier call wrote.
    """

    rows: int = 0
    empty: int = 0
    empty_in: Mapping[str, int] = field(default_factory=dict)
    cut: int = 0
    unanswered: int = 0
    first_unanswered: list[str] = field(default_factory=list)
    continued_after: int = 0

    def add(self, record: Record, answer: Mapping[str, Any]) -> None:
        self.rows += 1
        self.cut += bool(answer.get("tokens_cut"))
        why = answer.get(ERROR)
        if why is not None:
            self.unanswered += 1
            if len(self.first_unanswered) < MAX_ERRORS_SHOWN:
                self.first_unanswered.append(f"{record.where}: {why}")

    def counts(self) -> dict[str, Any]:
        """The counts of the rows so far, as JSON values."""
        names = ("rows", "cut", "unanswered", "first_unanswered")
        return {name: getattr(self, name) for name in names}

    def continue_from(self, partial: PartialOutput) -> None:
        """Take over the counts of the rows that an earlier call wrote."""
        self.continued_after = partial.rows
        for name, value in partial.counts.items():
            setattr(self, name, value)


def output_format(args: "FilePrediction", checked: "CheckedInput", answers: Mapping[str, Any], width: int) -> Any:
    """The OutputFormat (or Parquet, with the same methods) by the output's extension; JSON lines for standard output.

    `answers` are the predicted fields and their types, `width` is the dimension of a vector.
    """
    path = args.output
    vector = f"{args.prefix}embedding"
    match path.suffix.lower() if path is not None else ".jsonl":
        case ".jsonl":
            return OutputFormat()
        case ".csv":
            has_semicolons = args.file.format == "csv" and args.file.delimiter == ";"
            return Csv([*checked.columns, *answers], ";" if has_semicolons else ",")
        case ".parquet":
            return lazy_import(TYPED, "data").Parquet(checked.schema, answers)
        case ".npy" if vector in answers:
            return Vectors(vector, checked.rows, width)
        case ".conll" if f"{args.prefix}tags" in answers:
            is_tagged_text = args.file.format == "conll"
            columns = [name for name in checked.columns if is_tagged_text and name != args.fields.text]
            return Conll(f"{args.prefix}tags", columns)
        case ".conll":
            raise UsageError(path, "holds only words with tags", "use another ending")
        case ".npy":
            raise UsageError(path, "holds only vectors", "use --task embed, or another ending")
    raise UsageError(path, "unknown kind of output", f"use {', '.join(ENDINGS)}")


def predict_file(predictor: Predictor, args: FilePrediction) -> FileSummary:
    """Predict every row of a file; after a signal or a kill the same call continues JSON lines and CSV."""
    answers = {f"{args.prefix}{name}": value for name, value in args.pipeline.cell_types().items()}
    checked = check_input(args, answers, args.pipeline.takes_pair and predictor.reads_pairs is True)
    format = output_format(args, checked, answers, predictor.vector_width)
    summary = FileSummary(empty=checked.empty, empty_in=checked.empty_in)
    if args.output is None:
        for rows in _predicted_rows(predictor, args, checked.rows, summary):
            sys.stdout.write(escaped(format.encode(rows).decode()))
            sys.stdout.flush()
    elif not format.is_continued:
        with new_file(args.output) as temporary:
            format.write(_predicted_rows(predictor, args, checked.rows, summary), temporary)
    else:
        begun = _begun(predictor, args, checked)
        with (
            stop_signals() as request,
            partial_output(args.output, begun, format.beginning, args.replace) as partial,
        ):
            summary.continue_from(partial)
            for rows in _predicted_rows(predictor, args, checked.rows, summary, skipped=partial.rows):
                partial.append(format.encode(rows), len(rows), summary.counts())
                if request.number is not None and partial.rows < checked.rows:
                    partial.save()
                    raise Stopped(args.output, request.number)
            partial.finish()
    return summary


def _predicted_rows(
    predictor: Predictor, args: FilePrediction, total: int, summary: FileSummary, skipped: int = 0
) -> Iterator[list[Row]]:
    """The rows with their answers, batch by batch, without the first `skipped`; they are added to the summary."""
    passed = 0
    with progress("Predicting", total=total, unit="rows", done=skipped) as bar:
        for batch in args.batches():
            passed += len(batch)
            if passed > skipped:
                rows = []
                for record, answer in zip(batch, args.answers(predictor, batch), strict=True):
                    summary.add(record, answer)
                    rows.append(args.output_row(record, answer))
                yield rows
                bar.advance(len(batch))


def _begun(predictor: Predictor, args: FilePrediction, checked: CheckedInput) -> dict[str, Any]:
    """Everything that determines the output's bytes, as JSON values."""
    return {
        "command": args.command,
        "model": model_hash(Path(predictor.name)),
        "input": checked.sha256,
        "read": {"task": args.pipeline.name, **asdict(args.fields)},
        "computed": f"in {predictor.precision} on {predictor.device.type}",
        "albert": __version__,
    }
