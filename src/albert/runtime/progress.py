"""Progress with rate and time left: a bar for people, in a notebook too; a plain line now and then for log files."""

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
        """Say that `amount` more units are done."""
        ...

    def note(self, text: str) -> None:
        """Show a short text beside the bar, the newest loss say."""
        ...

    def expect(self, total: int | float) -> None:
        """Say how many units there will be, now that it is known better."""
        ...


@contextmanager
def progress(
    description: str, total: int | float | None, unit: str, done: int | float = 0, quiet: bool = False
) -> Iterator[Bar]:
    """Show how far something has come: on standard error, or in the output of a notebook's cell.

    Args:
        total: how many units there are, or None when nobody knows.
        unit: what is counted ("steps", "documents"); the rate is units per second.
        done: units finished before, by a run that is being resumed.
    """
    if quiet:
        yield _Silent()
    elif sys.stderr.isatty():
        with _shown_bars() as bars:
            task = bars.add_task(description, total=total, completed=int(done), unit=unit, note="", start_at=done)
            try:
                yield _Rich(bars, task)
            finally:
                if len(bars.tasks) > 1:  # a bar within another makes room when it is done
                    bars.remove_task(task)
    else:
        show = _notebook_display()
        plain = (
            _Plain(description, total, unit, done) if show is None else _Notebook(show, description, total, unit, done)
        )
        try:
            yield plain
        finally:
            plain.end()


class Position:
    """How far a file has been read: calls `advance` with the bytes since the last call, `least` or more."""

    def __init__(self, advance: Callable[[int], None] | None, least: int = 1) -> None:
        self._advance, self._least, self._behind = advance, least, 0

    def reached(self, place: int) -> None:
        """Say that so many bytes of the file are read."""
        if self._advance is not None and place >= self._behind + self._least:
            self._advance(place - self._behind)
            self._behind = place


_bars: list[Progress] = []
"""The display in use, so that a stage within a stage adds a line to it: only one live display is allowed."""


@contextmanager
def _shown_bars() -> Iterator[Progress]:
    """The display; a new one appears after a moment, so that what is done at once does not flash."""
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
    later = threading.Timer(APPEARS_AFTER_SECONDS, bars.start)
    later.daemon = True
    later.start()
    _bars.append(bars)
    try:
        yield bars
    finally:
        _bars.pop()
        later.cancel()
        later.join()
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
    """What shows things in a notebook's cell; None outside of Jupyter."""
    interactive = sys.modules.get("IPython")  # whoever is in a notebook has imported it
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
        self._say(line + (f"  {self._note}" if self._note else ""))

    def _say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


class _Notebook(_Plain):
    """The same line beside a bar, replaced in place."""

    every, first_after = NOTEBOOK_SECONDS, NOTEBOOK_SECONDS

    def __init__(self, show: Any, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._display, self._handle = show, None

    def _say(self, line: str) -> None:
        share = f' value="{self._done / self._total:.4f}"' if self._total else ""
        shown = {"text/plain": line, "text/html": f"<progress{share}></progress> <code>{html.escape(line)}</code>"}
        if self._handle is None:
            self._handle = self._display.display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)


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
