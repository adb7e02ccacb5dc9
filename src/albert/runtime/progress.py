"""Progress with rate and time left: a bar in a terminal or notebook, and lines for log files."""

import errno
import html
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn


@contextmanager
def progress(
    description: str, total: int | float | None, unit: str, done: int | float = 0, quiet: bool = False
) -> "Iterator[Bar]":
    """Show progress on standard error or in the output of a notebook's cell.

    Args:
        total: number of units; None if unknown.
        unit: what is counted ("steps", "documents"); the rate is units per second.
        done: units finished before, by a run that is resumed.
    """
    ipython = sys.modules.get("IPython")  # imported in every notebook
    if quiet:
        kind = _Quiet
    elif sys.stderr.isatty():
        kind = _Terminal
    else:
        kind = _Notebook if ipython and hasattr(ipython.get_ipython(), "kernel") else Bar
    bar = kind(description, total, unit, done)
    try:
        yield bar
    finally:
        bar.end()


class Position:
    """Position in a file: calls `advance` with the bytes since the last call, `least` or more."""

    def __init__(self, advance: Callable[[int], None] | None, least: int = 1) -> None:
        self._advance = advance
        self._least = least
        self._reported = 0

    def reached(self, position: int) -> None:
        """Set the number of bytes read."""
        if self._advance is not None and position >= self._reported + self._least:
            self._advance(position - self._reported)
            self._reported = position


class Bar:
    """What `progress` yields: lines in a log file. Its subclasses show the same line in other places."""

    every = 15.0
    first_after = 1.0
    """Seconds between two lines, and of the shortest work that is shown."""

    def __init__(self, description: str, total: int | float | None, unit: str, done: int | float) -> None:
        self._description = description
        self._total = total
        self._unit = unit
        self._first = done
        self._done = done
        self._note = ""
        self._start = time.monotonic()
        self._shown = self._start

    def advance(self, amount: int | float = 1) -> None:
        """Add finished units."""
        self._done += amount
        self.expect(self._total)
        now = time.monotonic()
        if now - self._shown >= self.every and now - self._start >= self.first_after:
            self._shown = now
            self._show_if_open(self._line(now))

    def note(self, text: str) -> None:
        """Show a short text beside the bar, for example the loss."""
        self._note = text

    def expect(self, total: int | float | None) -> None:
        """Correct the total number of units, which is never less than those that are finished."""
        self._total = None if total is None else max(total, self._done)

    def end(self) -> None:
        """Show the last line."""
        now = time.monotonic()
        if now - self._start >= self.first_after:
            self._show_if_open(self._line(now))

    def _show_if_open(self, line: str) -> None:
        try:
            self._show(line)
        except OSError as error:
            if error.errno != errno.EIO:  # the terminal was closed
                raise

    def _line(self, now: float) -> str:
        rate = (self._done - self._first) / max(now - self._start, 1e-9)
        amount = f"{self._done:,.0f}" if self._total is None else f"{self._done:,.0f}/{self._total:,.0f}"
        speed = f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
        unit = self._unit.removesuffix("s") if amount == "1" else self._unit
        line = f"{self._description}: {amount} {unit}, {speed}/s"
        if self._total and rate > 0 and self._done < self._total:
            line += f", {timedelta(seconds=round((self._total - self._done) / rate))} left"
        return line + (f"  {self._note}" if self._note else "")

    def _show(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


class _Quiet(Bar):
    def _show(self, line: str) -> None:
        pass


_live: list[Progress] = []
"""The display in a terminal, once for each bar in it: rich allows only one, to which nested bars add a line."""


class _Terminal(Bar):
    """The line beside a bar. A nested bar disappears when it is done."""

    every = 0.1
    first_after = 0.6

    def __init__(self, description: str, total: int | float | None, unit: str, done: int | float) -> None:
        super().__init__(description, total, unit, done)
        columns = BarColumn(bar_width=24), TextColumn("{task.description}", markup=False)
        self._bars = _live[0] if _live else Progress(*columns, console=Console(stderr=True), auto_refresh=False)
        self._task = self._bars.add_task("", total=total, completed=int(done), visible=False)
        _live.append(self._bars)

    def note(self, text: str) -> None:
        super().note(text)
        self.advance(0)  # without units

    def end(self) -> None:
        super().end()
        _live.pop()
        if _live:
            self._bars.remove_task(self._task)
        else:
            self._bars.stop()

    def _show(self, line: str) -> None:
        self._bars.start()
        values: dict[str, Any] = {"completed": self._done, "total": self._total}
        self._bars.update(self._task, description=line, visible=True, refresh=True, **values)


class _Notebook(Bar):
    """The line beside a bar, updated in place."""

    every = 0.5
    first_after = 0.5
    _handle = None

    def _show(self, line: str) -> None:
        value = f' value="{self._done / self._total:.4f}"' if self._total else ""
        content = {"text/plain": line, "text/html": f"<progress{value}></progress> <code>{html.escape(line)}</code>"}
        if self._handle is None:
            self._handle = sys.modules["IPython"].display.display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)
