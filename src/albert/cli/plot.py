"""`albert plot`: the curves of runs in one picture."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from tyro.conf import Positional

from albert.cli.command_line import parse
from albert.cli.console import open_console
from albert.cli.main import load_command
from albert.runtime.errors import UsageError


@dataclass(frozen=True)
class Plot:
    """Draw the curves of one or several runs, of pretrain and of finetune, into one PNG: losses, accuracies beside what
    a constant answer scores, learning rate, gradient norm. A run may be going on meanwhile.

    Example: albert plot runs/small runs/two-cores --against minutes
    """

    runs: Annotated[Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN...", help_behavior_hint="(required)")]
    """What the --output of `albert pretrain` or `albert finetune` was."""
    against: Literal["steps", "tokens", "minutes"] = "steps"
    """The horizontal axis; minutes are those in updates, without evaluations and saves."""
    output: Path = Path("curves.png")
    """The picture, a PNG; an older one is replaced."""
    csv: Path | None = None
    """Write the figures to this file as well, a row each."""


def main(arguments: list[str]) -> None:
    """Run `albert plot`."""
    options = parse(Plot, arguments, "albert plot")
    if not options.runs:
        raise UsageError("albert plot", "no run is named", "albert plot RUN... --output curves.png")
    if len({run.resolve() for run in options.runs}) < len(options.runs):
        raise UsageError("albert plot", "a run is named twice")
    if options.output.suffix.lower() != ".png":
        raise UsageError(f"--output {options.output}", "is no PNG", "choose a name that ends in .png")
    curves = load_command("albert.experiments.run_curves")
    runs = curves.read_runs(options.runs)
    curves.draw_runs(runs, options.output, options.against)
    if options.csv is not None:
        curves.write_table(runs, options.csv)
    console = open_console()
    for run in runs:
        last = run.updates[-1]
        where = f"{last['step']:,} steps, {last['tokens']:,} tokens, {last['seconds'] / 60:,.1f} minutes"
        console.print(f"{run.name}: {where}", markup=False)
    console.print(" and ".join(str(path) for path in (options.output, options.csv) if path), markup=False)
