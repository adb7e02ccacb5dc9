"""Which model of a run is its result: the last one, or the one with the best development score.

The paper stops early: it takes the best of evaluations every 100 steps (section 4.9). A score chosen on the set it is
reported on is optimistic, so the last model is the default, and reports say which model was taken. A head that was
solved on frozen features is the first candidate, at step 0: a run never ends below it. An evaluation that equals it
takes its place."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from albert.checkpoints.model_directory import open_model
from albert.recipes.finetuning import PairEncoding, SelectedBy
from albert.runtime.json_files import read_journal, read_versioned, save_versioned
from albert.runtime.words import counted
from albert.tasks.metrics import is_better
from albert.tasks.task import Task

_SCORE_NAME = "score.json"


@dataclass(frozen=True)
class BestModel:
    """The best model so far, kept in a directory while the run goes on; the first one among equals.

    A resumed run finds it there.
    """

    directory: Path

    def is_improved_by(self, scores: Mapping[str, float | None]) -> bool:
        """Return whether the first of the scores is better than the best so far, or equals that of the solved head;
        undefined scores are worst."""
        if not self.directory.is_dir():
            return True
        best = read_versioned(self.directory / _SCORE_NAME)
        name, score = next(iter(scores.items()))
        return _takes_the_place(name, score, best["score"], best["is_probe"])

    def write_score(self, directory: Path, scores: Mapping[str, float | None], is_probe: bool = False) -> None:
        """Write the score of the model in a directory, which becomes the best; of a solved head with `is_probe`."""
        name, score = next(iter(scores.items()))
        values = {"metric": name, "score": score, "is_probe": is_probe}
        save_versioned(directory / _SCORE_NAME, values)

    @property
    def metric(self) -> str:
        """The name of the score, once a model was kept."""
        return read_versioned(self.directory / _SCORE_NAME)["metric"]

    def tensors(self, target: Task, pairs: PairEncoding = "together") -> dict[str, torch.Tensor]:
        """Its weights."""
        return open_model(self.directory, target.model_kind(pairs), target.n_outputs).model.state_dict()


def _takes_the_place(metric: str, score: float | None, best: float | None, best_is_probe: bool) -> bool:
    """Return whether a score is better than the best one, or equals that of the solved head."""
    return is_better(metric, score, best) or (best_is_probe and score is not None and score == best)


def evaluations_without_gain(metric: str, journal: Path) -> int:
    """The number of evaluations in a journal since the best one, the first one among equals."""
    scores = [record.get(metric) for record in read_journal(journal) if record["event"] == "evaluation"]
    best = 0
    for index, score in enumerate(scores):
        best = index if is_better(metric, score, scores[best]) else best
    return max(0, len(scores) - 1 - best)


Trend = Literal["rising", "once", "unknown", "stopped"]
"""What the evaluations of a run say: the last one was the best; there was one, at the end; too little; a plateau."""
PLATEAU_EVALUATIONS = 4
PLATEAU_EPOCHS = 2.0


def score_noise(score: float, examples: int) -> float:
    """The standard error of a score in points of 100 on so many examples, as of a share of them."""
    share = min(max(score / 100, 0.0), 1.0)
    return 100 * math.sqrt(share * (1 - share) / max(1, examples))


def is_lower(score: float, other: float, examples: int) -> bool:
    """Whether a score in points of 100 is below another one on the same examples by more than chance: two standard
    errors."""
    return other - score > 2 * score_noise(score, examples)


def tuned_score(metric: str, journal: Path) -> float | None:
    """The best development score of the model while it was trained."""
    scores = [record.get(metric) for record in read_journal(journal) if record["event"] == "evaluation"]
    return max((score for score in scores if score is not None), default=None)


def development_trend(metric: str, journal: Path, epochs: float, examples: int) -> Trend:
    """Whether the development score of a finished run was still rising.

    It has stopped if the last `PLATEAU_EVALUATIONS` are above the best one before them by no more than the noise of the
    development set, after `PLATEAU_EPOCHS` at least.

    Args:
        epochs: of the run.
        examples: of the development set.
    """
    scores = [record.get(metric) or 0.0 for record in read_journal(journal) if record["event"] == "evaluation"]
    before = scores[:-PLATEAU_EVALUATIONS]
    if before and epochs >= PLATEAU_EPOCHS:
        best = max(before)
        gain = max(scores[-PLATEAU_EVALUATIONS:]) - best
        if gain <= score_noise(best, examples):
            return "stopped"
    if len(scores) < 2:
        return "once"
    if scores[-1] > max(scores[:-1]):
        return "rising"
    return "unknown"


def development_curve(metric: str, journal: Path) -> str | None:
    """The development scores of a run with their steps, as one line; None for fewer than two."""
    records = [record for record in read_journal(journal) if record["event"] == "evaluation"]
    if len(records) < 2:
        return None
    points = (
        f"{record['step']:,}: " + ("-" if metric not in record else f"{record[metric]:.1f}") for record in records
    )
    return f"{metric} on the development set by step: {', '.join(points)}"


def describe_selection(
    by: SelectedBy,
    scores: Mapping[str, float | None],
    journal: Path,
    probe: Mapping[str, float | None] | None = None,
) -> dict[str, Any]:
    """Which model of a finished run is its result, from the evaluations in its journal; with two lines of text.

    Args:
        probe: the scores of a head that was solved before fine-tuning; it is the result if `step` is 0.
    """
    metric = next(iter(scores))
    step = None
    evaluations = 1
    rule = "selection: the model after the last step"
    note = rule
    if by == "best":
        records = [record for record in read_journal(journal) if record["event"] == "evaluation"]
        evaluations = len(records)
        candidates = [(record["step"], record.get(metric)) for record in records]
        if probe is not None:
            candidates = [(0, probe.get(metric)), *candidates]
        step, best = candidates[0]
        for at, score in candidates[1:]:
            if _takes_the_place(metric, score, best, best_is_probe=probe is not None and step == 0):
                step = at
                best = score
        also = "" if probe is None else " and the head solved before them"
        rule = (
            f"selection: the best of {counted(evaluations, 'evaluations')}{also} by {metric} on the development set; "
            "a score that is chosen on the set it is reported on is somewhat high"
        )
        note = f"{rule} (step {step:,})"
        if len(candidates) == 1:
            rule = note = "selection: the model after the last step, the only one that was scored"
        elif step == 0:
            note = f"{rule} (step 0: the head solved on the frozen model, which fine-tuning did not improve)"
    return {"by": by, "metric": metric, "step": step, "evaluations": evaluations, "rule": rule, "note": note}
