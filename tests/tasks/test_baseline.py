"""The constant answer for spans: what a question has most often, whatever it asks."""

import pytest

from albert.tasks.baseline import baseline_scores
from albert.tasks.declared import DECLARED

SQUAD = DECLARED["squad-1.1"]


def test_the_commonest_answer_counts_once_for_a_question_however_often_it_is_written():
    gold = [("the two", "two", "Two."), ("two",), ("red ships", "red"), ("old ships",)]
    scores = baseline_scores(SQUAD, gold)
    assert scores["span_exact_match"] == 50.0 and scores["span_f1"] == 50.0


def test_without_answers_nothing_is_right():
    assert baseline_scores(SQUAD, [(), ()]) == {"span_f1": 0.0, "span_exact_match": 0.0}
    assert baseline_scores(SQUAD, []) == {"span_f1": None, "span_exact_match": None}


def test_on_the_real_questions_a_constant_is_worth_next_to_nothing(shared):
    rows = SQUAD.source.read(shared / "data", "dev").rows
    scores = baseline_scores(SQUAD, [tuple(answer.text for answer in row.answers) for row in rows])
    assert scores["span_exact_match"] == pytest.approx(scores["span_f1"], abs=1) and 0 < scores["span_f1"] < 2
