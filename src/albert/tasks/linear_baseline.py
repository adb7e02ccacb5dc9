"""A baseline for comparison: TF-IDF with a linear model on the same rows.

For one text or two, with classes, several labels or a number. It takes seconds: a fixed sample of a large training set
is used, and too large tasks are left out with a reason. The random states of a training run are not changed. Slow to
import (scikit-learn): load it by name where it is needed.
"""

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import sparse
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import StandardScaler

from albert.runtime.random_streams import stream
from albert.tasks.examples import Example, label_sets
from albert.tasks.metrics import task_scores
from albert.tasks.task import Choice, Labels, Pair, Score, Single, Task

WORD = re.compile(r"(?u)\b\w+\b")
MOST_TRAIN_CHARACTERS, MOST_DEV_CHARACTERS = 5_000_000, 10_000_000
MOST_TRAIN_ROWS = 50_000
MOST_FEATURES, MOST_WEIGHTS = 100_000, 1_000_000
"""Limits of words and pairs of words, and of these times the classes or labels."""
MOST_OUTPUTS = 200
INVERSE_REGULARISATION = 3.0
"""C of the logistic regression; for vectors of length 1, the default of 1 regularises small sets too much."""


@dataclass(frozen=True)
class LinearBaseline:
    """The scores of a linear model by the task's metrics; `left_out` is the reason if there are none."""

    method: str
    scores: Mapping[str, float | None]
    train_examples: int = 0
    left_out: str | None = None


def linear_baseline(task: Task, train: Sequence[Example], dev: Sequence[Example]) -> LinearBaseline | None:
    """Fit a linear model to the training examples and score it on the development set; None for other kinds of task."""
    if not isinstance(task.target, Choice | Score | Labels) or not isinstance(task.inputs, Single | Pair):
        return None
    method = f"TF-IDF with {'ridge' if isinstance(task.target, Score) else 'logistic'} regression"
    n_outputs = 1 if isinstance(task.target, Score) else len(task.target.labels)
    train = _sample(train)
    if why := _reason_to_leave_out(task, train, dev, n_outputs):
        return LinearBaseline(method, {}, left_out=why)
    train_features, dev_features = _features(train, dev, min(MOST_FEATURES, MOST_WEIGHTS // n_outputs))
    classifier = LogisticRegression(C=INVERSE_REGULARISATION, solver="liblinear", random_state=0)
    match task.target:
        case Labels(labels):
            model = OneVsRestClassifier(classifier)
            targets, gold = (label_sets(part, len(labels)).astype(np.int64) for part in (train, dev))
        case target:
            model = classifier if n_outputs == 2 else OneVsRestClassifier(classifier)
            if isinstance(target, Score):
                model = TransformedTargetRegressor(Ridge(random_state=0), transformer=StandardScaler())
            targets, gold = (np.array([example.target for example in part]) for part in (train, dev))
    with warnings.catch_warnings():
        # about an unfinished fit, or a label that is always or never present, which the score shows
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UserWarning)
        model.fit(train_features, targets)
    return LinearBaseline(method, task_scores(task, gold, model.predict(dev_features)), len(train))


def pair_features(examples: Sequence[Example], left: Any, right: Any) -> Float[np.ndarray, "examples features"]:
    """Features of two texts: cosine; shared words relative to the first, the second and both; numbers that only one
    has; difference and sum of their lengths.
    """
    cosine = np.asarray(left.multiply(right).sum(axis=1)).ravel()
    rows = []
    for example in examples:
        words = [WORD.findall(text.lower()) for text in example.texts]
        first, second = map(set, words)
        shared = len(first & second)
        shares = (shared / max(1, len(vocabulary)) for vocabulary in (first, second, first | second))
        numbers = sum(word[0].isdigit() for word in first ^ second)
        lengths = [len(own) for own in words]
        rows.append((*shares, numbers, abs(lengths[0] - lengths[1]), sum(lengths)))
    return np.column_stack([cosine, np.asarray(rows, np.float64)])


def _sample(train: Sequence[Example]) -> Sequence[Example]:
    """The examples, or a fixed sample of them within the limits."""
    sizes = np.array([sum(map(len, example.texts)) for example in train])
    order = stream("tasks.linear_baseline", 0).permutation(len(train))
    within_limit = int(np.searchsorted(np.cumsum(sizes[order]), MOST_TRAIN_CHARACTERS, side="right"))
    chosen = order[: min(within_limit, MOST_TRAIN_ROWS)]
    return train if len(chosen) == len(train) else [train[index] for index in sorted(chosen.tolist())]


def _reason_to_leave_out(task: Task, train: Sequence[Example], dev: Sequence[Example], n_outputs: int) -> str | None:
    """Why no linear model is fitted, None if it is."""
    if n_outputs > MOST_OUTPUTS:
        return f"{n_outputs:,} labels, above {MOST_OUTPUTS}, take too long"
    if sum(len(text) for example in dev for text in example.texts) > MOST_DEV_CHARACTERS:
        return f"the development set has more than {MOST_DEV_CHARACTERS:,} characters"
    if isinstance(task.target, Choice) and len({example.target for example in train}) < 2:
        return "the training rows have one class"
    if not any(WORD.search(text) for example in train for text in example.texts):
        return "the training rows have no words" if train else "the texts are too long"
    return None


def _features(train: Sequence[Example], dev: Sequence[Example], most: int) -> tuple[Any, Any]:
    """TF-IDF of words and pairs of words; for two texts the vectors of both, their product and difference, and
    `pair_features`."""
    vectors = TfidfVectorizer(
        ngram_range=(1, 2), token_pattern=WORD.pattern, sublinear_tf=True, max_features=most, dtype=np.float64
    )
    vectors.fit([text for example in train for text in example.texts])
    sides = [
        [vectors.transform(texts) for texts in zip(*(e.texts for e in part), strict=True)] for part in (train, dev)
    ]
    if len(sides[0]) == 1:
        return sides[0][0], sides[1][0]
    dense = [pair_features(part, *side) for part, side in zip((train, dev), sides, strict=True)]
    scale = StandardScaler().fit(dense[0])
    train_features, dev_features = (
        sparse.hstack(
            [left, right, left.multiply(right), abs(left - right), sparse.csr_matrix(scale.transform(features))]
        ).tocsr()
        for (left, right), features in zip(sides, dense, strict=True)
    )
    return train_features, dev_features
