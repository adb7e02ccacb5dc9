"""The learning rate: up in a line, down in a line, and the two meet."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.optim.recipe import ScheduleRecipe, warmup_then_linear

PEAK, WARMUP, TOTAL = 0.00176, 3125, 125_000
lengths = st.integers(1, 300).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total)))


def rates(warmup, total, peak=1.0):
    return [warmup_then_linear(step, peak, warmup, total) for step in range(total)]


@given(lengths)
def test_it_rises_in_a_line_to_the_peak(length):
    warmup, total = length
    for step, rate in enumerate(rates(warmup, total)[:warmup]):
        assert rate == pytest.approx((step + 1) / warmup)


@given(lengths)
def test_it_falls_in_a_line_to_zero_just_after_the_last_update(length):
    warmup, total = length
    falling = rates(warmup, total)[warmup:]
    for step, rate in enumerate(falling):
        assert rate == pytest.approx(1 - step / (total - warmup))
    assert warmup_then_linear(total, 1.0, warmup, total) == 0.0


def test_the_paper_s_schedule_reaches_its_peak_where_the_reference_drops():
    assert warmup_then_linear(0, PEAK, WARMUP, TOTAL) == pytest.approx(PEAK / WARMUP)
    assert warmup_then_linear(WARMUP, PEAK, WARMUP, TOTAL) == PEAK
    assert warmup_then_linear(TOTAL - 1, PEAK, WARMUP, TOTAL) == pytest.approx(PEAK / (TOTAL - WARMUP))
    assert ScheduleRecipe() == ScheduleRecipe(total_steps=TOTAL, warmup_steps=WARMUP)


def test_the_rate_falls_over_the_last_share_only():
    schedule = ScheduleRecipe(total_steps=100, warmup_steps=10, decay_share=0.2)
    rates_ = [schedule.learning_rate(step, 1.0) for step in range(101)]
    assert rates_[9:81] == [1.0] * 72
    assert rates_[90] == pytest.approx(0.5) and rates_[100] == 0.0


def test_the_rate_follows_the_budget_where_that_ends_the_run_first():
    schedule = ScheduleRecipe(total_steps=1000, warmup_steps=10, anneal="budget")
    assert schedule.learning_rate(4, 1.0, 0.1) == pytest.approx(0.5)  # warming up
    assert schedule.learning_rate(20, 1.0, 0.25) == pytest.approx(0.75)
    assert schedule.learning_rate(30, 1.0, 1.0) == 0.0
    by_steps = ScheduleRecipe(total_steps=1000, warmup_steps=10)
    assert by_steps.learning_rate(30, 1.0, 1.0) == warmup_then_linear(30, 1.0, 10, 1000)


@given(lengths, st.floats(0, 1))
def test_the_default_schedule_is_the_paper_s_whatever_the_budget(length, used):
    warmup, total = length
    schedule = ScheduleRecipe(total_steps=total, warmup_steps=warmup)
    assert [schedule.learning_rate(step, PEAK, used) for step in range(total)] == rates(warmup, total, PEAK)
