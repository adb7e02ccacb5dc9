"""What a model must beat: the best answer that looks at no text."""

from typing import Any

import numpy as np

from albert.tasks.answerability import never_answered
from albert.tasks.task import Choice, Option, Score, Span, Task


def baseline_scores(task: Task, gold: Any) -> dict[str, float | None] | None:
    """The task's metrics for always predicting the majority class or option, the mean score, or that no question has
    an answer, for the very rows scored.

    Args:
        task: the declaration.
        gold: label ids, places of options, numbers, or answers of the rows.

    Returns:
        Metric name to value; None for a span that is always there, where no such answer exists.
    """
    match task.target:
        case Choice(labels):
            predicted = np.full(len(gold), np.bincount(gold, minlength=len(labels)).argmax())
        case Option(options):
            predicted = np.full(len(gold), np.bincount(gold, minlength=len(options)).argmax())
        case Span(may_be_absent=True):
            predicted = never_answered(gold)
        case Score():
            predicted = np.full(len(gold), np.mean(gold, dtype=np.float64))
        case _:
            return None
    return task_scores(task, gold, predicted)


def task_scores(task: Task, gold: object, predicted: object) -> dict[str, float | None]:
    """The task's scores by name, in the order declared."""
    scores: dict[str, float | None] = {}
    for metric in task.metrics:
        value = metric(gold, predicted)
        scores |= value if isinstance(value, dict) else {metric.__name__: value}
    return scores
