"""Sizes as people look at them: the presets in a list, and all of one architecture."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from albert.cli.light_tables import cell, facts, in_millions, table
from albert.experiments.published_sizes import PUBLISHED_SIZES
from albert.experiments.size_report import SizeReport
from albert.model.parameter_count import count_flops, count_parameters
from albert.model.presets import OTHER_NAMES, PRESET_GROUPS, PRESETS

_PARTS = {
    "embeddings": "embeddings",
    "projection": "map from E to H",
    "attention": "attention blocks",
    "feed_forward": "feed-forward blocks",
    "encoder": "without pooler",
    "pooler": "pooler",
    "model": "model with pooler",
    "masked_language_model_head": "masked-token head",
    "sentence_order_head": "sentence-order head",
    "pretraining": "with both heads",
}
_SUMS = ("encoder", "model", "pretraining")
_KEPT = {
    "embeddings": "embeddings",
    "attention": "attention blocks",
    "attention_probabilities": "attention's probabilities",
    "feed_forward": "feed-forward blocks",
    "heads": "both pre-training heads",
}
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
    for name, number in _in_order(report.parameters.by_part()):
        style = "bold" if name in _SUMS else None
        share = f"{number / report.parameters.model:.1%}"
        made.add_row(f"  {_PARTS[name]}", f"{number:,}", share, shown(4 * number), style=style)
    if report.transformers_parameters != report.parameters.model:  # it maps E to H even where they are equal
        there = report.transformers_parameters
        made.add_row("  model in transformers", f"{there:,}", "", shown(4 * there))
    return made


def _in_order(parts: Mapping[str, int]) -> Iterable[tuple[str, int]]:
    return ((name, parts[name]) for name in _PARTS if parts[name])


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
    for name, words in _KEPT.items():
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
