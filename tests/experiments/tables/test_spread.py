"""Intervals of differences: textbook tests where they are textbook tests, and as often right as they say."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from albert.experiments.results import RunScore, difference, held_out_error


def scores(error=0.0, constant=None, **rows):
    return {
        row: {seed: RunScore(score, error, constant) for seed, score in enumerate(each)} for row, each in rows.items()
    }


def test_two_arms_are_the_paired_t_test():
    old, new = [50.0, 53.0, 51.0, 55.0], [52.5, 54.9, 53.1, 58.0]
    found = difference(scores(old=old, new=new), "new", "old")
    expected = stats.ttest_rel(new, old).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert (found.seeds, found.degrees) == (4, 3)


def test_a_constant_is_the_one_sample_t_test():
    own = [50.0, 53.0, 51.0, 55.0]
    found = difference(scores(constant=48.0, own=own), "own", None)
    expected = stats.ttest_1samp(np.array(own) - 48.0, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_further_arms_lend_their_degrees_of_freedom_and_a_missing_run_lends_none():
    two_seeds = {"a": [1.0, 2.0], "b": [3.0, 4.2], "c": [5.0, 6.1], "d": [7.0, 7.8]}
    found = difference(scores(**two_seeds), "b", "a")
    assert found.degrees == 3 and difference(scores(a=[1.0, 2.0], b=[3.0, 4.2]), "b", "a").degrees == 1
    short = {**two_seeds, "d": [7.0]}
    assert difference(scores(**short), "b", "a").degrees == 2
    assert difference(scores(**short), "d", "a").seeds == 1


def test_what_a_seed_does_to_all_arms_is_no_spread():
    lucky = np.array([0.0, 7.0, -3.0])
    found = difference(scores(a=list(50 + lucky), b=list(51 + lucky), c=list(40 + lucky)), "b", "a")
    assert (found.low, found.high) == pytest.approx((1.0, 1.0))


def test_intervals_hold_the_truth_as_often_as_they_say():
    """1,000 tables of four arms and two seeds; 95 % of 1,000 lie within 3 standard deviations: 929 to 971."""
    draws = np.random.default_rng(5)
    held = 0
    for _ in range(1000):
        seeds, arms = draws.normal(0, 2, 2), np.array([0.0, 1.5, 3.0, 10.0])
        table = arms[:, None] + seeds + draws.normal(0, 1, (4, 2))
        found = difference(scores(**{f"r{i}": row.tolist() for i, row in enumerate(table)}), "r1", "r0")
        held += found.low <= 1.5 <= found.high
    assert 929 <= held <= 971


def test_the_error_of_held_out_items_is_binomial():
    assert held_out_error(50, 2500) == pytest.approx(1.0)
    assert held_out_error(100, 10) == held_out_error(0, 10) == 0
    answers = np.random.default_rng(0).random((2000, 400)) < 0.3
    spread = (100 * answers.mean(1)).std()
    assert held_out_error(30, 400) == pytest.approx(spread, rel=0.1)


def test_errors_of_the_items_do_not_shrink_with_more_seeds():
    widths = []
    for seeds in (3, 30):
        same = {"a": [50.0] * seeds, "b": [60.0] * seeds}
        found = difference(scores(2.0, **same), "b", "a")
        widths.append(found.high - found.low)
    assert widths[0] == pytest.approx(widths[1]) == pytest.approx(2 * 1.959964 * math.hypot(2, 2))


def test_seeds_that_only_one_arm_has_are_left_out():
    rows = scores(old=[50.0, 51.0], new=[55.0, 56.0, 99.0])
    found = difference(rows, "new", "old")
    assert found.seeds == 2 and found.mean == pytest.approx(5.0)
    for first, second in itertools.permutations(rows, 2):
        assert difference(rows, first, second).mean == pytest.approx(-difference(rows, second, first).mean)
