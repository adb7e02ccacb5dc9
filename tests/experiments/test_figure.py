"""Figures of tables: our scores and the paper's."""

from dataclasses import replace

import pytest
from experiments.grids import grid_of
from experiments.jobs import Folders, open_study
from experiments.pictures import draw_depth, draw_variants
from experiments.results import Cell, RunScore, read_outcome


@pytest.fixture
def outcome(tmp_path):
    """A table at the scale tiny in which every score of ours is known, with two seeds."""
    study = open_study(tmp_path, "tiny", (), "cpu")

    def filled(table: str):
        grid = grid_of(table, study.declared)
        empty = read_outcome(grid, study.declared, study.fingerprints, Folders(tmp_path))
        cells = dict(empty.cells)
        for number, row in enumerate(grid.rows):
            for column in grid.columns:
                if row.variant is not None and column.kind in ("intrinsic", "downstream"):
                    values = {seed: RunScore(50.0 + number + seed / 10, constant=40.0) for seed in (0, 1)}
                    cells[row.name, column.name] = Cell(values, 2)
        return replace(empty, cells=cells)

    return filled


def test_figure_labels_rows_of_paper_and_scale(outcome):
    panels = {axes.get_title(): axes for axes in draw_variants(outcome("4")).axes}
    for title, sizes in (("ours: masked tokens", (128, 64)), ("paper: sst-2", (768, 128))):
        labels = [label.get_text() for label in panels[title].get_yticklabels()]
        sharing = ("all", "attention", "ffn", "none")
        assert labels == [f"E = {size}, {shared}" for size in sizes for shared in sharing]


@pytest.mark.parametrize(("table", "draw"), [("4", draw_variants), ("11", draw_depth)])
def test_figure_has_one_legend_for_the_constant_answer(table, draw, outcome):
    figure = draw(outcome(table))
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["majority baseline"]
    assert not any(axes.get_legend() for axes in figure.axes)


def test_depth_figure_orders_rows_and_panels(outcome):
    *ours, last = [axes for axes in draw_depth(outcome("11")).axes if axes.get_visible()]
    assert [label.get_text() for label in ours[0].get_xticklabels()][::4] == ["1 layer", "16 layers"]
    assert len(ours) == 5 and all(axes.get_title().startswith("ours: ") for axes in ours)
    assert all(high - low >= 5 for low, high in (axes.get_ylim() for axes in ours))
    assert last.get_title() == "paper: average" and len(last.lines[0].get_xdata()) == 6
