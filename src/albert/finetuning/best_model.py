"""Which model of a run is its result: the last one, or the one with the best development score of all evaluations.

The paper stops early: it takes the best of evaluations every 100 steps (section 4.9). A score that was chosen on the
set it is reported on is somewhat high, so the last model is the default, and which it was is said wherever the score
is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from albert.checkpoints.model_directory import open_model
from albert.finetuning.start import head_kind, n_outputs
from albert.runtime.durable_files import new_directory
from albert.runtime.journal import read_journal
from albert.runtime.strict_json import read_json_object, save_json
from albert.tasks.baseline import is_better
from albert.tasks.task import Target

SelectedBy = Literal["last", "best"]
PAPERS_INTERVAL = 100
"""Steps between evaluations."""
_SCORE_NAME = "score.json"


@dataclass(frozen=True)
class BestModel:
    """The best model so far, kept in a directory of its own while the run goes on; the first of equals.

    A run that was stopped finds it there. What it evaluates a second time scores as before, so it stays the first.
    What was scored on another development set does not count.
    """

    directory: Path
    save: Callable[[Path], None]
    scored_on: str = ""
    """The fingerprint of the development set."""

    def consider(self, scores: Mapping[str, float | None]) -> None:
        """Keep the model as it stands when its first score is better than the best so far; undefined is below all."""
        name, score = next(iter(scores.items()))
        if self.directory.is_dir():
            kept = read_json_object(self.directory / _SCORE_NAME)
            same_rows = kept.get("scored_on", self.scored_on) == self.scored_on
            if same_rows and not is_better(name, score, kept["score"]):
                return
        with new_directory(self.directory, replace=True) as directory:
            self.save(directory)
            save_json(directory / _SCORE_NAME, {"metric": name, "score": score, "scored_on": self.scored_on})

    def tensors(self, target: Target) -> dict[str, torch.Tensor]:
        """Its weights.

        Raises:
            MissingInput, DamagedData: they were removed or changed meanwhile.
        """
        return open_model(self.directory, head_kind(target), n_outputs(target)).model.state_dict()


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which model of a run it was.

    Attributes:
        by: the last, or the best.
        metric: whose value was best.
        step: after how many updates the model was taken; None: the last.
        evaluations: among how many it was the best; 1 where nothing was chosen.
    """

    by: SelectedBy
    metric: str
    step: int | None = None
    evaluations: int = 1

    @property
    def rule(self) -> str:
        """A line for people on how models are selected."""
        if self.by == "last":
            return "selection: the model after the last step"
        return (
            f"selection: the best of {self.evaluations} evaluations by {self.metric} on the development set; a score "
            "that is chosen on the set it is reported on is somewhat high"
        )

    @property
    def note(self) -> str:
        """The rule and what came of it."""
        return self.rule if self.step is None else f"{self.rule} (step {self.step:,})"

    def to_json(self) -> dict[str, Any]:
        """What `results.json` holds of it."""
        return {**vars(self), "rule": self.rule, "note": self.note}


def selection_of(by: SelectedBy, scores: Mapping[str, float | None], journal: Path) -> Selection:
    """What is to be told of a finished run, whose journal has all of its evaluations."""
    metric = next(iter(scores))
    if by == "last":
        return Selection(by=by, metric=metric)
    evaluations = [record for record in read_journal(journal) if record["event"] == "evaluation"]
    best = evaluations[0]
    for record in evaluations[1:]:
        best = record if is_better(metric, record.get(metric), best.get(metric)) else best
    return Selection(by=by, metric=metric, step=best["step"], evaluations=len(evaluations))
