"""Two architectures side by side, what is said of them, and how fast they are here."""

import itertools

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from albert.cli.light_tables import in_millions, table
from albert.experiments.size_report import ComparedFigure, Comparison
from albert.experiments.throughput import Measurement


def show_measurement(console: Console, measurement: Measurement) -> None:
    """Speeds, and how they were measured."""
    first = next(iter(measurement.results.values()))
    where = f"{measurement.device.upper().replace('CUDA', 'GPU')}, {measurement.precision}"
    if measurement.device == "cpu":
        where += f", {measurement.threads} thread{'s' if measurement.threads > 1 else ''}"
    batch = f"{first.batch_size} × {first.sequence_length} tokens"
    console.print(f"[bold]Measured here[/bold]: {where}, {batch}, medians of {first.rounds} rounds, random weights")
    made = table(None, "", "tokens/s", "sequences/s", "a batch")
    several = len(measurement.results) > 1
    for name, found in measurement.results.items():
        for kind, seconds in (("inference", found.inference_seconds), ("training step", found.training_seconds)):
            label = f"  {name}, {kind}" if several else f"  {kind}"
            rates = (f"{number / seconds:,.1f}" for number in (found.tokens, found.batch_size))
            made.add_row(escape(label), *rates, f"{seconds:,.3f} s")
    console.print(made)
    console.print("  [dim]inference: the encoder forward; training step: forward, both losses, backward, LAMB[/dim]")


def show_comparison(console: Console, comparison: Comparison) -> None:
    """Two architectures side by side, then the claims about them."""
    one, other = comparison.one.name, comparison.other.name
    made = table(f"{one} beside {other}", "", one, other, "ratio", "change")
    for group, members in itertools.groupby(comparison.figures, key=lambda figure: figure.group):
        figures = list(members)
        made.add_row(_group_title(group, comparison), style="bold")
        in_unit = in_millions(max(figure.one, figure.other) for figure in figures)
        shown = "{:,}".format if group == "parameters" else in_unit
        for figure in figures:
            change = f"{figure.one / figure.other - 1:+.1%}"
            made.add_row(f"  {figure.what}", shown(figure.one), shown(figure.other), _ratio(figure), change)
    console.print(made)
    if comparison.claims:
        console.print()
        console.print(_claims(comparison))


def _ratio(figure: ComparedFigure) -> str:
    """The smaller is 1: "1 : 9.34"."""
    one, other = figure.one, figure.other
    return f"1 : {other / one:.2f}" if one <= other else f"{one / other:.2f} : 1"


def _group_title(group: str, comparison: Comparison) -> str:
    lengths = {comparison.one.sequence_length, comparison.other.sequence_length}
    tokens = f" of {lengths.pop():,} tokens" if len(lengths) == 1 else ""
    titles = {
        "FLOPs a token": "MFLOPs a token",
        "bytes a sequence": f"MB a sequence{tokens}",
        "bytes in all": "MB whatever the batch",
    }
    return titles.get(group, group)


def _claims(comparison: Comparison) -> Table:
    made = Table(title="What is said of the two", title_justify="left", title_style="bold", box=None, show_header=False)
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    for claim in comparison.claims:
        verdict = "[green]holds[/green]" if claim.holds else "[red]does not hold[/red]"
        made.add_row(verdict, f"{claim.of_what}: [bold]{claim.figure}[/bold]")
        made.add_row("", f"[dim]“{escape(claim.quote)}” ({claim.source})[/dim]")
        if claim.because:
            made.add_row("", escape(claim.because))
        made.add_row()
    return made
