"""A table's figure: ours and the paper's stand beside their own names."""

import pytest

from albert.experiments.grids import grid_of
from albert.experiments.jobs import Folders, open_study
from albert.experiments.report import draw_arms, draw_depth
from albert.experiments.results import read_outcome


def kept(table, checkout):
    """As it is kept in results/."""
    root = checkout / "results" / "tables-tiny"
    study = open_study(root, "tiny", ())
    return read_outcome(grid_of(table, study.declared), study.declared, study.fingerprints, Folders(root))


@pytest.fixture
def table_4(checkout):
    return kept("4", checkout)


def names(axes):
    return [label.get_text() for label in axes.get_yticklabels()]


def test_each_half_names_its_own_embedding_sizes(table_4):
    figure = draw_arms(table_4)
    panels = {axes.get_title(): axes for axes in figure.axes}
    sharing = ("all", "attention", "ffn", "none")
    assert names(panels["ours: masked tokens"]) == [f"E = {size}, {part}" for size in (128, 64) for part in sharing]
    assert names(panels["paper: sst-2"]) == [f"E = {size}, {part}" for size in (768, 128) for part in sharing]


@pytest.mark.parametrize(("table", "draw"), [("4", draw_arms), ("11", draw_depth)])
def test_the_constant_answer_is_named_once_outside_of_the_panels(table, draw, checkout):
    figure = draw(kept(table, checkout))
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a constant answer"]
    assert not any(axes.get_legend() for axes in figure.axes)


def test_depths_are_drawn_in_their_order_and_the_papers_average_comes_last(checkout):
    figure = draw_depth(kept("11", checkout))
    *ours, last = [axes for axes in figure.axes if axes.get_visible()]
    assert [label.get_text() for label in ours[0].get_xticklabels()][::4] == ["1 layer", "16 layers"]
    assert len(ours) == 5 and all(axes.get_title().startswith("ours: ") for axes in ours)
    assert all(high - low >= 5 for low, high in (axes.get_ylim() for axes in ours))
    assert last.get_title() == "paper: average" and len(last.lines[0].get_xdata()) == 6
