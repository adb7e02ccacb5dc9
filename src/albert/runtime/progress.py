"""Progress with rate and time left: a bar in a terminal or notebook, and lines for log files."""

import html
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

PLAIN_LINE_SECONDS = 15.0
NOTEBOOK_SECONDS = 0.5
"""Between updates of a bar in a notebook."""
APPEARS_AFTER_SECONDS = 0.6


@runtime_checkable
class Bar(Protocol):
    """What `progress` yields."""

    def advance(self, amount: int | float = 1) -> None:
        """Add finished units."""
        ...

    def note(self, text: str) -> None:
        """Show a short text beside the bar, for example the loss."""
        ...

    def expect(self, total: int | float) -> None:
        """Correct the total number of units."""
        ...


@contextmanager
def progress(
    description: str, total: int | float | None, unit: str, done: int | float = 0, quiet: bool = False
) -> Iterator[Bar]:
    """Show progress on standard error or in the output of a notebook's cell.

    Args:
        total: number of units; None if unknown.
        unit: what is counted ("steps", "documents"); the rate is units per second.
        done: units finished before, by a run that is resumed.
    """
    if quiet:
        yield _Silent()
    elif sys.stderr.isatty():
        with _shown_bars() as bars:
            task = bars.add_task(description, total=total, completed=int(done), unit=unit, note="", start_at=done)
            try:
                yield _Rich(bars, task)
            finally:
                if len(bars.tasks) > 1:  # a nested bar disappears when it is done
                    bars.remove_task(task)
    else:
        display, values = _notebook_display(), (description, total, unit, done)
        plain = _Plain(*values) if display is None else _Notebook(display, *values)
        try:
            yield plain
        finally:
            plain.end()


class Position:
    """Position in a file: calls `advance` with the bytes since the last call, `least` or more."""

    def __init__(self, advance: Callable[[int], None] | None, least: int = 1) -> None:
        self._advance, self._least, self._reported = advance, least, 0

    def reached(self, position: int) -> None:
        """Set the number of bytes read."""
        if self._advance is not None and position >= self._reported + self._least:
            self._advance(position - self._reported)
            self._reported = position


_bars: list[Progress] = []
"""The display in use, to which nested bars add a line: rich allows only one live display."""


@contextmanager
def _shown_bars() -> Iterator[Progress]:
    """The display; a new one appears after a delay, so that short work shows none."""
    if _bars:
        yield _bars[-1]
        return
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        _Amount(),
        _Rate(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[note]}", style="dim"),
        console=Console(stderr=True),
    )
    timer = threading.Timer(APPEARS_AFTER_SECONDS, bars.start)
    timer.daemon = True
    timer.start()
    _bars.append(bars)
    try:
        yield bars
    finally:
        _bars.pop()
        timer.cancel()
        timer.join()
        bars.stop()


class _Silent:
    def advance(self, amount: int | float = 1) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def expect(self, total: int | float) -> None:
        pass


class _Rich:
    def __init__(self, bars: Progress, task: int) -> None:
        self._bars, self._task = bars, task

    def advance(self, amount: int | float = 1) -> None:
        self._bars.advance(self._task, amount)  # type: ignore[arg-type]

    def note(self, text: str) -> None:
        self._bars.update(self._task, note=text)  # type: ignore[arg-type]

    def expect(self, total: int | float) -> None:
        self._bars.update(self._task, total=total)  # type: ignore[arg-type]


def _notebook_display() -> Any:
    """The module `IPython.display`; None outside Jupyter."""
    interactive = sys.modules.get("IPython")  # imported in every notebook
    shell = interactive.get_ipython() if interactive is not None else None
    return interactive.display if interactive is not None and hasattr(shell, "kernel") else None


class _Plain:
    every, first_after = PLAIN_LINE_SECONDS, 1.0

    def __init__(self, description: str, total: int | float | None, unit: str, done: int | float) -> None:
        self._description, self._total, self._unit = description, total, unit
        self._first, self._done, self._note = done, done, ""
        self._start = self._shown = time.monotonic()

    def advance(self, amount: int | float = 1) -> None:
        self._done += amount
        if time.monotonic() - self._shown >= self.every:
            self._show()

    def note(self, text: str) -> None:
        self._note = text

    def expect(self, total: int | float) -> None:
        self._total = total

    def end(self) -> None:
        if time.monotonic() - self._start >= self.first_after:
            self._show()

    def _show(self) -> None:
        self._shown = time.monotonic()
        seconds = max(self._shown - self._start, 1e-9)
        rate = (self._done - self._first) / seconds
        line = f"{self._description}: {_amount(self._done, self._total)} {self._unit}, {_number(rate)}/s"
        if self._total and rate > 0 and self._done < self._total:
            line += f", {_duration((self._total - self._done) / rate)} left"
        self._print(line + (f"  {self._note}" if self._note else ""))

    def _print(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


class _Notebook(_Plain):
    """The line beside a bar, updated in place."""

    every, first_after = NOTEBOOK_SECONDS, NOTEBOOK_SECONDS

    def __init__(self, display: Any, *args: Any) -> None:
        super().__init__(*args)
        self._display, self._handle = display, None

    def _print(self, line: str) -> None:
        value = f' value="{self._done / self._total:.4f}"' if self._total else ""
        content = {"text/plain": line, "text/html": f"<progress{value}></progress> <code>{html.escape(line)}</code>"}
        if self._handle is None:
            self._handle = self._display.display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


class _Amount(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{_amount(task.completed, task.total)} {task.fields['unit']}")


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        elapsed = task.elapsed or 0.0
        rate = (task.completed - task.fields["start_at"]) / elapsed if elapsed > 0 else 0.0
        return Text(f"{_number(rate)}/s", style="cyan")


def _amount(done: int | float, total: int | float | None) -> str:
    return f"{done:,.0f}/{total:,.0f}" if total is not None else f"{done:,.0f}"


def _number(value: int | float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _duration(seconds: int | float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
