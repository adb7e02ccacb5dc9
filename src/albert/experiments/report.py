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

from albert.experiments.curves import BLUE, COLORS, GREY, ORANGE, RunCurves, bare, read_runs, save_figure
from albert.experiments.grids import SCALES, TABLE_14, Column, FigureKind, Grid, Row, Scale, Size
from albert.experiments.jobs import Folders
from albert.experiments.layers import LayerSimilarity, draw_layers, write_layers
from albert.experiments.price import COSTS, Rates, implied_watts, price_and_energy
from albert.experiments.results import Cell, Judged, Outcome, RowOutcome, judge
from albert.experiments.sizes import PUBLISHED_SIZES
from albert.model.config import PRESETS, AlbertConfig, bert_control
from albert.model.cost import count_parameters
from albert.runtime.files import write_csv, write_text
from albert.runtime.json_files import load_json
from albert.tasks.task import TaskRecipe

# --------------------------------------------------------------------------------------------------------------------
# Tables that need no run, as text: sizes (Table 1), fine-tuning (Table 14), what pre-training costs.

SIZES: dict[str, tuple[Size, bool]] = {
    "bert-base": ("base", True),
    "bert-large": ("large", True),
    "albert-base": ("base", False),
    "albert-large": ("large", False),
    "albert-xlarge": ("xlarge", False),
    "albert-xxlarge": ("xxlarge", False),
}
"""The rows of Table 1: the size of a scale, and whether it is BERT's."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """A table of text."""

    table: str
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def _count(config: AlbertConfig) -> int:
    """As the paper counts: what shares nothing without its pooler."""
    counted = count_parameters(config)
    return counted.encoder if config.sharing == "none" else counted.model


def sizes(scale: Scale) -> Facts:
    """Table 1: the models, the paper's and those of a scale."""
    rows, notes = [], []
    for preset, (size, is_bert) in SIZES.items():
        here = bert_control(scale.sizes[size]) if is_bert else scale.sizes[size]
        paper, stated = PRESETS[preset], PUBLISHED_SIZES[preset][0]
        rows.append((preset, _dials(paper), stated.stated, f"{_count(paper):,}", _dials(here), f"{_count(here):,}"))
        if stated.counted is None:
            notes.append(f"{preset}, {stated.stated}: {stated.reason}.")
    return Facts(
        table="1",
        title="The models: layers L, width H, embeddings E, and their parameters",
        head=("model", "L, H, E", "paper", "exact", f"L, H, E: {scale.name}", f"exact: {scale.name}"),
        rows=tuple(rows),
        notes=(
            "BERT shares nothing and is counted without its pooler, ALBERT shares all and is counted with it.",
            *notes,
            f"The scale {scale.name} has {scale.recipe.model.vocab_size:,} pieces.",
        ),
    )


def _dials(config: AlbertConfig) -> str:
    return f"{config.num_hidden_layers}, {config.hidden_size}, {config.embedding_size}"


def _told(recipe: TaskRecipe, examples: int | None) -> str:
    """Rate, batch, how long, length, from how many examples."""
    updates = "1 epoch" if recipe.epochs == 1 else f"{recipe.epochs:g} epochs" if recipe.epochs else recipe.steps
    sample = "" if examples is None else f" of {examples:,} examples"
    return f"{recipe.learning_rate:.0e}, {recipe.batch_size}, {updates}{sample}, {recipe.max_length} tokens"


def finetuning(scale: Scale) -> Facts:
    """Table 14: how each task is learnt, in the paper and at a scale."""
    rows = []
    learnt = {task.task: task for task in scale.tasks}
    for task, paper in TABLE_14.items():
        here = learnt.get(task)
        rows.append(
            (
                task,
                f"{paper['learning_rate']:.0e}",
                *(f"{value:g}" for name, value in paper.items() if name != "learning_rate"),
                "not learnt" if here is None else _told(here.full_recipe, here.max_train_examples),
            )
        )
    return Facts(
        table="14",
        title="How each task is fine-tuned",
        head=("task", "rate", "batch", "dropout", "of the head", "updates", "warm-up", "tokens", f"scale {scale.name}"),
        rows=tuple(rows),
        notes=(
            "`albert finetune` takes these; with another number of examples it keeps the epochs, not the updates.",
            "The second release learns RACE at 1e-05 and without dropout: `albert finetune race --v2-recipe`.",
        ),
    )


def costs(
    scale: Scale, hours: Mapping[str, float] | None = None, rates: Rates | None = None, devices: int = 1
) -> Facts:
    """The talk's table of costs, and what our runs cost by a stated price and draw.

    Args:
        rates: of the machine; None: nothing is said about money and electricity.
    """
    rows = []
    for cost in COSTS:
        watts = "" if cost.co2_pounds is None else f"{implied_watts(cost.co2_pounds, cost.device_hours):.0f} W"
        co2 = "" if cost.co2_pounds is None else f"{cost.co2_pounds:,}"
        where = f"{cost.devices} x {cost.device}"
        rows.append((f"{cost.model} ({cost.size})", where, f"{24 * cost.days:g}", f"{cost.dollars:,}", co2, watts))
    rates = rates or Rates()
    for name, spent in (hours or {}).items():
        ours = price_and_energy(spent, rates, devices)
        dollars = f"{ours.dollars:,.2f}" if rates.price_per_hour else ""
        co2, watts = (f"{ours.co2_pounds:,.2f}", f"{rates.watts:g} W") if rates.watts else ("", "")
        rows.append((f"{name}, scale {scale.name}", f"{devices} x this machine", f"{spent:.3g}", dollars, co2, watts))
    return Facts(
        table="cost",
        title="What pre-training costs (the first rows: a talk about the paper)",
        head=("model", "on", "hours", "dollars", "CO2, pounds", "draw of a device"),
        rows=tuple(rows),
        notes=(
            f"Ours: hours x price; hours x draw x {rates.overhead:g} x {rates.co2_pounds_per_kwh:g} pounds a "
            "kilowatt-hour (Strubell et al. 2019). Without a price and a draw those cells are empty.",
            "The draws of the published rows are what their CO2 comes to by the same formula.",
        ),
    )


FACTS: dict[str, Callable[[Scale], Facts]] = {"1": sizes, "14": finetuning, "cost": costs}
"""Name -> the table at a scale."""


DECIMALS = {"intrinsic": 1, "downstream": 1, "average": 1, "parameters": 1, "speed-up": 2, "hours": 2, "layers": 1}
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
    value = row.average if column.kind == "average" else row.scores.get(column.published or column.name)
    return "" if value is None else f"{value:g}"


def ours(cell: Cell, column: Column) -> str:
    """The median over seeds, with the lowest and the highest; how many are done, where not all are."""
    if cell.median is None:
        return ""
    decimals = DECIMALS[column.kind]
    text = f"{cell.median:,.{decimals}f}"
    low, high = f"{cell.figures[0]:,.{decimals}f}", f"{cell.figures[-1]:,.{decimals}f}"
    if low != high:
        text += f" ({low}–{high})"
    if len(cell.values) < cell.wanted:
        text += f" [{len(cell.values)} of {cell.wanted}]"
    return text


def progress_of(outcome: Outcome) -> str:
    """How much is done: "partial: 4 of 6 pre-trainings, 0 of 12 fine-tunings are done"."""
    if not outcome.wanted:
        return "nothing to train: the paper's figures"
    told = ", ".join(f"{outcome.done[kind]:,} of {n:,} {kind}" for kind, n in outcome.wanted.items())
    return f"partial: {told} are done" if outcome.is_partial else f"complete: {told}"


def about(outcome: Outcome) -> Iterator[str]:
    """What to know before comparing, a sentence each."""
    grid, scale = outcome.grid, SCALES[outcome.grid.scale]
    seeds = ", ".join(map(str, scale.seeds))
    yield f"Scale {scale.name}: {scale.decides}."
    if outcome.wanted:
        yield f"Arms have in common: {grid.compute}. Ours: median over seeds ({seeds}), with lowest and highest."
    yield from grid.notes
    rates = {one.row.label: one.row.arm.recipe.optimizer.learning_rate for one in outcome.rows if one.row.arm}
    if len(set(rates.values())) > 1:
        yield f"Peak rates differ: {', '.join(f'{label} {rate:g}' for label, rate in rates.items())}."
    for row in outcome.rows:
        yield from (f"Given up: {line}." for line in row.given_up)


def sentence(judged: Judged, outcome: Outcome) -> str:
    """A claim, what became of it, and by which figures."""
    asked = {column.name for column in outcome.grid.columns if column.kind != "parameters"}
    if judged.verdict == "not asked" and outcome.is_partial and asked.intersection(judged.claim.columns):
        return f"{judged.claim.sentence} — not known yet, for its runs are not done."
    labels = {one.row.name: one.row.label for one in outcome.rows}
    figures = "; ".join(one.figures(labels) for one in judged.contrasts if one.difference is not None)
    return f"{judged.claim.sentence} — {judged.words}." + (f" {figures}." if figures else "")


def sentences(outcome: Outcome) -> list[str]:
    """One for each claim that the paper makes of a table."""
    return [sentence(judge(claim, outcome.scores), outcome) for claim in outcome.grid.claims]


def body(outcome: Outcome) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table as text: each column of the paper's followed by ours."""
    grid = outcome.grid
    head = [""]
    for column in grid.columns:
        head += [f"{heading(column)}: paper", "ours"]
    rows = []
    for one in outcome.rows:
        same = one.row.label.casefold() == one.row.name.casefold()
        label = one.row.label if same else f"{one.row.label} (paper: {one.row.name})"
        line = [label]
        for column in grid.columns:
            line += [published(one.row, column), ours(one.cells[column.name], column)]
        rows.append(line)
    if outcome.constant:
        line = [CONSTANT]
        for column in grid.columns:
            constant = outcome.constant.get(column.name)
            line += ["", "" if constant is None else f"{constant:.1f}"]
        rows.append(line)
    return head, rows


def side_by_side(outcome: Outcome) -> tuple[list[str], list[list[str]]]:
    """The same, without the paper's half of a column of which the paper says nothing."""
    head, rows = body(outcome)
    kept = [place for place in range(len(head)) if place % 2 == 0 or any(row[place] for row in rows)]
    names = [
        f"{head[place - 1].removesuffix('paper')}ours" if place and place % 2 == 0 and place - 1 not in kept else name
        for place, name in enumerate(head)
    ]
    return [names[place] for place in kept], [[row[place] for place in kept] for row in rows]


def besides(grid: Grid) -> tuple[list[str], list[list[str]]]:
    """What the paper's table has in columns that this scale does not; no rows where there are none."""
    told = {column.published or column.name for column in grid.columns}
    names = list(dict.fromkeys(name for row in grid.rows for name in row.scores if name not in told))
    average = any(row.average is not None for row in grid.rows) and "average" not in told
    head = ["", *names, *(["average"] if average else [])]
    rows = []
    for row in grid.rows if len(head) > 1 else ():
        line = [row.name, *(f"{row.scores[name]:g}" if name in row.scores else "" for name in names)]
        rows.append(line + ([f"{row.average:g}" if row.average is not None else ""] if average else []))
    return head, rows


def markdown(outcome: Outcome, picture: str | None = None) -> str:
    """The whole report of a table."""
    lines = [f"# {outcome.grid.table}: {outcome.grid.title}", "", f"{progress_of(outcome).capitalize()}."]
    lines += [line for fact in about(outcome) for line in ("", fact)]
    if outcome.grid.columns:
        lines += ["", *_pipes(*side_by_side(outcome))]
    found = sentences(outcome)
    if found:
        lines += ["", "## What the paper claims", "", *(f"- {one}" for one in found)]
    if picture is not None:
        lines += ["", f"![{outcome.grid.title}]({picture})"]
    head, rows = besides(outcome.grid)
    if rows:
        lines += ["", "## What the paper has besides", "", *_pipes(head, rows)]
    return "\n".join(lines) + "\n"


def as_csv(outcome: Outcome) -> str:
    """A line for each row and column, the paper's columns that are not run here included."""
    grid, text = outcome.grid, io.StringIO()
    writer = csv.DictWriter(text, CSV_COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for one in outcome.rows:
        place = {"table": grid.table, "scale": grid.scale, "row": one.row.name, "label": one.row.label}
        place["arm"] = "" if one.row.arm is None else one.row.arm.name
        for column in grid.columns:
            cell = one.cells[column.name]
            line = place | {"column": heading(column), "paper": published(one.row, column)}
            line |= {"seeds": str(len(cell.values)), "wanted": str(cell.wanted)}
            if cell.median is not None:
                low, high = cell.figures[0], cell.figures[-1]
                line |= {"median": f"{cell.median:.4f}", "lowest": f"{low:.4f}", "highest": f"{high:.4f}"}
            if column.name in outcome.constant:
                line["constant"] = f"{outcome.constant[column.name]:.4f}"
            writer.writerow(line)
    head, rows = besides(grid)
    for row in rows:
        for name, value in zip(head[1:], row[1:], strict=True):
            if value:
                place = {"table": grid.table, "scale": grid.scale, "row": row[0]}
                writer.writerow(place | {"column": name, "paper": value})
    return text.getvalue()


def write_report(outcome: Outcome, folder: Path, picture: str | None = None) -> tuple[Path, Path]:
    """Write `TABLE.md` and `TABLE.csv` into a folder; older ones are replaced."""
    paths = folder / f"{outcome.grid.table}.md", folder / f"{outcome.grid.table}.csv"
    write_text(paths[0], markdown(outcome, picture))
    write_text(paths[1], as_csv(outcome))
    return paths


def write_facts(facts: Facts, folder: Path) -> tuple[Path, Path]:
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
            axes.axvline(constant, **CONSTANT_LINE)
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
            axes.axhline(constant, **CONSTANT_LINE)
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
