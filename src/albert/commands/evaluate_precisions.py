"""Score against precision: one model on one task at fp32, bf16 and int8, with the arithmetic that inference uses.

Whether int8 lowers the score depends on the model and the task, so it is measured on these.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from albert.finetuning.evaluation import Evaluation, evaluate_directory
from albert.inference.engine import InferencePrecision, choose_precision, use_fast_encoders
from albert.runtime.devices import pick_device
from albert.runtime.errors import InvalidConfiguration
from albert.tasks.declared import DeclaredTask

EXACT: InferencePrecision = "fp32"
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
