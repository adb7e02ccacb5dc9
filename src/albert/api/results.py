"""What `albert.finetune` and `albert.evaluate` give back: scores beside constants, rows, and all that was computed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from albert.api.functions import Points, Shown, journal_curves, score_rows, shown
from albert.api.keywords import in_python
from albert.experiments.layers import DepthCurve, PrecisionScore
from albert.finetuning.evaluation import EvaluatedModels
from albert.finetuning.run_record import FinetuningResult
from albert.finetuning.seeds import BenchmarkResult, SeedsResult
from albert.pretraining.evaluation import CrossEvaluation
from albert.runtime.environment import Precision
from albert.tasks.custom import ReadTask
from albert.tasks.table_task import SplitStatistics
from albert.tasks.task import Task


@dataclass(frozen=True)
class Reading:
    """How the rows of a task were read, and what they are like."""

    read: ReadTask | None
    """Columns and what was inferred from them; None for a declared task."""
    statistics: Mapping[str, SplitStatistics]
    max_length: int


@dataclass(frozen=True, repr=False, kw_only=True)
class FinetuneResult(Shown):
    """A fine-tuned model and its scores on the development set.

    Attributes:
        output: the run's directory; None where rows were only looked at.
        model: the model directory; of several seeds the best one's, None for a benchmark.
        scores: on the development set; medians over seeds, and `task/score` for a benchmark.
        baseline: what the best constant answer scores.
        linear_baseline: what a linear model scores on the same rows, with its `method`.
        report: what results.json holds, or summary.json of several seeds or a benchmark.
        reading: how the rows were read, where that was asked for.
        task: the declaration; None for a benchmark.
        found: the run, or the runs.
    """

    output: Path | None = None
    model: Path | None = None
    scores: Mapping[str, float | None] = field(default_factory=dict)
    baseline: Mapping[str, float | None] | None = None
    linear_baseline: Mapping[str, Any] | None = None
    report: Mapping[str, Any] = field(default_factory=dict)
    reading: Reading | None = None
    task: Task | None = None
    found: FinetuningResult | SeedsResult | BenchmarkResult | None = None

    def title(self) -> str:
        name = self.task.title if self.task is not None else self.report.get("benchmark", self.report.get("task"))
        if self.output is None:
            return f"FinetuneResult: rows of {name}; nothing was trained"
        training = self.report.get("training")
        about = f", {training['steps']:,} steps on {training['examples']:,} rows" if training else ""
        runs = f", the median of {len(self.found.runs)} seeds" if isinstance(self.found, SeedsResult) else ""
        return f"FinetuneResult: {name}{about}{runs}"

    def rows(self) -> list[tuple[str, ...]]:
        if self.reading is not None:
            splits = self.reading.statistics
            labels = dict.fromkeys(label for one in splits.values() for label in one.labels)
            rows = [("rows", *(f"{one.rows:,}" for one in splits.values()))]
            rows += [(label, *(f"{one.labels.get(label, 0):,}" for one in splits.values())) for label in labels]
            return [("", *splits), *rows]
        return score_rows(self.scores, self.baseline, self.linear_baseline)

    def remarks(self) -> list[str]:
        said = [f"model: {self.model}"] if self.model is not None else []
        if self.report.get("advice"):
            said.append(in_python(str(self.report["advice"]), ("epochs", "learning_rate", "model")))
        return said

    def curves(self) -> dict[str, Points]:
        one = self.output is not None and isinstance(self.found, FinetuningResult)
        return journal_curves(self.output, list(self.scores)[:1]) if one and self.output is not None else {}


@dataclass(frozen=True, kw_only=True)
class ScoredSplit:
    """What one model, or several, scored on a split of a task."""

    task: Task
    models: tuple[str, ...]
    split: str
    found: EvaluatedModels
    precision: Precision
    submission: Mapping[Path, int] = field(default_factory=dict)
    """Files to hand in -> predictions in each."""


@dataclass(frozen=True, kw_only=True)
class ComparedPrecisions:
    """One model at several precisions."""

    found: Sequence[PrecisionScore]
    tolerance: float


@dataclass(frozen=True, kw_only=True)
class PretrainedScores:
    """What pre-trained models know of held-out text."""

    found: CrossEvaluation
    precision: Precision


@dataclass(frozen=True, repr=False, kw_only=True)
class EvaluateResult(Shown):
    """Scores of a model, or of several.

    Attributes:
        scores: of the model, or of all models together; empty where rows have no labels. For `depth`, `patience` and
            several precisions those of the first row.
        baseline: what the best constant answer scores.
        report: what `results` writes.
        found: everything that was computed.
    """

    scores: Mapping[str, float | None]
    baseline: Mapping[str, float | None] | None
    report: Mapping[str, Any]
    found: ScoredSplit | ComparedPrecisions | DepthCurve | PretrainedScores

    @property
    def predictions(self) -> list[dict[str, Any]]:
        """One entry an example: `id`, `prediction`, `gold`, and probabilities or the place in the context."""
        return self.found.found.together.predictions if isinstance(self.found, ScoredSplit) else []

    def title(self) -> str:
        match self.found:
            case ScoredSplit(task=task, split=split, found=found, precision=precision):
                examples = len(found.together.predictions)
                return f"EvaluateResult: {examples:,} examples of {task.title}, {split}, {precision}"
            case DepthCurve(examples=examples):
                return f"EvaluateResult: {examples:,} examples at several depths"
            case PretrainedScores(found=found):
                return f"EvaluateResult: {found.sequences:,} held-out sequences; accuracy in percent"
            case ComparedPrecisions():
                return "EvaluateResult: one model at several precisions"

    def rows(self) -> list[tuple[str, ...]]:
        match self.found:
            case DepthCurve(points=points):
                names = list(points[0].scores)
                cells = [
                    (
                        f"depth {one.depth}" if one.patience is None else f"patience {one.patience}",
                        f"{one.mean_depth:.2f}",
                        f"{one.gflops:.3g}",
                        f"{one.milliseconds:.3g}",
                        *(shown(one.scores[name]) for name in names),
                    )
                    for one in points
                ]
                return [("", "layers", "GFLOPs", "ms", *names), *cells]
            case ComparedPrecisions(found=found):
                names = list(found[0].evaluation.scores)
                return [
                    ("", *names, "difference"),
                    *(
                        (one.precision, *(shown(one.evaluation.scores[n]) for n in names), f"{one.difference:+.2f}")
                        for one in found
                    ),
                ]
            case PretrainedScores(found=found):
                tests = list(found.counts)
                rows = [
                    (one.model, *(shown(100 * one.scores[t].accuracy) if t in one.scores else "-" for t in tests))
                    for one in found.models
                ]
                constants = {t: s.baseline for one in found.models for t, s in one.scores.items()}
                constant = (shown(100 * constants[t]) if t in constants else "-" for t in tests)
                return [("", *tests), *rows, ("best constant", *constant)]
            case ScoredSplit(models=models, found=found) if len(models) > 1:
                heading, *rows = score_rows(self.scores, self.baseline) or [()]
                each = [member.evaluation.scores for member in found.members]
                told = [(name, *(shown(one.get(name)) for one in each), *cells) for name, *cells in rows]
                return [("", *models, "together", *heading[2:]), *told] if told else []
            case ScoredSplit():
                return score_rows(self.scores, self.baseline)
