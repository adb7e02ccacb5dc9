"""Pictures of a model's layers: how far each moves its input, and scores against compute. They need matplotlib."""

from collections.abc import Callable, Sequence
from pathlib import Path

from albert.paper.layers import DepthCurve, DepthPoint, LayerSimilarity
from albert.paper.pictures import (
    BLUE,
    COLORS,
    GREY,
    MARKERS,
    Axes,
    Figure,
    MaxNLocator,
    save_figure,
    style_axes,
)


def draw_layers(measured: Sequence[LayerSimilarity], picture: Path) -> None:
    """Draw models side by side into one PNG; both axes start at 0."""
    figure = Figure(figsize=(10.5, 4.4), layout="constrained")
    distance, angle = figure.subplots(1, 2)
    for number, model in enumerate(measured):
        layers = range(1, len(model.distance) + 1)
        color = COLORS[number % len(COLORS)]
        marker = MARKERS[number % len(MARKERS)]
        for axes, values in ((distance, model.distance), (angle, model.angle)):
            axes.plot(layers, values, color=color, marker=marker, markersize=4, linewidth=1.8)
        distance.plot([], [], color=color, marker=marker, label=f"{model.model} ({model.layers})")
    for axes, title in ((distance, "L2 distance of input and output"), (angle, "angle between them, degrees")):
        axes.set(title=title, xlabel="layer", ylim=(0, None))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        style_axes(axes)
    figure.legend(loc="outside upper left", frameon=False, fontsize=9)
    save_figure(figure, picture)


def draw_curve(curve: DepthCurve, picture: Path) -> None:
    """Draw the scores against the cost, with the depth at each point, as a PNG."""
    figure = Figure(figsize=(10.5, 4.2), layout="constrained")
    title = f"{curve.task}, {curve.split}: {curve.examples:,} examples; trained at depth {curve.trained_depth}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    work, times = figure.subplots(1, 2, sharey=True)
    _draw_points(work, curve, lambda point: point.gflops)
    work.set(xlabel="billion floating-point operations an example", ylabel=curve.metric.replace("_", " "))
    _draw_points(times, curve, lambda point: point.milliseconds)
    times.set(xlabel=f"milliseconds an example, median of {curve.rounds}")
    work.legend(frameon=False, fontsize=9, loc="lower right")
    save_figure(figure, picture)


def _draw_points(axes: Axes, curve: DepthCurve, cost: Callable[[DepthPoint], float]) -> None:
    points = sorted(curve.points, key=cost)
    positions = {(cost(point), score): point for point in points if (score := point.scores[curve.metric]) is not None}
    if positions:
        axes.plot(*zip(*positions, strict=True), color=BLUE, marker="o", label="depth")
    for position, point in positions.items():
        axes.annotate(str(point.depth), position, textcoords="offset points", xytext=(0, 6), ha="center", fontsize=8)
    constant = None if curve.baseline is None else curve.baseline.get(curve.metric)
    if constant is not None:
        axes.axhline(constant, color=GREY, linestyle="--", label="majority baseline")
    axes.set_xlim(left=0)
    style_axes(axes)
