"""Linear models over TF-IDF, for classes and numbers: what words alone say, without their order beyond two.

One text is its words and pairs of neighbouring words. Two texts are the product and the absolute difference of their
vectors, with cosine, overlaps and lengths beside them; a number is learnt from these few alone. How strongly weights
are held down, and whether classes count alike, is chosen by cross-validation within the training set, in folds that a
fixed seed draws: the rows of some files stand by their source.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.preprocessing import StandardScaler

from albert.runtime.errors import InvalidConfiguration
from albert.tasks.examples import Example
from albert.tasks.linear_baseline import WORD, pair_figures
from albert.tasks.metrics import task_scores
from albert.tasks.task import Choice, Score, Task

FOLDS = StratifiedKFold(5, shuffle=True, random_state=0)
STRENGTHS = (0.1, 1.0, 10.0)
RIDGE_STRENGTHS = tuple(10.0**power for power in range(-3, 4))


def predict_classes(task: Task, train: Sequence[Example], dev: Sequence[Example]) -> tuple[np.ndarray, str]:
    """Label ids (int64 [dev]) by logistic regression, and how it was chosen in words."""
    if not isinstance(task.target, Choice):
        raise InvalidConfiguration(task.name, "has no classes")
    learnt, asked = _class_features(train, dev)
    labels = np.array([example.target for example in train])

    def first_score(model: Any, features: Any, gold: np.ndarray) -> float:
        return next(iter(task_scores(task, gold, model.predict(features)).values())) or 0.0

    grid = {"C": STRENGTHS, "class_weight": [None, "balanced"]}
    search = GridSearchCV(LogisticRegression(max_iter=2000), grid, scoring=first_score, cv=FOLDS)
    search.fit(learnt, labels)
    chosen = ", ".join(f"{name}={value}" for name, value in search.best_params_.items())
    return search.predict(asked), f"TF-IDF and logistic regression, {chosen}"


def predict_numbers(task: Task, train: Sequence[Example], dev: Sequence[Example]) -> tuple[np.ndarray, str]:
    """Numbers (float64 [dev]) by ridge regression on cosine, overlaps and lengths, and how it was chosen."""
    if not isinstance(task.target, Score):
        raise InvalidConfiguration(task.name, "has no numbers")
    vectors = _fitted([text for example in train for text in example.texts])
    learnt, asked = (pair_figures(examples, *_sides(vectors, examples)) for examples in (train, dev))
    scale, ridge = StandardScaler().fit(learnt), RidgeCV(RIDGE_STRENGTHS)
    ridge.fit(scale.transform(learnt), [example.target for example in train])
    return ridge.predict(scale.transform(asked)), f"TF-IDF cosine, overlaps, lengths and ridge, alpha={ridge.alpha_:g}"


def _class_features(train: Sequence[Example], dev: Sequence[Example]) -> tuple[Any, Any]:
    vectors = _fitted([text for example in train for text in example.texts])
    if len(train[0].texts) == 1:
        first, second = ([example.texts[0] for example in examples] for examples in (train, dev))
        return vectors.transform(first), vectors.transform(second)
    sides = [_sides(vectors, examples) for examples in (train, dev)]
    figures = [pair_figures(examples, *side) for examples, side in zip((train, dev), sides, strict=True)]
    scale = StandardScaler().fit(figures[0])
    joined = (
        sparse.hstack([left.multiply(right), abs(left - right), sparse.csr_matrix(scale.transform(figure))]).tocsr()
        for (left, right), figure in zip(sides, figures, strict=True)
    )
    learnt, asked = joined
    return learnt, asked


def _fitted(texts: Sequence[str]) -> TfidfVectorizer:
    vectors = TfidfVectorizer(ngram_range=(1, 2), token_pattern=WORD.pattern, sublinear_tf=True)
    return vectors.fit(texts)


def _sides(vectors: TfidfVectorizer, examples: Sequence[Example]) -> tuple[Any, Any]:
    left, right = (vectors.transform([example.texts[side] for example in examples]) for side in (0, 1))
    return left, right
