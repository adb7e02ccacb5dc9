"""What a model must beat: the best answer that looks at no text."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool

from albert.tasks.answer_metrics import normalize_answer
from albert.tasks.answerability import never_answered
from albert.tasks.task import Choice, Labels, Option, Score, Span, Tags, Task


def baseline_scores(task: Task, gold: Any) -> dict[str, float | None]:
    """The task's metrics for always predicting the majority class, option or tag, the same set of labels, the mean
    score, that no question has an answer, or where each has one the commonest of them, for the very rows scored.

    Args:
        task: the declaration.
        gold: label ids, places of options, sets of labels, tags, numbers, or answers of the rows.

    Returns:
        Metric name to value.
    """
    match task.target:
        case Choice(labels):
            predicted = np.full(len(gold), np.bincount(gold, minlength=len(labels)).argmax())
        case Option(options):
            predicted = np.full(len(gold), np.bincount(gold, minlength=len(options)).argmax())
        case Labels():
            predicted = np.tile(_best_label_set(np.asarray(gold, np.bool_)), (len(gold), 1))
        case Tags(labels):
            counts = Counter(tag for tags in gold for tag in tags)
            commonest = max(sorted(labels), key=lambda label: counts[label])
            predicted = [(commonest,) * len(tags) for tags in gold]
        case Span(may_be_absent):
            predicted = never_answered(gold) if may_be_absent else [_commonest_answer(gold)] * len(gold)
        case Score():
            predicted = np.full(len(gold), np.mean(gold, dtype=np.float64))
    return task_scores(task, gold, predicted)


def _commonest_answer(gold: Sequence[Sequence[str]]) -> str:
    """The answer that is right for most questions, the first of equals; "" where nothing is answered."""
    counts = Counter(normal for answers in gold for normal in dict.fromkeys(map(normalize_answer, answers)))
    return max(counts, key=lambda normal: counts[normal], default="")


def _best_label_set(gold: Bool[np.ndarray, "examples labels"]) -> Bool[np.ndarray, " labels"]:
    """The set that gives the best micro F1 when it is always predicted: so many of the commonest labels."""
    often = gold.sum(axis=0)
    order = np.argsort(-often, kind="stable")
    right = np.cumsum(often[order])
    scores = 2 * right / (often.sum() + len(gold) * np.arange(1, len(often) + 1))
    chosen = np.zeros(len(often), np.bool_)
    chosen[order[: scores.argmax() + 1]] = often.any()
    return chosen


def task_scores(task: Task, gold: object, predicted: object) -> dict[str, float | None]:
    """The task's scores by name, in the order declared."""
    scores: dict[str, float | None] = {}
    for metric in task.metrics:
        value = metric(gold, predicted)
        scores |= value if isinstance(value, dict) else {metric.__name__: value}
    return scores
