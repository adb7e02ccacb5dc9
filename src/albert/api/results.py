"""What `albert.finetune` and `albert.evaluate` give back: scores beside constants, rows, and all that was computed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from albert.api.functions import Points, Shown, journal_curves
from albert.api.keywords import in_python
from albert.experiments.layers import EXACT, DepthCurve, PrecisionScore
from albert.finetuning.evaluation import EvaluatedModels, format_score
from albert.finetuning.run_record import FinetuningResult
from albert.finetuning.seeds import BenchmarkResult, SeedsResult
from albert.pretraining.evaluation import CrossEvaluation, Score
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
    found: ScoredSplit | Sequence[PrecisionScore] | DepthCurve | CrossEvaluation

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
            case CrossEvaluation(sequences=sequences):
                return f"EvaluateResult: {sequences:,} held-out sequences; accuracy in percent"
            case _:
                return "EvaluateResult: one model at several precisions"

    def rows(self) -> list[tuple[str, ...]]:
        match self.found:
            case DepthCurve() as curve:
                return depth_rows(curve)
            case CrossEvaluation() as found:
                return pretrained_rows(found)
            case ScoredSplit(models=models, found=found) if len(models) > 1:
                return together_rows(found)
            case ScoredSplit():
                return score_rows(self.scores, self.baseline)
            case found:
                return precision_rows(found)

    def remarks(self) -> list[str]:
        models = self.found.models if isinstance(self.found, ScoredSplit) else ()
        return [f"{number}: {model}" for number, model in enumerate(models, start=1)] if len(models) > 1 else []


# --------------------------------------------------------------------------------------------------------------------
# Scores as rows, headings first: for `repr`, notebooks and the terminal.

TOGETHER, CONSTANT = "together", "constant answer"
_HEADINGS = {
    "masked_tokens": "MLM",
    "next_sentence": "NSP",
    "sentence_order": "SOP",
    "reference_order": "SOP of the reference",
}


def is_score(name: str) -> bool:
    """Whether it is one, and not a threshold that was chosen, which has no constant to compare with."""
    return "thresh" not in name


def shown_if_known(scores: Mapping[str, float | None] | None, name: str) -> str:
    """A score, or a dash where there is none of that name."""
    return format_score(scores[name]) if scores is not None and name in scores else "-"


def score_rows(
    scores: Mapping[str, float | None],
    baseline: Mapping[str, float | None] | None,
    linear: Mapping[str, Any] | None = None,
) -> list[tuple[str, ...]]:
    """Scores beside the best constant answer's and, where there is one, the linear model's."""
    others: dict[str, Mapping[str, float | None]] = {}
    if baseline is not None:
        others["best constant"] = baseline
    if linear is not None and linear["scores"]:
        others[linear["method"]] = linear["scores"]
    rows = [("", "score", *others)]
    for name, value in scores.items():
        beside = (format_score(o[name]) if name in o and is_score(name) else "" for o in others.values())
        rows.append((name, format_score(value), *beside))
    return rows if len(rows) > 1 else []


def together_rows(found: EvaluatedModels) -> list[tuple[str, ...]]:
    """Scores of each model, which have their numbers because their paths may be long, and of all together."""
    together, baseline = found.together, found.together.baseline
    numbers = [str(place) for place in range(1, len(found.members) + 1)]
    rows: list[tuple[str, ...]] = [("score", *numbers, TOGETHER, *([] if baseline is None else [CONSTANT]))]
    for name, score in together.scores.items():
        each = (format_score(member.evaluation.scores[name]) for member in found.members)
        if is_score(name):
            constant = [] if baseline is None else [format_score(baseline[name])]
            rows.append((name, *each, format_score(score), *constant))
    return rows


def depth_rows(curve: DepthCurve) -> list[tuple[str, ...]]:
    """A row for each depth and patience; of an example layers, GFLOPs and milliseconds."""
    metrics = [name for name in curve.points[0].scores if is_score(name)]
    rows: list[tuple[str, ...]] = [("run", "layers", "GFLOPs", "ms", *metrics)]
    for point in curve.points:
        run = f"depth {point.depth}" if point.patience is None else f"patience {point.patience}"
        costs = (f"{point.mean_depth:.2f}", f"{point.gflops:.3g}", f"{point.milliseconds:.3g}")
        rows.append((run, *costs, *(format_score(point.scores[name]) for name in metrics)))
    if curve.baseline is not None:
        rows.append((CONSTANT, "-", "-", "-", *(format_score(curve.baseline[name]) for name in metrics)))
    return rows


def precision_rows(found: Sequence[PrecisionScore]) -> list[tuple[str, ...]]:
    """A row for each precision: every score, the difference in the first, answers that changed, seconds, verdict."""
    names = [name for name in found[0].evaluation.scores if is_score(name)]
    rows: list[tuple[str, ...]] = [("precision", *names, "difference", "answers changed", "seconds", "score holds")]
    for row in found:
        scores = [format_score(row.evaluation.scores[name]) for name in names]
        compared = ["", "", ""]
        if row.precision != EXACT:
            changed = f"{row.changed:,} of {len(row.evaluation.predictions):,}"
            compared = [f"{row.difference:+.2f}", changed, "yes" if row.holds else "NO"]
        rows.append((row.precision, *scores, *compared[:2], f"{row.evaluation.seconds:.1f}", compared[2]))
    return rows


def pretrained_rows(found: CrossEvaluation) -> list[tuple[str, ...]]:
    """Rows of models, columns of tests, in percent; then what a constant answer scores, and of how many items."""
    rows: list[tuple[str, ...]] = [("right, %", "head learnt", *(_HEADINGS[test] for test in found.counts), "loss")]
    for one in found.models:
        loss = f"{one.scores['masked_tokens'].loss:.3f}"
        rows.append((one.model, one.learnt, *(_accuracy(one.scores.get(test)) for test in found.counts), loss))
    baselines = {test: score.baseline for one in found.models for test, score in one.scores.items()}
    shares = (f"{100 * baselines[test]:.1f}" if test in baselines else "-" for test in found.counts)
    return [
        *rows,
        ("a constant answer", "", *shares, ""),
        ("of", "", *(f"{count:,}" for count in found.counts.values()), ""),
    ]


def _accuracy(score: Score | None) -> str:
    """With its 95 % interval in a second line."""
    if score is None:
        return "-"
    low, high = score.interval
    return f"{100 * score.accuracy:.1f}\n{100 * low:.1f}–{100 * high:.1f}"
