"""Reports of tables: ours beside the paper's as text, Markdown and CSV; tables without runs; export of results."""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from albert.experiments.grids import SCALES, TABLE_14, Column, Grid, Row, Scale, Size
from albert.experiments.price import COSTS, Rates, implied_watts, price_and_energy
from albert.experiments.results import Cell, Judged, Outcome, judge
from albert.experiments.sizes import PUBLISHED_SIZES
from albert.model.config import PRESETS, AlbertConfig, bert_control
from albert.model.cost import count_parameters
from albert.runtime.files import write_csv, write_text
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
