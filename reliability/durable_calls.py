"""Every call by which a process changes the disk, numbered, so that each can be the one at which something happens.

The functions of `os` that the project and its libraries call, files opened for writing, and what is written to them,
are replaced by ones that say what they do before and after they do it. What a C or Rust library writes by itself is
seen as one call. Calls outside of a folder, and TensorBoard's, which come from a thread of its own, are not counted.
Linux: open directories are looked up in /proc.
"""

import builtins
import errno
import functools
import io
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import safetensors.torch

OF_OS = ("mkdir", "rename", "replace", "link", "unlink", "remove", "rmdir", "truncate", "ftruncate", "fsync")
NOT_COUNTED = "tensorboard"
_WRITER = "serialize_file"
Moment = Literal["before", "after"]
Watcher = Callable[[Moment, str, str], int | None]
"""Is told the moment, the call's name and its place; of a write, may say how many bytes to take instead of all."""
_os = {name: getattr(os, name) for name in OF_OS}
_open, _serialize_file = io.open, getattr(safetensors.torch, _WRITER)


@dataclass(frozen=True)
class Fault:
    """What happens at one of the calls that change the disk below a folder.

    Args:
        below: the folder.
        number: which call, counted from 0; -1 for none.
        call: in place of the number its name and its path: "link /tmp/a". For writers that commit after a time, whose
            number of calls differs from run to run.
        moment: before it, or after it.
        what: "kill" for SIGKILL, "short" for a write of half of the bytes, or the name of an error ("ENOSPC").
        log: a file that every call is appended to, a line each.
    """

    below: str
    number: int = -1
    call: str = ""
    moment: Moment = "before"
    what: str = "kill"
    log: str | None = None


class Faults:
    """Counts the calls and makes the fault happen."""

    def __init__(self, fault: Fault) -> None:
        self._fault, self._calls = fault, -1
        self._log = None if fault.log is None else os.open(fault.log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def install(self) -> None:
        """Watch this process from now on."""
        watch(self._fault.below, self._meet)

    def _meet(self, moment: Moment, name: str, place: str) -> int | None:
        if moment == "before":
            self._calls += 1
            if self._log is not None:
                os.write(self._log, f"{name} {place}\n".encode())
        here = f"{name} {place}" == self._fault.call if self._fault.call else self._calls == self._fault.number
        if not here or moment != self._fault.moment:
            return None
        if self._fault.what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._fault.what == "short":
            return 2
        number = getattr(errno, self._fault.what)
        raise OSError(number, os.strerror(number), place)


def watch(below: str, watcher: Watcher) -> None:
    """Tell a watcher of every call that changes the disk below a folder, until `unwatch`."""

    def told(name: str, place: str, call: Callable[[], Any]) -> Any:
        if not place.startswith(below) or NOT_COUNTED in Path(place).parts:
            return call()
        watcher("before", name, place)
        try:
            return call()
        finally:
            watcher("after", name, place)  # of a call that failed, too: what is there already cannot be made

    for name in OF_OS:
        setattr(os, name, _telling(name, told))

    @functools.wraps(_serialize_file)
    def serialize_file(data: Any, filename: Any, *rest: Any, **more: Any) -> None:
        told("write", os.path.abspath(filename), lambda: _serialize_file(data, filename, *rest, **more))

    setattr(safetensors.torch, _WRITER, serialize_file)
    builtins.open = io.open = _opening(told, below, watcher)  # type: ignore[assignment]


def unwatch() -> None:
    """Put the functions back."""
    for name in OF_OS:
        setattr(os, name, _os[name])
    setattr(safetensors.torch, _WRITER, _serialize_file)
    builtins.open = io.open = _open


def _telling(name: str, told: Callable[[str, str, Callable[[], Any]], Any]) -> Callable[..., Any]:
    plain = _os[name]

    @functools.wraps(plain)
    def call(path: Any, *rest: Any, **options: Any) -> Any:
        folder = options.get("dir_fd", options.get("src_dir_fd"))
        return told(name, _place(path, folder), lambda: plain(path, *rest, **options))

    return call


def _place(path: Any, folder: int | None) -> str:
    """Where a call acts, whether it is given a name, a name in an open directory, or an open file."""
    if isinstance(path, int):
        return os.readlink(f"/proc/self/fd/{path}")
    if folder is not None:
        return os.path.join(os.readlink(f"/proc/self/fd/{folder}"), os.fsdecode(path))
    return os.path.abspath(os.fsdecode(path))


def _opening(told: Callable[[str, str, Callable[[], Any]], Any], below: str, watcher: Watcher) -> Callable[..., Any]:
    """`open`, whose files for writing tell of each write."""

    class Written(io.FileIO):
        def write(self, data: Any) -> int:  # type: ignore[override]
            whole = memoryview(data).cast("B")
            parts = watcher("before", "write", str(self.name))
            done = super().write(whole[: max(1, len(whole) // parts)] if parts and len(whole) else whole)
            watcher("after", "write", str(self.name))
            return done

    def opened(
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        place = "" if isinstance(file, int) else os.path.abspath(os.fsdecode(file))
        counted = place.startswith(below) and NOT_COUNTED not in Path(place).parts
        if not counted or not set(mode) & set("wax+"):
            return _open(file, mode, buffering, encoding, errors, newline, closefd, opener)
        letters = mode.replace("b", "").replace("t", "")
        raw = told("open", place, lambda: Written(place, letters, closefd, opener))
        if buffering == 0:
            return raw
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding, errors, newline)

    return opened
