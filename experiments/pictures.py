"""Pictures of the paper's tables: training curves, movement of layers, our scores beside the paper's. They need
matplotlib."""

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from albert.report.curves import read_runs
from albert.report.pictures import (
    BLUE,
    COLORS,
    GREY,
    MARKERS,
    ORANGE,
    Axes,
    Figure,
    MaxNLocator,
    PercentFormatter,
    save_figure,
    style_axes,
)
from albert.runtime.errors import MissingInput
from albert.runtime.json_files import load_json
from experiments.grids import Column, Row
from experiments.jobs import LAYERS_NAME, Folders
from experiments.layers import LayerSimilarity, write_layers
from experiments.report import CONSTANT, describe_progress, heading, paper_score
from experiments.results import Outcome

SCORES = ("intrinsic", "downstream", "average")
MAX_PANELS = 6
DEPTHS_ACROSS = 3
MIN_SPAN = 5.0
"""Points that the axis of a panel spans at least, so that differences within the noise do not look large."""
PAPER = ORANGE
CONSTANT_LINE: dict[str, Any] = {"color": GREY, "linestyle": "--", "linewidth": 1.2, "label": CONSTANT}


def draw_outcome(outcome: Outcome, folders: Folders, folder: Path) -> Path | None:
    """Draw `TABLE.png` into a folder; an older one is replaced.

    Returns:
        the picture; None if there is nothing to draw yet, or the table has no figure.
    """
    picture = folder / f"{outcome.grid.table}.png"
    if outcome.grid.figure == "layers":
        return picture if draw_layer_movement(outcome, folders, picture) else None
    curves = partial(draw_curves, folders=folders)
    draw = {"curves": curves, "depth": draw_depth, "bars": draw_bars, "variants": draw_variants}
    figure = draw[outcome.grid.figure](outcome) if outcome.grid.figure else None
    if figure is None:
        return None
    save_figure(figure, picture)
    return picture


def draw_curves(outcome: Outcome, folders: Folders) -> Figure | None:
    """Training loss and held-out accuracy of masked tokens of every run; None if no run has begun."""
    figure = Figure(figsize=(10.5, 4.2), layout="constrained")
    figure.suptitle(outcome.grid.title, x=0.01, ha="left", fontsize=12)
    loss, accuracy = figure.subplots(1, 2)
    labels: set[str] = set()
    for number, row in enumerate(outcome.grid.rows):
        for key in outcome.keys[row.name]:
            try:
                [run] = read_runs([folders.pretraining(key).path])
            except MissingInput:  # it has not begun
                continue
            style: dict[str, Any] = {"color": COLORS[number % len(COLORS)]}
            updates = run.updates[:: max(1, len(run.updates) // 150)]
            steps, losses = zip(*((record["step"], record["masked_tokens_loss"]) for record in updates), strict=True)
            loss.plot(steps, losses, alpha=0.7, **style)
            style |= {"marker": "o", "markersize": 3, "label": None if row.label in labels else row.label}
            steps = [record["step"] for record in run.evaluations]
            accuracy.plot(steps, [record["masked_tokens_accuracy"] for record in run.evaluations], **style)
            labels.add(row.label)
    if not labels:
        return None
    loss.set(title="training loss of masked tokens, nats", xlabel="updates")
    accuracy.set(title="held-out masked tokens right", xlabel="updates")
    accuracy.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    accuracy.legend(frameon=False, fontsize=9, title="a line for each seed", title_fontsize=8)
    for axes in (loss, accuracy):
        style_axes(axes)
    return figure


def draw_layer_movement(outcome: Outcome, folders: Folders, picture: Path) -> bool:
    """Draw the first finished seed of every row, with a CSV beside the picture; False if no run has finished."""
    measured = []
    for row in outcome.grid.rows:
        paths = [path for key in outcome.keys[row.name] if (path := folders.score(key, LAYERS_NAME)).is_file()]
        measured += [replace(load_json(LayerSimilarity, path), model=row.label) for path in paths[:1]]
    if measured:
        draw_layers(measured, picture)
        write_layers(measured, picture.with_name(f"{picture.stem}-layers.csv"))
    return bool(measured)


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


def draw_variants(outcome: Outcome) -> Figure | None:
    """A panel for each of our scores above, the paper's panels with the same rows and their own axes below."""
    columns = scored_columns(outcome)
    if not columns:
        return None
    rows = [row for row in outcome.grid.rows if row.variant is not None]
    names = outcome.grid.names()
    below = [name for column in columns if (name := column.published or column.name) in names]
    below += ["average"] if "average" in names and "average" not in below else []
    across = max(len(columns), len(below))
    height = 0.36 * len(rows) + 0.9
    figure = _figure(outcome, 3.1 * across + 1.6, height * (2 if below else 1) + 0.6)
    panels = figure.subplots(2 if below else 1, across, squeeze=False)
    for axes, column in zip(panels[0], columns, strict=False):
        _plot_scores(axes, outcome, rows, column)
        if column.name in outcome.constant:
            axes.axvline(outcome.constant[column.name], **CONSTANT_LINE)
        axes.set_title(f"ours: {heading(column)}", fontsize=10)
    for axes, name in zip(panels[-1] if below else (), below, strict=False):
        for y, row in enumerate(rows):
            if name in row.scores:
                axes.plot(row.scores[name], y, "D", color=PAPER, markersize=6)
                _annotate(axes, row.scores[name], y, paper_score(row, name))
        axes.set_title(f"paper: {name}", fontsize=10)
    labels = [row.label for row in rows], [row.name for row in rows]  # E = 128 at this scale is 768 in the paper
    for line, used, ticks in zip(panels, (len(columns), len(below)), labels, strict=False):
        for number, axes in enumerate(line):
            axes.set_visible(number < used)
            _label_rows(axes, ticks if number == 0 else [""] * len(rows), bottom=0.5)
            axes.margins(x=0.12)
            _finish_axes(axes)
    _add_constant_legend(figure, panels[0])
    return figure


def draw_depth(outcome: Outcome) -> Figure | None:
    """Scores against depth or width: a panel for each of our scores, then one for the paper's average."""
    columns = scored_columns(outcome)
    if not columns:
        return None
    rows = [row for row in outcome.grid.rows if row.variant is not None]
    panels = len(columns) + 1
    across = min(len(columns) + 1, DEPTHS_ACROSS)
    down = math.ceil(panels / across)
    figure = _figure(outcome, 3.6 * across, 3.0 * down + 0.6)
    *ours, last = figure.subplots(down, across, squeeze=False).flat[:panels]
    for axes, column in zip(ours, columns, strict=True):
        cells = enumerate(outcome.cells[row.name, column.name] for row in rows)
        measured = {x: cell for x, cell in cells if cell.values}
        axes.plot(list(measured), [cell.median for cell in measured.values()], color=BLUE, marker="o")
        for x, cell in measured.items():
            axes.vlines(x, cell.figures[0], cell.figures[-1], color=BLUE, linewidth=2)
        if column.name in outcome.constant:
            axes.axhline(outcome.constant[column.name], **CONSTANT_LINE)
        axes.set_title(f"ours: {heading(column)}", fontsize=10)
        axes.set_xticks(range(len(rows)), [row.label for row in rows], rotation=25)
        axes.set_xlim(-0.4, len(rows) - 0.6)
    averages = {row.name: row.scores["average"] for row in outcome.grid.rows if "average" in row.scores}
    last.plot(range(len(averages)), list(averages.values()), color=PAPER, marker="D")
    last.set_xticks(range(len(averages)), list(averages), rotation=25)
    last.set_title("paper: average", fontsize=10)
    for axes in (*ours, last):
        _finish_axes(axes, "y")
    for axes in figure.axes[panels:]:
        axes.set_visible(False)
    _add_constant_legend(figure, ours)
    return figure


def draw_bars(outcome: Outcome) -> Figure | None:
    """A bar for each score of the paper, with our score on it if there is one."""
    rows = outcome.grid.rows
    names = [name for name in outcome.grid.names() if sum(name in row.scores for row in rows) > 2][:MAX_PANELS]
    if not names:
        return None
    columns = {column.published or column.name: column for column in outcome.grid.columns}
    figure = _figure(outcome, 2.7 * len(names) + 2.6, 0.34 * len(rows) + 1.3)
    label: dict[str, Any] = {"xytext": (-3, 0), "textcoords": "offset points", "ha": "right", "va": "center"}
    for number, (axes, name) in enumerate(zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True)):
        for y, row in enumerate(rows):
            if name in row.scores:
                axes.barh(y, row.scores[name], color="#f2c9a1", height=0.7)
                axes.annotate(paper_score(row, name), (row.scores[name], y), fontsize=8, **label)
        if name in columns:
            _plot_scores(axes, outcome, rows, columns[name])
        axes.set_title(name, fontsize=10)
        _label_rows(axes, [row.label if number == 0 else "" for row in rows], bottom=0.4)
        _finish_axes(axes)
    return figure


def scored_columns(outcome: Outcome) -> list[Column]:
    """The columns in which at least one of our runs has a score."""
    columns = [column for column in outcome.grid.columns if column.kind in SCORES]
    return [column for column in columns if any(outcome.scores[column.name].values())][:MAX_PANELS]


def _figure(outcome: Outcome, width: float, height: float) -> Figure:
    """An empty figure with title, and progress if runs are missing."""
    figure = Figure(figsize=(width, height), layout="constrained")
    table = outcome.grid.table
    title = outcome.grid.title
    text = f"Table {table}: {title}" if table[0].isdigit() else title
    text += f" ({describe_progress(outcome).removesuffix(' are done')})" if outcome.is_partial else ""
    figure.suptitle(textwrap.fill(text, round(11 * width)), x=0.01, ha="left", fontsize=12)
    return figure


def _label_rows(axes: Axes, labels: Sequence[str], bottom: float) -> None:
    """Label rows in the order of the table, the first on top."""
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - bottom, -0.6)


def _plot_scores(axes: Axes, outcome: Outcome, rows: Sequence[Row], column: Column) -> None:
    for y, row in enumerate(rows):
        cell = outcome.cells[row.name, column.name]
        if cell.median is not None:
            axes.hlines(y, cell.figures[0], cell.figures[-1], color=BLUE, linewidth=3, alpha=0.5)
            axes.plot(cell.figures, [y] * len(cell.figures), "|", color=BLUE, markersize=9)
            axes.plot(cell.median, y, "o", color=BLUE, markersize=7)
            _annotate(axes, cell.median, y, f"{cell.median:.1f}")


def _add_constant_legend(figure: Figure, panels: Iterable[Axes]) -> None:
    """One legend entry, outside of the panels."""
    lines = [line for axes in panels for line in axes.get_legend_handles_labels()[0]]
    if lines:
        figure.legend(handles=lines[:1], loc="outside upper right", frameon=False, fontsize=9)


def _annotate(axes: Axes, value: float, y: int, text: str) -> None:
    axes.annotate(text, (value, y), xytext=(0, 5), textcoords="offset points", ha="center", fontsize=8)


def _finish_axes(axes: Axes, along: Literal["x", "y"] = "x") -> None:
    style_axes(axes, along)
    low, high = axes.get_xlim() if along == "x" else axes.get_ylim()
    room = MIN_SPAN - (high - low)
    if room > 0:
        set_limits = axes.set_xlim if along == "x" else axes.set_ylim
        set_limits(low - room / 2, high + room / 2)
