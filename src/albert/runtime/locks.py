"""One process at a time: a lock that dies with its owner."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from albert.runtime.durable_files import make_directory
from albert.runtime.errors import CannotCreate

LOCK_NAME = ".lock"


@contextmanager
def locked(directory: Path, what: str) -> Iterator[None]:
    """Keep a second process out of a directory, which is made if need be.

    Args:
        directory: where to work.
        what: how to call it in an error ("this run").

    Raises:
        CannotCreate: another process works here, or the directory cannot be made.
    """
    with claimed(directory) as mine:
        if not mine:
            remedy = "wait for it, or choose another output"
            raise CannotCreate(directory, f"another process is working in {what}", remedy)
        yield


@contextmanager
def claimed(directory: Path) -> Iterator[bool]:
    """Try to take the lock of a directory, which is made if need be; yields whether this process has it now.

    Raises:
        CannotCreate: the directory cannot be made.
    """
    try:
        make_directory(directory)
        file = open(directory / LOCK_NAME, "w")  # noqa: SIM115 (held for the block)
    except OSError as error:
        raise CannotCreate(directory, error.strerror or str(error)) from error
    with file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # unlike flock, not inherited by worker processes
            mine = True
        except (BlockingIOError, PermissionError):
            mine = False
        yield mine
