"""What TF-IDF with a linear model reaches on the same rows: what a small model of texts must beat to be worth it.

For one text or two, with classes, several labels or a number. The work is bounded, so that it takes seconds: of a large
training set a part is drawn, always the same; what is larger still is left out, with the reason. Nothing here touches
the random states of a training run. Slow to import (scikit-learn): load it by name where it is needed.
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
"""Words and pairs of words, the most frequent ones; and times the classes or labels."""
MOST_OUTPUTS = 200
STRENGTH = 3.0
"""C of the logistic regression: with vectors of length 1, the usual 1 holds the weights of small sets down too much."""


@dataclass(frozen=True)
class LinearBaseline:
    """The scores of a linear model by the task's metrics, or why there are none."""

    method: str
    scores: Mapping[str, float | None]
    train_examples: int = 0
    left_out: str | None = None


def linear_baseline(task: Task, train: Sequence[Example], dev: Sequence[Example]) -> LinearBaseline | None:
    """Fit a linear model to the training examples and score it on the development set.

    Returns:
        None for a task of another kind: options, spans, tags.
    """
    if not isinstance(task.target, Choice | Score | Labels) or not isinstance(task.inputs, Single | Pair):
        return None
    method = f"TF-IDF with {'ridge' if isinstance(task.target, Score) else 'logistic'} regression"
    n_outputs = 1 if isinstance(task.target, Score) else len(task.target.labels)
    train = _bounded(train)
    if why := _too_much(task, train, dev, n_outputs):
        return LinearBaseline(method, {}, left_out=why)
    learnt, asked = _features(train, dev, min(MOST_FEATURES, MOST_WEIGHTS // n_outputs))
    classifier = LogisticRegression(C=STRENGTH, solver="liblinear", random_state=0)
    match task.target:
        case Labels(labels):
            model = OneVsRestClassifier(classifier)
            known, gold = (label_sets(part, len(labels)).astype(np.int64) for part in (train, dev))
        case target:
            model = classifier if n_outputs == 2 else OneVsRestClassifier(classifier)
            if isinstance(target, Score):
                model = TransformedTargetRegressor(Ridge(random_state=0), transformer=StandardScaler())
            known, gold = (np.array([example.target for example in part]) for part in (train, dev))
    with warnings.catch_warnings():
        # of a fit that is cut short, or a label that is always or never there: the score shows it
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UserWarning)
        model.fit(learnt, known)
    return LinearBaseline(method, task_scores(task, gold, model.predict(asked)), len(train))


def pair_figures(examples: Sequence[Example], left: Any, right: Any) -> Float[np.ndarray, "examples figures"]:
    """Cosine; the share of words that two texts have in common, of the first, the second, and both; numbers that only
    one has; difference and sum of their lengths.
    """
    cosine = np.asarray(left.multiply(right).sum(axis=1)).ravel()
    rows = []
    for example in examples:
        first, second = (WORD.findall(text.lower()) for text in example.texts)
        one, other = set(first), set(second)
        shared, either = len(one & other), len(one | other)
        numbers, others = ({word for word in words if word[0].isdigit()} for words in (one, other))
        rows.append(
            (
                shared / max(1, len(one)),
                shared / max(1, len(other)),
                shared / max(1, either),
                len(numbers ^ others),
                abs(len(first) - len(second)),
                len(first) + len(second),
            )
        )
    return np.column_stack([cosine, np.asarray(rows, np.float64)])


def _bounded(train: Sequence[Example]) -> Sequence[Example]:
    """The examples, or so many of them as are learnt in seconds, drawn the same every time."""
    sizes = np.array([sum(map(len, example.texts)) for example in train])
    order = stream("tasks.linear_baseline", 0).permutation(len(train))
    fitting = int(np.searchsorted(np.cumsum(sizes[order]), MOST_TRAIN_CHARACTERS, side="right"))
    chosen = order[: min(fitting, MOST_TRAIN_ROWS)]
    return train if len(chosen) == len(train) else [train[place] for place in sorted(chosen.tolist())]


def _too_much(task: Task, train: Sequence[Example], dev: Sequence[Example], n_outputs: int) -> str | None:
    """Why no linear model is fitted; None: one is."""
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
    """One text is its words and pairs of neighbouring words. Two texts are the vectors of both, their product and
    difference, and `pair_figures`."""
    vectors = TfidfVectorizer(
        ngram_range=(1, 2), token_pattern=WORD.pattern, sublinear_tf=True, max_features=most, dtype=np.float64
    )
    vectors.fit([text for example in train for text in example.texts])
    sides = [
        [vectors.transform(texts) for texts in zip(*(e.texts for e in part), strict=True)] for part in (train, dev)
    ]
    if len(sides[0]) == 1:
        return sides[0][0], sides[1][0]
    figures = [pair_figures(part, *side) for part, side in zip((train, dev), sides, strict=True)]
    scale = StandardScaler().fit(figures[0])
    learnt, asked = (
        sparse.hstack(
            [left, right, left.multiply(right), abs(left - right), sparse.csr_matrix(scale.transform(figure))]
        ).tocsr()
        for (left, right), figure in zip(sides, figures, strict=True)
    )
    return learnt, asked
