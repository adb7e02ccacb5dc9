"""`albert plot`: the curves of runs side by side."""

from pathlib import Path
from typing import Annotated, Literal

from albert.api.options import Argument, check_png
from albert.cli.options import command
from albert.cli.render import open_console, print_lines
from albert.runtime.errors import UsageError


def plot(
    runs: Annotated[tuple[Path, ...], Argument(metavar="RUN...")],
    *,
    against: Literal["steps", "tokens", "minutes"] = "steps",
    output: Path = Path("curves.png"),
    csv: Path | None = None,
) -> None:
    """Draw the curves of one or several runs of pretrain or finetune into one PNG: losses, accuracies beside those of
    the majority baseline, learning rate, gradient norm. A run may still be in progress.

    Example: albert plot runs/small runs/deep --against minutes

    Args:
        runs: Output directories of `albert pretrain` or `albert finetune`.
        against: The horizontal axis; minutes count updates, without evaluations and saves.
        output: The picture, a PNG; an existing one is replaced.
        csv: Also write the figures to this file.
    """
    if len({run.resolve() for run in runs}) < len(runs):
        raise UsageError("albert plot", "a run is named twice")
    check_png("--output", output, csv)
    from albert.paper.curves import read_runs, write_table
    from albert.paper.pictures import draw_runs

    curves = read_runs(runs)
    draw_runs(curves, output, against)
    if csv is not None:
        write_table(curves, csv)
    lines = []
    for run in curves:
        last = run.updates[-1]
        where = f"{last['step']:,} steps, {last['tokens']:,} tokens, {last['seconds'] / 60:,.1f} minutes"
        lines.append(f"{run.name}: {where}")
    print_lines(open_console(), *lines, " and ".join(str(path) for path in (output, csv) if path))


plot_main = command(plot, "albert plot")
