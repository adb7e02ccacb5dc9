"""Pictures of the curves of runs and of scores by depth, and what all pictures have in common. They need matplotlib."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from albert.report.advice import baseline_name
from albert.report.curves import RunCurves, figures_of
from albert.runtime.environment import install_command
from albert.runtime.errors import Unavailable
from albert.runtime.files import new_file

try:
    import matplotlib
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator, PercentFormatter
except ModuleNotFoundError as error:
    raise Unavailable("matplotlib", "is not installed", install_command("plots")) from error

matplotlib.use("Agg")
__all__ = ["Axes", "Figure", "MaxNLocator", "PercentFormatter", "draw_curve", "draw_runs", "save_figure", "style_axes"]
Against = Literal["steps", "tokens"]
_AXES = {
    "steps": ("steps", "step", 1.0),
    "tokens": ("million tokens seen", "tokens", 1e6),
}
"""Label, key in the journal and unit of each axis."""
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Distinguishable with colour blindness (Okabe and Ito, 2008)."""
BLUE = "#1f6fb4"
ORANGE = "#d9731a"
GREY = "#8a8a8a"
MARKERS = "os^Dv*P"
_MAX_POINTS = 150
"""Of a training curve; more are averaged."""
_ALWAYS = ("learning_rate", "gradient_norm")


def style_axes(axes: Axes, along: Literal["both", "x", "y"] = "both") -> None:
    """Add a light grid and remove the frame at the top and right."""
    axes.grid(axis=along, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def save_figure(figure: Figure, picture: Path, dpi: int = 130) -> None:
    """Write a figure as a PNG, completely or not at all."""
    with new_file(picture) as temporary:
        figure.savefig(temporary, dpi=dpi, format="png")


# --------------------------------------------------------------------------------------------------------------------
# Curves of runs.


def draw_runs(runs: Sequence[RunCurves], picture: Path, against: Against = "steps") -> None:
    """Draw losses, accuracies, learning rate and gradient norm of runs into one PNG.

    Thin lines are training, lines with markers held-out scores, dotted lines the scores of the majority baseline.
    """
    panels = _panels(runs)
    columns = 2 if len(panels) in (2, 4) else 3
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.6 * columns, 3.3 * rows + 0.9), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes, panel in zip(grid, panels, strict=False):
        for number, run in enumerate(runs):
            _draw(axes, run, panel, number, against)
        axes.set(title=panel.replace("_", " "), xlabel=_AXES[against][0])
        if panel.endswith("_accuracy") and axes.dataLim.y1 <= 1:  # scores of tasks are in points of 100
            axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))
        style_axes(axes)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    legend: dict[str, Any] = {"frameon": False, "fontsize": 9}
    names = [
        Line2D([], [], color=COLORS[i % len(COLORS)], marker=MARKERS[i % len(MARKERS)], markersize=5, label=run.name)
        for i, run in enumerate(runs)
    ]
    figure.legend(handles=names, loc="outside upper left", ncols=-(-len(runs) // 4), **legend)
    styles = [Line2D([], [], color="#555555", label=label, **style) for label, style in _STYLES.items()]
    figure.legend(handles=styles, loc="outside upper right", **legend)
    save_figure(figure, picture, dpi=120)


_STYLES: dict[str, dict[str, Any]] = {
    "training": {"linewidth": 1.0, "alpha": 0.6},
    "held out": {"marker": "o", "markersize": 4, "linewidth": 1.8},
    "majority baseline, held out": {"linestyle": ":", "linewidth": 1.4},
}


def _panels(runs: Sequence[RunCurves]) -> list[str]:
    """The figures to draw: first loss, accuracies, other losses, other scores, learning rate and gradient norm."""
    last = (record for run in runs for record in (run.updates[-1], *run.evaluations[-1:]))
    names = dict.fromkeys(figure for record in last for figure in figures_of(record))
    losses = [name for name in names if name.endswith("_loss")]
    accuracies = [name for name in names if name.endswith("_accuracy")]
    evaluations = (record for run in runs for record in run.evaluations)
    evaluated = {figure for record in evaluations for figure in figures_of(record)}
    others = [name for name in names if name in evaluated and not name.endswith(("_loss", "_accuracy", "_baseline"))]
    return [*losses[:1], *accuracies, *losses[1:], *others, *(name for name in _ALWAYS if name in names)]


def _draw(axes: Axes, run: RunCurves, panel: str, number: int, against: Against) -> None:
    color = COLORS[number % len(COLORS)]
    marker = MARKERS[number % len(MARKERS)]
    x, y = _points(run.updates, panel, against)
    if len(x):  # some figures come from evaluations alone
        groups = max(1, -(-len(x) // _MAX_POINTS))
        x, y = (np.array([part.mean() for part in np.split(a, range(groups, len(a), groups))]) for a in (x, y))
        style: dict[str, Any] = {"linewidth": 1.6} if panel in _ALWAYS else {"linewidth": 1.0, "alpha": 0.5}
        axes.plot(x, y, color=color, **style)
    x, y = _points(run.evaluations, panel, against)
    if len(x):
        axes.plot(x, y, color=color, marker=marker, markersize=4, linewidth=1.8)
    _, baseline = _points(run.evaluations, panel.replace("_accuracy", "_baseline"), against)
    if panel.endswith("_accuracy") and len(baseline):
        axes.axhline(baseline[-1], color=color, linestyle=":", linewidth=1.4)


def _points(records: Sequence[dict[str, Any]], figure: str, against: Against) -> tuple[np.ndarray, np.ndarray]:
    _, key, unit = _AXES[against]
    chosen = [record for record in records if figure in record]
    return np.array([r[key] / unit for r in chosen]), np.array([r[figure] for r in chosen], dtype=float)


# --------------------------------------------------------------------------------------------------------------------
# Scores against compute.


def draw_curve(report: Mapping[str, Any], picture: Path) -> None:
    """Draw the scores against the cost, with the depth at each point, as a PNG.

    Args:
        report: what `albert evaluate --depth` writes with --results.
    """
    figure = Figure(figsize=(10.5, 4.2), layout="constrained")
    title = f"{report['task']}, {report['split']}: {report['examples']:,} examples; trained at depth "
    title += f"{report['trained_depth']}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    work, times = figure.subplots(1, 2, sharey=True)
    metric = next(iter(report["points"][0]["scores"]))
    _draw_points(work, report, metric, "gflops")
    work.set(xlabel="billion floating-point operations an example", ylabel=metric.replace("_", " "))
    _draw_points(times, report, metric, "milliseconds")
    times.set(xlabel=f"milliseconds an example, median of {report['rounds']}")
    work.legend(frameon=False, fontsize=9, loc="lower right")
    save_figure(figure, picture)


def _draw_points(axes: Axes, report: Mapping[str, Any], metric: str, cost: str) -> None:
    points = [point for point in report["points"] if point["scores"][metric] is not None]
    positions = {(point[cost], point["scores"][metric]): point["depth"] for point in points}
    if positions:
        axes.plot(*zip(*sorted(positions), strict=True), color=BLUE, marker="o", label="depth")
    for position, depth in positions.items():
        axes.annotate(str(depth), position, textcoords="offset points", xytext=(0, 6), ha="center", fontsize=8)
    constant = (report["baseline"] or {}).get(metric)
    if constant is not None:
        axes.axhline(constant, color=GREY, linestyle="--", label=baseline_name(report))
    axes.set_xlim(left=0)
    style_axes(axes)
