"""Prediction on whole files: all rows are checked first, then answered and written batch by batch.

Memory does not grow with the file. What is computed for a row is an entry of `ABILITIES`. Output is JSON lines, CSV,
`.npy` or Parquet, written so that a stopped run goes on: rows are written one after another, so a file can be cut off
at a row and continued; a header or footer, where the format has one, is made at the end."""

import csv
import datetime
import decimal
import hashlib
import io
import json
import os
import shutil
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch

from albert import __version__
from albert.inference import abilities
from albert.inference.predictor import Predictor
from albert.runtime.environment import load_by_name
from albert.runtime.errors import CannotCreate, DamagedData, InvalidConfiguration, MissingInput, UsageError, WriteFailed
from albert.runtime.files import locked, new_file, remove_directory
from albert.runtime.json_files import Journal, read_journal
from albert.runtime.manifest import file_hash, open_input
from albert.runtime.progress import progress
from albert.text.readers import PACKINGS, CorpusFile, Record, one_file, read_records
from albert.training.run_folder import Stopped, stop_signals

KINDS = {
    ".txt": "text",
    ".jsonl": "JSON lines",
    ".ndjson": "JSON lines",
    ".csv": "CSV",
    ".tsv": "TSV",
    ".parquet": "Parquet",
}
STANDARD_INPUT = "-"
_CHUNK = 1 << 20
PIPE_REMEDY = "pipe it into standard input: --input -"


@contextmanager
def opened_input(source: str) -> Iterator[CorpusFile]:
    """The file for a path, or for `-` what comes on standard input, kept in a file of its own until it is read.

    Lines of standard input are JSON when the first one begins with `{`, else texts.

    Raises:
        UsageError: the name does not say what it is.
        MissingInput: it cannot be read.
    """
    if source != STANDARD_INPUT:
        path = Path(source)
        suffix = path.with_suffix("").suffix if path.suffix.lower() in PACKINGS else path.suffix
        kind = KINDS.get(suffix.lower())
        if kind is None or (kind == "Parquet" and path.suffix.lower() in PACKINGS):
            known = ", ".join(KINDS)
            raise UsageError(source, "unknown kind of file", f"use {known} (all but Parquet packed too: .gz), or -")
        yield one_file(path, kind, source, PIPE_REMEDY)
        return
    with tempfile.NamedTemporaryFile(prefix="albert-") as file:
        beginning = b""
        while data := sys.stdin.buffer.read(_CHUNK):
            beginning += data[: 64 - len(beginning)] if len(beginning) < 64 else b""
            file.write(data)
        file.flush()
        is_json = beginning.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
        yield one_file(Path(file.name), "JSON lines" if is_json else "text", "standard input")


# --------------------------------------------------------------------------------------------------------------------
# The formats of outputs.

Row = Mapping[str, Any]
ENDINGS = (".jsonl", ".csv", ".parquet", ".npy")


_TYPED = "albert.text.arrow_files"
"""The module that knows the types of columns; it needs pyarrow."""


class OutputFormat(ABC):
    """How rows are written; `beginning` stands before the first one."""

    beginning = b""

    @abstractmethod
    def encode(self, rows: Sequence[Row]) -> bytes:
        """Some rows."""

    def finish(self, written: Path, output: Path) -> None:
        """Make the file of what `encode` gave, which stays as it is: one content under two names, until one goes."""
        try:
            os.link(written, output)
        except OSError:  # a file system without such links
            shutil.copyfile(written, output)


class JsonLines(OutputFormat):
    """One object a line; numbers, lists and objects as they are."""

    def encode(self, rows: Sequence[Row]) -> bytes:
        return "".join(_json(row) + "\n" for row in rows).encode()


class Csv(OutputFormat):
    """Comma-separated with quotes (RFC 4180) and a header; lists and objects are JSON in their cell, null is empty."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        self.beginning = self._lines([self.columns])

    def encode(self, rows: Sequence[Row]) -> bytes:
        return self._lines([_cell(row.get(name)) for name in self.columns] for row in rows)

    def _lines(self, rows: Iterable[Sequence[str]]) -> bytes:
        text = io.StringIO()
        csv.writer(text).writerows(rows)
        return text.getvalue().encode()


class Vectors(OutputFormat):
    """The vectors alone, float32 [rows, H], as `numpy.load` opens them."""

    def __init__(self, field: str, width: int) -> None:
        self.field, self.width = field, width

    def encode(self, rows: Sequence[Row]) -> bytes:
        return np.asarray([row[self.field] for row in rows], "<f4").tobytes()

    def finish(self, written: Path, output: Path) -> None:
        shape = (written.stat().st_size // (4 * self.width), self.width)
        with open(written, "rb") as numbers, open(output, "wb") as file:
            head = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, head)
            shutil.copyfileobj(numbers, file, 1 << 20)


def output_format(
    args: "FilePrediction", checked: "CheckedInput", answers: Mapping[str, abilities.Value], width: int
) -> OutputFormat:
    """The format that the output's name ends in; JSON lines without a name.

    Args:
        answers: the fields of an answer, under their names in the output.
        width: numbers of a vector.

    Raises:
        UsageError: an unknown ending, or `.npy` for something that is no vector.
        Unavailable: Parquet, without pyarrow.
    """
    path, vector = args.output, f"{args.prefix}embedding"
    match path.suffix.lower() if path is not None else ".jsonl":
        case ".jsonl":
            return JsonLines()
        case ".csv":
            return Csv([*checked.columns, *answers])
        case ".parquet":
            parquet = OutputFormat.register(load_by_name(_TYPED, "data").Parquet)
            return parquet(checked.schema, answers)
        case ".npy" if vector in answers:
            return Vectors(vector, width)
        case ".npy":
            raise UsageError(path, "holds only vectors", "use --task embed, or another ending")
    raise UsageError(path, "unknown kind of output", f"use {', '.join(ENDINGS)}")


def as_json_value(value: Any) -> Any:
    """What JSON has no word for: vectors as lists, dates as ISO 8601 says, decimal numbers as they are written."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, datetime.date | datetime.time):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, decimal.Decimal | datetime.timedelta):
        return str(value)
    raise UsageError(
        f"a field with {type(value).__name__}", "has no form in text", "write .parquet, or drop the column"
    )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=as_json_value)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else _json(value)


# --------------------------------------------------------------------------------------------------------------------
# A resumable output: after a kill the same command continues it; the final file is whole or absent.
#
# OUTPUT.partial/journal.jsonl   what it is made of, then how far it has come, with a checksum of all rows so far
#                rows            the rows so far, and perhaps some that the journal does not have yet

COMMIT_SECONDS = 1.0
"""Seconds between commits: a power cut loses this much work and one batch at most."""


@dataclass
class Progress:
    """How far an output has come: rows, their bytes, and what is reported of them: how many texts were cut, how many
    rows have no answer, and the first of these."""

    rows: int = 0
    bytes: int = 0
    counts: dict[str, Any] = field(default_factory=dict)

    @property
    def cut(self) -> int:
        return self.counts.get("cut", 0)

    @property
    def unanswered(self) -> int:
        return self.counts.get("unanswered", 0)

    @property
    def first_unanswered(self) -> list[str]:
        return self.counts.get("first_unanswered", [])

    def event(self, rows: "hashlib._Hash") -> dict[str, Any]:
        """What the journal says: the sum is over the rows and what is noted of them, so a change in either is found."""
        whole = rows.copy()
        whole.update(json.dumps([self.rows, self.bytes, self.counts], sort_keys=True).encode())
        return {"rows": self.rows, "bytes": self.bytes, "counts": self.counts, "sum": whole.hexdigest()}


class PartialOutput:
    """Rows that are appended, and noted now and then; see `partial_output`."""

    def __init__(self, directory: Path, made_of: Mapping[str, Any], beginning: bytes, replace: bool) -> None:
        self.path = directory / "rows"
        self.reached, self._digest = _reached(directory, made_of, replace)
        self._journal = Journal(directory / "journal.jsonl")
        if not read_journal(self._journal.path):
            self._journal.write("begun", made_of=dict(made_of))
            if self.reached.bytes:
                self._journal.write("reached", **self.reached.event(self._digest))
        with _saying(self.path):
            self._file = open(self.path, "ab")  # noqa: SIM115 (lives as long as the output)
            self._file.truncate(self.reached.bytes)
        if not self.reached.bytes:
            self._append(beginning)
        self._noted = time.monotonic()

    def write(self, data: bytes, rows: int) -> None:
        self._append(data)
        self.reached.rows += rows
        if time.monotonic() - self._noted >= COMMIT_SECONDS:
            self.note()

    def note(self) -> None:
        """Bring everything to the disk, then write down how far it has come."""
        with _saying(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
        self._journal.write("reached", **self.reached.event(self._digest))
        self._noted = time.monotonic()

    def close(self) -> None:
        """Close the files; what was not noted is not lost yet, but will be written anew."""
        self._file.close()
        self._journal.close()

    def _append(self, data: bytes) -> None:
        with _saying(self.path):
            self._file.write(data)
        self._digest.update(data)
        self.reached.bytes += len(data)


@contextmanager
def partial_output(
    output: Path, made_of: Mapping[str, Any], format: OutputFormat, replace: bool
) -> Iterator[PartialOutput]:
    """Begin an output, or go on with one; after the block the output is there, and what it was made from is gone.

    Rows whose sum is not the noted one are written anew, and a line on standard error says so.

    Args:
        made_of: everything that decides its bytes.
        replace: begin anew where what was begun is made of something else.

    Raises:
        CannotCreate: another process is at it, or it was begun with something else, which is named.
        WriteFailed: the disk is full or failed.
    """
    directory = output.with_name(output.name + ".partial")
    with locked(directory, "this output") as release:
        rows = PartialOutput(directory, made_of, format.beginning, replace)
        try:
            yield rows
            rows.note()
            with new_file(output) as temporary:
                format.finish(rows.path, temporary)
        finally:
            rows.close()
        remove_directory(directory, release)


def _reached(directory: Path, made_of: Mapping[str, Any], replace: bool) -> tuple[Progress, "hashlib._Hash"]:
    """How far an earlier process came with the same output, and the sum of its rows.

    That is the last noted place up to which the rows are as they were written. A journal with a line that does not hold
    is removed, to be begun anew.
    """
    journal, rows = directory / "journal.jsonl", directory / "rows"
    try:
        events = read_journal(journal) if journal.exists() else []
    except DamagedData as error:
        _note(f"{error}; every row is predicted anew")
        events = []
    begun = events[0].get("made_of", {}) if events else {}
    other = [name for name in {**begun, **made_of} if begun.get(name) != made_of.get(name)] if events else []
    if other and not replace:
        shown = ", ".join(f"{name} {_short(begun.get(name))}, now {_short(made_of.get(name))}" for name in other)
        raise CannotCreate(
            directory, f"was begun with other settings: {shown}", "use those, or begin anew by --replace"
        )
    noted = [] if other else events[1:]
    if any("sum" not in event for event in noted):
        _note(f"{directory}: an earlier version wrote it without check sums; every row is predicted anew")
        noted = []
    reached, digest, intact = Progress(), hashlib.sha256(), 0
    if noted and rows.exists():
        with open_input(rows) as file:
            for place, summed in _places(file, noted):
                reached, digest, intact = place, summed, intact + 1
    if intact < len(noted):
        _note(f"{rows}: damaged, its check sum is not the noted one; predicted anew from row {reached.rows + 1:,} on")
    if intact < len(events) - 1 or not intact:
        journal.unlink(missing_ok=True)
    return reached, digest


def _places(file: BinaryIO, noted: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Progress, "hashlib._Hash"]]:
    """The noted places as long as the rows before them are as they were written, and the sum of these."""
    summed = hashlib.sha256()
    for event in noted:
        try:
            place = Progress(int(event["rows"]), int(event["bytes"]), dict(event["counts"]))
        except (LookupError, TypeError, ValueError):
            return
        while data := file.read(max(0, min(_CHUNK, place.bytes - file.tell()))):
            summed.update(data)
        if file.tell() != place.bytes or event["sum"] != place.event(summed)["sum"]:
            return
        yield place, summed.copy()


def _note(text: str) -> None:
    print(f"albert: note: {text}", file=sys.stderr)


def _short(value: Any) -> str:
    return "none" if value is None else str(value)[:16]


@contextmanager
def _saying(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remedy = "free space; the same command goes on"
        raise WriteFailed(path, error.strerror or str(error), remedy) from error


# --------------------------------------------------------------------------------------------------------------------
# A whole file: all rows are checked first, because a bad last row would be found only after hours.

BATCH_ROWS = 256
BATCH_CHARACTERS = 1_000_000
SHOWN = 3
"""Rows without an answer that are named."""


@dataclass(frozen=True)
class FilePrediction:
    """A file whose rows are to be answered, and where the answers go.

    Attributes:
        output: a path whose ending names its format; None is standard output, in JSON lines.
        prefix: of the names of an answer's fields, so that they stand beside those of the row.
        replace: whether an existing output, or one that was begun with other settings, gives way.
    """

    file: CorpusFile
    output: Path | None
    ability: abilities.Ability
    fields: abilities.Fields = field(default_factory=abilities.Fields)
    settings: abilities.Settings = field(default_factory=abilities.Settings)
    prefix: str = "predicted_"
    replace: bool = False

    def inputs(self, record: Record) -> abilities.Inputs:
        """What is asked about a row; raises DamagedData."""
        assert self.ability.row is not None, f"{self.ability.name} is not for files"
        return self.ability.row(record, self.fields)


class CheckedInput(NamedTuple):
    """What is known of a file that can be predicted on: its rows, the names of their fields in the order in which they
    first come, the types of these for Parquet (else None), and the file's SHA-256."""

    rows: int
    columns: tuple[str, ...]
    schema: Any
    sha256: str


def check_input(args: FilePrediction, answers: Iterable[str]) -> CheckedInput:
    """Read every row once; `answers` are the names of an answer's fields in the output.

    Raises:
        MissingInput: there are no rows.
        DamagedData: a row, which is named, cannot be read, lacks a field, or has a field of the answer's name.
    """
    file, columns, rows = args.file, dict[str, None](), 0
    typed = args.output is not None and args.output.suffix.lower() == ".parquet"
    # JSON's columns show their types row by row; the other kinds of files say theirs
    types = load_by_name(_TYPED, "data").ColumnTypes() if typed and file.kind == "JSON lines" else None
    with progress("Checking the input", total=None, unit="rows") as bar:
        for batch in batches_of(read_records(file, args.fields.text)):
            for record in batch:
                columns.update(dict.fromkeys(record.fields))
                args.inputs(record)
                if taken := [name for name in answers if name in record.fields]:
                    why = f"has a field {taken[0]!r} already"
                    raise DamagedData(record.where, why, "--prefix changes the names of the answers")
            if types is not None:
                types.add(batch)
            rows += len(batch)
            bar.advance(len(batch))
    if not rows:
        raise MissingInput(file.name, "holds no rows")
    schema = types.schema if types is not None else None
    if typed and types is None:
        schema = load_by_name(_TYPED, "data").input_schema(file, tuple(columns))
    return CheckedInput(rows, tuple(columns), schema, file_hash(file.path))


def batches_of(records: Iterator[Record]) -> Iterator[list[Record]]:
    """Rows that are predicted together: 256 of them, or fewer long ones. Where one ends the rows alone decide."""
    batch: list[Record] = []
    characters = 0
    for record in records:
        batch.append(record)
        characters += sum(len(value) for value in record.fields.values() if isinstance(value, str))
        if len(batch) == BATCH_ROWS or characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def predict_file(predictor: Predictor, args: FilePrediction) -> Progress:
    """Answer every row of a file. An output that was begun by the same call goes on where it was.

    Raises:
        MissingInput, DamagedData: the input cannot be read, or a row lacks a field; nothing is predicted.
        CannotCreate: the output is in use, or was begun with something else.
        WriteFailed: the disk is full or failed; the same call goes on.
        Stopped: by SIGTERM or SIGINT, after noting how far it has come; the same call goes on.
    """
    fields = args.ability.output_fields(predictor, args.settings)
    answers = {f"{args.prefix}{name}": value for name, value in fields.items()}
    checked = check_input(args, answers)
    format = output_format(args, checked, answers, predictor.config.hidden_size)
    output = args.output
    if output is None:
        reached = Progress()

        def show(data: bytes, count: int) -> None:
            sys.stdout.write(data.decode())
            sys.stdout.flush()
            reached.rows += count

        _predict(predictor, args, checked, format, reached, show)
        return reached
    with partial_output(output, _identity(predictor, args, checked), format, args.replace) as rows:
        with stop_signals() as request:

            def write(data: bytes, count: int) -> None:
                rows.write(data, count)
                if request.number is not None and rows.reached.rows < checked.rows:
                    rows.note()
                    raise Stopped(output, request.number)

            _predict(predictor, args, checked, format, rows.reached, write)
        return rows.reached


def _predict(
    predictor: Predictor,
    args: FilePrediction,
    checked: CheckedInput,
    format: OutputFormat,
    reached: Progress,
    write: Callable[[bytes, int], None],
) -> None:
    records = islice(read_records(args.file, args.fields.text), reached.rows, None)
    with progress("Predicting", total=checked.rows, unit="rows", done=reached.rows) as bar:
        for batch in batches_of(records):
            answers = args.ability.answers(predictor, [args.inputs(record) for record in batch], args.settings)
            rows = []
            for record, answer in zip(batch, answers, strict=True):
                _count(reached.counts, record, answer)
                rows.append({**record.fields, **{f"{args.prefix}{name}": value for name, value in answer.items()}})
            write(format.encode(rows), len(rows))
            bar.advance(len(rows))


def _count(counts: dict[str, Any], record: Record, answer: Mapping[str, Any]) -> None:
    """What is reported at the end."""
    counts["cut"] = counts.get("cut", 0) + bool(answer.get("tokens_cut"))
    if (why := answer.get(abilities.ERROR)) is not None:
        counts["unanswered"] = counts.get("unanswered", 0) + 1
        first = counts.setdefault("first_unanswered", [])
        first += [f"{record.where}: {why}"] if len(first) < SHOWN else []


def _identity(predictor: Predictor, args: FilePrediction, checked: CheckedInput) -> dict[str, Any]:
    """Everything that decides the bytes of the output, in values that JSON keeps."""
    directory = Path(predictor.name)
    weights = sorted(path for pattern in ("*.safetensors", "config.json") for path in directory.glob(pattern))
    fields = asdict(args.fields)
    return {
        "input": checked.sha256,
        "model": " ".join(file_hash(path)[:16] for path in weights),
        "tokenizer": predictor.tokenizer.fingerprint,
        "ask": args.ability.name,
        "precision": predictor.precision,
        "device": predictor.device.type,
        "depth": predictor.depth,
        "patience": predictor.patience,
        "configuration": {key: str(value) for key, value in asdict(predictor.config).items()},
        "prefix": args.prefix,
        **{f"{name}_field": list(value) if isinstance(value, tuple) else value for name, value in fields.items()},
        **asdict(args.settings),
        "threads": torch.get_num_threads(),
        "versions": f"albert {__version__}, torch {torch.__version__}",
    }


def ability_for(predictor: Predictor, name: str | None) -> abilities.Ability:
    """The ability of this name, or the one that the model is for.

    Raises:
        UsageError: the model can do several things and no name is given.
        InvalidConfiguration: the model has no head for it.
    """
    possible = [each for each in abilities.ABILITIES.values() if each.row and each.needs in predictor.abilities]
    if name is None:
        if len(possible) > 1:
            known = " or ".join(each.name for each in possible)
            raise UsageError("--task", f"{predictor.name} can do several things", f"choose {known}")
        return possible[0] if possible else abilities.ABILITIES["embed"]
    ability = abilities.ABILITIES[name]
    if ability.needs is not None and ability not in possible:
        can = " and ".join(predictor.abilities) or "only embed texts"
        raise InvalidConfiguration(predictor.name, f"has no trained head to {ability.needs}", f"this model can {can}")
    return ability
