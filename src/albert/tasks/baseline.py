"""What a model must beat: the best answer that looks at no text."""

import numpy as np

from albert.tasks.task import Choice, Score, Task


def baseline_scores(task: Task, gold: np.ndarray) -> dict[str, float | None] | None:
    """The task's metrics for always predicting the majority class, or the mean score, of the very rows
    scored.

    Args:
        task: the declaration.
        gold: label ids or numbers of the rows.

    Returns:
        Metric name to value; None for a span, where no such answer exists.
    """
    match task.target:
        case Choice(labels):
            predicted = np.full(len(gold), np.bincount(gold, minlength=len(labels)).argmax())
        case Score():
            predicted = np.full(len(gold), np.mean(gold, dtype=np.float64))
        case _:
            return None
    return task_scores(task, gold, predicted)


def task_scores(task: Task, gold: object, predicted: object) -> dict[str, float | None]:
    """The task's metrics by name, in the order declared."""
    return {metric.__name__: metric(gold, predicted) for metric in task.metrics}
