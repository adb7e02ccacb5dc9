"""The learning rate rises linearly to its peak and falls linearly to zero."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.recipes.optimizer import warmup_then_linear
from albert.recipes.pretraining import ScheduleRecipe

PEAK, WARMUP, TOTAL = 0.00176, 3125, 125_000
lengths = st.integers(1, 300).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total)))


@given(lengths, st.floats(0, 1))
def test_the_rate_rises_to_its_peak_and_falls_to_zero_after_the_last_update(length, budget_used):
    """The default schedule does not depend on the budget."""
    warmup, total = length
    schedule = ScheduleRecipe(total_steps=total, warmup_steps=warmup)
    for step in range(total):
        rate = warmup_then_linear(step, 1.0, warmup, total)
        expected = (step + 1) / warmup if step < warmup else 1 - (step - warmup) / (total - warmup)
        assert rate == pytest.approx(expected)
        assert schedule.learning_rate(step, 1.0, budget_used) == rate
    assert warmup_then_linear(total, 1.0, warmup, total) == 0.0


def test_the_papers_schedule_does_not_drop_at_its_peak():
    assert warmup_then_linear(0, PEAK, WARMUP, TOTAL) == pytest.approx(PEAK / WARMUP)
    assert warmup_then_linear(WARMUP, PEAK, WARMUP, TOTAL) == PEAK
    assert warmup_then_linear(TOTAL - 1, PEAK, WARMUP, TOTAL) == pytest.approx(PEAK / (TOTAL - WARMUP))
    assert ScheduleRecipe() == ScheduleRecipe(total_steps=TOTAL, warmup_steps=WARMUP)


def test_a_decay_share_keeps_the_peak_until_the_last_part_of_the_run():
    schedule = ScheduleRecipe(total_steps=100, warmup_steps=10, decay_share=0.2)
    rates = [schedule.learning_rate(step, 1.0) for step in range(101)]
    assert rates[9:81] == [1.0] * 72
    assert rates[90] == pytest.approx(0.5) and rates[100] == 0.0


def test_the_rate_follows_a_budget_that_ends_the_run_first():
    schedule = ScheduleRecipe(total_steps=1000, warmup_steps=10, anneal="budget")
    assert schedule.learning_rate(4, 1.0, 0.05) == pytest.approx(0.5)  # warming up
    assert schedule.learning_rate(4, 1.0, 0.08) == pytest.approx(0.8)  # a tenth of the budget ends the warm-up
    assert schedule.learning_rate(4, 1.0, 0.1) == pytest.approx(0.9)
    assert schedule.learning_rate(20, 1.0, 0.25) == pytest.approx(0.75)
    assert schedule.learning_rate(30, 1.0, 1.0) == 0.0
