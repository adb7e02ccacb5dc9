"""One worker at a time in a directory: a lock that dies with its owner."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from albert.runtime.durable_files import make_directory
from albert.runtime.errors import CannotCreate
from albert.runtime.file_locks import KEEPS_NO_LOCKS, lock_file

LOCK_NAME = ".lock"


@contextmanager
def locked(directory: Path, what: str) -> Iterator[Callable[[], None]]:
    """Keep other processes and threads out of a directory, which is made if need be.

    Yields a function that gives the lock up before the block ends, for `remove_directory`.

    Args:
        directory: where to work.
        what: how to call it in an error ("this run").

    Raises:
        CannotCreate: another process or thread works here, or the directory cannot be made or locked.
    """
    with claimed(directory) as release:
        if release is None:
            remedy = "wait for it, or choose another output"
            raise CannotCreate(directory, f"another process or thread is working in {what}", remedy)
        yield release


@contextmanager
def claimed(directory: Path) -> Iterator[Callable[[], None] | None]:
    """Try to take the lock of a directory, which is made if need be.

    Yields a function that gives the lock up before the block ends; None where somebody else has it.

    Raises:
        CannotCreate: the directory cannot be made, or its file system keeps no locks.
    """
    try:
        make_directory(directory)
        lock = lock_file(directory / LOCK_NAME)
    except OSError as error:
        why, remedy = error.strerror or str(error), None
        if error.errno in KEEPS_NO_LOCKS:
            why = f"its file system keeps no locks ({why})"
            remedy = "choose another disk, or mount this one with locks (Lustre: -o flock)"
        raise CannotCreate(directory, why, remedy) from error
    try:
        yield lock.release if lock else None
    finally:
        if lock:
            lock.release()
