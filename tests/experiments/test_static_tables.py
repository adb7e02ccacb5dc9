"""Tables without runs: sizes, recipes, and the cost of pre-training."""

import pytest
from experiments.grids import COSTS, PAPER, SCALES, TABLE_14, TINY
from experiments.report import STATIC_TABLES, costs, finetuning, sizes

from albert.model.cost import count_parameters
from albert.recipes.architecture import PRESETS
from albert.tasks.submission import DECLARED


@pytest.mark.parametrize("scale", SCALES.values(), ids=list(SCALES))
@pytest.mark.parametrize("name", STATIC_TABLES)
def test_static_tables_are_rectangular(name, scale):
    table = STATIC_TABLES[name](scale)
    assert table.table == name and table.rows
    assert {len(row) for row in table.rows} == {len(table.head)}


@pytest.mark.parametrize("task", TABLE_14)
def test_recipes_are_those_of_table_14(task):
    paper, ours = TABLE_14[task], DECLARED[task].recipe
    assert paper["warmup"] == pytest.approx(ours.warmup_share * ours.steps)
    assert len(paper) == 7 and all(paper[name] == getattr(ours, name) for name in paper if name != "warmup")


def test_sizes_at_paper_scale_equal_table_1():
    for _model, paper_shape, _stated, paper_count, shape, count in sizes(PAPER).rows:
        assert (paper_shape, paper_count) == (shape, count)
    table = sizes(TINY)
    assert "11,683,584" in table.rows[2]
    reasons = " ".join(table.notes)
    assert "albert-xxlarge, 235M" in reasons and "albert-xlarge, 60M" in reasons and "albert-base" not in reasons


def test_table_1_has_the_sizes_of_bert_as_released():
    note = next(note for note in sizes(PAPER).notes if "as released" in note)
    for preset in ("bert-base-uncased", "bert-large-uncased"):
        count = count_parameters(PRESETS[preset])
        assert f"{count.encoder:,}" in note and f"{count.model:,}" in note


def test_table_14_marks_tasks_that_are_not_run():
    ours = {row[0]: row[-1] for row in finetuning(TINY).rows}
    assert ours["race"] == "not run" and "64 tokens" in ours["sst-2"] and "20,000 examples" in ours["qnli"]


@pytest.mark.parametrize("cost", COSTS, ids=[cost["model"] for cost in COSTS])
def test_published_costs_are_consistent(cost):
    hours = 24 * cost["days"] * cost["devices"]
    assert hours * cost["price"] == pytest.approx(cost["dollars"])


def test_costs_have_the_hours_of_our_runs():
    row = costs(TINY, {"albert-base": 0.5}).rows[-1]
    assert row == ("albert-base, scale tiny", "1 x this machine", "0.5", "", "")
