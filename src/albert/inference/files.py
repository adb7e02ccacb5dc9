"""Prediction on files: all rows are validated first, then predicted and written batch by batch.

Memory does not grow with the file. Output is JSON lines, CSV, `.npy` or Parquet. A stopped run can be resumed: rows are
appended, so a file can be truncated at a row and continued; the final header or footer is written at the end."""

import csv
import datetime
import decimal
import hashlib
import io
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from albert import __version__
from albert.inference import abilities
from albert.inference.predictor import Predictor
from albert.runtime.environment import load_by_name
from albert.runtime.errors import CannotCreate, DamagedData, InvalidConfiguration, MissingInput, UsageError, WriteFailed
from albert.runtime.files import locked, new_file, remove_directory
from albert.runtime.json_files import Journal, read_journal
from albert.runtime.manifest import file_hash
from albert.runtime.progress import progress
from albert.text.readers import COMPRESSIONS, JSON_LINES_REMEDY, CorpusFile, Record, input_file, read_records
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
    """The input file of a path; for `-`, standard input, copied to a temporary file.

    Standard input is JSON lines if it begins with `{`, else one text per line.
    """
    if source != STANDARD_INPUT:
        path = Path(source)
        suffix = path.with_suffix("").suffix if path.suffix.lower() in COMPRESSIONS else path.suffix
        kind = KINDS.get(suffix.lower())
        if kind is None or (kind == "Parquet" and path.suffix.lower() in COMPRESSIONS):
            known = ", ".join(KINDS)
            raise UsageError(source, "unknown kind of file", f"use {known} (all but Parquet packed too: .gz), or -")
        yield input_file(path, kind, source, PIPE_REMEDY)
        return
    with tempfile.NamedTemporaryFile(prefix="albert-") as file:
        shutil.copyfileobj(sys.stdin.buffer, file, _CHUNK)
        file.seek(0)
        beginning = file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()
        if re.match(rb'\[\s*([{\["\]]|$)', beginning):  # not a text that begins with [MASK]
            raise DamagedData("standard input", "is a JSON array", JSON_LINES_REMEDY)
        yield input_file(Path(file.name), "JSON lines" if beginning[:1] == b"{" else "text", "standard input")


# --------------------------------------------------------------------------------------------------------------------
# Output formats.

Row = Mapping[str, Any]
ENDINGS = (".jsonl", ".csv", ".parquet", ".npy")
_TYPED = "albert.text.arrow_files"  # The module for column types; it needs pyarrow


class OutputFormat:
    """How rows are encoded: one JSON object per line, or as a derived class says; `beginning` comes before them."""

    beginning = b""

    def encode(self, rows: Sequence[Row]) -> bytes:
        return "".join(_json(row) + "\n" for row in rows).encode()

    def finish(self, written: Path, output: Path) -> None:
        """Make the final file from the encoded rows, which are kept: a hard link, or a copy."""
        try:
            os.link(written, output)
        except OSError:  # a file system without hard links
            shutil.copyfile(written, output)


class Csv(OutputFormat):
    """CSV (RFC 4180) with a header; lists and objects are JSON in their cell, null is empty."""

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
    """Only the vectors, float32 [rows, H], in NumPy's format."""

    def __init__(self, field: str, width: int) -> None:
        self.field, self.width = field, width

    def encode(self, rows: Sequence[Row]) -> bytes:
        return np.asarray([row[self.field] for row in rows], "<f4").tobytes()

    def finish(self, written: Path, output: Path) -> None:
        shape = (written.stat().st_size // (4 * self.width), self.width)
        with open(written, "rb") as numbers, open(output, "wb") as file:
            header = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            shutil.copyfileobj(numbers, file, 1 << 20)


def output_format(
    args: "FilePrediction", checked: "CheckedInput", answers: Mapping[str, abilities.Value], width: int
) -> Any:
    """The OutputFormat (or Parquet, with the same methods) by the output's extension; JSON lines for standard output.

    `answers` are the predicted fields and their types, `width` is the dimension of a vector.
    """
    path, vector = args.output, f"{args.prefix}embedding"
    match path.suffix.lower() if path is not None else ".jsonl":
        case ".jsonl":
            return OutputFormat()
        case ".csv":
            return Csv([*checked.columns, *answers])
        case ".parquet":
            return load_by_name(_TYPED, "data").Parquet(checked.schema, answers)
        case ".npy" if vector in answers:
            return Vectors(vector, width)
        case ".npy":
            raise UsageError(path, "holds only vectors", "use --task embed, or another ending")
    raise UsageError(path, "unknown kind of output", f"use {', '.join(ENDINGS)}")


def as_json_value(value: Any) -> Any:
    """Convert values without a JSON type: vectors to lists, dates to ISO 8601, decimal numbers to strings."""
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
    """JSON; NaN and infinity, which it lacks, become null."""
    try:
        return json.dumps(value, ensure_ascii=False, default=as_json_value, allow_nan=False)
    except ValueError:
        text = json.dumps(value, default=as_json_value)
        return json.dumps(json.loads(text, parse_constant=lambda name: None), ensure_ascii=False)


def _cell(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    cell = json.loads(text := _json(value))
    return cell or "" if cell is None or isinstance(cell, str) else text  # dates and decimal numbers without quotes


# --------------------------------------------------------------------------------------------------------------------
# Resumable output: after a kill the same command continues it; the final file is complete or absent.
#
# OUTPUT.partial/journal.jsonl   inputs and settings, then commits with a checksum of all rows so far
#                rows            the rows so far, possibly beyond the last commit

COMMIT_SECONDS = 1.0  # Seconds between commits: a power cut loses at most this much work and one batch


@dataclass
class Progress:
    """Progress of an output: rows, their bytes, and counts to report: texts that were cut, rows with one text for a
    model trained on two or the reverse, rows without a prediction, and the first of these."""

    rows: int = 0
    bytes: int = 0
    counts: dict[str, Any] = field(
        default_factory=lambda: {"cut": 0, "mispaired": 0, "unanswered": 0, "first_unanswered": []}
    )

    def count(self, record: Record, answer: Mapping[str, Any]) -> None:
        """Count an answer that was cut, or a row that has none."""
        self.counts["cut"] += bool(answer.get("tokens_cut"))
        if (why := answer.get(abilities.ERROR)) is not None:
            self.counts["unanswered"] += 1
            if len(self.counts["first_unanswered"]) < MAX_ERRORS_SHOWN:
                self.counts["first_unanswered"].append(f"{record.where}: {why}")

    def event(self, rows: "hashlib._Hash") -> dict[str, Any]:
        """The journal's event; its checksum covers the rows and the other fields of the event."""
        digest = rows.copy()
        digest.update(json.dumps([self.rows, self.bytes, self.counts], sort_keys=True).encode())
        return {"rows": self.rows, "bytes": self.bytes, "counts": self.counts, "sum": digest.hexdigest()}


class PartialOutput:
    """An output whose rows are appended, with periodic commits; see `partial_output`."""

    def __init__(self, directory: Path, settings: Mapping[str, Any], beginning: bytes, replace: bool) -> None:
        self.path, journal = directory / "rows", directory / "journal.jsonl"
        self.progress, checksum = _last_commit(journal, settings, replace)
        with _write_errors(self.path):
            self._file = open(self.path, "ab")  # noqa: SIM115 (lives as long as the output)
            self._file.truncate(self.progress.bytes)
            with open(self.path, "rb") as rows:
                self._digest = hashlib.file_digest(rows, "sha256")
            if checksum is not None and checksum != self.progress.event(self._digest)["sum"]:
                _note(f"{self.path}: damaged (wrong checksum); predicting every row again")
                checksum = None
            if checksum is None:
                journal.unlink(missing_ok=True)
                self._file.truncate(0)
        self._journal = Journal(journal)
        if checksum is None:
            self.progress, self._digest = Progress(), hashlib.sha256()
            self._journal.write("begun", made_of=dict(settings))
            self._append(beginning)
        self.progress.counts = Progress().counts | self.progress.counts  # an earlier version left out zeros
        self._committed = time.monotonic()

    def write(self, data: bytes, rows: int) -> None:
        self._append(data)
        self.progress.rows += rows
        if time.monotonic() - self._committed >= COMMIT_SECONDS:
            self.commit()

    def commit(self) -> None:
        """Flush the rows to disk, then write the progress to the journal."""
        with _write_errors(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
        self._journal.write("reached", **self.progress.event(self._digest))
        self._committed = time.monotonic()

    def close(self) -> None:
        """Close the files; rows after the last commit are written again on resumption."""
        self._file.close()
        self._journal.close()

    def _append(self, data: bytes) -> None:
        with _write_errors(self.path):
            self._file.write(data)
        self._digest.update(data)
        self.progress.bytes += len(data)


@contextmanager
def partial_output(output: Path, settings: Mapping[str, Any], format: Any, replace: bool) -> Iterator[PartialOutput]:
    """Begin or resume an output; after the block the final file exists, and the partial one is removed.

    If the checksum of its rows is wrong, all are written again, with a note on standard error. `settings` are
    everything that determines the output's bytes; with `replace`, one that has other settings is started over.
    """
    directory = output.with_name(output.name + ".partial")
    with locked(directory, "this output") as release:
        rows = PartialOutput(directory, settings, format.beginning, replace)
        try:
            yield rows
            rows.commit()
            with new_file(output) as temporary:
                format.finish(rows.path, temporary)
        finally:
            rows.close()
        remove_directory(directory, release)


def _last_commit(journal: Path, settings: Mapping[str, Any], replace: bool) -> tuple[Progress, str | None]:
    """Progress at the last commit of an earlier process, and its checksum; None: begin with the first row."""
    try:
        events = read_journal(journal) if journal.exists() else []
    except DamagedData as error:
        _note(f"{error}; predicting every row again")
        events = []
    if not events:
        return Progress(), None
    earlier, last = events[0].get("made_of", {}), events[-1]
    changed = [name for name in {**earlier, **settings} if earlier.get(name) != settings.get(name)]
    if changed and not replace:
        shown = ", ".join(f"{name} {_short(earlier.get(name))}, now {_short(settings.get(name))}" for name in changed)
        raise CannotCreate(
            journal.parent, f"was begun with other settings: {shown}", "use those, or start over with --replace"
        )
    if changed or len(events) == 1:
        return Progress(), None
    try:
        return Progress(int(last["rows"]), int(last["bytes"]), dict(last["counts"])), str(last["sum"])
    except (LookupError, TypeError, ValueError):
        _note(f"{journal}: damaged, or of a version without checksums; predicting every row again")
        return Progress(), None


def _note(text: str) -> None:
    print(f"albert: note: {text}", file=sys.stderr)


def _short(value: Any) -> str:
    return "none" if value is None else str(value)[:16]


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remedy = "free space; the same command resumes"
        raise WriteFailed(path, error.strerror or str(error), remedy) from error


# --------------------------------------------------------------------------------------------------------------------
# Prediction on a file: all rows are validated first, because a bad last row would be found only after hours.

BATCH_ROWS = 256
BATCH_CHARACTERS = 1_000_000
MAX_ERRORS_SHOWN = 3  # Rows without a prediction that are listed


@dataclass(frozen=True)
class FilePrediction:
    """Options of a prediction on a file; without `output`, JSON lines go to standard output."""

    file: CorpusFile
    output: Path | None
    ability: abilities.Ability
    fields: abilities.Fields = field(default_factory=abilities.Fields)
    settings: abilities.Settings = field(default_factory=abilities.Settings)
    prefix: str = "predicted_"
    replace: bool = False  # Overwrite an existing output, or a partial one with other settings

    def inputs(self, record: Record) -> abilities.Inputs:
        assert self.ability.row is not None, f"{self.ability.name} is not available for files"
        return self.ability.row(record, self.fields)


class CheckedInput(NamedTuple):
    """A validated input file: number of rows, names of their fields in order of appearance, the Arrow schema for
    Parquet output (else None), and the file's SHA-256."""

    rows: int
    columns: tuple[str, ...]
    schema: Any
    sha256: str


def check_input(args: FilePrediction, answers: Iterable[str]) -> CheckedInput:
    """Validate every row; `answers` are the names of the predicted fields in the output."""
    file, columns, rows = args.file, dict[str, None](), 0
    typed = args.output is not None and args.output.suffix.lower() == ".parquet"
    # column types of JSON lines are inferred from the rows; other formats declare them
    types = load_by_name(_TYPED, "data").ColumnTypes() if typed and file.kind == "JSON lines" else None
    with progress("Checking the input", total=None, unit="rows") as bar:
        for batch in batches_of(read_records(file, args.fields.text)):
            for record in batch:
                columns.update(dict.fromkeys(record.fields))
                args.inputs(record)
                if duplicates := [name for name in answers if name in record.fields]:
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
        schema = load_by_name(_TYPED, "data").input_schema(file, tuple(columns))
    return CheckedInput(rows, tuple(columns), schema, file_hash(file.path))


def batches_of(records: Iterator[Record]) -> Iterator[list[Record]]:
    """Batches of 256 rows, or fewer long ones; batch boundaries depend only on the rows."""
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
    """Predict every row of a file; after a signal or a failure to write, the same call resumes its partial output."""
    fields = args.ability.output_fields(predictor, args.settings)
    answers = {f"{args.prefix}{name}": value for name, value in fields.items()}
    checked = check_input(args, answers)
    format = output_format(args, checked, answers, predictor.config.hidden_size)
    if args.output is None:
        done = Progress()
        for rows in _predicted_rows(predictor, args, checked, done):
            sys.stdout.write(format.encode(rows).decode())
            sys.stdout.flush()
            done.rows += len(rows)
        return done
    identity = _identity(predictor, args, checked)
    with partial_output(args.output, identity, format, args.replace) as partial, stop_signals() as request:
        done = partial.progress
        for rows in _predicted_rows(predictor, args, checked, done):
            partial.write(format.encode(rows), len(rows))
            if request.number is not None and done.rows < checked.rows:
                partial.commit()
                raise Stopped(args.output, request.number)
        return done


def _predicted_rows(
    predictor: Predictor, args: FilePrediction, checked: CheckedInput, done: Progress
) -> Iterator[list[Row]]:
    """Batches of the rows after those that are `done`, with their answers."""
    records = islice(read_records(args.file, args.fields.text), done.rows, None)
    of_pairs = predictor.reads_pairs if args.ability.name in ("classify", "score") else None
    with progress("Predicting", total=checked.rows, unit="rows", done=done.rows) as bar:
        for batch in batches_of(records):
            answers = args.ability.answers(predictor, [args.inputs(record) for record in batch], args.settings)
            rows = []
            for record, answer in zip(batch, answers, strict=True):
                done.count(record, answer)
                done.counts["mispaired"] += of_pairs is (args.fields.pair not in record.fields)
                rows.append({**record.fields, **{f"{args.prefix}{name}": value for name, value in answer.items()}})
            yield rows
            bar.advance(len(rows))


def _identity(predictor: Predictor, args: FilePrediction, checked: CheckedInput) -> dict[str, Any]:
    """Everything that determines the output's bytes, as JSON values."""
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
    """The task of this name, or the model's only one; raises UsageError if it supports several."""
    possible = [task for task in abilities.ABILITIES.values() if task.row and task.needs in predictor.abilities]
    if name is None:
        if len(possible) > 1:
            known = " or ".join(task.name for task in possible)
            raise UsageError("--task", f"{predictor.name} supports several tasks", f"choose {known}")
        return possible[0] if possible else abilities.ABILITIES["embed"]
    ability = abilities.ABILITIES[name]
    if ability.needs is not None and ability not in possible:
        can = " and ".join(predictor.abilities) or "only embed texts"
        raise InvalidConfiguration(predictor.name, f"has no trained head to {ability.needs}", f"this model can {can}")
    return ability
