"""Curves of a benchmark as a PNG; not in harness.py, because matplotlib would count in measurements of memory."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from albert.report.pictures import COLORS, MARKERS, save_figure, style_axes


def draw(picture: Path, panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]], xlabel: str, ylabel: str,
         **axes: Any) -> None:  # fmt: skip
    """Draw curves as a PNG: panel -> curve -> points; `axes` are options of every panel, e.g. `xscale="log"`.

    A curve "NAME" or "NAME, CASE" has the colour of its name in every panel; the second case of a name is dashed.
    """
    figure = Figure(figsize=(4 * len(panels), 3.4), layout="constrained")
    names = list(dict.fromkeys(curve.split(",")[0] for curves in panels.values() for curve in curves))
    subplots = figure.subplots(1, len(panels), squeeze=False)[0]
    for subplot, (title, curves) in zip(subplots, panels.items(), strict=True):
        drawn: set[str] = set()
        for curve, points in curves.items():
            name = curve.split(",")[0]
            number, style = names.index(name), "--" if name in drawn else "-"
            drawn.add(name)
            x, y = zip(*sorted(points), strict=True)
            subplot.plot(x, y, style, marker=MARKERS[number], color=COLORS[number], ms=4, label=curve)
        subplot.set(xlabel=xlabel, **axes)
        subplot.set_title(title, fontsize=8)
        subplot.minorticks_off()
        style_axes(subplot)
    subplots[0].set_ylabel(ylabel)
    subplots[0].legend(fontsize=7)
    save_figure(figure, picture)
