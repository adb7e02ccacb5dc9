"""Scores are scikit-learn's and SciPy's, times 100."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sklearn_metrics

from albert.runtime.errors import DamagedData
from albert.tasks.metrics import (
    accuracy,
    f1,
    in_order,
    macro_f1,
    matthews_correlation,
    mean_absolute_error,
    pearson,
    spearman,
)

LABEL_PAIRS = st.integers(2, 5).flatmap(
    lambda n: st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), min_size=1, max_size=40)
)
NUMBER_PAIRS = st.lists(
    st.tuples(st.floats(-5, 5).map(lambda x: round(x, 2)), st.floats(-5, 5).map(lambda x: round(x, 2))),
    min_size=2,
    max_size=40,
)


@given(LABEL_PAIRS, st.randoms(use_true_random=False))
def test_another_order_of_labels_or_rows_gives_the_same_score(pairs, randomness):
    gold, predicted = np.array(pairs).T
    labels = list(range(5))
    randomness.shuffle(labels)
    rows = list(range(len(pairs)))
    randomness.shuffle(rows)
    turned = np.array(labels)[gold][rows], np.array(labels)[predicted][rows]
    for metric in (accuracy, macro_f1, matthews_correlation):
        assert metric(*turned) == pytest.approx(metric(gold, predicted), abs=1e-12)


def test_scores_equal_scikit_learn_and_scipy_on_drawn_and_degenerate_sets():
    """Of one class, of one row, all right, all wrong, tied, scaled to the limits of numbers."""
    generator = np.random.default_rng(0)
    for draw in range(300):
        rows, labels = int(generator.integers(1, 60)), int(generator.integers(1, 6))
        gold, predicted = generator.integers(0, labels, (2, rows))
        gold, predicted = ((gold, gold), (gold, predicted), (np.zeros(rows, int), predicted))[draw % 3]
        both = 2 if len(np.union1d(gold, predicted)) > 1 else 1
        assert accuracy(gold, predicted) == pytest.approx(100 * np.mean(gold == predicted), abs=1e-12)
        true, found = np.sum((gold == 1) & (predicted == 1)), np.sum(gold == 1) + np.sum(predicted == 1)
        assert f1(gold % 2, predicted % 2) == pytest.approx(
            100 * sklearn_metrics.f1_score(gold % 2, predicted % 2, zero_division=0.0), abs=1e-12
        )
        if labels == 2:
            assert f1(gold, predicted) == pytest.approx(200 * true / found if found else 0.0, abs=1e-12)
        if both == 2:
            expected = 100 * sklearn_metrics.matthews_corrcoef(gold, predicted)
            assert matthews_correlation(gold, predicted) == pytest.approx(expected, abs=1e-12)
        scale = 10.0 ** generator.integers(-6, 7)
        numbers, others = np.round(generator.normal(size=(2, rows)), 1) * scale
        if rows > 1 and np.ptp(numbers) and np.ptp(others):
            assert pearson(numbers, others) == pytest.approx(100 * stats.pearsonr(numbers, others)[0], abs=1e-12)
            assert spearman(numbers, others) == pytest.approx(100 * stats.spearmanr(numbers, others)[0], abs=1e-12)
        else:
            assert pearson(numbers, others) is None


@given(LABEL_PAIRS)
def test_label_metrics_equal_scikit_learn(pairs):
    gold, predicted = np.array(pairs).T
    assert accuracy(gold, predicted) == 100 * sklearn_metrics.accuracy_score(gold, predicted)
    assert macro_f1(gold, predicted) == 100 * sklearn_metrics.f1_score(
        gold, predicted, average="macro", zero_division=0.0
    )
    if len(set(gold) | set(predicted)) > 1:
        assert matthews_correlation(gold, predicted) == 100 * sklearn_metrics.matthews_corrcoef(gold, predicted)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=40))
def test_f1_equals_scikit_learn(pairs):
    gold, predicted = np.array(pairs).T
    assert f1(gold, predicted) == 100 * sklearn_metrics.f1_score(gold, predicted, zero_division=0.0)


@given(NUMBER_PAIRS)
def test_correlations_equal_scipy(pairs):
    gold, predicted = np.array(pairs).T
    if np.ptp(gold) == 0 or np.ptp(predicted) == 0:
        assert pearson(gold, predicted) is None
        assert spearman(gold, predicted) is None
    else:
        assert pearson(gold, predicted) == pytest.approx(100 * stats.pearsonr(gold, predicted)[0], abs=1e-12)
        assert spearman(gold, predicted) == pytest.approx(100 * stats.spearmanr(gold, predicted)[0], abs=1e-12)


@pytest.mark.parametrize("metric", [accuracy, f1, macro_f1, matthews_correlation, pearson, spearman])
def test_a_score_without_rows_is_undefined_not_nan(metric):
    assert metric(np.zeros(0, int), np.zeros(0, int)) is None


def test_degenerate_predictions():
    assert matthews_correlation([0, 1, 1], [1, 1, 1]) == 0.0
    assert matthews_correlation([1, 1], [1, 1]) == 0.0
    assert f1([0, 0], [0, 0]) == 0.0
    assert pearson([1.0], [2.0]) is None
    assert pearson([1.0, 2.0], [3.0, 3.0]) is None
    assert spearman([1.0, 2.0], [math.nan, 1.0]) is None
    assert mean_absolute_error([1.0, 3.0], [2.0, 5.0]) == 1.5


def test_a_missing_prediction_is_refused():
    with pytest.raises(DamagedData, match="2 of 3 rows have no prediction, the first is 'b'"):
        in_order(["a", "b", "c"], {"a": 1, "z": 2}, "predictions.jsonl")
    assert in_order(["b", "a"], {"a": 1, "b": 2}, "x") == [2, 1]
