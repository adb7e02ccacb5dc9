"""Figures of tables: scores of the runs with their spread, the paper's beside them, curves, and Figure 1."""

import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from albert.experiments.curves import BLUE, COLORS, GREY, ORANGE, RunCurves, bare, read_runs, save_figure
from albert.experiments.grids import Column, FigureKind
from albert.experiments.jobs import Folders
from albert.experiments.layers import LayerSimilarity, draw_layers, write_layers
from albert.experiments.report import heading
from albert.experiments.results import Outcome, RowOutcome
from albert.runtime.json_files import load_json

# --------------------------------------------------------------------------------------------------------------------
# Figures of runs and models themselves: held-out curves (Figure 2, the degradation), movement of layers (Figure 1).


def draw_curves(outcome: Outcome, folders: Folders) -> Figure | None:
    """Training loss, and held-out masked tokens that are right, of every run of every row; None: none has begun."""
    lines: list[tuple[str, int, RunCurves]] = []
    for number, one in enumerate(outcome.rows):
        for key in one.keys.values():
            run = folders.pretraining(key)
            if run.journal_path.is_file() and '"event": "train"' in run.journal_path.read_text(encoding="utf-8"):
                lines.append((one.row.label, number, read_runs([run.path])[0]))
    if not lines:
        return None
    figure = Figure(figsize=(10.5, 4.2), layout="constrained")
    figure.suptitle(outcome.grid.title, x=0.01, ha="left", fontsize=12)
    loss, accuracy = figure.subplots(1, 2)
    named: set[str] = set()
    for label, number, run in lines:
        color = COLORS[number % len(COLORS)]
        kept = run.updates[:: max(1, len(run.updates) // 150)]
        loss.plot([one["step"] for one in kept], [one["masked_tokens_loss"] for one in kept], color=color, alpha=0.7)
        accuracy.plot(
            [one["step"] for one in run.evaluations],
            [one["masked_tokens_accuracy"] for one in run.evaluations],
            color=color,
            marker="o",
            markersize=3,
            label=label if label not in named else None,
        )
        named.add(label)
    loss.set(title="training loss of masked tokens, nats", xlabel="updates")
    accuracy.set(title="held-out masked tokens right", xlabel="updates")
    accuracy.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    accuracy.legend(frameon=False, fontsize=9, title="a line for each seed", title_fontsize=8)
    for axes in (loss, accuracy):
        bare(axes)
    return figure


def draw_layer_movement(outcome: Outcome, folders: Folders, picture: Path) -> bool:
    """Draw every finished model of the first seed, with a CSV beside the picture; whether there is one."""
    measured = []
    for one in outcome.rows:
        finished = [key for key in one.keys.values() if folders.layers(key).is_file()]
        if finished:
            kept = load_json(LayerSimilarity, folders.layers(finished[0]))
            measured.append(replace(kept, model=one.row.label))
    if not measured:
        return False
    draw_layers(measured, picture)
    write_layers(measured, picture.with_name(f"{picture.stem}-layers.csv"))
    return True


SCORES = ("intrinsic", "downstream", "average")
MOST_PANELS = 6
DEPTHS_ACROSS = 3
FEWEST_POINTS = 5.0
"""That the axis of a panel spans: tenths that are chance shall not look like steps."""
PAPER = ORANGE
CONSTANT: dict[str, Any] = {"color": GREY, "linestyle": "--", "linewidth": 1.2, "label": "a constant answer"}


def draw_outcome(outcome: Outcome, folders: Folders, folder: Path) -> Path | None:
    """Draw `TABLE.png` into a folder; an older one is replaced.

    Returns:
        the picture; None where there is nothing to draw yet, or the table has no figure.
    """
    picture = folder / f"{outcome.grid.table}.png"
    if outcome.grid.figure == "layers":
        return picture if draw_layer_movement(outcome, folders, picture) else None
    kinds: dict[FigureKind, Callable[[Outcome], Figure | None]] = {
        "arms": draw_arms,
        "depth": draw_depth,
        "bars": draw_bars,
        "curves": lambda one: draw_curves(one, folders),
    }
    figure = None if outcome.grid.figure is None else kinds[outcome.grid.figure](outcome)
    if figure is None:
        return None
    save_figure(figure, picture)
    return picture


def draw_arms(outcome: Outcome) -> Figure | None:
    """Ours above, a panel for each score; the paper's below, with the same rows and an axis of their own."""
    columns = scored_columns(outcome)
    if not columns:
        return None
    rows = [one for one in outcome.rows if one.row.arm is not None]
    below = [name for column in columns if (name := papers_column(outcome, column)) is not None]
    if "average" not in below and any(row.average is not None for row in outcome.grid.rows):
        below.append("average")
    across = max(len(columns), len(below))
    height = 0.36 * len(rows) + 0.9
    figure = Figure(figsize=(3.1 * across + 1.6, height * (2 if below else 1) + 0.6), layout="constrained")
    _title(figure, outcome)
    panels = figure.subplots(2 if below else 1, across, squeeze=False)
    for axes, column in zip(panels[0], columns, strict=False):
        _dots(axes, rows, column)
        constant = outcome.constant.get(column.name)
        if constant is not None:
            axes.axvline(constant, **CONSTANT)
        axes.set_title(f"ours: {heading(column)}", fontsize=10)
    for axes, name in zip(panels[-1] if below else (), below, strict=False):
        for place, one in enumerate(rows):
            value = papers_value(one, name)
            if value is not None:
                axes.plot(value, place, "D", color=PAPER, markersize=6)
                _number(axes, value, place, f"{value:g}")
        axes.set_title(f"paper: {name}", fontsize=10)
    labels, papers = [one.row.label for one in rows], [one.row.name for one in rows]  # E = 128 here stands for its 768
    for line, filled, names in zip(panels, (len(columns), len(below)), (labels, papers), strict=False):
        for number, axes in enumerate(line):
            axes.set_visible(number < filled)
            axes.set_yticks(range(len(rows)), names if number == 0 else [""] * len(rows))
            axes.set_ylim(len(rows) - 0.5, -0.6)
            axes.margins(x=0.12)
            _tidy(axes)
    _name_the_constant(figure, panels[0])
    return figure


def draw_depth(outcome: Outcome) -> Figure | None:
    """Scores against depth or width, a panel for each of ours, the paper's average after them."""
    columns = scored_columns(outcome)
    if not columns:
        return None
    rows = [one for one in outcome.rows if one.row.arm is not None]
    panels, across = len(columns) + 1, min(len(columns) + 1, DEPTHS_ACROSS)
    down = math.ceil(panels / across)
    figure = Figure(figsize=(3.6 * across, 3.0 * down + 0.6), layout="constrained")
    _title(figure, outcome)
    *ours, last = figure.subplots(down, across, squeeze=False).flat[:panels]
    for axes, column in zip(ours, columns, strict=True):
        known = [(place, one.cells[column.name]) for place, one in enumerate(rows) if one.cells[column.name].values]
        medians = [cell.median for _, cell in known if cell.median is not None]
        axes.plot([place for place, _ in known], medians, color=BLUE, marker="o")
        for place, cell in known:
            axes.vlines(place, cell.figures[0], cell.figures[-1], color=BLUE, linewidth=2)
        constant = outcome.constant.get(column.name)
        if constant is not None:
            axes.axhline(constant, **CONSTANT)
        axes.set_title(f"ours: {heading(column)}", fontsize=10)
        axes.set_xticks(range(len(rows)), [one.row.label for one in rows], rotation=25)
        axes.set_xlim(-0.4, len(rows) - 0.6)
    papers = [(one.row.name, papers_value(one, "average")) for one in outcome.rows]
    told = [(name, value) for name, value in papers if value is not None]
    last.plot(range(len(told)), [value for _, value in told], color=PAPER, marker="D")
    last.set_xticks(range(len(told)), [name for name, _ in told], rotation=25)
    last.set_title("paper: average", fontsize=10)
    for axes in (*ours, last):
        _tidy(axes, "y")
    for axes in figure.axes[panels:]:
        axes.set_visible(False)
    _name_the_constant(figure, ours)
    return figure


def draw_bars(outcome: Outcome) -> Figure | None:
    """A bar for each row of the paper's, and beside it ours where there is one."""
    names = list(dict.fromkeys(name for row in outcome.grid.rows for name in row.scores))
    chosen = [name for name in names if sum(name in row.scores for row in outcome.grid.rows) > 2][:MOST_PANELS]
    if not chosen:
        return None
    columns = {column.published or column.name: column for column in outcome.grid.columns}
    height = 0.34 * len(outcome.rows) + 1.3
    figure = Figure(figsize=(2.7 * len(chosen) + 2.6, height), layout="constrained")
    _title(figure, outcome)
    panels = figure.subplots(1, len(chosen), squeeze=False)[0]
    for number, (axes, name) in enumerate(zip(panels, chosen, strict=True)):
        for place, one in enumerate(outcome.rows):
            value = papers_value(one, name)
            if value is not None:
                axes.barh(place, value, color="#f2c9a1", height=0.7)
                axes.annotate(f"{value:g}", (value, place), xytext=(-3, 0), textcoords="offset points", ha="right",
                              va="center", fontsize=8)  # fmt: skip
        if name in columns:
            _dots(axes, outcome.rows, columns[name])
        axes.set_title(name, fontsize=10)
        axes.set_yticks(range(len(outcome.rows)), [one.row.label for one in outcome.rows] if number == 0 else
                        [""] * len(outcome.rows))  # fmt: skip
        axes.set_ylim(len(outcome.rows) - 0.4, -0.6)
        _tidy(axes)
    return figure


def _title(figure: Figure, outcome: Outcome) -> None:
    """What the figure is of, and whether something is missing."""
    table, title = outcome.grid.table, outcome.grid.title
    text = f"Table {table}: {title}" if table[0].isdigit() else title
    if outcome.is_partial:
        text += f" (partial: {', '.join(f'{outcome.done[kind]} of {n} {kind}' for kind, n in outcome.wanted.items())})"
    width = round(11 * figure.get_figwidth())
    figure.suptitle(textwrap.fill(text, width), x=0.01, ha="left", fontsize=12)


def scored_columns(outcome: Outcome) -> list[Column]:
    """The scores that some run of ours has."""
    found = [column for column in outcome.grid.columns if column.kind in SCORES]
    return [c for c in found if any(one.cells[c.name].values for one in outcome.rows)][:MOST_PANELS]


def papers_column(outcome: Outcome, column: Column) -> str | None:
    """What the paper calls a column of ours; None where it has none."""
    name = column.published or column.name
    if column.kind == "average":
        return "average"
    return name if any(name in row.scores for row in outcome.grid.rows) else None


def papers_value(one: RowOutcome, name: str) -> float | None:
    """The paper's figure of a row."""
    row = one.row
    return row.average if name == "average" and name not in row.scores else row.scores.get(name)


def _dots(axes: Axes, rows: Sequence[RowOutcome], column: Column) -> None:
    for place, one in enumerate(rows):
        cell = one.cells[column.name]
        if cell.median is not None:
            axes.hlines(place, cell.figures[0], cell.figures[-1], color=BLUE, linewidth=3, alpha=0.5)
            axes.plot(cell.figures, [place] * len(cell.figures), "|", color=BLUE, markersize=9)
            axes.plot(cell.median, place, "o", color=BLUE, markersize=7)
            _number(axes, cell.median, place, f"{cell.median:.1f}")


def _name_the_constant(figure: Figure, panels: Iterable[Axes]) -> None:
    """Once, outside of the panels."""
    lines = [line for axes in panels for line in axes.get_legend_handles_labels()[0]]
    if lines:
        figure.legend(handles=lines[:1], loc="outside upper right", frameon=False, fontsize=9)


def _number(axes: Axes, value: float, place: int, text: str) -> None:
    axes.annotate(text, (value, place), xytext=(0, 5), textcoords="offset points", ha="center", fontsize=8)


def _tidy(axes: Axes, along: Literal["x", "y"] = "x") -> None:
    bare(axes, along)
    low, high = axes.get_xlim() if along == "x" else axes.get_ylim()
    if (room := FEWEST_POINTS - (high - low)) > 0:
        (axes.set_xlim if along == "x" else axes.set_ylim)(low - room / 2, high + room / 2)
