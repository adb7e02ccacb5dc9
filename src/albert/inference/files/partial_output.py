"""An output that is being written: killed at any moment it goes on where it was, and it is whole or absent.

OUTPUT.partial/journal.jsonl   what it is made of, then how far it has come
               rows            the rows so far, and perhaps some that nobody has noted yet
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from albert.inference.files.outputs import OutputFormat
from albert.runtime.durable_files import new_file, remove_directory
from albert.runtime.errors import CannotCreate, WriteFailed
from albert.runtime.journal import Journal, read_journal
from albert.runtime.locks import locked

COMMIT_SECONDS = 1.0
"""What a power cut costs at most, and a batch."""


@dataclass
class Progress:
    """How far an output has come: rows, their bytes, and what was counted on the way."""

    rows: int = 0
    bytes: int = 0
    counts: dict[str, Any] = field(default_factory=dict)


class PartialOutput:
    """Rows that are appended, and noted now and then; see `partial_output`."""

    def __init__(self, directory: Path, journal: Journal, reached: Progress, beginning: bytes) -> None:
        self.reached = reached
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
        self._journal.write("reached", rows=reached.rows, bytes=reached.bytes, counts=reached.counts)
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
        self.reached.bytes += len(data)


@contextmanager
def partial_output(
    output: Path, made_of: Mapping[str, Any], beginning: bytes, replace: bool
) -> Iterator[PartialOutput]:
    """Begin an output, or go on with one; after the block it is gone if the output is there.

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
        reached = _reached(directory, made_of, replace)
        journal = Journal(directory / "journal.jsonl")
        if reached is None:
            journal.write("begun", made_of=dict(made_of))
        rows = PartialOutput(directory, journal, reached or Progress(), beginning)
        finished = False
        try:
            yield rows
            finished = True
        finally:
            rows.close()
        if finished:
            remove_directory(directory, release)


def _reached(directory: Path, made_of: Mapping[str, Any], replace: bool) -> Progress | None:
    """How far an earlier process came with the same output; None: nothing that can be gone on with."""
    journal, rows = directory / "journal.jsonl", directory / "rows"
    events = read_journal(journal) if journal.exists() else []
    if not events:
        return None
    begun = events[0].get("made_of", {})
    other = [name for name in {**begun, **made_of} if begun.get(name) != made_of.get(name)]
    if other and not replace:
        shown = ", ".join(f"{name} {_short(begun.get(name))}, now {_short(made_of.get(name))}" for name in other)
        raise CannotCreate(
            directory, f"was begun with other settings: {shown}", "use those, or begin anew by --replace"
        )
    size = rows.stat().st_size if rows.exists() else 0
    noted = [event for event in events[1:] if event["bytes"] <= size]
    if other or not noted:
        journal.unlink()
        rows.unlink(missing_ok=True)
        return None
    return Progress(noted[-1]["rows"], noted[-1]["bytes"], noted[-1]["counts"])


def _short(value: Any) -> str:
    return "none" if value is None else str(value)[:16]


@contextmanager
def _saying(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remedy = "free space; the same command goes on"
        raise WriteFailed(path, error.strerror or str(error), remedy) from error
