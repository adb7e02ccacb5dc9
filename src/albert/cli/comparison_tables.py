"""Two architectures side by side, and what is said of them."""

import itertools

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from albert.cli.light_tables import in_millions, table
from albert.experiments.size_report import ComparedFigure, Comparison


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
