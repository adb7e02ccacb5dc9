"""Output files of predictions (JSON lines, CSV, `.npy`, Parquet), written so that a stopped run goes on.

Rows are written one after another, so a file can be cut off at a row and continued. A header or footer, where the
format has one, is made at the end."""

import datetime
import decimal
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from albert.inference.abilities import Value
from albert.runtime.environment import load_by_name
from albert.runtime.errors import CannotCreate, DamagedData, UsageError, WriteFailed
from albert.runtime.files import locked, new_file, remove_directory
from albert.runtime.json_files import Journal, read_journal
from albert.runtime.manifest import open_input

Row = Mapping[str, Any]
ENDINGS = (".jsonl", ".csv", ".parquet", ".npy")


@runtime_checkable
class OutputFormat(Protocol):
    """How rows are written."""

    @property
    def beginning(self) -> bytes:
        """What stands before the first row."""
        ...

    def encode(self, rows: Sequence[Row]) -> bytes:
        """Some rows."""
        ...

    def finish(self, written: Path, output: Path) -> None:
        """Make the file of what `encode` gave, which stays as it is."""
        ...


class JsonLines:
    """One object a line; numbers, lists and objects as they are."""

    beginning = b""

    def encode(self, rows: Sequence[Row]) -> bytes:
        """One line a row."""
        return "".join(_json(row) + "\n" for row in rows).encode()

    def finish(self, written: Path, output: Path) -> None:
        """The lines are the file."""
        _same_file(written, output)


class Csv:
    """Comma-separated with quotes (RFC 4180) and a header; lists and objects are JSON in their cell, null is empty."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        self.beginning = self._line(self.columns)

    def encode(self, rows: Sequence[Row]) -> bytes:
        """One line a row, a field that it lacks being empty."""
        return b"".join(self._line([_cell(row.get(name)) for name in self.columns]) for row in rows)

    def finish(self, written: Path, output: Path) -> None:
        """The lines are the file."""
        _same_file(written, output)

    def _line(self, cells: Sequence[str]) -> bytes:
        quoted = [_quoted(cell) if any(sign in cell for sign in ',"\r\n') else cell for cell in cells]
        return (",".join(quoted) or '""').encode() + b"\r\n"  # a line with nothing on it would be no row


class Vectors:
    """The vectors alone, float32 [rows, H], as `numpy.load` opens them."""

    beginning = b""

    def __init__(self, field: str, width: int) -> None:
        self.field, self.width = field, width

    def encode(self, rows: Sequence[Row]) -> bytes:
        """The numbers, in the machine-independent order of bytes."""
        return np.asarray([row[self.field] for row in rows], "<f4").tobytes()

    def finish(self, written: Path, output: Path) -> None:
        """Numpy's head, then the numbers."""
        shape = (written.stat().st_size // (4 * self.width), self.width)
        with open(written, "rb") as numbers, open(output, "wb") as file:
            head = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, head)
            shutil.copyfileobj(numbers, file, 1 << 20)


def output_format(
    path: Path | None, columns: Sequence[str], gives: Mapping[str, Value], schema: Any, prefix: str, width: int
) -> OutputFormat:
    """The format that a name ends in; JSON lines without a name.

    Args:
        path: the output.
        columns: the input's, in the order of their first rows.
        gives: the fields of an answer, under their names in the output.
        schema: of the input's columns, for Parquet.
        prefix: of the fields of answers.
        width: numbers of a vector.

    Raises:
        UsageError: an unknown ending, or `.npy` for something that is no vector.
        Unavailable: Parquet, without pyarrow.
    """
    match path.suffix.lower() if path is not None else ".jsonl":
        case ".jsonl":
            return JsonLines()
        case ".csv":
            return Csv([*columns, *gives])
        case ".parquet":
            return load_by_name("albert.inference.parquet_files", "data").Parquet(schema, gives)
        case ".npy" if f"{prefix}embedding" in gives:
            return Vectors(f"{prefix}embedding", width)
        case ".npy":
            raise UsageError(path, "holds vectors alone", "say --task embed, or use another ending")
    raise UsageError(path, "unknown kind of output", f"use {', '.join(ENDINGS)}")


def as_json_value(value: Any) -> Any:
    """What JSON has no word for: vectors as lists, dates as ISO 8601 says, decimal numbers as they are written.

    Raises:
        UsageError: something else, bytes say.
    """
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


def _quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"'


def _same_file(written: Path, output: Path) -> None:
    """One content under two names, until the first one goes."""
    try:
        os.link(written, output)
    except OSError:  # a file system without such links
        shutil.copyfile(written, output)


# --------------------------------------------------------------------------------------------------------------------
# A resumable output: after a kill the same command continues it; the final file is whole or absent.
#
# OUTPUT.partial/journal.jsonl   what it is made of, then how far it has come, with a checksum of all rows so far
#                rows            the rows so far, and perhaps some that the journal does not have yet

COMMIT_SECONDS = 1.0
"""Seconds between commits: a power cut loses this much work and one batch at most."""
_CHUNK = 1 << 20


@dataclass
class Progress:
    """How far an output has come: rows, their bytes, and what was counted on the way."""

    rows: int = 0
    bytes: int = 0
    counts: dict[str, Any] = field(default_factory=dict)

    def sum(self, rows: "hashlib._Hash") -> str:
        """SHA-256 over the rows and over what is noted of them, so that a change in either is found."""
        whole = rows.copy()
        whole.update(json.dumps([self.rows, self.bytes, self.counts], sort_keys=True).encode())
        return whole.hexdigest()


class PartialOutput:
    """Rows that are appended, and noted now and then; see `partial_output`."""

    def __init__(
        self, directory: Path, journal: Journal, reached: Progress, digest: "hashlib._Hash", beginning: bytes
    ) -> None:
        self.reached, self._digest = reached, digest
        self._path, self._journal = directory / "rows", journal
        with _saying(self._path):
            self._file = open(self._path, "ab")  # noqa: SIM115 (lives as long as the output)
            self._file.truncate(reached.bytes)
            if not reached.bytes:
                self._append(beginning)
        self._noted = time.monotonic()

    def write(self, data: bytes, rows: int) -> None:
        """Append some rows."""
        with _saying(self._path):
            self._append(data)
        self.reached.rows += rows
        if time.monotonic() - self._noted >= COMMIT_SECONDS:
            self.note()

    def note(self) -> None:
        """Bring everything to the disk, then write down how far it has come."""
        with _saying(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
        reached = self.reached
        _write_reached(self._journal, reached, self._digest)
        self._noted = time.monotonic()

    def finish(self, format: OutputFormat, output: Path) -> None:
        """Put the whole output in its place."""
        self.note()
        with new_file(output) as temporary:
            format.finish(self._path, temporary)

    def close(self) -> None:
        """Close the files; what was not noted is not lost yet, but will be written anew."""
        self._file.close()
        self._journal.close()

    def _append(self, data: bytes) -> None:
        self._file.write(data)
        self._digest.update(data)
        self.reached.bytes += len(data)


@contextmanager
def partial_output(
    output: Path, made_of: Mapping[str, Any], beginning: bytes, replace: bool
) -> Iterator[PartialOutput]:
    """Begin an output, or go on with one; after the block it is gone if the output is there.

    Rows whose sum is not the noted one are written anew, and a line on standard error says so.

    Args:
        output: where the whole will be.
        made_of: everything that decides its bytes.
        beginning: what stands before the first row.
        replace: begin anew where what was begun is made of something else.

    Raises:
        CannotCreate: another process is at it, or it was begun with something else, which is named.
        WriteFailed: the disk is full or failed.
    """
    directory = output.with_name(output.name + ".partial")
    with locked(directory, "this output") as release:
        reached, digest = _reached(directory, made_of, replace)
        journal = Journal(directory / "journal.jsonl")
        if not read_journal(journal.path):
            journal.write("begun", made_of=dict(made_of))
            if reached.bytes:
                _write_reached(journal, reached, digest)
        rows = PartialOutput(directory, journal, reached, digest, beginning)
        finished = False
        try:
            yield rows
            finished = True
        finally:
            rows.close()
        if finished:
            remove_directory(directory, release)


def _reached(directory: Path, made_of: Mapping[str, Any], replace: bool) -> tuple[Progress, "hashlib._Hash"]:
    """How far an earlier process came with the same output, and the sum of its rows.

    A journal with a line that does not hold is removed, to be begun anew.
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
    reached, digest, intact = _intact(rows, noted)
    if intact < len(noted):
        _note(f"{rows}: damaged, its check sum is not the noted one; predicted anew from row {reached.rows + 1:,} on")
    if intact < len(events) - 1 or not intact:
        journal.unlink(missing_ok=True)
    return reached, digest


def _intact(rows: Path, noted: Sequence[Mapping[str, Any]]) -> tuple[Progress, "hashlib._Hash", int]:
    """The last noted place up to which the rows are as they were written, their sum, and how many places hold."""
    reached, digest, intact = Progress(), hashlib.sha256(), 0
    if not noted or not rows.exists():
        return reached, digest, intact
    with open_input(rows) as file:
        summed = digest.copy()
        for event in noted:
            try:
                place = Progress(int(event["rows"]), int(event["bytes"]), dict(event["counts"]))
            except (LookupError, TypeError, ValueError):
                break
            while data := file.read(max(0, min(_CHUNK, place.bytes - file.tell()))):
                summed.update(data)
            if file.tell() != place.bytes or event["sum"] != place.sum(summed):
                break
            reached, digest, intact = place, summed.copy(), intact + 1
    return reached, digest, intact


def _write_reached(journal: Journal, reached: Progress, digest: "hashlib._Hash") -> None:
    told = {"rows": reached.rows, "bytes": reached.bytes, "counts": reached.counts}
    journal.write("reached", **told, sum=reached.sum(digest))


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
