"""An output that is being written: killed at any moment it goes on where it was, and it is whole or absent.

OUTPUT.partial/journal.jsonl   what it is made of, then how far it has come, with a sum over all rows so far
               rows            the rows so far, and perhaps some that nobody has noted yet
"""

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from albert.inference.files.outputs import OutputFormat
from albert.runtime.durable_files import new_file, remove_directory
from albert.runtime.errors import CannotCreate, DamagedData, WriteFailed
from albert.runtime.input_files import open_input
from albert.runtime.journal import Journal, read_journal
from albert.runtime.locks import locked

COMMIT_SECONDS = 1.0
"""What a power cut costs at most, and a batch."""
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
