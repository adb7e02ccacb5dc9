"""Metrics of every kind of task, baselines, averages and ensembles."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refusal

from albert.runtime.errors import DamagedData
from albert.tasks.answers import NullThreshold
from albert.tasks.inputs import Words
from albert.tasks.metrics import (
    Entity,
    accuracy,
    count_invalid_continuations,
    entities_of,
    entity_scores,
    f1,
    has_prefixes,
    is_better,
    macro_f1,
    matthews_correlation,
    mean_absolute_error,
    multi_label_scores,
    pearson,
    predictions_in_order,
    run_scores,
    runs_of,
    spearman,
    tag_metrics,
    word_scores,
)
from albert.tasks.multi_label import MultiLabel
from albert.tasks.span_answers import OWN_THRESHOLDS, Answers, Candidate, average_answers, decide
from albert.tasks.submission import DECLARED
from albert.tasks.tagging import TokenTagging

# --------------------------------------------------------------------------------------------------------------------
# Scores of scikit-learn and SciPy


@pytest.mark.parametrize(
    ("metric", "gold", "predicted", "score"),
    [
        (accuracy, [0, 1, 2, 2], [0, 2, 2, 2], 75.0),
        (f1, [0, 1, 1, 1], [1, 1, 1, 0], 200 / 3),
        (f1, [1, 0, 0, 0], [0, 0, 0, 0], 0.0),
        (f1, [0, 0], [0, 0], 0.0),
        (macro_f1, [0, 1, 1], [0, 1, 2], 100 * (1 + 2 / 3 + 0) / 3),  # a class that is only predicted counts
        (matthews_correlation, [0, 0, 1, 1], [0, 1, 1, 1], 100 / math.sqrt(3)),
        (matthews_correlation, [0, 1, 1], [1, 1, 1], 0.0),
        (matthews_correlation, [1, 1], [1, 1], 0.0),
        (pearson, [1.0, 2.0, 3.0], [1e6, 3e6, 2e6], 50.0),
        (pearson, [1.0], [2.0], None),
        (pearson, [1.0, 2.0], [3.0, 3.0], None),
        (pearson, [1.0, 2.0], [0.1 + 0.2, 0.3], None),  # constant but for rounding
        (spearman, [1.0, 2.0, 2.0, 4.0], [1.0, 2.0, 2.0, 900.0], 100.0),
        (spearman, [1.0, 2.0], [math.nan, 1.0], None),
        (mean_absolute_error, [1.0, 3.0], [2.0, 5.0], 1.5),
    ],
)
def test_scores_by_hand(metric, gold, predicted, score):
    assert metric(np.array(gold), np.array(predicted)) == pytest.approx(score)
    assert metric(np.zeros(0, int), np.zeros(0, int)) is None
    assert set(multi_label_scores([], []).values()) == {None}


def test_missing_predictions_are_refused():
    with refusal(DamagedData, "2 of 3", "'b'"):
        predictions_in_order(["a", "b", "c"], {"a": 1, "z": 2}, "predictions.jsonl")
    assert predictions_in_order(["b", "a"], {"a": 1, "b": 2}, "x") == [2, 1]


def tagging(labels):
    return replace(
        DECLARED["sst-2"], inputs=Words("words"), target=TokenTagging(tuple(labels), "tags"), metrics=(entity_scores,)
    )


# --------------------------------------------------------------------------------------------------------------------
# Entities of tags, valid and invalid


TYPES = ("PER", "LOC", "a-b")
IOB2 = ("O", *(f"{prefix}-{kind}" for prefix in "BI" for kind in TYPES))
IOBES = (*IOB2, *(f"{prefix}-{kind}" for prefix in "ES" for kind in TYPES))


@given(
    spans=st.lists(st.tuples(st.sampled_from([*TYPES, "O"]), st.integers(1, 4)), max_size=6),
    scheme=st.sampled_from(["BIIB", "BIES", "BILU"]),
)
def test_entities_round_trip_through_valid_tags(spans, scheme):
    """Prefixes of the first, inner, last and only word: IOB2, IOBES, BILOU."""
    first, inside, last, only = scheme
    tags, entities = [], []
    for kind, length in spans:
        if kind == "O":
            tags += ["O"] * length
            continue
        entities.append(Entity(kind, len(tags), len(tags) + length))
        prefixes = [only] if length == 1 else [first, *[inside] * (length - 2), last]
        tags += [f"{prefix}-{kind}" for prefix in prefixes]
    assert entities_of(tags) == entities
    assert count_invalid_continuations(tags) == 0


@pytest.mark.parametrize(
    ("tags", "entities", "invalid"),
    [
        ("I-PER I-PER O", [("PER", 0, 2)], 1),
        ("O I-PER B-PER", [("PER", 1, 2), ("PER", 2, 3)], 1),
        ("B-PER I-LOC I-LOC", [("PER", 0, 1), ("LOC", 1, 3)], 1),
        ("B-PER B-PER", [("PER", 0, 1), ("PER", 1, 2)], 0),
        ("B-PER O I-PER", [("PER", 0, 1), ("PER", 2, 3)], 1),
        ("E-LOC I-LOC", [("LOC", 0, 1), ("LOC", 1, 2)], 2),
        ("S-LOC E-LOC O", [("LOC", 0, 1), ("LOC", 1, 2)], 1),
        ("B-LOC I-LOC", [("LOC", 0, 2)], 0),
        ("B I O I", [("", 0, 2), ("", 3, 4)], 1),
        ("", [], 0),
    ],
)
def test_invalid_tags_are_read_like_conlleval(tags, entities, invalid):
    """As by conlleval (the official script of CoNLL-2003) and seqeval."""
    assert entities_of(tags.split()) == entities
    assert count_invalid_continuations(tags.split()) == invalid


@pytest.mark.parametrize(
    ("labels", "metric"),
    [
        (IOB2, entity_scores),
        (IOBES, entity_scores),
        (("I-PER", "O"), entity_scores),
        (("B", "I", "O"), entity_scores),
        (("B-X", "I-X", "L-X", "U-X", "O"), entity_scores),
        (("PER", "O"), run_scores),
        (("S", "O"), run_scores),
        (("NOUN", "VERB", "B-side"), word_scores),
    ],
)
def test_metrics_follow_the_labels(labels, metric):
    assert tag_metrics(labels) == (metric,)
    assert has_prefixes(labels) == (metric is entity_scores)


def test_entities_must_match_exactly():
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "O"]]
    predicted = [["B-PER", "I-PER", "O", "B-PER"], ["B-LOC", "I-LOC"]]
    scores = entity_scores(gold, predicted)
    assert scores["entity_precision"] == scores["entity_recall"] == scores["entity_f1"] == pytest.approx(100 / 3)
    assert (scores["entity_f1_PER"], scores["entity_f1_LOC"]) == (pytest.approx(200 / 3), 0.0)
    assert scores["tag_accuracy"] == pytest.approx(400 / 6)
    assert entity_scores([["O"]], [["O"]])["entity_f1"] == 0.0
    assert entity_scores([[]], [[]])["tag_accuracy"] is None


def test_plain_tags():
    assert runs_of(["PER", "PER", "O", "LOC", "PER"]) == [("PER", 0, 2), ("LOC", 3, 4), ("PER", 4, 5)]
    assert run_scores([["PER", "O"]], [["PER", "PER"]])["entity_f1"] == 0.0
    scores = word_scores([["NOUN", "VERB"], ["NOUN"]], [["NOUN", "NOUN"], ["NOUN"]])
    assert scores == {"tag_accuracy": pytest.approx(200 / 3), "tag_macro_f1": pytest.approx(40.0)}


# --------------------------------------------------------------------------------------------------------------------
# Baselines and averages


SQUAD, MRPC = DECLARED["squad-1.1"], DECLARED["mrpc"]
NUMBERS = replace(DECLARED["sts-b"], metrics=(pearson, mean_absolute_error))
EVERY_WORD_A_PERSON = {"entity_f1": 40.0, "entity_precision": 25.0, "entity_recall": 100.0}
ANSWERS = [("the two", "two", "Two."), ("red",), ("red ships", "red"), ("old ships",)]  # equal answers count once


@pytest.mark.parametrize(
    ("task", "gold", "scores"),
    [
        (tagging(IOB2), [("O", "O", "B-PER"), ("O",), ()], {**EVERY_WORD_A_PERSON, "tag_accuracy": 75.0}),
        (MRPC, [0, 0, 0, 1], {"f1": 40.0, "accuracy": 75.0}),  # F1 of the rarer class has a constant of its own
        (MRPC, [0, 1], {"f1": 200 / 3, "accuracy": 50.0}),
        (NUMBERS, [0.0, 1.0, 11.0], {"pearson": None, "mean_absolute_error": 11 / 3}),  # of the median
        (SQUAD, ANSWERS, {"span_f1": 50.0, "span_exact_match": 50.0}),
        (SQUAD, [(), ()], {"span_f1": 0.0, "span_exact_match": 0.0}),
        (SQUAD, [], {"span_f1": None, "span_exact_match": None}),
    ],
)
def test_baseline_scores(task, gold, scores):
    assert task.baseline_scores(gold) == pytest.approx(scores)


def test_is_better():
    assert is_better("mean_absolute_error", 1.0, 2.0) and not is_better("mean_absolute_error", 2.0, 1.0)
    assert is_better("accuracy", 2.0, 1.0) and not is_better("accuracy", 1.0, 1.0)
    assert is_better("accuracy", 0.0, None) and not is_better("accuracy", None, 0.0)
    assert is_better("hamming_loss", 0.0, None)


# --------------------------------------------------------------------------------------------------------------------
# Ensembles

CONTEXT = "the old sailor saw the storm"


def answers(spans, no_answer=None, none=0.0):
    """Answers with these probabilities of spans, best first."""
    ranked = sorted(spans.items(), key=lambda item: -item[1])
    candidates = [Candidate(CONTEXT[a:b], a, b, 9.0, probability) for (a, b), probability in ranked]
    return Answers(candidates, no_answer, none)


def averaged(*models, thresholds=(0.0, 0.0, 0.0, 0.0)):
    """The averaged answers to one question, and the texts of the candidates."""
    (found,) = average_answers([([own], NullThreshold(t)) for own, t in zip(models, thresholds, strict=False)])
    return found, [candidate.text for candidate in found.candidates]


def test_span_score_is_the_mean_over_models_that_proposed_it():
    found, texts = averaged(answers({(0, 3): 0.6, (4, 7): 0.2}), answers({(4, 7): 0.7, (8, 14): 0.1}))
    means = {(candidate.start, candidate.end): candidate.score for candidate in found.candidates}
    assert means == {(0, 3): 0.6, (4, 7): pytest.approx(0.45), (8, 14): 0.1}
    assert texts == ["the", "old", "sailor"] and found.no_answer is None
    assert sum(candidate.probability for candidate in found.candidates) == pytest.approx(1)


def test_no_answer_is_averaged_relative_to_thresholds():
    models = answers({(0, 3): 0.5}, no_answer=2.0, none=0.5), answers({(0, 3): 0.9}, no_answer=-5.0, none=0.1)
    found, _ = averaged(*models, thresholds=(3.0, -6.0))
    assert found.no_answer == pytest.approx(0.0) and found.no_answer_probability == pytest.approx(0.3)
    assert decide([found], OWN_THRESHOLDS)[0].answered
    assert not decide([averaged(*models, thresholds=(1.0, -6.0))[0]], OWN_THRESHOLDS)[0].answered


def test_models_without_candidates_and_ties_are_averaged():
    nothing = Answers([], 1e30, 1.0)
    found, texts = averaged(nothing, nothing)
    assert (texts, found.no_answer_probability) == ([], 1.0)
    assert averaged(nothing, answers({(0, 3): 1.0}, 0.0))[1] == ["the"]
    ties = answers({(0, 3): 0.5}), answers({(4, 7): 0.5}), answers({(4, 7): 0.5})
    assert averaged(*ties)[1][0] == "old", "the span of more models"


SPANS = st.dictionaries(st.sampled_from([(0, 3), (4, 7), (8, 14), (15, 18)]), st.floats(0.01, 0.2), min_size=1)


@given(spans=SPANS, copies=st.integers(1, 4), no_answer=st.floats(-9, 9), threshold=st.floats(-9, 9))
def test_averaging_copies_changes_nothing(spans, copies, no_answer, threshold):
    single = answers(spans, no_answer, 1 - sum(spans.values()))
    found, _ = averaged(*[single] * copies, thresholds=[threshold] * copies)
    assert {(c.start, c.end): c.probability for c in found.candidates} == pytest.approx(spans)
    assert decide([found], OWN_THRESHOLDS)[0].answered == (no_answer - threshold <= 0)


# --------------------------------------------------------------------------------------------------------------------
# Multi-label scores

SETS = st.integers(1, 3).flatmap(
    lambda n: st.lists(
        st.tuples(*(st.lists(st.booleans(), min_size=n, max_size=n) for _ in range(2))), min_size=1, max_size=20
    )
)


def by_definition(gold, predicted):
    right, total = (gold & predicted).sum(0), predicted.sum(0) + gold.sum(0)
    by_label = [2 * r / t if t else 0.0 for r, t in zip(right, total, strict=True)]
    return {
        "micro_f1": 200 * right.sum() / total.sum() if total.any() else 0.0,
        "macro_f1": 100 * sum(by_label) / len(by_label),
        "exact_match": 100 * (gold == predicted).all(axis=1).mean(),
        "hamming_loss": 100 * (gold != predicted).mean(),
    }


@settings(max_examples=settings().max_examples // 4)
@given(SETS)
def test_multi_label_scores_and_baseline_follow_the_definition(pairs):
    gold, predicted = (np.array([pair[side] for pair in pairs], bool) for side in (0, 1))
    assert multi_label_scores(gold, predicted) == pytest.approx(by_definition(gold, predicted), abs=1e-12)
    n = gold.shape[1]
    labels = MultiLabel(tuple(f"label {i}" for i in range(n)), "about")
    task = replace(DECLARED["sst-2"], target=labels, metrics=(multi_label_scores,))
    sets = (np.array(chosen) for chosen in product((False, True), repeat=n))
    constants = [by_definition(gold, np.tile(chosen, (len(gold), 1))) for chosen in sets]
    best = {name: max(scores[name] for scores in constants) for name in ("micro_f1", "macro_f1", "exact_match")}
    best["hamming_loss"] = min(scores["hamming_loss"] for scores in constants)
    assert task.baseline_scores(gold) == pytest.approx(best, abs=1e-9)
