"""Verdicts on made-up scores: all three, by the interval that is stated, and never from one seed."""

import pytest

from albert.experiments.grids import Claim, Contrast
from albert.experiments.results import Difference, RunScore, contrast_verdict, held_out_error, judge

BETTER = Claim(sentence="New is better than old.", contrasts=(Contrast("new", "higher", "old"),), columns=("score",))


def scores(error=0.0, constant=None, **rows):
    return {
        row: {seed: RunScore(score, error, constant) for seed, score in enumerate(each)} for row, each in rows.items()
    }


def verdict(claim=BETTER, error=0.0, **rows):
    return judge(claim, {"score": scores(error, **rows)}).verdict


def test_a_clear_gain_over_three_seeds_is_reproduced():
    assert verdict(old=[50.0, 51.0, 50.5], new=[55.1, 55.9, 55.6]) == "reproduced"


def test_a_clear_loss_is_not_reproduced_and_so_is_a_gain_too_small_to_count():
    assert verdict(old=[55.1, 55.9, 55.6], new=[50.0, 51.0, 50.5]) == "not reproduced"
    assert verdict(old=[50.0, 51.0, 52.0], new=[50.11, 51.1, 52.09]) == "not reproduced"


def test_a_gain_within_the_spread_of_seeds_is_inconclusive():
    assert verdict(old=[50.0, 54.0, 52.0], new=[55.0, 52.0, 56.0]) == "inconclusive"


def test_a_gain_within_the_error_of_the_held_out_items_is_inconclusive_however_alike_the_seeds():
    steady = {"old": [50.0, 50.1, 50.0], "new": [51.0, 51.1, 51.0]}
    assert verdict(**steady) == "reproduced"
    assert verdict(error=held_out_error(50, 872), **steady) == "inconclusive"
    assert verdict(error=held_out_error(50, 100_000), **steady) == "reproduced"


def test_one_seed_is_never_enough():
    judged = judge(BETTER, {"score": scores(old=[20.0], new=[90.0])})
    assert judged.verdict == "inconclusive" and "one seed" in judged.words
    assert "one seed" in judged.contrasts[0].figures()


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
def test_every_place_of_an_interval_has_its_verdict(low, high, higher, not_higher, alike):
    found = Difference((low + high) / 2, low, high, seeds=3, degrees=2)
    assert contrast_verdict("higher", found, 0.5) == higher
    assert contrast_verdict("not higher", found, 0.5) == not_higher
    assert contrast_verdict("alike", found, 0.5) == alike


def test_of_several_contrasts_all_must_hold_and_one_failure_is_enough():
    chain = Claim(
        sentence="Each is better than the one before.",
        contrasts=(Contrast("b", "higher", "a"), Contrast("c", "higher", "b")),
        columns=("score",),
    )
    rising = {"a": [10.0, 10.2, 10.1], "b": [20.0, 20.1, 20.2], "c": [30.1, 30.0, 30.2]}
    assert verdict(chain, **rising) == "reproduced"
    assert verdict(chain, **{**rising, "c": [15.0, 15.1, 15.2]}) == "not reproduced"
    assert verdict(chain, **{**rising, "c": [19.9, 20.3, 20.6]}) == "inconclusive"


def test_against_a_constant_answer_each_row_has_its_own():
    nothing = Claim(
        sentence="It learns nothing.", contrasts=(Contrast("it", "not higher", None),), columns=("score",), smallest=3.0
    )
    chance = scores(constant=50.0, it=[50.4, 49.8, 50.3], other=[90.0, 90.5, 89.9])
    assert judge(nothing, {"score": chance}).verdict == "reproduced"
    learnt = scores(constant=50.0, it=[58.0, 57.5, 58.3], other=[90.0, 90.5, 89.9])
    judged = judge(nothing, {"score": learnt})
    assert judged.verdict == "not reproduced" and "the constant answer" in judged.contrasts[0].figures()


def test_figures_are_told_by_what_rows_are_called_at_this_scale():
    judged = judge(BETTER, {"score": scores(old=[20.0, 21.0], new=[90.0, 91.0])})
    assert judged.contrasts[0].figures().startswith("new against old: +70.00 points")
    assert judged.contrasts[0].figures({"new": "E = 128"}).startswith("E = 128 against old: +70.00 points")


def test_what_a_scale_does_not_measure_is_not_tested():
    assert judge(BETTER, {"another": scores(old=[1.0], new=[2.0])}).verdict == "not tested"
    judged = judge(BETTER, {"score": scores(old=[1.0, 2.0])})
    assert judged.verdict == "not tested" and "new against old: not run" in judged.words


def test_the_first_column_that_was_measured_is_the_one():
    claim = Claim(sentence="x", contrasts=BETTER.contrasts, columns=("average", "score"))
    good, bad = scores(old=[1.0, 1.1], new=[9.0, 9.1]), scores(old=[9.0, 9.1], new=[1.0, 1.1])
    assert judge(claim, {"score": good}).verdict == "reproduced"
    judged = judge(claim, {"score": good, "average": bad})
    assert (judged.verdict, judged.column) == ("not reproduced", "average")
    assert judge(claim, {"score": good, "average": {"old": {}, "new": {}}}).column == "score"


def test_arms_that_should_have_taken_the_same_time_must_have():
    claim = Claim(sentence="x", contrasts=BETTER.contrasts, columns=("score",), equal="hours")
    gain = scores(old=[50.0, 51.0, 50.5], new=[55.1, 55.9, 55.6])
    assert judge(claim, {"score": gain, "hours": scores(old=[10.0], new=[10.9])}).verdict == "reproduced"
    judged = judge(claim, {"score": gain, "hours": scores(old=[10.0], new=[13.0])})
    assert judged.verdict == "inconclusive" and "hours are not equal: new 13, old 10" in judged.words
    assert "not known" in judge(claim, {"score": gain}).words
