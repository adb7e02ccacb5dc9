"""The command line: `main.py` lists the commands and imports them when they are called.

SIGINT while `main.py` is imported ends the process with one line instead of a traceback. So this file imports little,
and `main.py` by its name.
"""

import importlib
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def exit_on_sigint() -> Iterator[None]:
    """SIGINT in the block ends the process with exit code 130, unless a handler other than Python's is installed."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    try:
        signal.signal(signal.SIGINT, _end)
    except ValueError:  # only the main thread may set handlers, and only it is interrupted
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def is_silent_rank() -> bool:
    """Whether another rank on this machine prints the errors that all ranks have."""
    return os.environ.get("LOCAL_RANK", os.environ.get("RANK", "0")) != "0"


def _end(number: int, _: FrameType | None) -> None:
    if not is_silent_rank():
        sys.stderr.write("albert: error: interrupted\n")
        sys.stderr.flush()
    os._exit(128 + number)


with exit_on_sigint():
    importlib.import_module("albert.cli.main")
