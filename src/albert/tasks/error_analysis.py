"""Where a model is right and wrong: scores of each class, confusions, the most confident errors, calibration.

All figures are plain values, as in `results.json`. Precision, recall and F1 are scikit-learn's, in points of 100. For
tags that describe entities, the unit is an entity: it is right if its type and both ends are right. scikit-learn is
imported when figures are needed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from albert.runtime.environment import lazy_import
from albert.tasks.answers import normalize_answer
from albert.tasks.examples import Example
from albert.tasks.metrics import OUTSIDE, entities_of, has_prefixes, runs_of
from albert.tasks.task import Choice, Labels, Option, Score, Span, Tags, Task

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


def analyse(task: Task, examples: Sequence[Example], predictions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures for a scored split.

    Args:
        predictions: an object for each example, in the same order, as `predictions-dev.jsonl` has them.

    Returns:
        `per_class`: class, precision, recall, F1 (points), count (gold) and predicted (count) of each class, label,
        entity type or tag; None for numbers and answers.
        `confusion`: labels, counts [gold, predicted] (several labels per example: [labels, gold, predicted] of 2 by 2),
        and the largest confusions; None for numbers and answers.
        `errors`: the most confident first; of numbers the largest difference first. With several labels per example,
            `probability` is that of `label`, the most confidently wrong one, which is missed or wrongly predicted.
        `calibration`: expected calibration error (points; Guo et al. 2017, arXiv 1706.04599) and bins; None for
        numbers. With several labels per example the probability of each label is compared with its frequency.
    """
    if not examples:
        return dict.fromkeys(ANALYSIS_KEYS)
    match task.target:
        case Choice(labels=labels) as target:
            return _classes(labels, target.shown, examples, predictions)
        case Option(options=options):
            return _classes(options, options, examples, predictions)
        case Labels() as target:
            return _labels(target, examples, predictions)
        case Tags() as target:
            return _tags(target, examples, predictions)
        case Score():
            return _numbers(examples, predictions)
        case Span():
            return _answers(examples, predictions)


def _classes(
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
            "text": _text(example),
            "gold": options[gold[index]] if options else names[gold[index]],
            "predicted": options[predicted[index]] if options else names[predicted[index]],
            "probability": float(confidence[index]),
        }
        errors.append(error)
    return {
        "per_class": _per_class(names, gold, predicted),
        "confusion": _confusion(names, gold, predicted),
        "errors": _most_confident(errors),
        "calibration": calibration(confidence, gold == predicted),
    }


def _labels(target: Labels, examples: Sequence[Example], predictions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of a task with several labels for each example."""
    names = target.shown
    gold = np.array([[label in entry["gold"] for label in target.labels] for entry in predictions], np.bool_)
    predicted = np.array([[label in entry["prediction"] for label in target.labels] for entry in predictions], np.bool_)
    probabilities = np.array([[entry["probabilities"][label] for label in target.labels] for entry in predictions])
    shape = (len(predictions), len(names))
    gold, predicted, probabilities = (values.reshape(shape) for values in (gold, predicted, probabilities))
    confidence = np.where(predicted, probabilities, 1 - probabilities)
    errors = []
    wrong_confidence = np.where(gold != predicted, confidence, 0.0).max(axis=1, initial=0.0)
    for index in np.argsort(-wrong_confidence, kind="stable")[:MAX_ERRORS].tolist():
        wrong = np.flatnonzero(gold[index] != predicted[index])
        if not len(wrong):
            continue
        worst = wrong[confidence[index, wrong].argmax()]
        error = {
            "id": examples[index].identifier,
            "text": _text(examples[index]),
            "gold": [names[label] for label in np.flatnonzero(gold[index])],
            "predicted": [names[label] for label in np.flatnonzero(predicted[index])],
            "label": names[worst],
            "probability": float(probabilities[index, worst]),
        }
        errors.append(error)
    metrics = lazy_import("sklearn.metrics")
    rows = []
    matrices = []
    confusions = []
    for column, name in enumerate(names):
        of_label = (gold[:, column].astype(np.int64), predicted[:, column].astype(np.int64))
        rows.append(_per_class((NONE, name), *of_label)[1])
        matrix = metrics.confusion_matrix(*of_label, labels=[0, 1]).tolist()
        matrices.append(matrix)
        confusions.append({"gold": name, "predicted": NONE, "count": matrix[1][0]})
        confusions.append({"gold": NONE, "predicted": name, "count": matrix[0][1]})
    return {
        "per_class": rows,
        "confusion": {"labels": list(names), "counts": matrices, "largest": _largest(confusions)},
        "errors": errors,
        "calibration": calibration(probabilities.ravel(), gold.ravel()),
    }


def _tags(target: Tags, examples: Sequence[Example], predictions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of a task with a tag for each word: of entities, or of words if the tags describe none."""
    shown = dict(zip(target.labels, target.shown, strict=True))
    prefixed = has_prefixes(target.labels)
    of_entities = prefixed or OUTSIDE in target.labels
    read = entities_of if prefixed else runs_of
    units: list[tuple[str, str]] = []
    errors = []
    for example, entry in zip(examples, predictions, strict=True):
        tags = [shown[tag] for tag in entry["gold"]]
        found = [shown[tag] for tag in entry["prediction"]]
        if of_entities:
            in_gold = {(entity.start, entity.end): entity.type for entity in read(tags)}
            in_predicted = {(entity.start, entity.end): entity.type for entity in read(found)}
        else:
            in_gold = {(place, place + 1): tag for place, tag in enumerate(tags)}
            in_predicted = {(place, place + 1): tag for place, tag in enumerate(found)}
        for start, end in sorted({*in_gold, *in_predicted}):
            unit = (in_gold.get((start, end), NONE), in_predicted.get((start, end), NONE))
            units.append(unit)
            if unit[0] == unit[1]:
                continue
            error = {
                "id": example.identifier,
                "text": _excerpt(example.texts, start, end),
                "words": " ".join(example.texts[start:end]),
                "gold": unit[0],
                "predicted": unit[1],
                "probability": float(np.mean(entry["probabilities"][start:end])),
            }
            errors.append(error)
    types = sorted({name for unit in units for name in unit} - {NONE})
    if not of_entities:
        types = [name for name in target.shown if name in types]
    names = [*types, NONE] if of_entities else types
    ids = {name: index for index, name in enumerate(names)}
    gold = np.array([ids[unit[0]] for unit in units], np.int64)
    predicted = np.array([ids[unit[1]] for unit in units], np.int64)
    right = [
        tag == found for entry in predictions for tag, found in zip(entry["gold"], entry["prediction"], strict=True)
    ]
    confidence = list(chain.from_iterable(entry["probabilities"] for entry in predictions))
    return {
        "per_class": _per_class(types, gold, predicted),
        "confusion": _confusion(names, gold, predicted),
        "errors": _most_confident(errors),
        "calibration": calibration(np.array(confidence), np.array(right, np.bool_)),
    }


def _numbers(examples: Sequence[Example], predictions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of a task with a number for each example."""
    errors = []
    for example, entry in zip(examples, predictions, strict=True):
        error = {
            "id": example.identifier,
            "text": _text(example),
            "gold": float(entry["gold"]),
            "predicted": float(entry["prediction"]),
            "difference": float(entry["prediction"]) - float(entry["gold"]),
        }
        errors.append(error)
    errors.sort(key=lambda error: -abs(error["difference"]))
    return {"per_class": None, "confusion": None, "errors": errors[:MAX_ERRORS], "calibration": None}


def _answers(examples: Sequence[Example], predictions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of a task whose answers are parts of a text; an answer is right if it equals a gold one, as SQuAD compares."""
    confidence = []
    right = []
    errors = []
    for example, entry in zip(examples, predictions, strict=True):
        gold = {normalize_answer(answer) for answer in entry["gold"]} or {normalize_answer("")}
        right.append(normalize_answer(entry["prediction"]) in gold)
        if not entry["prediction"] and "no_answer_probability" in entry:
            confidence.append(entry["no_answer_probability"])
        else:
            confidence.append(entry["best"][0]["probability"] if entry["best"] else 0.0)
        if right[-1]:
            continue
        error = {
            "id": example.identifier,
            "text": _text(example),
            "gold": list(dict.fromkeys(entry["gold"])),
            "predicted": entry["prediction"],
            "probability": float(confidence[-1]),
        }
        errors.append(error)
    return {
        "per_class": None,
        "confusion": None,
        "errors": _most_confident(errors),
        "calibration": calibration(np.array(confidence), np.array(right, np.bool_)),
    }


# --------------------------------------------------------------------------------------------------------------------
# The parts of an analysis.


def _per_class(names: Sequence[str], gold: np.ndarray, predicted: np.ndarray) -> list[dict[str, Any]]:
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


def _confusion(names: Sequence[str], gold: np.ndarray, predicted: np.ndarray) -> dict[str, Any]:
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
    return {"labels": list(names), "counts": counts, "largest": _largest(confusions)}


def _largest(confusions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The largest confusions, without those that never happen; equals keep their order."""
    happened = [confusion for confusion in confusions if confusion["count"]]
    return sorted(happened, key=lambda confusion: -confusion["count"])[:MAX_CONFUSIONS]


def _most_confident(errors: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The errors with the highest probability; equals keep the order of the file."""
    return sorted(errors, key=lambda error: -error["probability"])[:MAX_ERRORS]


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


def _text(example: Example) -> str:
    """The text or texts of an example, on lines of their own, shortened."""
    text = "\n".join(" ".join(part.split()) for part in example.texts)
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"


def _excerpt(words: Sequence[str], start: int, end: int) -> str:
    """The words `start`..`end` of a sentence with some of their neighbours."""
    first = max(0, start - 20)
    last = min(len(words), end + 20)
    text = " ".join(words[first:last])
    text = ("… " if first else "") + text + (" …" if last < len(words) else "")
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"
