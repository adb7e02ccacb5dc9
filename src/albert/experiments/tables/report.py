"""A table for people and for programmes: ours beside the paper's, seeds and spread, and a sentence for each claim."""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from albert.experiments.published_sizes import PUBLISHED_SIZES
from albert.experiments.tables.claims import CLAIMS
from albert.experiments.tables.columns import Column
from albert.experiments.tables.facts import Facts
from albert.experiments.tables.grid import Grid, Row
from albert.experiments.tables.judgement import Judged, judge
from albert.experiments.tables.outcomes import Cell, Outcome
from albert.experiments.tables.scales import SCALES
from albert.runtime.durable_files import write_text

DECIMALS = {"intrinsic": 1, "downstream": 1, "average": 1, "parameters": 1, "speed-up": 2, "hours": 2, "layers": 1}
UNITS = {"parameters": "parameters, million", "speed-up": "speed of training", "hours": "hours of training"}
CONSTANT = "a constant answer"
CSV_COLUMNS: tuple[str, ...] = (
    "table", "scale", "row", "label", "arm", "column", "paper", "median", "lowest", "highest", "seeds", "wanted",
    "constant",
)  # fmt: skip


def judgements(outcome: Outcome) -> tuple[Judged, ...]:
    """The paper's claims of a table, each held against what there is."""
    return tuple(judge(claim, outcome.scores) for claim in CLAIMS.get(outcome.grid.table, ()))


def heading(column: Column) -> str:
    """What a column is called."""
    return UNITS.get(column.kind, column.name)


def published(grid: Grid, row: Row, column: Column) -> str:
    """The paper's figure as it is printed; empty where it has none."""
    if column.kind == "parameters":
        sizes = PUBLISHED_SIZES.get(row.preset or "", ())
        return sizes[0].stated.removesuffix("M") if sizes else ""
    found = grid.published_row(row.name)
    if found is None:
        return ""
    value = found.average if column.kind == "average" else found.scores.get(column.published or column.name)
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
    return [sentence(judged, outcome) for judged in judgements(outcome)]


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
            line += [published(grid, one.row, column), ours(one.cells[column.name], column)]
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
    paper = () if grid.published is None else grid.published.rows
    names = list(dict.fromkeys(name for row in paper for name in row.scores if name not in told))
    average = any(row.average is not None for row in paper) and "average" not in told
    head = ["", *names, *(["average"] if average else [])]
    rows = []
    for row in paper if len(head) > 1 else ():
        line = [row.arm, *(f"{row.scores[name]:g}" if name in row.scores else "" for name in names)]
        rows.append(line + ([f"{row.average:g}" if row.average is not None else ""] if average else []))
    return head, rows


def markdown(outcome: Outcome, picture: str | None = None) -> str:
    """The whole report of a table.

    Args:
        outcome: what there is of it.
        picture: the file of its figure, beside the report.
    """
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
            line = place | {"column": heading(column), "paper": published(grid, one.row, column)}
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
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([facts.head, *facts.rows])
    write_text(paths[1], text.getvalue())
    return paths


def _pipes(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for line in (head, ("---",) * len(head), *rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |"
