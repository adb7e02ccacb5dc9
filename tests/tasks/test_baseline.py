"""For each metric the best constant answer: of spans what a question has most often, whatever it asks."""

from dataclasses import replace

import pytest

from albert.tasks.metrics import baseline_scores, is_better, mean_absolute_error, pearson
from albert.tasks.submission import DECLARED

SQUAD = DECLARED["squad-1.1"]


def test_f1_of_the_rarer_class_has_a_constant_of_its_own():
    scores = baseline_scores(DECLARED["mrpc"], [0, 0, 0, 1])
    assert scores == pytest.approx({"f1": 40.0, "accuracy": 75.0})
    assert baseline_scores(DECLARED["mrpc"], [0, 1]) == pytest.approx({"f1": 200 / 3, "accuracy": 50.0})


def test_the_best_number_for_all_rows_is_the_median():
    task = replace(DECLARED["sts-b"], metrics=(pearson, mean_absolute_error))
    assert baseline_scores(task, [0.0, 1.0, 11.0]) == {"pearson": None, "mean_absolute_error": pytest.approx(11 / 3)}


def test_less_is_better_of_errors_alone_and_undefined_is_worst():
    assert is_better("mean_absolute_error", 1.0, 2.0) and not is_better("mean_absolute_error", 2.0, 1.0)
    assert is_better("accuracy", 2.0, 1.0) and not is_better("accuracy", 1.0, 1.0)
    assert is_better("accuracy", 0.0, None) and not is_better("accuracy", None, 0.0)
    assert is_better("hamming_loss", 0.0, None)


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
