"""One look for all tables of `albert info`: units in the title, thousands separated, no lines between columns."""

from collections.abc import Callable, Iterable, Mapping

from rich import box
from rich.markup import escape
from rich.table import Table


def table(title: str | None, *columns: str) -> Table:
    """A light table; the first column is of words, the others of numbers."""
    made = Table(
        title=None if title is None else escape(title),
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_header=any(columns),
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
    )
    for number, column in enumerate(columns):
        made.add_column(escape(column), justify="right" if number else "left", overflow="fold", no_wrap=bool(number))
    return made


def facts(title: str, values: Mapping[str, object]) -> Table:
    """Names and what belongs to them."""
    made = Table(
        title=escape(title), title_justify="left", title_style="bold", box=None, show_header=False, pad_edge=False
    )
    made.add_column(overflow="fold", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in values.items():
        made.add_row(f"  {name}", escape(cell(value)))
    return made


def cell(value: object) -> str:
    """A value in words: numbers with thousands separated, lists with commas."""
    if isinstance(value, list | tuple):
        shown = ", ".join(map(str, value[:4])) + (f", and {len(value) - 4} more" if len(value) > 4 else "")
        return shown or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def bytes_of(number: int | float) -> str:
    """Bytes with a decimal unit: 46.7 MB."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:,.{2 if number < 10 * size else 1}f} {unit}"
    return f"{number:,} B"


def in_millions(numbers: Iterable[int]) -> Callable[[int | float], str]:
    """How to write numbers in a column whose title names the unit, MB say: with the decimals that the largest needs."""
    largest = max(numbers)
    decimals = 1 if largest >= 1e8 else 2 if largest >= 1e7 else 3
    return lambda number: f"{number / 1e6:,.{decimals}f}"
