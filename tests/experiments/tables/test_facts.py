"""Tables without runs: the paper's figures beside exact ones, and money by a stated price."""

import pytest

from albert.experiments.grids import COSTS, PAPER, SCALES, TABLE_14, TINY
from albert.experiments.price import Rates
from albert.experiments.report import STATIC_TABLES, costs, finetuning, sizes
from albert.tasks.submission import DECLARED


@pytest.mark.parametrize("scale", SCALES.values(), ids=list(SCALES))
@pytest.mark.parametrize("table", STATIC_TABLES)
def test_every_row_has_a_cell_for_every_column(table, scale):
    facts = STATIC_TABLES[table](scale)
    assert facts.table == table and facts.rows
    assert {len(row) for row in facts.rows} == {len(facts.head)}


@pytest.mark.parametrize("task", TABLE_14)
def test_tasks_are_declared_with_the_recipes_of_table_14(task):
    paper, ours = TABLE_14[task], DECLARED[task].recipe
    assert paper["warmup"] == pytest.approx(ours.warmup_share * ours.steps)
    assert len(paper) == 7 and all(paper[name] == getattr(ours, name) for name in paper if name != "warmup")


def test_at_the_papers_scale_both_halves_of_table_1_agree():
    for _model, theirs, _stated, exact, ours, counted in sizes(PAPER).rows:
        assert (theirs, exact) == (ours, counted)
    assert "11,683,584" in sizes(TINY).rows[2]


def test_a_size_that_no_count_gives_has_its_reason():
    notes = " ".join(sizes(TINY).notes)
    assert "albert-xxlarge, 235M" in notes and "albert-xlarge, 60M" in notes and "albert-base" not in notes


def test_a_task_that_a_scale_does_not_learn_is_told_so():
    found = {row[0]: row[-1] for row in finetuning(TINY).rows}
    assert found["race"] == "not run" and "64 tokens" in found["sst-2"] and "20,000 examples" in found["qnli"]


@pytest.mark.parametrize("cost", COSTS, ids=[cost["model"] for cost in COSTS])
def test_the_talks_dollars_are_devices_times_hours_times_price(cost):
    assert 24 * cost["days"] * cost["devices"] * cost["price"] == pytest.approx(cost["dollars"])


def test_without_a_price_nothing_is_said_about_money():
    row = costs(TINY, {"albert-base": 0.5}).rows[-1]
    assert row[0] == "albert-base, scale tiny" and row[2:] == ("0.5", "", "", "")
    row = costs(TINY, {"albert-base": 0.5}, Rates(price_per_hour=3, watts=100)).rows[-1]
    assert row[2:] == ("0.5", "1.50", "0.08", "100 W")
