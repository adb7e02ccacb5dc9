"""How wide the output is: as the terminal on a terminal, and without any wrapping where it goes to a file or a pipe.

What is written to a file or a pipe must not depend on COLUMNS or on the length of a path, so every command makes its
console here.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

UNWRAPPED = 10_000
"""Columns; more than any line needs."""


def open_console(
    soft_wrap: bool = True, highlight: bool = False, quiet: bool = False, at_least: int | None = None
) -> Console:
    """The console on standard output.

    Args:
        soft_wrap: leave the wrapping of long lines to the terminal.
        highlight: numbers and paths in colours, on a terminal.
        quiet: print nothing.
        at_least: columns to print even on a narrower terminal.
    """
    console = Console(soft_wrap=soft_wrap, highlight=highlight, quiet=quiet)
    if not sys.stdout.isatty():
        console.size = (UNWRAPPED, 25)
    elif at_least is not None:
        console.size = (max(console.width, at_least), 25)
    return console


@contextmanager
def columns(number: int) -> Iterator[None]:
    """Libraries that ask for the width of the terminal get this number of columns in the block."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(number)
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
