"""Reports of tables: ours beside the paper's as text, Markdown, CSV and pictures; tables that need no run."""

import csv
import io
import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from albert.experiments.curves import BLUE, COLORS, GREY, ORANGE, bare, read_runs, save_figure
from albert.experiments.grids import (
    COSTS,
    SCALES,
    SIZE_NAMES,
    TABLE_14,
    TEXT_TABLES,
    Column,
    FigureKind,
    Grid,
    Row,
    Scale,
)
from albert.experiments.jobs import Folders
from albert.experiments.layers import LayerSimilarity, draw_layers, write_layers
from albert.experiments.price import Rates, implied_watts, price_and_energy
from albert.experiments.results import Cell, ClaimResult, Outcome, count_as_paper, judge
from albert.experiments.sizes import PUBLISHED_SIZES
from albert.model.config import PRESETS, AlbertConfig, bert_control
from albert.runtime.errors import MissingInput
from albert.runtime.files import write_csv, write_text
from albert.runtime.json_files import load_json
from albert.tasks.task import TaskRecipe

# --------------------------------------------------------------------------------------------------------------------
# Tables that need no run, as text: sizes (Table 1), fine-tuning (Table 14), what pre-training costs.


@dataclass(frozen=True, kw_only=True)
class TextTable:
    """A table of text."""

    table: str
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


def _facts(
    table: str, scale: Scale, rows: Iterable[tuple[str, ...]], notes: Sequence[str] = (), **values: Any
) -> TextTable:
    """A table as `paper.toml` declares it, with its rows and further notes."""
    declared = TEXT_TABLES[table]
    head, said = (tuple(text.format(scale=scale.name, **values) for text in declared[key]) for key in ("head", "notes"))
    return TextTable(table=table, title=declared["title"], head=head, rows=tuple(rows), notes=(*said, *notes))


def sizes(scale: Scale) -> TextTable:
    """Table 1: the models, the paper's and those of a scale."""

    def dials(config: AlbertConfig) -> str:
        return f"{config.num_hidden_layers}, {config.hidden_size}, {config.embedding_size}"

    rows, notes = [], []
    berts = {f"bert-{size}": bert_control(scale.sizes[size]) for size in SIZE_NAMES[:2]}
    for preset, here in (berts | {f"albert-{size}": scale.sizes[size] for size in SIZE_NAMES}).items():
        paper, stated = PRESETS[preset], PUBLISHED_SIZES[preset][0]
        counts = f"{count_as_paper(paper):,}", f"{count_as_paper(here):,}"
        rows.append((preset, dials(paper), stated.stated, counts[0], dials(here), counts[1]))
        if stated.counted is None:
            notes.append(f"{preset}, {stated.stated}: {stated.reason}.")
    return _facts("1", scale, rows, [*notes, f"The scale {scale.name} has {scale.recipe.model.vocab_size:,} pieces."])


def _in_words(recipe: TaskRecipe, examples: int | None) -> str:
    """Rate, batch, how long, length, from how many examples."""
    updates = "1 epoch" if recipe.epochs == 1 else f"{recipe.epochs:g} epochs" if recipe.epochs else recipe.steps
    sample = "" if examples is None else f" of {examples:,} examples"
    return f"{recipe.learning_rate:.0e}, {recipe.batch_size}, {updates}{sample}, {recipe.max_length} tokens"


def finetuning(scale: Scale) -> TextTable:
    """Table 14: how each task is learnt, in the paper and at a scale."""
    learnt = {task.task: _in_words(task.full_recipe, task.max_train_examples) for task in scale.tasks}
    rows = []
    for task, paper in TABLE_14.items():
        rate, *others = paper.values()
        rows.append((task, f"{rate:.0e}", *(f"{value:g}" for value in others), learnt.get(task, "not learnt")))
    return _facts("14", scale, rows)


NO_RATES = Rates()


def costs(scale: Scale, hours: Mapping[str, float] | None = None, rates: Rates = NO_RATES) -> TextTable:
    """The talk's table of costs, and what our runs cost by a stated price and draw.

    Args:
        hours: of our runs, each on one machine, by their names.
        rates: of the machine; the default says nothing about money and electricity.
    """
    rows = []
    for cost in COSTS:
        hours_each, pounds = 24 * cost["days"], cost.get("co2_pounds")
        watts = f"{implied_watts(pounds, hours_each * cost['devices']):.0f} W" if pounds else ""
        money, co2 = f"{cost['dollars']:,}", f"{pounds:,}" if pounds else ""
        rows.append((cost["model"], f"{cost['devices']} x {cost['device']}", f"{hours_each:g}", money, co2, watts))
    for name, spent in (hours or {}).items():
        ours = price_and_energy(spent, rates)
        dollars = f"{ours.dollars:,.2f}" if rates.price_per_hour else ""
        co2, watts = (f"{ours.co2_pounds:,.2f}", f"{rates.watts:g} W") if rates.watts else ("", "")
        rows.append((f"{name}, scale {scale.name}", "1 x this machine", f"{spent:.3g}", dollars, co2, watts))
    return _facts("cost", scale, rows, **vars(rates))


STATIC_TABLES: dict[str, Callable[..., TextTable]] = {"1": sizes, "14": finetuning, "cost": costs}
"""Name -> the table at a scale; that of costs also takes what our runs took."""


# --------------------------------------------------------------------------------------------------------------------
# A table with runs as text: for the terminal, Markdown and CSV.

DECIMALS = {"speed-up": 2, "hours": 2}
"""By kind of column; the others have one."""
UNITS = {"parameters": "parameters, million", "speed-up": "speed of training", "hours": "hours of training"}
CONSTANT = "a constant answer"
CSV_COLUMNS: tuple[str, ...] = (
    "table", "scale", "row", "label", "arm", "column", "paper", "median", "lowest", "highest", "seeds", "wanted",
    "constant",
)  # fmt: skip


def heading(column: Column) -> str:
    """What a column is called."""
    return UNITS.get(column.kind, column.name)


def published(row: Row, column: Column) -> str:
    """The paper's figure as it is printed; empty where it has none."""
    if column.kind == "parameters":
        sizes = PUBLISHED_SIZES.get(row.preset or "", ())
        return sizes[0].stated.removesuffix("M") if sizes else ""
    return _printed(row, column.published or column.name)


def _printed(row: Row, name: str) -> str:
    return f"{row.scores[name]:g}" if name in row.scores else ""


def ours(cell: Cell, column: Column) -> str:
    """The median over seeds, with the lowest and the highest; how many are done, where not all are."""
    if cell.median is None:
        return ""
    text, low, high = (
        f"{x:,.{DECIMALS.get(column.kind, 1)}f}" for x in (cell.median, cell.figures[0], cell.figures[-1])
    )
    text += f" ({low}–{high})" if low != high else ""
    return text + (f" [{len(cell.values)} of {cell.wanted}]" if len(cell.values) < cell.wanted else "")


def describe_progress(outcome: Outcome) -> str:
    """How much is done: "partial: 4 of 6 pre-trainings, 0 of 12 fine-tunings are done"."""
    if not outcome.wanted:
        return "nothing to train: the paper's figures"
    counts = ", ".join(f"{outcome.done[kind]:,} of {n:,} {kind}" for kind, n in outcome.wanted.items())
    return f"partial: {counts} are done" if outcome.is_partial else f"complete: {counts}"


def about(outcome: Outcome) -> Iterator[str]:
    """What to know before comparing, a sentence each."""
    grid, scale = outcome.grid, SCALES[outcome.grid.scale]
    yield f"Scale {scale.name}: {scale.decides}."
    if outcome.wanted:
        seeds = ", ".join(map(str, scale.seeds))
        yield f"Arms have in common: {grid.compute}. Ours: median over seeds ({seeds}), with lowest and highest."
    yield from grid.notes
    rates = {row.label: row.arm.recipe.optimizer.learning_rate for row in grid.rows if row.arm}
    if len(set(rates.values())) > 1:
        yield f"Peak rates differ: {', '.join(f'{label} {rate:g}' for label, rate in rates.items())}."
    yield from (f"Given up: {line}." for line in outcome.given_up)


def sentence(judged: ClaimResult, outcome: Outcome) -> str:
    """A claim, what became of it, and by which figures."""
    asked = {column.name for column in outcome.grid.columns if column.kind != "parameters"}
    if judged.verdict == "not asked" and outcome.is_partial and asked.intersection(judged.claim.columns):
        return f"{judged.claim.sentence} — not known yet, for its runs are not done."
    labels = {row.name: row.label for row in outcome.grid.rows}
    figures = "; ".join(one.figures(labels) for one in judged.contrasts if one.difference is not None)
    return f"{judged.claim.sentence} — {judged.words}." + (f" {figures}." if figures else "")


def sentences(outcome: Outcome) -> list[str]:
    """One for each claim that the paper makes of a table."""
    return [sentence(judge(claim, outcome.scores), outcome) for claim in outcome.grid.claims]


def side_by_side(outcome: Outcome, both: bool = False) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table as text: each column of the paper's followed by ours.

    Args:
        both: with the paper's half of a column of which the paper says nothing.
    """
    labels = []
    for row in outcome.grid.rows:
        same = row.label.casefold() == row.name.casefold()
        labels.append(row.label if same else f"{row.label} (paper: {row.name})")
    constant = outcome.constant
    head, columns = [""], [[*labels, *([CONSTANT] if constant else [])]]
    for column in outcome.grid.columns:
        paper = [published(row, column) for row in outcome.grid.rows]
        mine = [ours(outcome.cells[row.name, column.name], column) for row in outcome.grid.rows]
        if constant:
            paper.append("")
            mine.append(f"{constant[column.name]:.1f}" if column.name in constant else "")
        if both or any(paper):
            head, columns = [*head, f"{heading(column)}: paper", "ours"], [*columns, paper, mine]
        else:
            head, columns = [*head, f"{heading(column)}: ours"], [*columns, mine]
    return head, [list(row) for row in zip(*columns, strict=True)]


def paper_only_scores(grid: Grid) -> tuple[list[str], list[list[str]]]:
    """What the paper's table has in columns that this scale does not; no rows where there are none."""
    shown = {column.published or column.name for column in grid.columns}
    names = [name for name in grid.names() if name not in shown]
    return ["", *names], [[row.name, *(_printed(row, name) for name in names)] for row in grid.rows if names]


def markdown(outcome: Outcome, picture: str | None = None) -> str:
    """The whole report of a table."""
    lines = [f"# {outcome.grid.table}: {outcome.grid.title}", "", f"{describe_progress(outcome).capitalize()}."]
    lines += [line for fact in about(outcome) for line in ("", fact)]
    if outcome.grid.columns:
        lines += ["", *_pipes(*side_by_side(outcome))]
    if found := sentences(outcome):
        lines += ["", "## What the paper claims", "", *(f"- {one}" for one in found)]
    if picture is not None:
        lines += ["", f"![{outcome.grid.title}]({picture})"]
    head, rows = paper_only_scores(outcome.grid)
    if rows:
        lines += ["", "## What the paper has paper_only_scores", "", *_pipes(head, rows)]
    return "\n".join(lines) + "\n"


def as_csv(outcome: Outcome) -> str:
    """A line for each row and column, the paper's columns that are not run here included."""
    grid, text = outcome.grid, io.StringIO()
    writer = csv.DictWriter(text, CSV_COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for row in grid.rows:
        place = {"table": grid.table, "scale": grid.scale, "row": row.name, "label": row.label}
        place["arm"] = "" if row.arm is None else row.arm.name
        for column in grid.columns:
            cell = outcome.cells[row.name, column.name]
            line = {"column": heading(column), "paper": published(row, column)}
            line |= {"seeds": str(len(cell.values)), "wanted": str(cell.wanted)}
            if cell.median is not None:
                figures = {"median": cell.median, "lowest": cell.figures[0], "highest": cell.figures[-1]}
                line |= {name: f"{value:.4f}" for name, value in figures.items()}
            if column.name in outcome.constant:
                line["constant"] = f"{outcome.constant[column.name]:.4f}"
            writer.writerow(place | line)
    head, rows = paper_only_scores(grid)
    for name_of_row, *values in rows:
        place = {"table": grid.table, "scale": grid.scale, "row": name_of_row}
        for name, value in zip(head[1:], values, strict=True):
            if value:
                writer.writerow(place | {"column": name, "paper": value})
    return text.getvalue()


def write_report(outcome: Outcome, folder: Path, picture: str | None = None) -> tuple[Path, Path]:
    """Write `TABLE.md` and `TABLE.csv` into a folder; older ones are replaced."""
    paths = folder / f"{outcome.grid.table}.md", folder / f"{outcome.grid.table}.csv"
    write_text(paths[0], markdown(outcome, picture))
    write_text(paths[1], as_csv(outcome))
    return paths


def write_text_table(facts: TextTable, folder: Path) -> tuple[Path, Path]:
    """The same for a table that needs no run."""
    paths = folder / f"{facts.table}.md", folder / f"{facts.table}.csv"
    lines = [f"# {facts.table}: {facts.title}", "", *_pipes(facts.head, facts.rows)]
    lines += [line for note in facts.notes for line in ("", note)]
    write_text(paths[0], "\n".join(lines) + "\n")
    write_csv(paths[1], [facts.head, *facts.rows])
    return paths


def _pipes(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for line in (head, ("---",) * len(head), *rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |"


# --------------------------------------------------------------------------------------------------------------------
# Figures of runs and models themselves: held-out curves (Figure 2, the degradation), movement of layers (Figure 1).


def draw_curves(outcome: Outcome, folders: Folders) -> Figure | None:
    """Training loss, and held-out masked tokens that are right, of every run of every row; None: none has begun."""
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
            kept = run.updates[:: max(1, len(run.updates) // 150)]
            steps, losses = zip(*((at["step"], at["masked_tokens_loss"]) for at in kept), strict=True)
            loss.plot(steps, losses, alpha=0.7, **style)
            style |= {"marker": "o", "markersize": 3, "label": None if row.label in labels else row.label}
            right = [(at["step"], at["masked_tokens_accuracy"]) for at in run.evaluations]
            accuracy.plot([step for step, _ in right], [share for _, share in right], **style)
            labels.add(row.label)
    if not labels:
        return None
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
    for row in outcome.grid.rows:
        finished = [path for key in outcome.keys[row.name] if (path := folders.layers(key)).is_file()]
        measured += [replace(load_json(LayerSimilarity, path), model=row.label) for path in finished[:1]]
    if measured:
        draw_layers(measured, picture)
        write_layers(measured, picture.with_name(f"{picture.stem}-layers.csv"))
    return bool(measured)


# --------------------------------------------------------------------------------------------------------------------
# Figures of scores: ours beside the paper's.

SCORES = ("intrinsic", "downstream", "average")
MOST_PANELS = 6
DEPTHS_ACROSS = 3
FEWEST_POINTS = 5.0
"""That the axis of a panel spans: tenths that are chance shall not look like steps."""
PAPER = ORANGE
CONSTANT_LINE: dict[str, Any] = {"color": GREY, "linestyle": "--", "linewidth": 1.2, "label": CONSTANT}


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
    rows, names = [row for row in outcome.grid.rows if row.arm is not None], outcome.grid.names()
    below = [name for column in columns if (name := column.published or column.name) in names]
    below += ["average"] if "average" in names and "average" not in below else []
    across = max(len(columns), len(below))
    height = 0.36 * len(rows) + 0.9
    figure = _figure(outcome, 3.1 * across + 1.6, height * (2 if below else 1) + 0.6)
    panels = figure.subplots(2 if below else 1, across, squeeze=False)
    for axes, column in zip(panels[0], columns, strict=False):
        _dots(axes, outcome, rows, column)
        if column.name in outcome.constant:
            axes.axvline(outcome.constant[column.name], **CONSTANT_LINE)
        axes.set_title(f"ours: {heading(column)}", fontsize=10)
    for axes, name in zip(panels[-1] if below else (), below, strict=False):
        for place, row in enumerate(rows):
            if name in row.scores:
                axes.plot(row.scores[name], place, "D", color=PAPER, markersize=6)
                _number(axes, row.scores[name], place, _printed(row, name))
        axes.set_title(f"paper: {name}", fontsize=10)
    labels, papers = [row.label for row in rows], [row.name for row in rows]  # E = 128 here stands for its 768
    for line, filled, ticks in zip(panels, (len(columns), len(below)), (labels, papers), strict=False):
        for number, axes in enumerate(line):
            axes.set_visible(number < filled)
            _rows_down(axes, ticks if number == 0 else [""] * len(rows), bottom=0.5)
            axes.margins(x=0.12)
            _tidy(axes)
    _name_the_constant(figure, panels[0])
    return figure


def draw_depth(outcome: Outcome) -> Figure | None:
    """Scores against depth or width, a panel for each of ours, the paper's average after them."""
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
        known = {place: cell for place, cell in cells if cell.values}
        axes.plot(list(known), [cell.median for cell in known.values()], color=BLUE, marker="o")
        for place, cell in known.items():
            axes.vlines(place, cell.figures[0], cell.figures[-1], color=BLUE, linewidth=2)
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
        _tidy(axes, "y")
    for axes in figure.axes[panels:]:
        axes.set_visible(False)
    _name_the_constant(figure, ours)
    return figure


def draw_bars(outcome: Outcome) -> Figure | None:
    """A bar for each row of the paper's, and beside it ours where there is one."""
    rows = outcome.grid.rows
    names = [name for name in outcome.grid.names() if sum(name in row.scores for row in rows) > 2][:MOST_PANELS]
    if not names:
        return None
    columns = {column.published or column.name: column for column in outcome.grid.columns}
    figure = _figure(outcome, 2.7 * len(names) + 2.6, 0.34 * len(rows) + 1.3)
    label: dict[str, Any] = {"xytext": (-3, 0), "textcoords": "offset points", "ha": "right", "va": "center"}
    for number, (axes, name) in enumerate(zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True)):
        for place, row in enumerate(rows):
            if name in row.scores:
                axes.barh(place, row.scores[name], color="#f2c9a1", height=0.7)
                axes.annotate(_printed(row, name), (row.scores[name], place), fontsize=8, **label)
        if name in columns:
            _dots(axes, outcome, rows, columns[name])
        axes.set_title(name, fontsize=10)
        _rows_down(axes, [row.label if number == 0 else "" for row in rows], bottom=0.4)
        _tidy(axes)
    return figure


def scored_columns(outcome: Outcome) -> list[Column]:
    """The scores that some run of ours has."""
    found = [column for column in outcome.grid.columns if column.kind in SCORES]
    return [column for column in found if any(outcome.scores[column.name].values())][:MOST_PANELS]


def _figure(outcome: Outcome, width: float, height: float) -> Figure:
    """A figure with what it is of, and whether something is missing."""
    figure = Figure(figsize=(width, height), layout="constrained")
    table, title = outcome.grid.table, outcome.grid.title
    text = f"Table {table}: {title}" if table[0].isdigit() else title
    text += f" ({describe_progress(outcome).removesuffix(' are done')})" if outcome.is_partial else ""
    figure.suptitle(textwrap.fill(text, round(11 * width)), x=0.01, ha="left", fontsize=12)
    return figure


def _rows_down(axes: Axes, labels: Sequence[str], bottom: float) -> None:
    """Rows as they stand in the table, the first one on top."""
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - bottom, -0.6)


def _dots(axes: Axes, outcome: Outcome, rows: Sequence[Row], column: Column) -> None:
    for place, row in enumerate(rows):
        cell = outcome.cells[row.name, column.name]
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
