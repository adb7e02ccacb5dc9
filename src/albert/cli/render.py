"""Consoles and tables for the output of all commands."""

import errno
import json
import sys
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, cast

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from albert.report.tables import Table as ReportTable
from albert.runtime.environment import command_name, world

if TYPE_CHECKING:
    from albert.report.result import Result

LABELS: dict[str, dict[str, str]] = tomllib.loads((files("albert.cli") / "labels.toml").read_text(encoding="utf-8"))
"""Table -> field -> its label."""


# --------------------------------------------------------------------------------------------------------------------
# The width of output: that of the terminal, and no wrapping in a file or a pipe, where the output must not depend on
# COLUMNS or on the length of a path.

UNWRAPPED = 10_000
"""Columns; more than any line needs."""


class PipedConsole(Console):
    """A console whose reader may close the pipe: the command ends as one that SIGPIPE ends (see `albert.cli.main`)."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, "the reader closed the pipe")


def print_json(value: object) -> None:
    """Print a line of JSON; characters that the encoding of the output lacks are escaped."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(json.dumps(value, ensure_ascii=not encoding.lower().startswith("utf")))


def open_console(
    soft_wrap: bool = True, highlight: bool = False, quiet: bool = False, at_least: int | None = None
) -> Console:
    """The console on standard output.

    Args:
        soft_wrap: leave the wrapping of long lines to the terminal.
        at_least: columns to use even on a narrower terminal.
    """
    console = PipedConsole(soft_wrap=soft_wrap, markup=False, highlight=highlight, quiet=quiet)
    if not sys.stdout.isatty():
        console.size = (UNWRAPPED, 25)
    elif at_least is not None:
        console.size = (max(console.width, at_least), 25)
    return console


def next_line(command: str) -> str:
    """The last line of a command: the next one, as this user's shell finds it.

    Args:
        command: without the word `albert`.
    """
    return f"next: {command_name()} {command}"


def print_lines(console: Console, *lines: RenderableType) -> None:
    """Print lines and tables."""
    for line in lines:
        console.print(line)


def show(console: Console, *parts: RenderableType) -> None:
    """Print tables or lines, an empty line after each."""
    for part in parts:
        console.print(part)
        console.print()


def bold_prefix(first: object, rest: str) -> Text:
    """A line with a bold beginning."""
    return Text.assemble((str(first), "bold"), rest)


# --------------------------------------------------------------------------------------------------------------------
# Tables: a title, headings and rows; or names and values.


class _Table(Table):
    """A table without blanks at the ends of its lines; on a narrow terminal its headings are wrapped first."""

    cells: Sequence[Sequence[Text]] = ()
    """Headings and rows of a table that is made narrower as below; empty for one that rich makes narrower."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        if self.cells and not self._fit(options.max_width):
            yield from console.render(self._stacked(), options)
            return
        for line in Segment.split_lines(cast(Iterable[Segment], super().__rich_console__(console, options))):
            while line and not line[-1].text.rstrip(" "):
                line.pop()
            yield from line[:-1]
            if line:
                yield Segment(line[-1].text.rstrip(" "), line[-1].style)
            yield Segment.line()

    def _fit(self, width: int) -> bool:
        """Set the widths of the columns where the table is too wide; False if it cannot become narrow enough."""
        room = width - self._extra_width - sum(map(self._get_padding_width, range(len(self.columns))))
        columns = [[each.plain.split("\n") for each in column] for column in zip(*self.cells, strict=True)]
        widths = [max(cell_len(line) for cell in column for line in cell) for column in columns]
        if sum(widths) <= room:
            return True
        least = []
        for column, cells in zip(self.columns, zip(*self.cells, strict=True), strict=True):
            head, *values = cells
            needed = [_longest_word(head)]
            if column.justify == "right":
                needed += [cell_len(line) for value in values for line in value.plain.split("\n")]
            else:
                needed += [min(_longest_word(value), LEAST_WORDS) for value in values]
            least.append(max(needed))
        if sum(least) > room:
            return False
        widths = [min(each, room) for each in widths]
        while sum(widths) > room:
            reducible = [index for index in range(len(widths)) if widths[index] > least[index]]
            widths[max(reducible, key=widths.__getitem__)] -= 1
        for column, each in zip(self.columns, widths, strict=True):
            column.width = each
        return True

    def _stacked(self) -> Text:
        """Every row as lines, for a terminal that is narrower than the columns: its name, then headings and values."""
        heads, *rows = self.cells
        lines = [] if self.title is None else [Text.assemble(cast(Text, self.title))]
        for row in rows:
            lines.append(row[0])
            lines += [Text.assemble("  ", head, "  " if head else "", value) for head, value in _pairs(heads, row)]
        return Text("\n").join(lines)


LEAST_WORDS = 12
"""Columns that a longer word of a cell is broken at, on a narrow terminal."""


def _longest_word(text: Text) -> int:
    return max(map(cell_len, text.plain.split()), default=0)


def _pairs(heads: Sequence[Text], row: Sequence[Text]) -> list[tuple[Text, Text]]:
    return [(head, value) for head, value in zip(heads[1:], row[1:], strict=True) if value.plain]


def styled(style: str | None, *cells: object) -> tuple[Text, ...]:
    """A row in a style."""
    return tuple(Text(cell(each), style or "") for each in cells)


def bold(*cells: object) -> tuple[Text, ...]:
    """A row in bold: a sum, or a heading inside a table."""
    return styled("bold", *cells)


def table(
    title: str | None,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    words: Collection[int] = (0,),
    boxed: bool = False,
) -> Table:
    """A table of words and numbers.

    Args:
        columns: headings; no heading line if all are empty.
        rows: cells; `Text` keeps its style, and missing cells are empty.
        words: indices of the columns of words; the others contain numbers and are aligned right.
        boxed: with lines around every cell, for texts of users.
    """
    result = _Table(
        title=None if title is None else Text(title, "bold"),
        title_justify="left",
        box=box.HEAVY_HEAD if boxed else box.SIMPLE_HEAD,
        show_header=any(columns),
        show_edge=boxed,
        pad_edge=boxed,
        collapse_padding=not boxed,
    )
    for index, name in enumerate(columns):
        is_number = index not in words
        result.add_column(Text(name), justify="right" if is_number else "left", overflow="fold")
    lines = [list(map(_text, row)) for row in rows]
    for line in lines:
        result.add_row(*line)
    filled = [line + [Text()] * (len(columns) - len(line)) for line in lines]
    result.cells = [list(map(Text, columns)), *filled]
    return result


def drawn(found: ReportTable) -> Table:
    """A table of a result; rows for comparison are dim."""
    head, *rows = found.rows
    first_minor = len(rows) - found.minor
    styles = ("dim" if number >= first_minor else None for number in range(len(rows)))
    lines = (styled(style, *row) for style, row in zip(styles, rows, strict=True))
    return table(found.about or found.title or None, head, lines, words=found.words)


def print_parts(console: Console, parts: Iterable[str | Text | ReportTable]) -> None:
    """Print lines and tables of a report."""
    for part in parts:
        console.print(drawn(part) if isinstance(part, ReportTable) else part)
    console.file.flush()


def print_result(console: Console, result: "Result") -> None:
    """Print the scores of a result, and the next command; only the first process does."""
    from albert.report.terminal import terminal_parts  # which knows tasks and tables

    if not world().is_first:
        return
    print_parts(console, terminal_parts(result))
    if result.shown.following:
        console.print(next_line(result.shown.following))


def key_value_table(title: str | None, values: Mapping[str, object] | Iterable[Sequence[object]]) -> Table:
    """A table of names and values; values are wrapped on narrow terminals."""
    result = _Table(
        title=None if title is None else Text(title, "bold"),
        title_justify="left",
        box=None,
        show_header=False,
        padding=(0, 0, 0, 2),
    )
    result.add_column(overflow="fold", no_wrap=True)
    result.add_column(overflow="fold")
    for row in values.items() if isinstance(values, Mapping) else values:
        result.add_row(*map(_text, row))
    return result


def indented(*parts: RenderableType, by: int, gap: int = 0) -> Table:
    """Texts or tables side by side, with an indent in columns."""
    result = _Table(box=None, show_header=False, padding=(0, gap, 0, by))
    result.add_row(*parts)
    return result


def _text(value: object) -> Text:
    return value if isinstance(value, Text) else Text(cell(value))


def cell(value: object) -> str:
    """A value as text: numbers with thousands separators, lists with commas."""
    if isinstance(value, list | tuple):
        text = ", ".join(map(str, value[:4])) + (f", and {len(value) - 4} more" if len(value) > 4 else "")
        return text or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def in_millions(numbers: Iterable[int]) -> Callable[[int | float], str]:
    """A formatter for a column in millions (MB), with as many decimals as the largest number needs."""
    largest = max(numbers)
    decimals = 1 if largest >= 1e8 else 2 if largest >= 1e7 else 3
    return lambda number: f"{number / 1e6:,.{decimals}f}"
