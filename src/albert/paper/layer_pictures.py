"""Pictures of how far each layer of a model moves its input. They need matplotlib."""

from collections.abc import Sequence
from pathlib import Path

from albert.paper.layers import LayerSimilarity
from albert.report.pictures import (
    COLORS,
    MARKERS,
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
