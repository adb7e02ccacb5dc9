"""The experiments as data: every table is there, with equal compute, measured columns and the paper's sizes."""

import tomllib
from pathlib import Path

import pytest

from albert.cli.main import run
from albert.experiments import grids
from albert.experiments.grids import GRIDS, PAPER, SCALES, TINY, Grid, grid_of
from albert.experiments.jobs import Folders, open_study
from albert.experiments.report import STATIC_TABLES, write_report
from albert.experiments.results import read_outcome
from albert.experiments.sizes import PUBLISHED_SIZES
from albert.model.config import PRESETS
from albert.model.cost import count_parameters
from albert.runtime.errors import UsageError

ROOT = Path(__file__).resolve().parents[3]
EVERY = [(scale, table) for scale in SCALES.values() for table in GRIDS]
GRID = pytest.mark.parametrize(
    "grid", [pytest.param(grid_of(table, scale), id=f"{scale.name}-{table}") for scale, table in EVERY]
)


def test_every_table_and_figure_of_the_paper_is_declared():
    tables = {str(number) for number in range(1, 15)}
    seeds = {"degradation", "v2", "race", "cost"}
    figures = {"figure-1", "figure-2a", "figure-2b"}
    assert set(GRIDS) | set(STATIC_TABLES) == tables | seeds | figures | {"9-ensembles"}


@GRID
def test_a_grid_says_what_it_is(grid: Grid):
    assert grid.title and len({row.name for row in grid.rows}) == len(grid.rows) > 0
    assert len({column.name for column in grid.columns}) == len(grid.columns)
    assert (grid.compute == "none") == (not list(grid.arms()))
    assert all(row.scores for row in grid.rows) or grid.table.startswith("figure")
    named = {name for row in grid.rows for name in row.scores}
    for column in grid.columns:
        assert column.published is None or column.published in named


@GRID
def test_arms_of_a_table_have_the_same_compute(grid: Grid):
    recipes = [one.recipe for one in grid.arms()]
    assert len({(recipe.batch_size, recipe.sequences.max_length) for recipe in recipes}) <= 1
    if grid.compute == "equal updates":
        assert len({(recipe.schedule, recipe.max_tokens, recipe.max_minutes) for recipe in recipes}) == 1


@GRID
def test_columns_are_measured_by_the_scale(grid: Grid):
    learnt = {task.task: task for task in SCALES[grid.scale].tasks}
    for column in grid.columns:
        if column.kind == "downstream":
            assert learnt[column.source].columns[column.name] == column.score


def test_at_the_papers_scale_parameters_are_those_of_its_tables():
    counted = 0
    for table in GRIDS:
        for row in grid_of(table, PAPER).rows:
            if row.arm is None or row.preset is None:
                continue
            ours, theirs = count_parameters(row.arm.recipe.model), count_parameters(PRESETS[row.preset])
            assert ours == theirs, (table, row.name)
            for size in PUBLISHED_SIZES[row.preset]:
                if size.counted is not None and size.stated.endswith("M"):
                    exact = size.count(row.arm.recipe.model)
                    assert round(exact / 1e6) == size.millions
                    counted += 1
    assert counted > 40


def test_an_unknown_table_is_refused_with_the_closest():
    with pytest.raises(UsageError, match="figure-1"):
        grid_of("figure1", TINY)


def test_a_new_table_is_one_entry(monkeypatch, tmp_path, capsys):
    """Declared as in `paper.toml`, it is planned, shown beside the paper's figures and judged."""
    declared = """
        name = "A"
        title = "One layer, and {flagship}"
        columns = ["parameters", "scores"]
        paper = ["sst-2"]
        compute = "equal updates"
        figure = "arms"
        rows = [{name = "one", label = "{layers} layers", run = {layers = "depths.1"}, figures = [80.8]},
                {name = "all", run = {}, preset = "albert-base", figures = [90.3]}]
        claims = [{sentence = "More layers are better.", contrasts = [["all", "higher", "one"]]}]
    """
    monkeypatch.setitem(grids.GRIDS, "A", tomllib.loads(declared))
    grid = grid_of("A", TINY)
    assert grid.title == "One layer, and base"
    assert [(row.label, row.arm.name) for row in grid.rows] == [("1 layer", "albert-base-L1"), ("all", "albert-base")]
    assert run(["tables", "show", "A", "--output", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "80.8" in shown and "More layers are better. — not known yet" in shown and "0 of 4 pre-trainings" in shown


def test_published_results_are_reproduced_byte_for_byte(tmp_path):
    """Markdown and CSV of results/tables-tiny: keys of runs, figures, claims and verdicts."""
    root = ROOT / "results" / "tables-tiny"
    study = open_study(root, "tiny", ())
    reports = list((root / "tables").glob("*.md"))
    assert len(reports) > 7
    for path in reports:
        outcome = read_outcome(grid_of(path.stem, study.declared), study.declared, study.fingerprints, Folders(root))
        for written in write_report(outcome, tmp_path, f"{path.stem}.png"):
            assert written.read_bytes() == path.with_suffix(written.suffix).read_bytes()
