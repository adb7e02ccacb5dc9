"""Tables on the terminal: their common look, sizes of architectures, and how the user's rows were read."""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from albert.experiments.sizes import PUBLISHED_SIZES, SizeReport
from albert.model.config import OTHER_NAMES, PRESET_GROUPS, PRESETS
from albert.model.cost import count_flops, count_parameters
from albert.tasks.custom import ReadTask
from albert.tasks.infer import as_number
from albert.tasks.table_task import COLUMNS, SplitStatistics, TableTask, columns_of
from albert.tasks.task import Field, Rows

LABELS: dict[str, dict[str, str]] = tomllib.loads((files("albert.cli") / "labels.toml").read_text(encoding="utf-8"))
"""What figures are called, by where they stand."""


def table(title: str | None, *columns: str, of_words: bool = False) -> Table:
    """A light table; the first column is of words, the others of numbers unless all are of words."""
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
        is_number = number > 0 and not of_words
        made.add_column(escape(column), justify="right" if is_number else "left", overflow="fold", no_wrap=is_number)
    return made


def table_of_rows(rows: Sequence[Sequence[str]]) -> Table:
    """A table of text, its headings first; rows of constant answers are dim."""
    made = table(None, *rows[0])
    for row in rows[1:]:
        made.add_row(*map(escape, row), style="dim" if row[0] in _OF_CONSTANTS else None)
    return made


_OF_CONSTANTS = ("constant answer", "a constant answer", "of")


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


# --------------------------------------------------------------------------------------------------------------------
# Sizes as people look at them: the presets in a list, and all of one architecture.

_SUMS = ("encoder", "model", "pretraining")
_COLUMNS = {("cpu", "fp32"): "CPU fp32", ("cpu", "bf16"): "CPU bf16", ("cuda", "fp32"): "GPU fp32",
            ("cuda", "bf16"): "GPU bf16"}  # fmt: skip

_WIDEST_LIST = 97
"""Columns of the list of presets with all that is in it."""


def show_size(console: Console, report: SizeReport) -> None:
    """Everything of one architecture."""
    console.print(_architecture(report))
    console.print()
    _print_beside(console, _parameters(report), _work(report))
    if report.published:
        console.print(_published(report))
        console.print()
    console.print(_memory(report))
    console.print("  [dim]CPU: what autograd keeps, tested to the byte. GPU: derived, not measured.[/dim]")


def _print_beside(console: Console, left: Table, right: Table) -> None:
    """Two tables, one below the other where the terminal is too narrow."""
    gap = 6
    if console.measure(left).maximum + gap + console.measure(right).maximum > console.width:
        for made in (left, right):
            console.print(made)
            console.print()
        return
    grid = Table.grid(padding=(0, gap, 0, 0))
    grid.add_row(left, right)
    console.print(grid)
    console.print()


def _architecture(report: SizeReport) -> Table:
    made = Table.grid(padding=(0, 2))
    for number in range(4):
        made.add_column(justify="right" if number % 2 else "left")
    settings = [(name, value) for name, value in asdict(report.configuration).items() if value is not None]
    half = (len(settings) + 1) // 2
    for row in range(half):
        cells = [*settings[row], *(settings[row + half] if row + half < len(settings) else ("", ""))]
        made.add_row(f"  {cells[0]}", cell(cells[1]), f"   {cells[2]}", cell(cells[3]))
    return made


def _parameters(report: SizeReport) -> Table:
    made = table("Parameters", "", "", "of model", "MB, fp32")
    shown = in_millions([4 * report.parameters.pretraining])
    counts = report.parameters.by_part()
    for name, words in LABELS["parameters"].items():
        if number := counts[name]:
            style = "bold" if name in _SUMS else None
            share = f"{number / report.parameters.model:.1%}"
            made.add_row(f"  {words}", f"{number:,}", share, shown(4 * number), style=style)
    if report.transformers_parameters != report.parameters.model:  # it maps E to H even where they are equal
        there = report.transformers_parameters
        made.add_row("  model in transformers", f"{there:,}", "", shown(4 * there))
    return made


def _work(report: SizeReport) -> Table:
    flops, length = report.flops, report.sequence_length
    made = table("Work", "", "MFLOPs")
    shown = in_millions([flops.training])
    rows = {
        "map from E to H": flops.projection,
        "attention, weights": flops.attention_weights,
        "attention, scores": flops.attention_scores,
        "feed-forward blocks": flops.feed_forward,
    }
    for name, number in rows.items():
        if number:
            made.add_row(f"  {name}", shown(number))
    made.add_row("  a token, forward", shown(flops.forward), style="bold")
    made.add_row("  forward and backward", shown(flops.training), style="bold")
    made.add_row(f"  {length:,} tokens, forward", shown(length * flops.forward))
    made.add_row("  head, a masked token", shown(flops.masked_language_model_head))
    return made


def _published(report: SizeReport) -> Table:
    made = Table(title="Published", title_justify="left", title_style="bold", box=None, pad_edge=False)
    made.add_column("  stated", justify="right")
    made.add_column("where")
    made.add_column("exact", justify="right")
    made.add_column("counted")
    for size in report.published:
        made.add_row(size.stated, size.where, f"{size.exact:,}", escape(size.reason))
    return made


def _memory(report: SizeReport) -> Table:
    memory = [report.memory[key] for key in _COLUMNS]
    shown = in_millions(some.training for some in memory)
    made = table("Memory, MB", "", *_COLUMNS.values())
    made.add_row(f"a sequence of {report.sequence_length:,} tokens", style="bold")
    for name, words in LABELS["activations"].items():
        made.add_row(f"  {words}", *(shown(number) if (number := getattr(some, name)) else "–" for some in memory))
    made.add_row("  training keeps", *(shown(some.training) for some in memory), style="bold")
    made.add_row("  inference peaks at", *(shown(some.inference) for some in memory), style="bold")
    made.add_row("whatever the batch", style="bold")
    made.add_row("  weights, gradients, moments", *(shown(report.training_state) for _ in memory))
    made.add_row("  copies of weights, in training", *(shown(some.weight_copies) for some in memory))
    return made


def show_presets(console: Console) -> None:
    """Every preset, a line each; a narrow terminal shows fewer columns."""
    columns = {
        "E": lambda name, config: str(config.embedding_size),
        "H": lambda name, config: str(config.hidden_size),
        "L": lambda name, config: str(config.num_hidden_layers),
        "A": lambda name, config: str(config.num_attention_heads),
        "sharing": lambda name, config: config.sharing,
        "parameters": lambda name, config: f"{count_parameters(config).model:,}",
        "stated": lambda name, config: next((size.stated for size in PUBLISHED_SIZES.get(name, ())), ""),
        "MFLOPs": lambda name, config: f"{count_flops(config).forward / 1e6:,.0f}",
    }
    shown = [name for name in columns if console.width >= _WIDEST_LIST or name not in ("A", "stated", "MFLOPs")]
    made = table("Presets", "", *shown)
    for title, presets in PRESET_GROUPS.items():
        made.add_row(title, style="bold")
        for name, config in presets.items():
            made.add_row(f"  {name}", *(columns[column](name, config) for column in shown))
    console.print(made)
    console.print()
    meant = {preset: ", ".join(names) for preset in PRESETS if (names := other_names(preset))}
    console.print(facts("Other names", meant))


def other_names(preset: str) -> list[str]:
    """Further names of a preset."""
    return [name for name, meant in OTHER_NAMES.items() if meant == preset]


def group_of(preset: str) -> str:
    """The heading under which a preset stands."""
    return next(title for title, presets in PRESET_GROUPS.items() if preset in presets)


# --------------------------------------------------------------------------------------------------------------------
# How a table is read and what its rows are like, shown before anything is learnt from them.

SHOWN_LABELS = 12
SHOWN_COLUMNS = 24
SHOWN_CHARACTERS = 40


def show_reading(console: Console, read: ReadTask) -> None:
    """Print each column with what it holds and is used as, and what was inferred, with what to say instead."""
    split, rows = next(iter(read.raw.items()))
    console.print(_columns_table(f"The columns of {split}", rows, read.asked))
    if read.inferred:
        made = table("What is inferred", "", "is", "because", "otherwise say", of_words=True)
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


def _columns_table(title: str, rows: Rows, args: TableTask) -> Table:
    uses: dict[str, list[str]] = {}
    for name in (*COLUMNS, "id"):
        value = getattr(args, name)
        for column in value if isinstance(value, tuple) else [value]:
            uses.setdefault(column, []).append(name.replace("_", " ").removesuffix("s" if name == "options" else " "))
    names = columns_of(rows)
    made = table(title, "column", "holds", "first", "used as", of_words=True)
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
    for name, words in LABELS["rows"].items():
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
