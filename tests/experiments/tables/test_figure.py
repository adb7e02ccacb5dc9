"""A table's figure: ours and the paper's stand beside their own names."""

import pytest

from albert.experiments.tables.figure import draw_arms
from albert.experiments.tables.folders import Folders
from albert.experiments.tables.grids import grid_of
from albert.experiments.tables.outcomes import outcome_of
from albert.experiments.tables.study import study_of


@pytest.fixture
def table_4(checkout):
    """As it is kept in results/."""
    root = checkout / "results" / "tables-tiny"
    study = study_of(root, "tiny", ())
    return outcome_of(grid_of("4", study.declared), study.declared, study.fingerprints, Folders(root))


def names(axes):
    return [label.get_text() for label in axes.get_yticklabels()]


def test_each_half_names_its_own_embedding_sizes(table_4):
    figure = draw_arms(table_4)
    panels = {axes.get_title(): axes for axes in figure.axes}
    sharing = ("all", "attention", "ffn", "none")
    assert names(panels["ours: masked tokens"]) == [f"E = {size}, {part}" for size in (128, 64) for part in sharing]
    assert names(panels["paper: sst-2"]) == [f"E = {size}, {part}" for size in (768, 128) for part in sharing]


def test_the_constant_answer_is_named_once_outside_of_the_panels(table_4):
    figure = draw_arms(table_4)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a constant answer"]
    assert not any(axes.get_legend() for axes in figure.axes)
