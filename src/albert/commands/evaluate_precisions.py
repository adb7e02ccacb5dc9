"""`albert evaluate --precision bf16 int8`: one model on one task at several precisions, computed as for inference.

Whether int8 lowers the score depends on the model and the task, so it is measured on these.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from albert.finetuning.evaluation import Evaluation, evaluate_directory
from albert.inference.engine import InferencePrecision, choose_precision, use_fast_encoders
from albert.report.evaluations import EXACT, result_of_precisions
from albert.report.result import Result
from albert.runtime.devices import pick_device
from albert.runtime.errors import CheckFailed, InvalidConfiguration
from albert.tasks.declared import DeclaredTask

TOLERANCE = 0.5
"""Points by which a score may differ from that of fp32."""


@dataclass(frozen=True)
class PrecisionScore:
    """The score of a model at one precision.

    Attributes:
        difference: of the task's main score from that of fp32.
        changed: number of examples whose prediction differs from that of fp32.
        holds: whether the difference is within the tolerance.
    """

    precision: InferencePrecision
    evaluation: Evaluation
    name: str
    score: float
    difference: float
    changed: int
    holds: bool


SHORT = 10.0
"""Seconds of a first evaluation below which its time is measured again."""


def precision_scores(
    task: DeclaredTask,
    model: str,
    data: Path,
    split: str,
    precisions: Sequence[InferencePrecision],
    tolerance: float = TOLERANCE,
    *,
    device: str = "auto",
    **options: Any,
) -> list[PrecisionScore]:
    """Score one model at several precisions on the same examples; fp32 always comes first.

    Args:
        tolerance: how far a score may differ from that of fp32, in points.
    """
    if not tolerance >= 0:
        raise InvalidConfiguration("tolerance", f"is {tolerance}, a number of points from 0 on is needed")
    precisions = list(dict.fromkeys((EXACT, *precisions)))
    for precision in precisions[1:]:  # raises for an unsupported precision before anything is computed
        choose_precision(precision, pick_device(device))
    results: list[PrecisionScore] = []
    for precision in precisions:
        fast = partial(use_fast_encoders, precision=precision)
        evaluation = evaluate_directory(task, model, data, split, device=device, prepare=fast, **options)
        if not results and evaluation.seconds < SHORT:  # it includes the start of torch's threads and kernels
            evaluation = evaluate_directory(task, model, data, split, device=device, prepare=fast, **options)
        name, score = next(iter(evaluation.scores.items()))
        if score is None:
            raise InvalidConfiguration(f"{name} on {split}", f"has no value at {precision}", "score more examples")
        exact, exact_score = (results[0].evaluation, results[0].score) if results else (evaluation, score)
        pairs = zip(evaluation.predictions, exact.predictions, strict=True)
        changed = sum(prediction["prediction"] != expected["prediction"] for prediction, expected in pairs)
        difference = score - exact_score
        holds = abs(difference) <= tolerance
        results.append(PrecisionScore(precision, evaluation, name, score, difference, changed, holds))
    return results


def compare_precisions(
    rows: Sequence[PrecisionScore], task: DeclaredTask, model: str, split: str, tolerance: float
) -> Result:
    """The scores of a model at several precisions, fp32 first."""
    precisions = {}
    for row in rows:
        precisions[row.precision] = {
            "scores": dict(row.evaluation.scores),
            "difference": row.difference,
            "answers_changed": row.changed,
            "seconds": row.evaluation.seconds,
            "holds": row.holds,
        }
    first = rows[0].evaluation
    report: dict[str, Any] = {"task": task.name, "model": model, "split": split}
    report |= {"score": rows[0].name, "tolerance": tolerance, "examples": len(first.predictions)}
    report |= {"precisions": precisions}
    baselines = {} if first.baseline is None else {task.target.baseline_name: first.baseline}
    return result_of_precisions(report, baselines)


def check_precisions(rows: Sequence[PrecisionScore], tolerance: float) -> None:
    """Raises CheckFailed, naming the precisions that move the score by more than the tolerance."""
    moved = [f"{row.precision} by {row.difference:+.2f}" for row in rows if not row.holds]
    if moved:
        why = f"moves with {' and '.join(moved)}, more than {tolerance:.2f}"
        raise CheckFailed(rows[0].name, why, f"use {' or '.join(row.precision for row in rows if row.holds)}")
