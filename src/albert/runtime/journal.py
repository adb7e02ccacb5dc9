"""The journal of a run: one JSON object a line, only ever appended to.

A run that was killed and resumed repeats the steps after its last checkpoint, so the journal may tell one step twice;
both tellings are equal up to timings, and `read_journal` keeps the last.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

from albert.runtime.durable_files import write_bytes
from albert.runtime.errors import DamagedData, WriteFailed
from albert.runtime.input_files import read_input


class Journal:
    """Append events to a file; each is on the disk's queue when `write` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            write_bytes(path, b"")  # so that its name is on the disk
        try:
            _drop_torn_line(path)
            # Without a buffer, or closing would try again what a full disk refused.
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115 (lives as long as the run)
        except OSError as error:
            raise WriteFailed(path, error.strerror or str(error)) from error

    def write(self, event: str, **values: Any) -> None:
        """Append one event with the time (Unix seconds).

        Raises:
            WriteFailed: the disk is full or failed.
        """
        line = json.dumps({"event": event, "time": round(time.time(), 3), **values}, allow_nan=True)
        rest = memoryview((line + "\n").encode())
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise WriteFailed(self.path, error.strerror or str(error)) from error

    def sync(self) -> None:
        """Flush what was written to the disk: a loss of power takes the rest.

        Raises:
            WriteFailed: the disk is full or failed.
        """
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise WriteFailed(self.path, error.strerror or str(error)) from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_journal(path: Path) -> list[dict[str, Any]]:
    """All events in order; of several with the same event and step, the last one.

    Raises:
        DamagedData: a line other than a torn last one is not an event.
    """
    records: dict[Any, dict[str, Any]] = {}
    lines = read_input(path).split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines):  # a process died while appending it
                break
            raise DamagedData(f"{path}:{number}", "is not JSON") from error
        if not isinstance(record, dict) or not isinstance(record.get("event"), str):
            raise DamagedData(f"{path}:{number}", "is not an event")
        if not isinstance(record.get("step", 0), int):
            raise DamagedData(f"{path}:{number}", "is of a step that is no number")
        key = (record["event"], record["step"]) if "step" in record else number
        records.pop(key, None)
        records[key] = record
    return list(records.values())


def _drop_torn_line(path: Path) -> None:
    with open(path, "rb+") as file:
        content = file.read()
        end = content.rfind(b"\n") + 1
        if end != len(content):
            file.truncate(end)
            os.fsync(file.fileno())
