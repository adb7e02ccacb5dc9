"""How a table is read and what its rows are like, shown before anything is learnt from them."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from albert.cli.light_tables import table
from albert.tasks.custom import ReadTask
from albert.tasks.rows import Field, Rows
from albert.tasks.tables.formats import columns_of
from albert.tasks.tables.kind_of_label import as_number
from albert.tasks.tables.statistics import SplitStatistics
from albert.tasks.tables.table_task import COLUMNS, TableTask

SHOWN_LABELS = 12
SHOWN_COLUMNS = 24
SHOWN_CHARACTERS = 40
_COUNTS = {
    "kept back for dev": "kept back for dev",
    "document marks": "lines that mark documents",
    "fields not read": "fields that are no texts, and not read",
    "empty texts": "with an empty text",
    "missing labels": "without a label",
    "labels unknown to train": "with a label that train never has",
    "duplicates": "with the text of an earlier row",
    "contradictions": "of these with another label",
    "in train": "with a text that train has too",
    "unanswerable": "without an answer",
    "answers": "answers",
    "answers relocated": "answers not where they are said to be",
    "answers not found": "answers not in their context, or not once",
}
"""What may be counted, as a line says it; a line without any is left out."""


def show_reading(console: Console, read: ReadTask) -> None:
    """Print each column with what it holds and is used as, and what was inferred, with what to say instead."""
    split, rows = next(iter(read.raw.items()))
    console.print(_columns_table(f"The columns of {split}", rows, read.asked))
    if read.inferred:
        made = _words_table("What is inferred", "", "is", "because", "otherwise say")
        for one in read.inferred:
            made.add_row(*map(escape, (one.what, one.value, one.why, one.instead)))
        console.print()
        console.print(made)
    console.print(f"scored by {', '.join(read.asked.metrics or ())}\n", markup=False)


def show_statistics(console: Console, found: Mapping[str, SplitStatistics], max_length: int) -> None:
    """Print rows, what was noticed, lengths, and how often each label is there."""
    console.print(_rows_table(found, max_length))
    console.print()
    if any(statistics.labels for statistics in found.values()):
        console.print(_balance(found))
        console.print()


def _columns_table(title: str, rows: Rows, asked: TableTask) -> Table:
    uses: dict[str, list[str]] = {}
    for name in (*COLUMNS, "id"):
        value = getattr(asked, name)
        for column in value if isinstance(value, tuple) else [value]:
            uses.setdefault(column, []).append(name.replace("_", " ").removesuffix("s" if name == "options" else " "))
    names = columns_of(rows)
    made = _words_table(title, "column", "holds", "first", "used as")
    used_first = sorted(names, key=lambda name: name not in uses)
    for name in used_first[:SHOWN_COLUMNS]:
        values = [row.fields[name] for row in rows.rows if name in row.fields]
        first = next((value for value in values if value), "")
        shown = " ".join((first if isinstance(first, str) else " ".join(first)).split())
        short = shown if len(shown) <= SHOWN_CHARACTERS else shown[: SHOWN_CHARACTERS - 1] + "…"
        cells = (name, _held(values, len(rows.rows)), short, ", ".join(uses.get(name, ["-"])))
        made.add_row(*map(escape, cells))
    if len(names) > SHOWN_COLUMNS:
        made.add_row(f"and {len(names) - SHOWN_COLUMNS} more", "", "", "-")
    return made


def _held(values: Sequence[Field], n_rows: int) -> str:
    """What the values of a column are, in words."""
    lists = [value for value in values if isinstance(value, tuple)]
    texts = [value for value in values if isinstance(value, str) and value.strip()]
    different = set(texts)
    numbers = sum(as_number(value) is not None for value in different)
    parts = [f"{len(lists):,} lists of {min(map(len, lists))} to {max(map(len, lists)):,}"] if lists else []
    if numbers:
        parts.append(f"{numbers:,} different numbers")
    if len(different) > numbers:
        parts.append(f"{len(different) - numbers:,} different texts")
    empty = n_rows - len(lists) - len(texts)
    return ", ".join([*parts, *([f"{empty:,} empty"] if empty else [])])


def _rows_table(found: Mapping[str, SplitStatistics], max_length: int) -> Table:
    made = table("Rows", "", *found)
    splits = list(found.values())
    made.add_row("rows", *(f"{one.rows:,}" for one in splits))
    for name, words in _COUNTS.items():
        if any(one.counts.get(name) for one in splits):
            made.add_row(words, *(f"{one.counts[name]:,}" if name in one.counts else "" for one in splits))
    if any(one.numbers for one in splits):
        for place, words in enumerate(("smallest number", "mean", "largest")):
            made.add_row(words, *("" if one.numbers is None else f"{one.numbers[place]:,.4g}" for one in splits))
    lengths = [one.lengths for one in splits]
    if any(lengths):
        lines = {
            "tokens, median": [f"{one.median:,.0f}" if one else "" for one in lengths],
            "95 % have at most": [f"{one.high:,.0f}" if one else "" for one in lengths],
            "longest": [f"{one.longest:,}" if one else "" for one in lengths],
            f"longer than {max_length:,}": [f"{one.cut:.1%}" if one else "" for one in lengths],
        }
        for words, cells in lines.items():
            made.add_row(words, *cells)
        if any(one is not None and one.measured < split.rows for one, split in zip(lengths, splits, strict=True)):
            made.add_row("rows measured", *(f"{one.measured:,}" if one else "" for one in lengths))
    return made


def _balance(found: Mapping[str, SplitStatistics]) -> Table:
    """Labels, those of the first split first; what is too many is put together."""
    labels = list(dict.fromkeys(label for one in found.values() for label in one.labels))
    made = table("Labels", "", *(head for split in found for head in (split, "share")))
    totals = [max(1, sum(one.labels.values())) for one in found.values()]

    def row(name: str, members: list[str]) -> None:
        counted = [sum(one.labels.get(label, 0) for label in members) for one in found.values()]
        cells = (cell for n, all_ in zip(counted, totals, strict=True) for cell in (f"{n:,}", f"{n / all_:.1%}"))
        made.add_row(escape(name), *cells)

    for label in labels[:SHOWN_LABELS]:
        row(label, [label])
    if len(labels) > SHOWN_LABELS:
        row(f"{len(labels) - SHOWN_LABELS} others", labels[SHOWN_LABELS:])
    return made


def _words_table(title: str, *columns: str) -> Table:
    """A light table of words."""
    made = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
    )
    for column in columns:
        made.add_column(column, overflow="fold")
    return made
