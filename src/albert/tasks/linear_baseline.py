"""Classical models for comparison: TF-IDF of words and characters with a linear model, and tags from each word's form.

For one text or two, with classes, several labels or a number, and for words with tags. They take seconds: a fixed
sample of a large training set is used, and too large tasks are left out with a reason. The random states of a training
run are not changed. Slow to import (scikit-learn): load it by name where it is needed.
"""

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import sparse
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import StandardScaler

from albert.runtime.random_streams import stream
from albert.tasks.examples import Example, label_sets
from albert.tasks.label_threshold import LabelThreshold, choose_label_threshold
from albert.tasks.metrics import Metric, task_scores

WORD = re.compile(r"(?u)\b\w+\b")
MAX_TRAIN_CHARACTERS = 5_000_000
MAX_DEV_CHARACTERS = 10_000_000
MAX_TRAIN_ROWS = 50_000
MAX_FEATURES = 100_000
MAX_WEIGHTS = 5_000_000
"""Limits of words and pairs of words, and of pieces of words, each; and of these times the classes or labels."""
MAX_OUTPUTS = 200
INVERSE_REGULARISATION = 3.0
"""C of the logistic regression; for vectors of length 1, the default of 1 regularises small sets too much."""
THRESHOLD_FOLDS = 3
"""The threshold of several labels is chosen on rows of the training set by cross-validation."""


@dataclass(frozen=True)
class LinearBaseline:
    """The scores of a linear model by the task's metrics; `left_out` is the reason if there are none."""

    method: str
    scores: Mapping[str, float | None]
    train_examples: int = 0
    left_out: str | None = None
    further_scores: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)


def texts_baseline(
    metrics: Sequence[Metric],
    train: Sequence[Example],
    dev: Sequence[Example],
    further: Mapping[str, Sequence[Example]],
    *,
    method: str,
    n_outputs: int,
    fit: Callable[[Any, Sequence[Example], Any, Sequence[Example]], tuple[Any, Any]],
    left_out: str | None = None,
) -> LinearBaseline:
    """Fit a linear model to TF-IDF features of the training examples and score it on the development set.

    Args:
        train: a `sample`.
        further: sets of examples by name, which are scored, too.
        fit: from features and examples of the training rows, and of the rows to score, to gold and predicted values of
            these.
        left_out: a reason for which no model is fitted.
    """
    if n_outputs > MAX_OUTPUTS:
        left_out = f"{n_outputs:,} labels, above {MAX_OUTPUTS}, take too long"
    elif sum(len(text) for example in dev for text in example.texts) > MAX_DEV_CHARACTERS:
        left_out = f"the development set has more than {MAX_DEV_CHARACTERS:,} characters"
    elif left_out is None and not any(WORD.search(text) for example in train for text in example.texts):
        left_out = "the training rows have no words" if train else "the texts are too long"
    if left_out is not None:
        return LinearBaseline(method, {}, left_out=left_out)
    sets = [dev, *further.values()]
    scored = [example for part in sets for example in part]
    train_features, scored_features = _features(train, scored, min(MAX_FEATURES, MAX_WEIGHTS // n_outputs))
    with warnings.catch_warnings():
        # about an unfinished fit, or a label that is always or never present, which the score shows
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UserWarning)
        gold, predicted = fit(train_features, train, scored_features, scored)
    own, *others = _scores_of_sets(metrics, sets, gold, predicted)
    return LinearBaseline(method, own, len(train), further_scores=dict(zip(further, others, strict=True)))


TEXTS_METHOD = {False: "TF-IDF with logistic regression", True: "TF-IDF with balanced logistic regression"}
"""The names of the model, without and with weights of the classes by their inverse frequency."""


def _logistic_regression(balanced: bool) -> LogisticRegression:
    weights = "balanced" if balanced else None
    return LogisticRegression(C=INVERSE_REGULARISATION, solver="liblinear", random_state=0, class_weight=weights)


def fit_classes(
    features: Any,
    train: Sequence[Example],
    scored_features: Any,
    scored: Sequence[Example],
    n_classes: int,
    balanced: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Gold and predicted class ids of the scored examples."""
    classifier = _logistic_regression(balanced)
    model: Any = classifier if n_classes == 2 else OneVsRestClassifier(classifier)
    model.fit(features, np.array([example.target for example in train]))
    return np.array([example.target for example in scored]), model.predict(scored_features)


def fit_numbers(
    features: Any, train: Sequence[Example], scored_features: Any, scored: Sequence[Example]
) -> tuple[np.ndarray, np.ndarray]:
    """Gold and predicted numbers of the scored examples."""
    model: Any = TransformedTargetRegressor(Ridge(random_state=0), transformer=StandardScaler())
    model.fit(features, np.array([example.target for example in train]))
    return np.array([example.target for example in scored]), model.predict(scored_features)


def fit_labels(
    features: Any,
    train: Sequence[Example],
    scored_features: Any,
    scored: Sequence[Example],
    n_labels: int,
    balanced: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Gold and predicted label sets of the scored examples, with a threshold that is chosen on the training rows by
    cross-validation."""
    targets = label_sets(train, n_labels).astype(np.int64)
    gold = label_sets(scored, n_labels).astype(np.int64)
    model = OneVsRestClassifier(_logistic_regression(balanced))
    threshold = LabelThreshold()
    if len(targets) >= 2 * THRESHOLD_FOLDS:
        fold = stream("tasks.linear_baseline.folds", 0).permutation(len(targets)) % THRESHOLD_FOLDS
        probabilities = np.zeros(targets.shape)
        for number in range(THRESHOLD_FOLDS):
            model.fit(features[fold != number], targets[fold != number])
            probabilities[fold == number] = model.predict_proba(features[fold == number])
        threshold = choose_label_threshold(targets > 0, probabilities, "the training rows")
    model.fit(features, targets)
    return gold, threshold.predicted(model.predict_proba(scored_features))


def _scores_of_sets(
    metrics: Sequence[Metric], sets: Sequence[Sequence[Example]], gold: Any, predicted: Any
) -> list[dict[str, float | None]]:
    """The scores of each of several sets, whose predictions follow each other."""
    scores = []
    start = 0
    for part in sets:
        stop = start + len(part)
        scores.append(task_scores(metrics, gold[start:stop], predicted[start:stop]))
        start = stop
    return scores


# --------------------------------------------------------------------------------------------------------------------
# Tags: a logistic regression over the form of each word and of its neighbours, each word on its own.

TAGS_METHOD = {False: "word forms with logistic regression", True: "word forms with balanced logistic regression"}
MAX_TAGGED_WORDS = 50_000


def words_baseline(
    metrics: Sequence[Metric],
    labels: Sequence[str],
    train: Sequence[Example],
    dev: Sequence[Example],
    further: Mapping[str, Sequence[Example]],
    balanced: bool = False,
) -> LinearBaseline:
    """Fit a logistic regression to the words of the training sentences and score it on the development set."""
    method = TAGS_METHOD[balanced]
    order = stream("tasks.linear_baseline", 0).permutation(len(train))
    n_words = np.cumsum([len(train[index].texts) for index in order])
    within = max(1, int(np.searchsorted(n_words, MAX_TAGGED_WORDS, side="right")))
    train = [train[index] for index in sorted(order[:within].tolist())]
    tags = [tag for example in train if isinstance(example.target, tuple) for tag in example.target]
    why = None
    if len(set(tags)) < 2:
        why = "the training words have one tag"
    elif len(labels) > MAX_OUTPUTS:
        why = f"{len(labels):,} tags, above {MAX_OUTPUTS}, take too long"
    elif sum(len(word) for example in dev for word in example.texts) > MAX_DEV_CHARACTERS:
        why = f"the development set has more than {MAX_DEV_CHARACTERS:,} characters"
    if why is not None:
        return LinearBaseline(method, {}, left_out=why)
    vectors = DictVectorizer()
    model = OneVsRestClassifier(_logistic_regression(balanced))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        features: Any = vectors.fit_transform(row for example in train for row in word_features(example.texts))
        features.indices = features.indices.astype(np.int32)  # what liblinear takes
        features.indptr = features.indptr.astype(np.int32)
        model.fit(features, tags)
    sets = [dev, *further.values()]
    scored = [example for part in sets for example in part]
    rows = [row for example in scored for row in word_features(example.texts)]
    tag_ids: Any = model.predict(vectors.transform(rows)) if rows else []
    found = (labels[tag] for tag in tag_ids)
    gold = [tuple(labels[tag] for tag in example.target) for example in scored if isinstance(example.target, tuple)]
    predicted = [tuple(islice(found, len(example.texts))) for example in scored]
    own, *others = _scores_of_sets(metrics, sets, gold, predicted)
    return LinearBaseline(method, own, len(train), further_scores=dict(zip(further, others, strict=True)))


def word_features(words: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The features of each word of a sentence: the word, its shape, its ends, its place, and its neighbours."""
    for index, word in enumerate(words):
        features: dict[str, Any] = {"word": word.lower(), "shape": word_shape(word), "first": index == 0}
        for length in (1, 2, 3, 4):
            features[f"beginning {length}"] = word[:length].lower()
            features[f"ending {length}"] = word[-length:].lower()
        for distance in (-2, -1, 1, 2):
            inside = 0 <= index + distance < len(words)
            neighbour = words[index + distance] if inside else ""
            features[f"word {distance}"] = neighbour.lower()
            features[f"shape {distance}"] = word_shape(neighbour)
        yield features


def word_shape(word: str) -> str:
    """Capitals as X, other letters as x, digits as 0; a repeated kind is written at most twice: `McDonald` XxXxx."""
    kinds = ""
    for character in word:
        if character.isupper():
            kinds += "X"
        elif character.isalpha():
            kinds += "x"
        elif character.isdigit():
            kinds += "0"
        else:
            kinds += character
    return re.sub(r"(.)\1{2,}", r"\1\1", kinds)


# --------------------------------------------------------------------------------------------------------------------
# TF-IDF.


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


def sample(train: Sequence[Example]) -> Sequence[Example]:
    """The examples, or a fixed sample of them within the limits."""
    sizes = np.array([sum(map(len, example.texts)) for example in train])
    order = stream("tasks.linear_baseline", 0).permutation(len(train))
    within_limit = int(np.searchsorted(np.cumsum(sizes[order]), MAX_TRAIN_CHARACTERS, side="right"))
    chosen = order[: min(within_limit, MAX_TRAIN_ROWS)]
    return train if len(chosen) == len(train) else [train[index] for index in sorted(chosen.tolist())]


def _features(train: Sequence[Example], dev: Sequence[Example], most: int) -> tuple[Any, Any]:
    """TF-IDF of words and pairs of words, and of the pieces of words of 2 to 5 characters; for two texts the vectors of
    both, their product and difference, and `pair_features`."""
    texts = [text for example in train for text in example.texts]
    shared: dict[str, Any] = {"sublinear_tf": True, "max_features": most, "dtype": np.float64}
    words = TfidfVectorizer(ngram_range=(1, 2), token_pattern=WORD.pattern, **shared).fit(texts)
    pieces = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), **shared).fit(texts)
    if len(train[0].texts) == 1:
        both = []
        for part in (train, dev):
            own = [example.texts[0] for example in part]
            both.append(sparse.hstack([words.transform(own), pieces.transform(own)]).tocsr())
        return both[0], both[1]
    combined = []
    scale = StandardScaler()
    for part in (train, dev):
        firsts = [example.texts[0] for example in part]
        seconds = [example.texts[1] for example in part]
        columns = []
        for vectors in (words, pieces):
            left = vectors.transform(firsts)
            right = vectors.transform(seconds)
            columns += [left, right, left.multiply(right), abs(left - right)]
            dense = pair_features(part, left, right) if vectors is words else cosines(left, right)
            columns.append(dense)
        numbers = np.column_stack([column for column in columns if isinstance(column, np.ndarray)])
        numbers = scale.fit_transform(numbers) if part is train else scale.transform(numbers)
        texts_only = [column for column in columns if not isinstance(column, np.ndarray)]
        combined.append(sparse.hstack([*texts_only, sparse.csr_matrix(numbers)]).tocsr())
    return combined[0], combined[1]


def cosines(left: Any, right: Any) -> Float[np.ndarray, "examples 1"]:
    """The cosine of the two vectors of each pair, which have length 1."""
    return np.asarray(left.multiply(right).sum(axis=1)).reshape(-1, 1)
