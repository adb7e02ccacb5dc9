"""Where a model is right and wrong: scores of each class, confusions, the most confident errors, calibration.

All figures are plain values, as in `results.json`. Precision, recall and F1 are scikit-learn's, in points of 100. For
tags that describe entities, the unit is an entity: it is right if its type and both ends are right. scikit-learn is
imported when figures are needed.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from albert.runtime.environment import lazy_import
from albert.tasks.examples import Example

MAX_ERRORS = 50
MAX_CONFUSIONS = 50
MAX_MATRIX = 200
"""Classes; for more there is no whole matrix, only the largest confusions."""
MAX_CHARACTERS = 500
"""Of the text of an error."""
BINS = 10
NONE = ""
"""In a confusion: no entity, or no label, of the row."""
ANALYSIS_KEYS = ("per_class", "confusion", "errors", "calibration")


def class_analysis(
    labels: Sequence[str],
    names: Sequence[str],
    examples: Sequence[Example],
    predictions: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Of a task with one class or option for each example."""
    ids = {label: index for index, label in enumerate(labels)}
    gold = np.array([ids[entry["gold"]] for entry in predictions], np.int64)
    predicted = np.array([ids[entry["prediction"]] for entry in predictions], np.int64)
    confidence = np.array([entry["probabilities"][entry["prediction"]] for entry in predictions])
    errors = []
    for index in np.flatnonzero(gold != predicted).tolist():
        example = examples[index]
        options = example.options
        error = {
            "id": example.identifier,
            "text": text_of(example),
            "gold": options[gold[index]] if options else names[gold[index]],
            "predicted": options[predicted[index]] if options else names[predicted[index]],
            "probability": float(confidence[index]),
        }
        errors.append(error)
    return {
        "per_class": per_class(names, gold, predicted),
        "confusion": confusion(names, gold, predicted),
        "errors": most_confident(errors),
        "calibration": calibration(confidence, gold == predicted),
    }


def tag_analysis(
    names: Mapping[str, str],
    examples: Sequence[Example],
    predictions: Sequence[Mapping[str, Any]],
    entities: Callable[[Sequence[str]], list[Any]] | None,
) -> dict[str, Any]:
    """Of the entities of sentences, or of their words.

    Args:
        names: of the tags, in the order of their ids.
        entities: those that the tags of a sentence form; None for words.
    """
    units: list[tuple[str, str]] = []
    errors = []
    for example, entry in zip(examples, predictions, strict=True):
        in_gold, in_predicted = (
            _units_of([names[tag] for tag in entry[key]], entities) for key in ("gold", "prediction")
        )
        for start, end in sorted({*in_gold, *in_predicted}):
            gold = in_gold.get((start, end), NONE)
            predicted = in_predicted.get((start, end), NONE)
            units.append((gold, predicted))
            if gold == predicted:
                continue
            error = {
                "id": example.identifier,
                "text": excerpt(example.texts, start, end),
                "words": " ".join(example.texts[start:end]),
                "gold": gold,
                "predicted": predicted,
                "probability": float(np.mean(entry["probabilities"][start:end])),
            }
            errors.append(error)
    types = sorted({name for unit in units for name in unit} - {NONE})
    if entities is None:
        types = [name for name in names.values() if name in types]
    shown = types if entities is None else [*types, NONE]
    ids = {name: index for index, name in enumerate(shown)}
    golds = np.array([ids[gold] for gold, _ in units], np.int64)
    found = np.array([ids[predicted] for _, predicted in units], np.int64)
    right = [a == b for entry in predictions for a, b in zip(entry["gold"], entry["prediction"], strict=True)]
    confidence = [value for entry in predictions for value in entry["probabilities"]]
    return {
        "per_class": per_class(types, golds, found),
        "confusion": confusion(shown, golds, found),
        "errors": most_confident(errors),
        "calibration": calibration(np.array(confidence), np.array(right, np.bool_)),
    }


def _units_of(tags: Sequence[str], entities: Callable[[Sequence[str]], list[Any]] | None) -> dict[tuple[int, int], str]:
    """What is counted in a sentence, an entity or a word: its first word and the one after its last, and its type."""
    if entities is None:
        return {(place, place + 1): tag for place, tag in enumerate(tags)}
    return {(entity.start, entity.end): entity.type for entity in entities(tags)}


# --------------------------------------------------------------------------------------------------------------------
# The parts of an analysis.


def per_class(names: Sequence[str], gold: np.ndarray, predicted: np.ndarray) -> list[dict[str, Any]]:
    """A row for each of the first ids; `gold` and `predicted` are ids [examples]."""
    if not len(names) or not len(gold):
        return []
    precision, recall, f1, counts = lazy_import("sklearn.metrics").precision_recall_fscore_support(
        gold, predicted, labels=list(range(len(names))), average=None, zero_division=0.0
    )
    n_predicted = np.bincount(predicted, minlength=len(names))
    return [
        {
            "class": name,
            "precision": 100 * float(precision[index]),
            "recall": 100 * float(recall[index]),
            "f1": 100 * float(f1[index]),
            "count": int(counts[index]),
            "predicted": int(n_predicted[index]),
        }
        for index, name in enumerate(names)
    ]


def confusion(names: Sequence[str], gold: np.ndarray, predicted: np.ndarray) -> dict[str, Any]:
    """The matrix of counts and the largest confusions; `gold` and `predicted` are ids [examples]."""
    pairs = Counter(zip(gold.tolist(), predicted.tolist(), strict=True))
    confusions = [
        {"gold": names[pair[0]], "predicted": names[pair[1]], "count": count}
        for pair, count in sorted(pairs.items())
        if pair[0] != pair[1]
    ]
    counts = None
    if len(names) <= MAX_MATRIX:
        matrix = np.zeros((len(names), len(names)), np.int64)
        np.add.at(matrix, (gold, predicted), 1)
        counts = matrix.tolist()
    return {"labels": list(names), "counts": counts, "largest": largest(confusions)}


def largest(confusions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The largest confusions, without those that never happen; equals keep their order."""
    happened = [confusion for confusion in confusions if confusion["count"]]
    return sorted(happened, key=lambda confusion: -confusion["count"])[:MAX_CONFUSIONS]


def most_confident(errors: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The errors with the highest probability; equals keep the order of the file."""
    return first_of_equal(sorted(errors, key=lambda error: -error["probability"]))[:MAX_ERRORS]


def first_of_equal(errors: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The errors without those of rows that repeat an earlier one: the same words, right answer and prediction."""
    seen: dict[str, dict[str, Any]] = {}
    for error in errors:
        seen.setdefault(repr([error.get(name) for name in ("text", "words", "gold", "predicted")]), error)
    return list(seen.values())


def calibration(confidence: np.ndarray, right: np.ndarray) -> dict[str, Any] | None:
    """Compare probabilities with how often they are right, in equal bins of probability; None without values.

    `difference` is the mean probability minus the share that is right: above 0, the probabilities are too high. It and
    `expected_calibration_error` are in points of 100.
    """
    if not len(confidence):
        return None
    places = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    error = 0.0
    bins = []
    for place in range(BINS):
        members = places == place
        if not members.any():
            continue
        mean = 100 * float(confidence[members].mean())
        share = 100 * float(right[members].mean())
        error += int(members.sum()) / len(confidence) * abs(mean - share)
        edges = {"from": place / BINS, "to": (place + 1) / BINS}
        bins.append({**edges, "count": int(members.sum()), "probability": mean, "right": share})
    difference = 100 * float(confidence.mean() - right.mean())
    return {"expected_calibration_error": error, "difference": difference, "bins": bins}


EMPTY_TEXT = "(empty text)"


def text_of(example: Example) -> str:
    """The text or texts of an example, on lines of their own, shortened; an empty one is said to be empty, unless it
    may be absent beside options."""
    parts = [" ".join(part.split()) for part in example.texts]
    if not example.options or not any(parts):
        parts = [part or EMPTY_TEXT for part in parts]
    text = "\n".join(parts)
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"


def excerpt(words: Sequence[str], start: int, end: int) -> str:
    """The words `start`..`end` of a sentence with some of their neighbours."""
    first = max(0, start - 20)
    last = min(len(words), end + 20)
    text = " ".join(words[first:last])
    text = ("… " if first else "") + text + (" …" if last < len(words) else "")
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"
