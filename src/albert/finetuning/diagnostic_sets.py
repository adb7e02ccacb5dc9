"""A benchmark's diagnostic set: nothing is learnt from it, the model of another task answers it.

OUTPUT/TASK/predictions-SPLIT.jsonl    for every split whose file is there, whether its answers are known or not
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from albert.finetuning.evaluate import evaluate_directory, write_predictions
from albert.finetuning.run_record import FinetuningSettings
from albert.runtime.errors import MissingInput
from albert.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class DiagnosticOutcome:
    """What a model said to a diagnostic set.

    `scores` are those of each split that was answered, by name; of one without answers there are none. `missing` says
    why others were not.
    """

    task: Task
    model: str | None = None
    scores: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """What the benchmark's `summary.json` holds of it."""
        scores = {split: dict(each) for split, each in self.scores.items()}
        return {"model": self.model, "scores": scores, "missing": list(self.missing)}


def diagnose(
    task: Task, model: str | None, data: Path, output: Path, settings: FinetuningSettings
) -> DiagnosticOutcome:
    """Let a model answer every split of a diagnostic set whose file is there.

    Args:
        task: the diagnostic set.
        model: fine-tuned on the task that it belongs to; None: there is none, and nothing is answered.
        data: the folder of all tasks.
        output: where the predictions go.
        settings: how to compute.

    Raises:
        DamagedData: a file is not what it should be.
    """
    if model is None:
        return DiagnosticOutcome(task=task, missing=("no model has learnt the task that it belongs to",))
    scores: dict[str, Mapping[str, float | None]] = {}
    missing = []
    for split in task.source.splits:
        try:
            found = evaluate_directory(
                task,
                model,
                data,
                split,
                device=settings.device,
                precision=settings.precision or "fp32",
                micro_batch_tokens=settings.micro_batch_tokens,
                needs_labels=False,
            ).evaluation
        except MissingInput as error:
            missing.append(str(error))
            continue
        output.mkdir(parents=True, exist_ok=True)
        write_predictions(output / f"predictions-{split}.jsonl", found)
        scores[split] = dict(found.scores)
    return DiagnosticOutcome(task=task, model=model, scores=scores, missing=tuple(missing))
