"""The experiments as data: every table is there, with equal compute, measured columns and the paper's sizes."""

import pytest

from albert.experiments.grid import Grid
from albert.experiments.grids import GRIDS, grid_of
from albert.experiments.published import PUBLISHED_TABLES
from albert.experiments.published_sizes import PUBLISHED_SIZES
from albert.experiments.report import FACTS
from albert.experiments.scales import PAPER, SCALES, TINY
from albert.model.config import PRESETS
from albert.model.cost import count_parameters
from albert.runtime.errors import UsageError

EVERY = [(scale, table) for scale in SCALES.values() for table in GRIDS]
GRID = pytest.mark.parametrize(
    "grid", [pytest.param(grid_of(table, scale), id=f"{scale.name}-{table}") for scale, table in EVERY]
)


def test_every_table_and_figure_of_the_paper_is_declared():
    tables = {str(number) for number in range(1, 15)}
    seeds = {"degradation", "v2", "race", "cost"}
    figures = {"figure-1", "figure-2a", "figure-2b"}
    assert set(GRIDS) | set(FACTS) == tables | seeds | figures | {"9-ensembles"}
    shown = [grid_of(table, PAPER).published for table in GRIDS]
    assert {table.name for table in shown if table is not None} >= set(PUBLISHED_TABLES)


@GRID
def test_a_grid_says_what_it_is(grid: Grid):
    assert grid.title and len({row.name for row in grid.rows}) == len(grid.rows) > 0
    assert len({column.name for column in grid.columns}) == len(grid.columns)
    assert (grid.compute == "none") == (not list(grid.arms()))
    if grid.published is not None:
        assert {row.name for row in grid.rows} == {row.arm for row in grid.published.rows}
        named = {name for row in grid.published.rows for name in row.scores}
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
                    exact = size.exact(row.arm.recipe.model)
                    assert round(exact / 1e6) == size.millions
                    counted += 1
    assert counted > 40


def test_an_unknown_table_is_refused_with_the_closest():
    with pytest.raises(UsageError, match="figure-1"):
        grid_of("figure1", TINY)
