"""What a cheaper precision costs: one model's score on a task at fp32, bf16 and int8, and which of them still holds.

Users report that int8 ruins a model, and others that it does not; it depends on the model and the task. So it is asked
of this model on this task, with the arithmetic that answers later: a precision is claimed only where the score stays.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from albert.finetuning.evaluate import evaluate_directory
from albert.finetuning.evaluation import Evaluation
from albert.inference.fast_encoder import use_fast_encoders
from albert.inference.precision import InferencePrecision, choose_precision
from albert.runtime.devices import pick_device
from albert.runtime.errors import InvalidConfiguration
from albert.tasks.task import Task

EXACT: InferencePrecision = "fp32"
TOLERANCE = 0.5
"""Points by which a score may move: half of one in a hundred answers."""


@dataclass(frozen=True)
class PrecisionScore:
    """One precision.

    `difference` is how far the score that models are chosen by lies from that of fp32; `changed` counts the examples
    that are answered otherwise than by fp32; it `holds` where the difference is within the tolerance.
    """

    precision: InferencePrecision
    evaluation: Evaluation
    name: str
    score: float
    difference: float
    changed: int
    holds: bool


def precision_scores(
    task: Task,
    model: str,
    data: Path,
    split: str,
    precisions: Sequence[InferencePrecision],
    tolerance: float = TOLERANCE,
    *,
    device: str = "auto",
    **options: Any,
) -> list[PrecisionScore]:
    """Score one model at several precisions on the same examples; fp32 comes first, asked for or not.

    Args:
        task, model, data, split: see `evaluate_models`.
        precisions: which ones.
        tolerance: how far a score may move, in its own points.
        device: where to compute.
        options: of `evaluate_models`, as they are.

    Raises:
        Unavailable: a precision cannot be had on the device.
        InvalidConfiguration: a negative tolerance, or a score without a value.
    """
    if not tolerance >= 0:
        raise InvalidConfiguration("tolerance", f"is {tolerance}, a number of points from 0 on is needed")
    rest: list[InferencePrecision] = [
        each for place, each in enumerate(precisions) if each not in (EXACT, *precisions[:place])
    ]
    for precision in rest:  # what this machine lacks is said before anything is computed
        choose_precision(precision, pick_device(device))
    found: list[PrecisionScore] = []
    everything: list[InferencePrecision] = [EXACT, *rest]
    for precision in everything:
        fast = _with_fast_encoders(precision)
        evaluation = evaluate_directory(task, model, data, split, device=device, prepare=fast, **options).evaluation
        name, score = next(iter(evaluation.scores.items()))
        if score is None:
            raise InvalidConfiguration(f"{name} on {split}", f"has no value at {precision}", "score more examples")
        exact = found[0] if found else None
        difference = 0.0 if exact is None else score - exact.score
        changed = 0 if exact is None else _changed(evaluation, exact.evaluation)
        found.append(
            PrecisionScore(precision, evaluation, name, score, difference, changed, abs(difference) <= tolerance)
        )
    return found


def _with_fast_encoders(precision: InferencePrecision) -> Callable[[nn.Module], None]:
    return lambda model: use_fast_encoders(model, precision)


def _changed(one: Evaluation, other: Evaluation) -> int:
    pairs = zip(one.predictions, other.predictions, strict=True)
    return sum(mine["prediction"] != exact["prediction"] for mine, exact in pairs)
