"""One model at several depths and with several patiences: a row each of scores and costs."""

from pathlib import Path

from rich.console import Console
from rich.markup import escape

from albert.cli.light_tables import table
from albert.experiments.depth_curve import DepthCurve, write_curve
from albert.experiments.depth_figure import draw_curve
from albert.finetuning.summary import shown
from albert.runtime.strict_json import save_json


def show_curve(console: Console, curve: DepthCurve) -> None:
    """Print how the model was opened, and what it scores in each way."""
    for note in curve.notes:
        console.print(note, markup=False)
    times = "once" if curve.rounds == 1 else f"the median of {curve.rounds} rounds, taking turns"
    console.print(f"{curve.examples:,} examples; trained at depth {curve.trained_depth}; timed {times}")
    metrics = [name for name in curve.points[0].scores if "thresh" not in name]
    made = table(None, "run", "layers", "GFLOPs", "ms", *metrics)
    for point in curve.points:
        run = f"depth {point.depth}" if point.patience is None else f"patience {point.patience}"
        costs = (f"{point.mean_depth:.2f}", f"{point.gflops:.3g}", f"{point.milliseconds:.3g}")
        made.add_row(run, *costs, *(shown(point.scores[name]) for name in metrics))
    if curve.baseline is not None:
        constant = (shown(curve.baseline[name]) for name in metrics)
        made.add_row("constant answer", "-", "-", "-", *constant, style="dim")
    console.print(made)
    console.print("layers, GFLOPs and ms are of an example; GFLOPs are the encoder's matrix products")


def write_files(console: Console, curve: DepthCurve, picture: Path | None, results: Path | None) -> None:
    """Draw the curve with its figures beside it, and write it as JSON, where they are wanted."""
    if results is not None:
        save_json(results, curve.to_json())
    if picture is not None:
        draw_curve(curve, picture)
        write_curve(curve, picture.with_suffix(".csv"))
        console.print(f"[bold]{escape(str(picture))}[/bold], its figures in {picture.with_suffix('.csv').name}")
