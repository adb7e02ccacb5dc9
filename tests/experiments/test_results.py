"""Intervals of differences, and the verdicts on claims that follow from them."""

import math

import numpy as np
import pytest
from experiments.grids import Claim, Contrast
from experiments.results import Difference, RunScore, check_claim, contrast_verdict, difference, held_out_error
from scipy import stats


def scores(error=0.0, constant=None, **rows):
    return {
        row: {seed: RunScore(score, error, constant) for seed, score in enumerate(own)} for row, own in rows.items()
    }


def test_two_arms_give_the_paired_t_test():
    old, new = [50.0, 53.0, 51.0, 55.0], [52.5, 54.9, 53.1, 58.0]
    found = difference(scores(old=old, new=new), "new", "old")
    expected = stats.ttest_rel(new, old).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert (found.seeds, found.degrees) == (4, 3)


def test_constant_gives_the_one_sample_t_test():
    values = [50.0, 53.0, 51.0, 55.0]
    found = difference(scores(constant=48.0, row=values), "row", None)
    expected = stats.ttest_1samp(np.array(values) - 48.0, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_degrees_of_freedom_come_from_complete_arms():
    rows = {"a": [1.0, 2.0], "b": [3.0, 4.2], "c": [5.0, 6.1], "d": [7.0, 7.8]}
    assert difference(scores(**rows), "b", "a").degrees == 3
    assert difference(scores(a=rows["a"], b=rows["b"]), "b", "a").degrees == 1
    incomplete = scores(**{**rows, "d": [7.0]})
    assert difference(incomplete, "b", "a").degrees == 2
    assert difference(incomplete, "d", "a").seeds == 1


def test_intervals_have_their_nominal_coverage():
    """1,000 tables of four variants and two seeds; 95 % of 1,000 lie within 3 standard deviations: 929 to 971."""
    random = np.random.default_rng(5)
    covered = 0
    for _ in range(1000):
        seeds, variants = random.normal(0, 2, 2), np.array([0.0, 1.5, 3.0, 10.0])
        table = variants[:, None] + seeds + random.normal(0, 1, (4, 2))
        found = difference(scores(**{f"r{i}": row.tolist() for i, row in enumerate(table)}), "r1", "r0")
        covered += found.low <= 1.5 <= found.high
    assert 929 <= covered <= 971


def test_held_out_error_is_binomial():
    assert held_out_error(50, 2500) == pytest.approx(1.0)
    assert held_out_error(100, 10) == held_out_error(0, 10) == 0
    answers = np.random.default_rng(0).random((2000, 400)) < 0.3
    assert held_out_error(30, 400) == pytest.approx((100 * answers.mean(1)).std(), rel=0.1)


def test_item_error_does_not_shrink_with_seeds():
    for seeds in (3, 30):
        found = difference(scores(2.0, a=[50.0] * seeds, b=[60.0] * seeds), "b", "a")
        assert found.high - found.low == pytest.approx(2 * 1.959964 * math.hypot(2, 2))


# --------------------------------------------------------------------------------------------------------------------
# Verdicts

BETTER = Claim(sentence="New is better than old.", contrasts=(Contrast("new", "higher", "old"),), columns=("score",))
CHAIN = Claim(
    sentence="Each is better than the one before.",
    contrasts=(Contrast("b", "higher", "a"), Contrast("c", "higher", "b")),
    columns=("score",),
)
RISING = {"a": [10.0, 10.2, 10.1], "b": [20.0, 20.1, 20.2], "c": [30.1, 30.0, 30.2]}
STEADY = {"old": [50.0, 50.1, 50.0], "new": [51.0, 51.1, 51.0]}
GAIN = {"old": [50.0, 51.0, 50.5], "new": [55.1, 55.9, 55.6]}


@pytest.mark.parametrize(
    ("claim", "error", "rows", "verdict"),
    [
        (BETTER, 0.0, GAIN, "reproduced"),
        (BETTER, 0.0, {"old": GAIN["new"], "new": GAIN["old"]}, "not reproduced"),
        (BETTER, 0.0, {"old": [50.0, 51.0, 52.0], "new": [50.11, 51.1, 52.09]}, "not reproduced"),  # too small
        (BETTER, 0.0, {"old": [50.0, 54.0, 52.0], "new": [55.0, 52.0, 56.0]}, "inconclusive"),  # within the spread
        (BETTER, 0.0, STEADY, "reproduced"),
        (BETTER, held_out_error(50, 872), STEADY, "inconclusive"),
        (BETTER, held_out_error(50, 100_000), STEADY, "reproduced"),
        (CHAIN, 0.0, RISING, "reproduced"),
        (CHAIN, 0.0, {**RISING, "c": [15.0, 15.1, 15.2]}, "not reproduced"),
        (CHAIN, 0.0, {**RISING, "c": [19.9, 20.3, 20.6]}, "inconclusive"),
    ],
)
def test_verdict_of_a_claim(claim, error, rows, verdict):
    assert check_claim(claim, {"score": scores(error, **rows)}).verdict == verdict


@pytest.mark.parametrize(
    ("low", "high", "higher", "not_higher", "alike"),
    [
        (0.1, 0.9, "reproduced", "not reproduced", "inconclusive"),
        (0.6, 0.9, "reproduced", "not reproduced", "not reproduced"),
        (0.1, 0.4, "not reproduced", "reproduced", "reproduced"),
        (-0.4, 0.4, "not reproduced", "reproduced", "reproduced"),
        (-0.9, 0.4, "not reproduced", "reproduced", "inconclusive"),
        (-2.0, -1.0, "not reproduced", "reproduced", "not reproduced"),
        (-0.4, 0.9, "inconclusive", "inconclusive", "inconclusive"),
    ],
)
def test_verdict_of_an_interval(low, high, higher, not_higher, alike):
    found = Difference((low + high) / 2, low, high, seeds=3, degrees=2)
    verdicts = [contrast_verdict(relation, found, 0.5) for relation in ("higher", "not higher", "alike")]
    assert verdicts == [higher, not_higher, alike]


def test_one_seed_is_inconclusive():
    result = check_claim(BETTER, {"score": scores(old=[20.0], new=[90.0])})
    assert result.verdict == "inconclusive" and "one seed" in result.words
    assert "one seed" in result.contrasts[0].figures()


def test_contrast_with_the_constant_answer():
    claim = Claim(
        sentence="It learns nothing.", contrasts=(Contrast("it", "not higher"),), columns=("score",), smallest=3.0
    )
    others = [90.0, 90.5, 89.9]
    chance = scores(constant=50.0, it=[50.4, 49.8, 50.3], other=others)
    assert check_claim(claim, {"score": chance}).verdict == "reproduced"
    result = check_claim(claim, {"score": scores(constant=50.0, it=[58.0, 57.5, 58.3], other=others)})
    assert result.verdict == "not reproduced" and "the majority baseline" in result.contrasts[0].figures()


def test_figures_use_labels_of_the_scale():
    [contrast] = check_claim(BETTER, {"score": scores(old=[20.0, 21.0], new=[90.0, 91.0])}).contrasts
    assert contrast.figures().startswith("new against old: +70.00 points")
    assert contrast.figures({"new": "E = 128"}).startswith("E = 128 against old: +70.00 points")


def test_missing_columns_and_rows_are_not_tested():
    assert check_claim(BETTER, {"another": scores(old=[1.0], new=[2.0])}).verdict == "not tested"
    result = check_claim(BETTER, {"score": scores(old=[1.0, 2.0])})
    assert result.verdict == "not tested" and "new against old: not run" in result.words


def test_first_measured_column_is_used():
    claim = Claim(sentence="x", contrasts=BETTER.contrasts, columns=("average", "score"))
    good, bad = scores(old=[1.0, 1.1], new=[9.0, 9.1]), scores(old=[9.0, 9.1], new=[1.0, 1.1])
    assert check_claim(claim, {"score": good}).verdict == "reproduced"
    result = check_claim(claim, {"score": good, "average": bad})
    assert (result.verdict, result.column) == ("not reproduced", "average")
    assert check_claim(claim, {"score": good, "average": {"old": {}, "new": {}}}).column == "score"


def test_claims_at_equal_time_check_the_time():
    claim = Claim(sentence="x", contrasts=BETTER.contrasts, columns=("score",), equal="hours")
    gain = scores(**GAIN)
    assert check_claim(claim, {"score": gain, "hours": scores(old=[10.0], new=[10.9])}).verdict == "reproduced"
    result = check_claim(claim, {"score": gain, "hours": scores(old=[10.0], new=[13.0])})
    assert result.verdict == "inconclusive" and "hours are not equal: new 13, old 10" in result.words
    assert "not known" in check_claim(claim, {"score": gain}).words
