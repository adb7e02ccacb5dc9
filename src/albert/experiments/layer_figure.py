"""Figure 1 of the paper, drawn: distance and angle between input and output of every layer."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from albert.experiments.layer_similarity import LayerSimilarity
from albert.experiments.run_curves import COLORS, MARKERS
from albert.runtime.durable_files import new_file

matplotlib.use("Agg")


def draw_layers(measured: Sequence[LayerSimilarity], picture: Path) -> None:
    """Draw models side by side into one PNG, both panels from 0.

    Args:
        measured: the models.
        picture: the file to write.
    """
    figure = Figure(figsize=(10.5, 4.4), layout="constrained")
    distance, angle = figure.subplots(1, 2)
    for number, one in enumerate(measured):
        layers = range(1, len(one.distance) + 1)
        color, marker = COLORS[number % len(COLORS)], MARKERS[number % len(MARKERS)]
        for axes, values in ((distance, one.distance), (angle, one.angle)):
            axes.plot(layers, values, color=color, marker=marker, markersize=4, linewidth=1.8)
        distance.plot([], [], color=color, marker=marker, label=f"{one.model} ({one.layers})")
    for axes, title in ((distance, "L2 distance of input and output"), (angle, "angle between them, degrees")):
        axes.set(title=title, xlabel="layer", ylim=(0, None))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper left", frameon=False, fontsize=9)
    with new_file(picture) as temporary:
        figure.savefig(temporary, dpi=130, format="png")
