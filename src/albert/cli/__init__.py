"""The command line: commands are imported when they are called, by the table in main.py.

SIGINT while main.py and what it needs are imported ends the process with one line: nothing has begun, and the
traceback would be of an import. So this file imports little, and main.py by its name.
"""

import importlib
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupted_at_once() -> Iterator[None]:
    """In the block SIGINT ends the process with exit code 130; no handler but Python's own is replaced."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    try:
        signal.signal(signal.SIGINT, _end)
    except ValueError:  # only the main thread may, and only it is interrupted
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def follows_another_rank() -> bool:
    """Whether a rank on the same machine says what this one would."""
    return os.environ.get("LOCAL_RANK", os.environ.get("RANK", "0")) != "0"


def _end(number: int, _: FrameType | None) -> None:
    if not follows_another_rank():
        sys.stderr.write("albert: error: interrupted\n")
        sys.stderr.flush()
    os._exit(128 + number)


with interrupted_at_once():
    importlib.import_module("albert.cli.main")
