"""SQuAD 2.0's scores by hand, and the threshold between answering and not.

Equality with the official script is in `test_official_scores.py`.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.tasks.answers import OpenAnswer, choose_threshold, never_answered, open_question_scores

QUESTIONS = st.lists(
    st.tuples(st.booleans(), st.sampled_from(["", "old ship", "ship", "sea"]), st.integers(-3, 3)),
    min_size=1,
    max_size=12,
)


def test_answering_nothing_scores_the_share_of_questions_without_an_answer():
    gold = [("Paris",), (), (), ("a ship", "ships")]
    scores = open_question_scores(gold, never_answered(gold))
    assert (scores["f1"], scores["exact"]) == (50.0, 50.0)
    assert (scores["HasAns_f1"], scores["NoAns_f1"]) == (0.0, 100.0)
    assert next(iter(scores)) == "f1"


def test_a_decision_counts_and_the_best_threshold_is_apart():
    gold = [("Paris",), ()]
    said = [OpenAnswer("Paris", 3.0, answered=False), OpenAnswer("Rome", 5.0, answered=True)]
    scores = open_question_scores(gold, said)
    assert (scores["f1"], scores["HasAns_exact"], scores["NoAns_exact"]) == (0.0, 0.0, 0.0)
    assert (scores["best_f1"], scores["best_f1_thresh"]) == (100.0, 3.0)


def test_a_half_without_questions_and_no_questions_at_all_are_undefined():
    assert open_question_scores([("a",)], [OpenAnswer("a", 0.0, answered=True)])["NoAns_f1"] is None
    assert set(open_question_scores([], []).values()) == {None}


@given(QUESTIONS)
def test_no_threshold_scores_better_than_the_chosen_one(questions):
    gold = [("ship",) if has else () for has, _, _ in questions]

    def f1_with(threshold):
        said = [OpenAnswer(text, float(score), answered=score <= threshold) for _, text, score in questions]
        return open_question_scores(gold, said)["f1"]

    said = [OpenAnswer(text, float(score), answered=True) for _, text, score in questions]
    best = f1_with(choose_threshold(gold, said))
    assert best == pytest.approx(max(f1_with(threshold) for threshold in range(-4, 5)))
