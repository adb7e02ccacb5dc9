"""An output that grows row by row and is continued after a kill: it is complete or absent under its own name.

    OUTPUT.partial         the rows so far
    OUTPUT.partial.json    how it was begun (the command, hashes of model and input), rows and bytes that are complete

The same command cuts OUTPUT.partial after the complete rows and goes on; another one is refused."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from albert.runtime.errors import AlbertError, CannotCreate
from albert.runtime.files import NO_LOCKS, lock_file, make_directory, sync_directory, writing
from albert.runtime.json_files import read_json_object, save_json, to_json

LAYOUT = 1
"""The version of the small file."""
SAVE_SECONDS = 1.0
"""What was written is made durable after this time, and when the command is stopped."""


class PartialOutput:
    """The rows of an output in progress: `rows` of them are complete, and `counts` is what was saved with them."""

    def __init__(self, output: Path, state: Path, file: BinaryIO, begun: Mapping[str, Any]) -> None:
        self._output = output
        self._state = state
        self._file = file
        self._begun = begun
        self._saved_at = time.monotonic()
        self.rows = 0
        self.counts: Mapping[str, Any] = {}

    def resume(self, rows: int, bytes: int, counts: Mapping[str, Any]) -> None:
        """Continue after so many complete rows."""
        self._file.truncate(bytes)
        self._file.seek(bytes)
        self.rows = rows
        self.counts = counts

    def begin(self, beginning: bytes) -> None:
        """Begin anew."""
        self._file.truncate(0)
        self._file.seek(0)
        self.save()  # before the first byte: a partial output without this file is not ours
        self._file.write(beginning)
        self.save()

    def append(self, lines: bytes, rows: int, counts: Mapping[str, Any]) -> None:
        """Write further rows."""
        self._file.write(lines)
        self.rows += rows
        self.counts = counts
        if time.monotonic() - self._saved_at >= SAVE_SECONDS:
            self.save()

    def save(self) -> None:
        """Make everything that was written durable, then say so."""
        self._file.flush()
        os.fsync(self._file.fileno())
        done = {"rows": self.rows, "bytes": self._file.tell(), "counts": self.counts}
        save_json(self._state, {"layout": LAYOUT, "begun": self._begun, **done})
        self._saved_at = time.monotonic()

    def finish(self) -> None:
        """Give the complete output its name."""
        self.save()
        os.replace(_partial(self._output), self._output)
        sync_directory(self._output.parent)
        self._state.unlink()


def _partial(output: Path) -> Path:
    return output.with_name(f"{output.name}.partial")


@contextmanager
def partial_output(
    output: Path, begun: Mapping[str, Any], beginning: bytes, replace: bool = False
) -> Iterator[PartialOutput]:
    """Open the unfinished rows of an output, or begin it.

    Args:
        begun: everything that determines the rows, as JSON values.
        beginning: what comes before the first row.
        replace: begin anew if it was begun otherwise.

    Raises:
        CannotCreate: another process is writing this output; it was begun otherwise; the name is no regular file's.
        WriteFailed: the disk is full or failed.
    """
    if output.exists() and not output.is_file():
        raise CannotCreate(output, "exists and is not a regular file", "choose another name")
    output = Path(os.path.realpath(output)) if output.is_symlink() else output  # a link is followed
    path = _partial(output)
    state = path.with_name(f"{path.name}.json")
    with writing(path):
        make_directory(output.parent)
        lock = _locked(path)
        try:
            with open(lock.descriptor, "r+b", closefd=False) as file:
                partial = PartialOutput(output, state, file, begun)
                saved = _saved_state(path, state, begun, replace)
                if saved is None:
                    partial.begin(beginning)
                else:
                    partial.resume(saved["rows"], saved["bytes"], saved["counts"])
                yield partial
        finally:
            lock.release()


def _locked(path: Path) -> Any:
    try:
        lock = lock_file(path)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        remedy = "choose another disk, or mount this one with locks (Lustre: -o flock)"
        raise CannotCreate(path, f"its file system has no locks ({error.strerror})", remedy) from error
    if lock is None:
        why = "another process or thread is working in this output"
        raise CannotCreate(path, why, "wait for it, or choose another output")
    return lock


def _saved_state(path: Path, state: Path, begun: Mapping[str, Any], replace: bool) -> Mapping[str, Any] | None:
    """What was saved of an output that was begun in the same way; None to begin anew."""
    size = path.stat().st_size
    if not size and not state.exists():
        return None
    why = _difference(state, begun)
    if why is not None and not replace:
        raise CannotCreate(path, why, "repeat the earlier command, or start over with --replace")
    if why is not None:
        return None
    saved = read_json_object(state)
    return saved if 0 < saved["bytes"] <= size and saved["rows"] else None


def _difference(state: Path, begun: Mapping[str, Any]) -> str | None:
    """Why a saved state is not of this command; None if it is."""
    try:
        saved = read_json_object(state)
    except AlbertError:
        return "was not begun by albert predict, or the file beside it is damaged"
    if saved.get("layout") != LAYOUT:
        return f"was begun by another version of albert (layout {saved.get('layout')}, this one writes {LAYOUT})"
    earlier: Mapping[str, Any] = saved["begun"]
    now: Mapping[str, Any] = to_json(begun)
    changed = [name for name in {**earlier, **now} if earlier.get(name) != now.get(name)]
    if not changed:
        return None
    return f"was begun with {', '.join(_changes(name, earlier.get(name), now.get(name)) for name in changed)}"


def _changes(name: str, earlier: Any, now: Any) -> str:
    """What changed, such as `--depth 2, now 1`; hashes are named and not shown."""
    if name in ("model", "input"):
        return f"another {name}"
    if not isinstance(earlier, Mapping) or not isinstance(now, Mapping):
        return f"{name} {_short(earlier)}, now {_short(now)}"
    keys = [key for key in {**earlier, **now} if earlier.get(key) != now.get(key)]
    return ", ".join(f"{key} {_short(earlier.get(key))}, now {_short(now.get(key))}" for key in keys)


def _short(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " ".join(map(str, value))[:40]
    return str(value)[:40]
