"""What a model must beat: for each metric the best answer that looks at no text."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool

from albert.tasks.answer_metrics import normalize_answer
from albert.tasks.answerability import never_answered
from albert.tasks.entities import OUTSIDE
from albert.tasks.task import Choice, Labels, Option, Score, Span, Tags, Target, Task

LOWER_IS_BETTER = ("mean_absolute_error", "hamming_loss")


def is_better(metric: str, score: float | None, other: float | None) -> bool:
    """Whether a score is better than another one by its metric; undefined is below all."""
    if score is None or other is None:
        return score is not None
    return score < other if metric.startswith(LOWER_IS_BETTER) else score > other


def baseline_scores(task: Task, gold: Any) -> dict[str, float | None]:
    """The task's metrics for the same answer to every row: for each metric the constant that is best for it.

    Constants are classes, options and tags, a set of labels, a number, and the commonest answer or none to a question;
    they are chosen on the very rows scored, so that none can do better.

    Args:
        task: the declaration.
        gold: label ids, places of options, sets of labels, tags, numbers, or answers of the rows.

    Returns:
        Metric name to value.
    """
    best: dict[str, float | None] = {}
    for predicted in _constants(task.target, gold):
        scores = task_scores(task, gold, predicted)
        best |= {
            name: value for name, value in scores.items() if name not in best or is_better(name, value, best[name])
        }
    return best


def _constants(target: Target, gold: Any) -> Iterator[Any]:
    """Predictions of which one is best by each metric; the commonest first."""
    match target:
        case Choice(names) | Option(names):
            commonest = int(np.bincount(gold, minlength=len(names)).argmax())
            # F1 of the second class of two is best by that class; all other metrics by the commonest.
            for answer in dict.fromkeys((commonest, 1) if len(names) == 2 else (commonest,)):
                yield np.full(len(gold), answer)
        case Labels():
            for chosen in _label_sets(np.asarray(gold, np.bool_)):
                yield np.tile(chosen, (len(gold), 1))
        case Tags(labels):
            counts = Counter(tag for tags in gold for tag in tags)
            commonest = max(sorted(labels), key=lambda label: counts[label])
            for tag in dict.fromkeys((commonest, OUTSIDE) if OUTSIDE in labels else (commonest,)):
                yield [(tag,) * len(tags) for tags in gold]
        case Span(may_be_absent):
            yield never_answered(gold) if may_be_absent else [_commonest_answer(gold)] * len(gold)
        case Score():
            yield np.full(len(gold), np.median(gold) if len(gold) else 0.0)  # nearest to all in absolute error


def _commonest_answer(gold: Sequence[Sequence[str]]) -> str:
    """The answer that is right for most questions, the first of equals; "" where nothing is answered."""
    counts = Counter(normal for answers in gold for normal in dict.fromkeys(map(normalize_answer, answers)))
    return max(counts, key=lambda normal: counts[normal], default="")


def _label_sets(gold: Bool[np.ndarray, "examples labels"]) -> Iterator[Bool[np.ndarray, " labels"]]:
    """The sets that are best by micro F1 (so many of the commonest labels), by hamming loss (the labels of most rows),
    by macro F1 (all labels), and by exact match (the commonest set)."""
    often = gold.sum(axis=0)
    order = np.argsort(-often, kind="stable")
    right = np.cumsum(often[order])
    scores = 2 * right / (often.sum() + len(gold) * np.arange(1, len(often) + 1))
    chosen = np.zeros(len(often), np.bool_)
    chosen[order[: scores.argmax() + 1]] = often.any()
    yield chosen
    yield often > len(gold) / 2
    yield np.ones(len(often), np.bool_)
    if len(gold):
        sets, counts = np.unique(gold, axis=0, return_counts=True)
        yield sets[counts.argmax()]


def task_scores(task: Task, gold: object, predicted: object) -> dict[str, float | None]:
    """The task's scores by name, in the order declared."""
    scores: dict[str, float | None] = {}
    for metric in task.metrics:
        value = metric(gold, predicted)
        scores |= value if isinstance(value, dict) else {metric.__name__: value}
    return scores
