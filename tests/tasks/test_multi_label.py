"""Sets of labels are scored by their definition, whatever the order of labels, and the constant answer is the best."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.tasks.metrics import baseline_scores, multi_label_scores
from albert.tasks.submission import DECLARED
from albert.tasks.task import Labels, Single, Task, TaskRecipe

SETS = st.integers(1, 5).flatmap(
    lambda n: st.lists(
        st.tuples(*(st.lists(st.booleans(), min_size=n, max_size=n) for _ in range(2))), min_size=1, max_size=20
    )
)


def by_definition(gold, predicted):
    right, said, there = ((gold & predicted).sum(0), predicted.sum(0), gold.sum(0))
    each = [2 * r / (s + t) if s + t else 0.0 for r, s, t in zip(right, said, there, strict=True)]
    whole = said.sum() + there.sum()
    return {
        "micro_f1": 200 * right.sum() / whole if whole else 0.0,
        "macro_f1": 100 * sum(each) / len(each),
        "exact_match": 100 * (gold == predicted).all(axis=1).mean(),
        "hamming_loss": 100 * (gold != predicted).mean(),
    }


@given(SETS, st.randoms(use_true_random=False))
def test_scores_are_those_of_the_definition_in_any_order_of_labels(pairs, randomness):
    gold, predicted = (np.array([pair[side] for pair in pairs], bool) for side in (0, 1))
    scores = multi_label_scores(gold, predicted)
    assert scores == pytest.approx(by_definition(gold, predicted), abs=1e-12)
    order = list(range(gold.shape[1]))
    randomness.shuffle(order)
    assert multi_label_scores(gold[:, order], predicted[:, order]) == pytest.approx(scores, abs=1e-12)


def test_without_rows_nothing_is_defined():
    assert set(multi_label_scores([], []).values()) == {None}


def declared(n_labels):
    return Task(
        name="t",
        source=DECLARED["sst-2"].source,
        inputs=Single("text"),
        target=Labels(tuple(f"label {i}" for i in range(n_labels)), "about"),
        metrics=(multi_label_scores,),
        recipe=TaskRecipe(learning_rate=1e-3, batch_size=8, epochs=1.0),
    )


@given(SETS)
def test_no_constant_set_is_better_by_any_metric_than_the_baseline(pairs):
    gold = np.array([pair[0] for pair in pairs], bool)
    n = gold.shape[1]
    constants = []
    for size in range(n + 1):
        for chosen in combinations(range(n), size):
            always = np.zeros(n, bool)
            always[list(chosen)] = True
            constants.append(by_definition(gold, np.tile(always, (len(gold), 1))))
    best = {name: max(scores[name] for scores in constants) for name in ("micro_f1", "macro_f1", "exact_match")}
    best["hamming_loss"] = min(scores["hamming_loss"] for scores in constants)
    assert baseline_scores(declared(n), gold) == pytest.approx(best, abs=1e-9)
