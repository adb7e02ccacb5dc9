"""Reports of tables: our figures beside the paper's as text, Markdown, CSV and pictures; tables that need no run."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albert.model.sizes import PUBLISHED_SIZES
from albert.recipes.architecture import PRESETS, EncoderConfig, bert_control
from albert.runtime.files import write_csv, write_text
from experiments.grids import COSTS, SCALES, SIZE_NAMES, TABLE_14, TEXT_TABLES, Column, Grid, Row, Scale
from experiments.results import Cell, Outcome, check_claim, count_as_paper

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
    rows = []
    notes = []
    berts = {f"bert-{size}": bert_control(scale.sizes[size]) for size in SIZE_NAMES[:2]}
    for preset, config in (berts | {f"albert-{size}": scale.sizes[size] for size in SIZE_NAMES}).items():
        paper = PRESETS[preset]
        size = PUBLISHED_SIZES[preset][0]
        exact = f"{count_as_paper(paper):,}"
        ours = f"{count_as_paper(config):,}"
        rows.append((preset, _shape(paper), size.stated, exact, _shape(config), ours))
        if size.counted is None:
            notes.append(f"{preset}, {size.stated}: {size.reason}.")
    return _text_table(
        "1", scale, rows, [*notes, f"Vocabulary at this scale: {scale.recipe.model.vocab_size:,} pieces."]
    )


def _shape(config: EncoderConfig) -> str:
    return f"{config.num_hidden_layers}, {config.hidden_size}, {config.embedding_size}"


def finetuning(scale: Scale) -> TextTable:
    """Table 14: the fine-tuning recipe of each task, in the paper and at a scale."""
    ours: dict[str, str] = {}
    for task in scale.tasks:
        recipe = task.full_recipe
        if recipe.epochs:
            updates = "1 epoch" if recipe.epochs == 1 else f"{recipe.epochs:g} epochs"
        else:
            updates = f"{recipe.steps}"
        if task.max_train_examples is not None:
            updates += f" of {task.max_train_examples:,} examples"
        length = f"{recipe.max_length} tokens"
        ours[task.task] = f"{recipe.learning_rate:.0e}, {recipe.batch_size}, {updates}, {length}"
    rows = []
    for task, paper in TABLE_14.items():
        rate, *others = paper.values()
        rows.append((task, f"{rate:.0e}", *(f"{value:g}" for value in others), ours.get(task, "not run")))
    return _text_table("14", scale, rows)


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
CONSTANT = "majority baseline"
CSV_COLUMNS: tuple[str, ...] = (
    "table", "scale", "row", "label", "variant", "column", "paper", "median", "lowest", "highest", "seeds", "wanted",
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
    return paper_score(row, column.published or column.name)


def paper_score(row: Row, name: str) -> str:
    """The paper's score of a row as text, empty if it has none."""
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
    grid = outcome.grid
    scale = SCALES[outcome.grid.scale]
    yield f"Scale {scale.name}: {scale.decides}."
    if outcome.wanted:
        seeds = ", ".join(map(str, range(max(map(len, outcome.keys.values())))))
        yield f"Variants have in common: {grid.compute}. Ours: median over seeds ({seeds}), with lowest and highest."
    yield from grid.notes
    rates = {row.label: row.variant.recipe.optimizer.learning_rate for row in grid.rows if row.variant}
    if len(set(rates.values())) > 1:
        yield f"Peak rates differ: {', '.join(f'{label} {rate:g}' for label, rate in rates.items())}."
    yield from (f"Failed: {line}." for line in outcome.failed)


def claim_sentences(outcome: Outcome) -> list[str]:
    """For each claim of the paper on this table: the claim, its verdict and the figures behind it."""
    score_columns = {column.name for column in outcome.grid.columns if column.kind != "parameters"}
    labels = {row.name: row.label for row in outcome.grid.rows}
    sentences = []
    for claim in outcome.grid.claims:
        result = check_claim(claim, outcome.scores)
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
    head = [""]
    columns = [[*labels, *([CONSTANT] if constant else [])]]
    for column in outcome.grid.columns:
        paper = [paper_figure(row, column) for row in outcome.grid.rows]
        ours = [our_figure(outcome.cells[row.name, column.name], column) for row in outcome.grid.rows]
        if constant:
            paper.append("")
            ours.append(f"{constant[column.name]:.1f}" if column.name in constant else "")
        if both or any(paper):
            head = [*head, f"{heading(column)}: paper", "ours"]
            columns = [*columns, paper, ours]
        else:
            head = [*head, f"{heading(column)}: ours"]
            columns = [*columns, ours]
    return head, [list(row) for row in zip(*columns, strict=True)]


def paper_only_scores(grid: Grid) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the paper's columns that are not measured at this scale."""
    shown = {column.published or column.name for column in grid.columns}
    names = [name for name in grid.names() if name not in shown]
    return ["", *names], [[row.name, *(paper_score(row, name) for name in names)] for row in grid.rows if names]


def markdown(outcome: Outcome, picture: str | None = None) -> str:
    """The report of a table as Markdown."""
    lines = [f"# {outcome.grid.table}: {outcome.grid.title}", "", f"{describe_progress(outcome).capitalize()}."]
    lines += [line for note in comparison_notes(outcome) for line in ("", note)]
    if outcome.grid.columns:
        lines += ["", *_markdown_table(*side_by_side(outcome))]
    sentences = claim_sentences(outcome)
    if sentences:
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
            record = {"row": row.name, "label": row.label, "variant": row.variant.name if row.variant else ""}
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
