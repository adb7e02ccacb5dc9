"""The curve of score against compute, drawn: against work on the left, against time on the right."""

from collections.abc import Callable
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from albert.experiments.depth_curve import DepthCurve, DepthPoint
from albert.experiments.figures import BLUE, GREY, ORANGE
from albert.runtime.durable_files import new_file

matplotlib.use("Agg")


def draw_curve(curve: DepthCurve, picture: Path) -> None:
    """Draw depths as a line and patiences as another, each point with its number, as a PNG.

    Args:
        curve: what was measured.
        picture: the file to write.
    """
    figure = Figure(figsize=(10.5, 4.2), layout="constrained")
    about = f"{curve.task}, {curve.split}: {curve.examples:,} examples; trained at depth {curve.trained_depth}"
    figure.suptitle(about, x=0.01, ha="left", fontsize=12)
    work, times = figure.subplots(1, 2, sharey=True)
    _draw(work, curve, lambda point: point.gflops)
    work.set(xlabel="billion floating-point operations an example", ylabel=curve.metric.replace("_", " "))
    _draw(times, curve, lambda point: point.milliseconds)
    times.set(xlabel=f"milliseconds an example, median of {curve.rounds}")
    work.legend(frameon=False, fontsize=9, loc="lower right")
    with new_file(picture) as temporary:
        figure.savefig(temporary, dpi=130, format="png")


def _draw(axes: Axes, curve: DepthCurve, cost: Callable[[DepthPoint], float]) -> None:
    kinds = (("fixed depth", BLUE, "o", False), ("early exit by patience", ORANGE, "s", True))
    for label, color, marker, patient in kinds:
        points = sorted((p for p in curve.points if (p.patience is not None) == patient), key=cost)
        scored = [(cost(point), point.scores[curve.metric], point) for point in points]
        scored = [(x, score, point) for x, score, point in scored if score is not None]
        if not scored:
            continue
        axes.plot([x for x, _, _ in scored], [y for _, y, _ in scored], color=color, marker=marker, label=label)
        for x, y, point in scored:
            number = point.patience if patient else point.depth
            axes.annotate(str(number), (x, y), textcoords="offset points", xytext=(0, 6), ha="center", fontsize=8)
    constant = None if curve.baseline is None else curve.baseline.get(curve.metric)
    if constant is not None:
        axes.axhline(constant, color=GREY, linestyle="--", label="best constant answer")
    axes.set_xlim(left=0)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
