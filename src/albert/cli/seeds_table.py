"""The runs of several seeds as tables: the scores of each, then where every score lies."""

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from albert.cli.light_tables import table
from albert.finetuning.seeds import SUMMARY_NAME, SeedsResult
from albert.finetuning.summary import advice, published_lines, shown
from albert.tasks.task import Task


def show_seeds(console: Console, task: Task, found: SeedsResult, output: Path) -> None:
    """Print all runs, the spread of their scores, which of them failed, and what is published."""
    for note in found.notes:
        console.print(note, markup=False)
    console.print(found.selection, markup=False)
    console.print(_runs(found))
    console.print(_spreads(found))
    for run in found.failed:
        console.print(f"seed {run.seed} failed: {run.failure}", markup=False)
    if found.failed:
        console.print("failed runs are among those that the median is of", markup=False)
    if found.baseline is None:
        console.print("no constant answer exists for this task, so no run is judged to have failed", markup=False)
    if told := advice(found.medians, found.baseline, found.linear_baseline):
        console.print(f"median: {told}", markup=False)
    for line in published_lines(task):
        console.print(line, markup=False)
    console.print(f"[bold]{escape(str(output / SUMMARY_NAME))}[/bold] has all of it")


def _runs(found: SeedsResult) -> Table:
    made = table(None, "score", *(run.directory.name for run in found.runs))
    for name in found.spreads:
        made.add_row(name, *(shown(run.scores[name]) if name in run.scores else "-" for run in found.runs))
    if any(run.step is not None for run in found.runs):
        made.add_row("after step", *("-" if run.step is None else f"{run.step:,}" for run in found.runs), style="dim")
    return made


def _spreads(found: SeedsResult) -> Table:
    linear = found.linear_baseline if found.linear_baseline and found.linear_baseline["scores"] else None
    made = table(
        None,
        "score",
        "median",
        "lowest",
        "quartiles",
        "highest",
        "runs",
        "constant",
        *([linear["method"]] if linear else []),
    )
    for name, spread in found.spreads.items():
        quartiles = f"{spread.lower_quartile:.2f}–{spread.upper_quartile:.2f}"
        constant = "-" if found.baseline is None or name not in found.baseline else shown(found.baseline[name])
        places = (shown(spread.median), shown(spread.lowest), quartiles, shown(spread.highest))
        beside = [shown(linear["scores"][name]) if name in linear["scores"] else "-"] if linear else []
        made.add_row(name, *places, str(spread.runs), constant, *beside)
    return made
