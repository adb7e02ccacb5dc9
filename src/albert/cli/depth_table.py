"""One model at several depths and with several patiences: the options, and a row each of scores and costs."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from albert.cli.light_tables import table
from albert.experiments.depth_curve import DepthCurve, write_curve
from albert.experiments.depth_figure import draw_curve
from albert.finetuning.summary import shown
from albert.runtime.errors import UsageError
from albert.runtime.strict_json import save_json


@dataclass(frozen=True, kw_only=True)
class DepthOptions:
    """How deep a model runs, where it is not as deep as it was trained."""

    depth: tuple[int, ...] = ()
    """Layers to apply, in place of as many as the model was trained with. Several make a table of scores and costs."""
    patience: tuple[int, ...] = ()
    """Early exit: an example leaves when so many depths in a row agree with the one before. For models of
    `albert finetune --exits`; each patience is a row of the table, too."""
    curve: Path | None = None
    """Draw that table, score against compute, as a PNG; the figures go beside it as .csv."""
    rounds: int = 1
    """How often each row of that table is timed."""

    @property
    def makes_table(self) -> bool:
        """Whether a model is run in several ways, or its costs are wanted."""
        return len(self.depth) > 1 or bool(self.patience) or self.curve is not None

    @property
    def one_depth(self) -> int | None:
        """The depth that was asked for where there is no table."""
        return next(iter(self.depth), None)

    def check(self, models: tuple[str, ...], **others: Path | None) -> None:
        """Raises UsageError when it contradicts itself, or what else was asked: files that are of one way to run."""
        for name, path in others.items():
            if path is not None:
                raise UsageError(f"--{name}", "is of one way to run a model", "name one --depth and no --patience")
        if len(models) > 1:
            raise UsageError("--model", f"names {len(models)} models, at several depths one is run", "name one")
        if self.rounds < 1:
            raise UsageError("--rounds", f"is {self.rounds}, at least 1 is needed")


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
