"""What several runs on one task share, whether they differ in their seed, their learning rate or their fold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albert.finetuning.fill_in import RecipeLike
from albert.finetuning.initial_model import Start
from albert.finetuning.objective import TeacherLogits
from albert.finetuning.task_run import finetune
from albert.finetuning.task_training import Announce
from albert.recipes.finetuning import FinetuningSettings
from albert.report.advice import all_scores
from albert.runtime.errors import Diverged
from albert.tasks.declared import DeclaredTask


@dataclass(frozen=True, kw_only=True)
class SweepRun:
    """A run that ended, or diverged."""

    scores: Mapping[str, float | None]
    """Empty if it diverged; see `all_scores`."""
    report: Mapping[str, Any]
    """The content of its `results.json`; empty if it diverged."""
    divergence: str | None = None
    """Why it diverged."""


def finetune_one(
    task: DeclaredTask,
    start: Start,
    data: Path,
    directory: Path,
    recipe: RecipeLike,
    settings: FinetuningSettings,
    teacher_logits: TeacherLogits | None = None,
    announce: Announce | None = None,
) -> SweepRun:
    """`finetune`, whose divergence is a result: the next run starts."""
    try:
        result = finetune(task, start, data, directory, recipe, settings, teacher_logits, announce)
    except Diverged as error:
        return SweepRun(scores={}, report={}, divergence=f"diverged: {error.why}")
    return SweepRun(scores=all_scores(result.report), report=result.report)


def require_one_that_ended(output: Path, divergences: Sequence[str | None]) -> None:
    """Raise Diverged if all runs diverged.

    Args:
        divergences: why each run diverged; None: it did not.
    """
    if all(divergence is not None for divergence in divergences):
        why = f"all {len(divergences)} runs diverged ({divergences[0]})"
        raise Diverged(output, why, "use a smaller learning rate")
