"""Opening input files: only regular files are read; a pipe or a device is refused instead of waited for.

Inputs are read more than once (checked, hashed, then used), which a pipe does not allow, and opening a pipe without a
writer blocks for ever. Standard input is read only where a command documents it (`albert predict --input -`).
"""

import os
import stat
from io import BufferedReader, FileIO
from pathlib import Path

from albert.runtime.errors import MissingInput

_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
PIPE_REMEDY = "write what comes out of it into a file first"
_NOT_WAITING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)


def refuse_special_file(path: Path | str, mode: int, pipe_remedy: str = PIPE_REMEDY) -> None:
    """Refuse whatever is not a regular file.

    Args:
        path: how it is called in the error.
        mode: `st_mode` of its status.
        pipe_remedy: what to do with a pipe instead.

    Raises:
        MissingInput: a directory, a pipe, a socket or a device.
    """
    if stat.S_ISREG(mode):
        return
    kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "a special file")
    raise MissingInput(path, f"is {kind}, a file is expected", pipe_remedy if stat.S_ISFIFO(mode) else None)


def open_input(path: Path) -> BufferedReader:
    """Open a regular file for reading bytes; links are followed.

    Raises:
        MissingInput: it is absent, not readable, or not a regular file.
    """
    return BufferedReader(open_unbuffered(path))


def open_unbuffered(path: Path) -> FileIO:
    """`open_input` without a buffer, for reads that are large or fill memory of their own."""
    try:
        refuse_special_file(path, os.stat(path).st_mode)  # first, since opening can already start a device
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | _NOT_WAITING)
    except OSError as error:
        raise MissingInput(path, error.strerror or "cannot be read") from error
    try:
        refuse_special_file(path, os.fstat(descriptor).st_mode)
        return FileIO(descriptor)
    except BaseException:
        os.close(descriptor)
        raise


def read_input(path: Path) -> bytes:
    """The bytes of a regular file.

    Raises:
        MissingInput: it is absent, not readable, or not a regular file.
    """
    with open_input(path) as file:
        try:
            return file.read()
        except OSError as error:
            raise MissingInput(path, error.strerror or "cannot be read") from error
