"""Curves of a benchmark as a PNG; apart from harness.py, as matplotlib would count in measurements of memory."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from albert.experiments.curves import COLORS, MARKERS, bare, save_figure


def draw(picture: Path, panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]], xlabel: str, ylabel: str,
         **axes: Any) -> None:  # fmt: skip
    """A PNG of curves: panel -> curve -> points; `axes` is what matplotlib sets of every panel, `xscale="log"` say.

    A curve "NAME" or "NAME, CASE" has the colour of its name in every panel; the second case of a name has dashes.
    """
    figure = Figure(figsize=(4 * len(panels), 3.4), layout="constrained")
    names = list(dict.fromkeys(curve.split(",")[0] for curves in panels.values() for curve in curves))
    places = figure.subplots(1, len(panels), squeeze=False)[0]
    for place, (title, curves) in zip(places, panels.items(), strict=True):
        drawn: set[str] = set()
        for curve, points in curves.items():
            name = curve.split(",")[0]
            number, style = names.index(name), "--" if name in drawn else "-"
            drawn.add(name)
            x, y = zip(*sorted(points), strict=True)
            place.plot(x, y, style, marker=MARKERS[number], color=COLORS[number], ms=4, label=curve)
        place.set(xlabel=xlabel, **axes)
        place.set_title(title, fontsize=8)
        place.minorticks_off()
        bare(place)
    places[0].set_ylabel(ylabel)
    places[0].legend(fontsize=7)
    save_figure(figure, picture)
