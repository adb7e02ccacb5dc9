"""Reports of tables: our figures beside the paper's as text, Markdown, CSV and pictures; tables that need no run."""

import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from albert.experiments.curves import BLUE, COLORS, GREY, ORANGE, read_runs, save_figure, style_axes
from albert.experiments.grids import COSTS, SCALES, SIZE_NAMES, TABLE_14, TEXT_TABLES, Column, Grid, Row, Scale
from albert.experiments.jobs import LAYERS_NAME, Folders
from albert.experiments.layers import LayerSimilarity, draw_layers, write_layers
from albert.experiments.results import Cell, Outcome, count_as_paper, judge
from albert.experiments.sizes import PUBLISHED_SIZES
from albert.model.config import PRESETS, AlbertConfig, bert_control
from albert.runtime.errors import MissingInput
from albert.runtime.files import write_csv, write_text
from albert.runtime.json_files import load_json
from albert.tasks.task import TaskRecipe

# --------------------------------------------------------------------------------------------------------------------
# Tables that need no run: model sizes (Table 1), fine-tuning recipes (Table 14) and the cost of pre-training.


@dataclass(frozen=True, kw_only=True)
class TextTable:
    """A table that needs no run."""

    table: str
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


def _text_table(
    table: str, scale: Scale, rows: Iterable[tuple[str, ...]], notes: Sequence[str] = (), **values: Any
) -> TextTable:
    declared = TEXT_TABLES[table]
    head, common = (
        tuple(text.format(scale=scale.name, **values) for text in declared[key]) for key in ("head", "notes")
    )
    return TextTable(table=table, title=declared["title"], head=head, rows=tuple(rows), notes=(*common, *notes))


def sizes(scale: Scale) -> TextTable:
    """Table 1: the models of the paper beside those of a scale."""

    def shape(config: AlbertConfig) -> str:
        return f"{config.num_hidden_layers}, {config.hidden_size}, {config.embedding_size}"

    rows, notes = [], []
    berts = {f"bert-{size}": bert_control(scale.sizes[size]) for size in SIZE_NAMES[:2]}
    for preset, config in (berts | {f"albert-{size}": scale.sizes[size] for size in SIZE_NAMES}).items():
        paper, size = PRESETS[preset], PUBLISHED_SIZES[preset][0]
        exact, ours = f"{count_as_paper(paper):,}", f"{count_as_paper(config):,}"
        rows.append((preset, shape(paper), size.stated, exact, shape(config), ours))
        if size.counted is None:
            notes.append(f"{preset}, {size.stated}: {size.reason}.")
    return _text_table(
        "1", scale, rows, [*notes, f"Vocabulary at this scale: {scale.recipe.model.vocab_size:,} pieces."]
    )


def finetuning(scale: Scale) -> TextTable:
    """Table 14: the fine-tuning recipe of each task, in the paper and at a scale."""
    ours = {task.task: _describe_recipe(task.full_recipe, task.max_train_examples) for task in scale.tasks}
    rows = []
    for task, paper in TABLE_14.items():
        rate, *others = paper.values()
        rows.append((task, f"{rate:.0e}", *(f"{value:g}" for value in others), ours.get(task, "not run")))
    return _text_table("14", scale, rows)


def _describe_recipe(recipe: TaskRecipe, examples: int | None) -> str:
    updates = "1 epoch" if recipe.epochs == 1 else f"{recipe.epochs:g} epochs" if recipe.epochs else recipe.steps
    sample = "" if examples is None else f" of {examples:,} examples"
    return f"{recipe.learning_rate:.0e}, {recipe.batch_size}, {updates}{sample}, {recipe.max_length} tokens"


def costs(scale: Scale, hours: Mapping[str, float] | None = None) -> TextTable:
    """Published costs of pre-training, and the hours of our runs, by name."""
    rows = []
    for cost in COSTS:
        pounds = cost.get("co2_pounds")
        devices = f"{cost['devices']} x {cost['device']}"
        co2 = "" if pounds is None else f"{pounds:,}"
        rows.append((cost["model"], devices, f"{24 * cost['days']:g}", f"{cost['dollars']:,}", co2))
    for name, spent in (hours or {}).items():
        rows.append((f"{name}, scale {scale.name}", "1 x this machine", f"{spent:.3g}", "", ""))
    return _text_table("cost", scale, rows)


STATIC_TABLES: dict[str, Callable[..., TextTable]] = {"1": sizes, "14": finetuning, "cost": costs}
"""Name -> function of the scale that makes the table; `costs` takes the hours of our runs as well."""


# --------------------------------------------------------------------------------------------------------------------
# A table with runs as text: for the terminal, Markdown and CSV.

DECIMALS = {"speed-up": 2, "hours": 2}
"""By kind of column; 1 for the others."""
UNITS = {"parameters": "parameters, million", "speed-up": "speed of training", "hours": "hours of training"}
CONSTANT = "a constant answer"
CSV_COLUMNS: tuple[str, ...] = (
    "table", "scale", "row", "label", "arm", "column", "paper", "median", "lowest", "highest", "seeds", "wanted",
    "constant",
)  # fmt: skip


def heading(column: Column) -> str:
    """The title of a column, with its unit."""
    return UNITS.get(column.kind, column.name)


def paper_figure(row: Row, column: Column) -> str:
    """The paper's figure as it is printed; empty where it has none."""
    if column.kind == "parameters":
        sizes = PUBLISHED_SIZES.get(row.preset or "", ())
        return sizes[0].stated.removesuffix("M") if sizes else ""
    return _paper_score(row, column.published or column.name)


def _paper_score(row: Row, name: str) -> str:
    return f"{row.scores[name]:g}" if name in row.scores else ""


def our_figure(cell: Cell, column: Column) -> str:
    """Median over seeds with lowest and highest, and the number of finished seeds if some are missing."""
    if cell.median is None:
        return ""
    decimals = DECIMALS.get(column.kind, 1)
    text, low, high = (f"{x:,.{decimals}f}" for x in (cell.median, cell.figures[0], cell.figures[-1]))
    text += f" ({low}–{high})" if low != high else ""
    return text + (f" [{len(cell.values)} of {cell.wanted}]" if len(cell.values) < cell.wanted else "")


def describe_progress(outcome: Outcome) -> str:
    """Finished and wanted jobs: "partial: 4 of 6 pre-trainings, 0 of 12 fine-tunings are done"."""
    if not outcome.wanted:
        return "nothing to train: the paper's figures"
    counts = ", ".join(f"{outcome.done[kind]:,} of {n:,} {kind}" for kind, n in outcome.wanted.items())
    return f"partial: {counts} are done" if outcome.is_partial else f"complete: {counts}"


def comparison_notes(outcome: Outcome) -> Iterator[str]:
    """Sentences on what limits the comparison: scale, seeds, learning rates, failed jobs."""
    grid, scale = outcome.grid, SCALES[outcome.grid.scale]
    yield f"Scale {scale.name}: {scale.decides}."
    if outcome.wanted:
        seeds = ", ".join(map(str, range(max(map(len, outcome.keys.values())))))
        yield f"Arms have in common: {grid.compute}. Ours: median over seeds ({seeds}), with lowest and highest."
    yield from grid.notes
    rates = {row.label: row.arm.recipe.optimizer.learning_rate for row in grid.rows if row.arm}
    if len(set(rates.values())) > 1:
        yield f"Peak rates differ: {', '.join(f'{label} {rate:g}' for label, rate in rates.items())}."
    yield from (f"Given up: {line}." for line in outcome.given_up)


def claim_sentences(outcome: Outcome) -> list[str]:
    """For each claim of the paper on this table: the claim, its verdict and the figures behind it."""
    score_columns = {column.name for column in outcome.grid.columns if column.kind != "parameters"}
    labels = {row.name: row.label for row in outcome.grid.rows}
    sentences = []
    for claim in outcome.grid.claims:
        result = judge(claim, outcome.scores)
        if result.verdict == "not tested" and outcome.is_partial and score_columns.intersection(claim.columns):
            sentences.append(f"{claim.sentence} — not known yet: its runs are not done.")
            continue
        figures = "; ".join(contrast.figures(labels) for contrast in result.contrasts if contrast.difference)
        sentences.append(f"{claim.sentence} — {result.words}." + (f" {figures}." if figures else ""))
    return sentences


def side_by_side(outcome: Outcome, both: bool = False) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table as text: each column of the paper, followed by ours.

    Args:
        both: include the paper's column even where all its cells are empty.
    """
    labels = []
    for row in outcome.grid.rows:
        same = row.label.casefold() == row.name.casefold()
        labels.append(row.label if same else f"{row.label} (paper: {row.name})")
    constant = outcome.constant
    head, columns = [""], [[*labels, *([CONSTANT] if constant else [])]]
    for column in outcome.grid.columns:
        paper = [paper_figure(row, column) for row in outcome.grid.rows]
        ours = [our_figure(outcome.cells[row.name, column.name], column) for row in outcome.grid.rows]
        if constant:
            paper.append("")
            ours.append(f"{constant[column.name]:.1f}" if column.name in constant else "")
        if both or any(paper):
            head, columns = [*head, f"{heading(column)}: paper", "ours"], [*columns, paper, ours]
        else:
            head, columns = [*head, f"{heading(column)}: ours"], [*columns, ours]
    return head, [list(row) for row in zip(*columns, strict=True)]


def paper_only_scores(grid: Grid) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the paper's columns that are not measured at this scale."""
    shown = {column.published or column.name for column in grid.columns}
    names = [name for name in grid.names() if name not in shown]
    return ["", *names], [[row.name, *(_paper_score(row, name) for name in names)] for row in grid.rows if names]


def markdown(outcome: Outcome, picture: str | None = None) -> str:
    """The report of a table as Markdown."""
    lines = [f"# {outcome.grid.table}: {outcome.grid.title}", "", f"{describe_progress(outcome).capitalize()}."]
    lines += [line for note in comparison_notes(outcome) for line in ("", note)]
    if outcome.grid.columns:
        lines += ["", *_markdown_table(*side_by_side(outcome))]
    if sentences := claim_sentences(outcome):
        lines += ["", "## What the paper claims", "", *(f"- {sentence}" for sentence in sentences)]
    if picture is not None:
        lines += ["", f"![{outcome.grid.title}]({picture})"]
    head, rows = paper_only_scores(outcome.grid)
    if rows:
        lines += ["", "## Further scores of the paper", "", *_markdown_table(head, rows)]
    return "\n".join(lines) + "\n"


def csv_rows(outcome: Outcome) -> list[Sequence[str]]:
    """Head, then one row per cell of the table, the paper's columns that are not measured here included."""
    grid = outcome.grid
    records: list[dict[str, str]] = []
    for row in grid.rows:
        for column in grid.columns:
            cell = outcome.cells[row.name, column.name]
            record = {"row": row.name, "label": row.label, "arm": row.arm.name if row.arm else ""}
            record |= {"column": heading(column), "paper": paper_figure(row, column)}
            record |= {"seeds": str(len(cell.values)), "wanted": str(cell.wanted)}
            if cell.median is not None:
                figures = {"median": cell.median, "lowest": cell.figures[0], "highest": cell.figures[-1]}
                record |= {name: f"{value:.4f}" for name, value in figures.items()}
            if column.name in outcome.constant:
                record["constant"] = f"{outcome.constant[column.name]:.4f}"
            records.append(record)
    head, rows = paper_only_scores(grid)
    for row, *values in rows:
        named = zip(head[1:], values, strict=True)
        records += [{"row": row, "column": name, "paper": value} for name, value in named if value]
    common = {"table": grid.table, "scale": grid.scale}
    return [CSV_COLUMNS, *([(common | record).get(name, "") for name in CSV_COLUMNS] for record in records)]


def write_report(outcome: Outcome, folder: Path, picture: str | None = None) -> tuple[Path, Path]:
    """Write `TABLE.md` and `TABLE.csv` into a folder; older ones are replaced."""
    return _write(folder, outcome.grid.table, markdown(outcome, picture), csv_rows(outcome))


def write_text_table(table: TextTable, folder: Path) -> tuple[Path, Path]:
    """Write `TABLE.md` and `TABLE.csv` of a table that needs no run."""
    lines = [f"# {table.table}: {table.title}", "", *_markdown_table(table.head, table.rows)]
    lines += [line for note in table.notes for line in ("", note)]
    return _write(folder, table.table, "\n".join(lines) + "\n", [table.head, *table.rows])


def _write(folder: Path, name: str, text: str, rows: Sequence[Sequence[str]]) -> tuple[Path, Path]:
    paths = folder / f"{name}.md", folder / f"{name}.csv"
    write_text(paths[0], text)
    write_csv(paths[1], rows)
    return paths


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for line in (head, ("---",) * len(head), *rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |"


# --------------------------------------------------------------------------------------------------------------------
# Figures: training curves (Figure 2, the degradation), movement of layers (Figure 1), our scores beside the paper's.

SCORES = ("intrinsic", "downstream", "average")
MOST_PANELS = 6
DEPTHS_ACROSS = 3
LEAST_SPAN = 5.0
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
    draw = {"curves": curves, "depth": draw_depth, "bars": draw_bars, "arms": draw_arms}
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


def draw_arms(outcome: Outcome) -> Figure | None:
    """A panel for each of our scores above, the paper's panels with the same rows and their own axes below."""
    columns = scored_columns(outcome)
    if not columns:
        return None
    rows, names = [row for row in outcome.grid.rows if row.arm is not None], outcome.grid.names()
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
                _annotate(axes, row.scores[name], y, _paper_score(row, name))
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
    rows = [row for row in outcome.grid.rows if row.arm is not None]
    panels, across = len(columns) + 1, min(len(columns) + 1, DEPTHS_ACROSS)
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
    names = [name for name in outcome.grid.names() if sum(name in row.scores for row in rows) > 2][:MOST_PANELS]
    if not names:
        return None
    columns = {column.published or column.name: column for column in outcome.grid.columns}
    figure = _figure(outcome, 2.7 * len(names) + 2.6, 0.34 * len(rows) + 1.3)
    label: dict[str, Any] = {"xytext": (-3, 0), "textcoords": "offset points", "ha": "right", "va": "center"}
    for number, (axes, name) in enumerate(zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True)):
        for y, row in enumerate(rows):
            if name in row.scores:
                axes.barh(y, row.scores[name], color="#f2c9a1", height=0.7)
                axes.annotate(_paper_score(row, name), (row.scores[name], y), fontsize=8, **label)
        if name in columns:
            _plot_scores(axes, outcome, rows, columns[name])
        axes.set_title(name, fontsize=10)
        _label_rows(axes, [row.label if number == 0 else "" for row in rows], bottom=0.4)
        _finish_axes(axes)
    return figure


def scored_columns(outcome: Outcome) -> list[Column]:
    """The columns in which at least one of our runs has a score."""
    columns = [column for column in outcome.grid.columns if column.kind in SCORES]
    return [column for column in columns if any(outcome.scores[column.name].values())][:MOST_PANELS]


def _figure(outcome: Outcome, width: float, height: float) -> Figure:
    """An empty figure with title, and progress if runs are missing."""
    figure = Figure(figsize=(width, height), layout="constrained")
    table, title = outcome.grid.table, outcome.grid.title
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
    if (room := LEAST_SPAN - (high - low)) > 0:
        (axes.set_xlim if along == "x" else axes.set_ylim)(low - room / 2, high + room / 2)
