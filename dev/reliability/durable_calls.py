"""Intercepts and numbers every call by which a process changes the disk, to inject a fault at any of them.

Patches the functions of `os` that the project and its libraries call, opening files for writing, and writing to them.
Writes of a C or Rust library are one call. Calls outside of a folder are not counted, nor TensorBoard's, which come
from another thread. Needs Linux: open directories are looked up in /proc."""

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
"""Called with the moment, the name of the call and its path; for a write, may return n to write 1/n of the bytes."""


@dataclass(frozen=True)
class Fault:
    """A fault at one of the calls that change the disk below a folder."""

    below: str  # the folder
    number: int = -1  # of the call, from 0; -1 for none
    moment: Moment = "before"
    what: str = "kill"  # "kill", "short" (write half of the bytes), or the name of an error ("ENOSPC")
    log: str | None = None  # a file to log all calls to, one per line


def inject(fault: Fault) -> None:
    """Count the calls of this process from now on, and inject the fault at its call."""
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
    """Call a watcher at every call that changes the disk below a folder, until the returned stack is closed.

    The watcher's own calls are not reported.
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

    def watched_call(name: str, place: str, call: Callable[[], Any]) -> Any:
        if not counted(place):
            return call()
        tell("before", name, place)
        try:
            return call()
        finally:
            tell("after", name, place)  # also after a failed call, such as making an existing directory

    def patched(name: str) -> Callable[..., Any]:
        plain = getattr(os, name)

        @functools.wraps(plain)
        def call(path: Any, *rest: Any, **options: Any) -> Any:
            folder = options.get("dir_fd", options.get("src_dir_fd"))
            return watched_call(name, _place(path, folder), lambda: plain(path, *rest, **options))

        return call

    plain_open, plain_serialize = io.open, getattr(safetensors.torch, _WRITER)

    @functools.wraps(plain_serialize)
    def serialize_file(data: Any, filename: Any, *rest: Any, **more: Any) -> None:
        watched_call("write", os.path.abspath(filename), lambda: plain_serialize(data, filename, *rest, **more))

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
        raw = watched_call("open", place, lambda: Written(place, letters, closefd, opener))
        if buffering == 0:
            return raw
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding, errors, newline)

    with contextlib.ExitStack() as patches:
        for name in OF_OS:
            patches.enter_context(patch.object(os, name, patched(name)))
        patches.enter_context(patch.object(safetensors.torch, _WRITER, serialize_file))
        for module in (builtins, io):
            patches.enter_context(patch.object(module, "open", opened))
        return patches.pop_all()


def _place(path: Any, folder: int | None) -> str:
    """The path of a call's argument: a name, a name relative to an open directory, or an open file."""
    if isinstance(path, int):
        return os.readlink(f"/proc/self/fd/{path}")
    if folder is not None:
        return os.path.join(os.readlink(f"/proc/self/fd/{folder}"), os.fsdecode(path))
    return os.path.abspath(os.fsdecode(path))
