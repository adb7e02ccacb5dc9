"""Every call by which a process changes the disk, numbered, so that each can be the one at which something happens.

The functions of `os` that the project and its libraries call, files opened for writing, and what is written to them,
are replaced by ones that say what they do before and after they do it. What a C or Rust library writes by itself is
seen as one call. Calls outside of a folder, and TensorBoard's, which come from a thread of its own, are not counted.
Linux: open directories are looked up in /proc.
"""

import builtins
import contextlib
import errno
import functools
import io
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import safetensors.torch

OF_OS = ("mkdir", "rename", "replace", "link", "unlink", "remove", "rmdir", "truncate", "ftruncate", "fsync")
NOT_COUNTED = "tensorboard"
_WRITER = "serialize_file"
Moment = Literal["before", "after"]
Watcher = Callable[[Moment, str, str], int | None]
"""Is told the moment, the call's name and its place; of a write, may say how many bytes to take instead of all."""


@dataclass(frozen=True)
class Fault:
    """What happens at one of the calls that change the disk below a folder."""

    below: str  # the folder
    number: int = -1  # which call, counted from 0; -1 for none
    moment: Moment = "before"
    what: str = "kill"  # SIGKILL, "short" for a write of half of the bytes, or the name of an error ("ENOSPC")
    log: str | None = None  # a file that every call is appended to, a line each


def meet(fault: Fault) -> None:
    """Count the calls of this process from now on, and make the fault happen at its call."""
    calls = -1
    log = None if fault.log is None else os.open(fault.log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def watcher(moment: Moment, name: str, place: str) -> int | None:
        nonlocal calls
        if moment == "before":
            calls += 1
            if log is not None:
                os.write(log, f"{name} {place}\n".encode())
        if calls != fault.number or moment != fault.moment:
            return None
        if fault.what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault.what == "short":
            return 2
        number = getattr(errno, fault.what)
        raise OSError(number, os.strerror(number), place)

    watched(Path(fault.below), watcher)


def watched(below: Path, watcher: Watcher) -> contextlib.ExitStack:
    """Tell a watcher of every call that changes the disk below a folder, until the block ends, if there is one.

    What the watcher itself does to the disk is not told.
    """
    busy = False

    def tell(moment: Moment, name: str, place: str) -> int | None:
        nonlocal busy
        busy = True
        try:
            return watcher(moment, name, place)
        finally:
            busy = False

    def counted(place: str) -> bool:
        return not busy and place.startswith(str(below)) and NOT_COUNTED not in Path(place).parts

    def told(name: str, place: str, call: Callable[[], Any]) -> Any:
        if not counted(place):
            return call()
        tell("before", name, place)
        try:
            return call()
        finally:
            tell("after", name, place)  # of a call that failed, too: what is there already cannot be made

    def telling(name: str) -> Callable[..., Any]:
        plain = getattr(os, name)

        @functools.wraps(plain)
        def call(path: Any, *rest: Any, **options: Any) -> Any:
            folder = options.get("dir_fd", options.get("src_dir_fd"))
            return told(name, _place(path, folder), lambda: plain(path, *rest, **options))

        return call

    plain_open, plain_serialize = io.open, getattr(safetensors.torch, _WRITER)

    @functools.wraps(plain_serialize)
    def serialize_file(data: Any, filename: Any, *rest: Any, **more: Any) -> None:
        told("write", os.path.abspath(filename), lambda: plain_serialize(data, filename, *rest, **more))

    class Written(io.FileIO):
        def write(self, data: Any) -> int:  # type: ignore[override]
            whole = memoryview(data).cast("B")
            if not counted(str(self.name)):
                return super().write(whole)
            parts = tell("before", "write", str(self.name))
            done = super().write(whole[: max(1, len(whole) // parts)] if parts and len(whole) else whole)
            tell("after", "write", str(self.name))
            return done

    @functools.wraps(plain_open)
    def opened(
        file: Any, mode: str = "r", buffering: int = -1, encoding: Any = None, errors: Any = None,
        newline: Any = None, closefd: bool = True, opener: Any = None,
    ) -> Any:  # fmt: skip
        place = "" if isinstance(file, int) else os.path.abspath(os.fsdecode(file))
        if not counted(place) or not set(mode) & set("wax+"):
            return plain_open(file, mode, buffering, encoding, errors, newline, closefd, opener)
        letters = mode.replace("b", "").replace("t", "")
        raw = told("open", place, lambda: Written(place, letters, closefd, opener))
        if buffering == 0:
            return raw
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding, errors, newline)

    with contextlib.ExitStack() as patches:
        for name in OF_OS:
            patches.enter_context(patch.object(os, name, telling(name)))
        patches.enter_context(patch.object(safetensors.torch, _WRITER, serialize_file))
        for module in (builtins, io):
            patches.enter_context(patch.object(module, "open", opened))
        return patches.pop_all()


def _place(path: Any, folder: int | None) -> str:
    """Where a call acts, whether it is given a name, a name in an open directory, or an open file."""
    if isinstance(path, int):
        return os.readlink(f"/proc/self/fd/{path}")
    if folder is not None:
        return os.path.join(os.readlink(f"/proc/self/fd/{folder}"), os.fsdecode(path))
    return os.path.abspath(os.fsdecode(path))
