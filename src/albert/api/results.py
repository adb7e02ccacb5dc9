"""Results of `albert.finetune` and `albert.evaluate`: scores, baselines, and tables of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from albert.api.display import Displayable, Points, journal_curves
from albert.finetuning.comparisons import Comparison
from albert.finetuning.evaluation import (
    AT_RANDOM,
    FROZEN,
    MAJORITY,
    EvaluatedModels,
    data_warnings,
    format_score,
    run_notes,
)
from albert.finetuning.report_page import (
    REPORT_NAME,
    advice_lines,
    calibration_line,
    calibration_rows,
    class_rows,
    confusion_rows,
    error_cells,
)
from albert.finetuning.run_record import FinetuningResult
from albert.finetuning.seeds import BenchmarkResult, SeedsResult
from albert.pretraining.evaluation import CrossEvaluation, Score
from albert.report.depths import DepthCurve
from albert.report.precisions import EXACT, PrecisionScore
from albert.runtime.environment import Precision
from albert.runtime.json_files import read_versioned
from albert.runtime.python_words import in_python
from albert.runtime.words import counted
from albert.tasks.custom import ReadTask
from albert.tasks.declared import DeclaredTask
from albert.tasks.table_task import SplitStatistics
from albert.training.run_folder import RESULTS_NAME

SHOWN_LABELS = 20


@dataclass(frozen=True, repr=False)
class DataReport(Displayable):
    """How the rows of a task were read, and their statistics by split."""

    read: ReadTask | None
    """Columns and what was inferred from them; None for a declared task."""
    statistics: Mapping[str, SplitStatistics]
    max_length: int
    warnings: tuple[str, ...] = ()
    """Lines about texts that the model's vocabulary does not know."""

    def title(self) -> str:
        return "DataReport: how the rows were read"

    def rows(self) -> list[tuple[str, ...]]:
        splits = self.statistics
        labels = [*dict.fromkeys(label for split in splits.values() for label in split.labels)]
        rows = [("rows", *(f"{split.rows:,}" for split in splits.values()))]
        for label in labels[:SHOWN_LABELS]:
            rows.append((label, *(f"{split.labels.get(label, 0):,}" for split in splits.values())))
        if len(labels) > SHOWN_LABELS:
            others = labels[SHOWN_LABELS:]
            counts = (sum(split.labels.get(label, 0) for label in others) for split in splits.values())
            rows.append((counted(len(others), "others"), *(f"{count:,}" for count in counts)))
        return [("", *splits), *rows]

    def remarks(self) -> list[str]:
        lines = []
        for rows in self.read.raw.values() if self.read is not None else ():
            lines += rows.notes
        for name, split in self.statistics.items():
            counts = ", ".join(f"{what}: {count:,}" for what, count in split.counts.items() if count)
            lines += [f"{name}: {counts}"] if counts else []
        if self.read is not None:
            lines += [f"{item.what}: {item.value} (because: {item.why})" for item in self.read.inferred]
        return [*lines, *self.warnings]


@dataclass(frozen=True, repr=False)
class Confusion(Displayable):
    """How often each class was predicted for each right one.

    Attributes:
        labels: the classes; an empty one is no entity.
        counts: [right class, predicted class]; with several labels per example [label, right, predicted] of 2 by 2;
            None for more than 200 classes.
        largest: the largest confusions first, as dicts of `gold`, `predicted` and `count`.
    """

    labels: Sequence[str]
    counts: Sequence[Sequence[Any]] | None
    largest: Sequence[Mapping[str, Any]]

    def title(self) -> str:
        return f"Confusion of {len(self.labels):,} classes, the largest first"

    def rows(self) -> list[tuple[str, ...]]:
        return confusion_rows(vars(self), SHOWN_CONFUSIONS)


class Analysed(Displayable):
    """Base of results that say where a model is right and wrong. The lists of dicts are rows for a data frame."""

    @property
    def analysis(self) -> Mapping[str, Any]:
        """Where the model is right and wrong, as in results.json."""
        raise AssertionError("every such result has an analysis")

    @property
    def per_class(self) -> list[dict[str, Any]]:
        """Precision, recall and F1 in points, count and predicted count of each class, label, entity type or tag."""
        return self.analysis.get("per_class") or []

    @property
    def confusion(self) -> Confusion | None:
        """Which classes were predicted for which; None for numbers and for answers in a text."""
        found = self.analysis.get("confusion")
        return None if not found else Confusion(**found)

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The most confident errors with their text; of numbers those with the largest difference."""
        return self.analysis.get("errors") or []

    @property
    def calibration(self) -> dict[str, Any] | None:
        """Expected calibration error and bins of probability; None for numbers."""
        return self.analysis.get("calibration")

    def tables(self) -> list[tuple[str, list[tuple[str, ...]]]]:
        return analysis_tables(self.analysis)


SHOWN_CLASSES = 40
SHOWN_CONFUSIONS = 20
SHOWN_ERRORS = 5
SHOWN_TEXT = 80


def analysis_tables(analysis: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, ...]]]]:
    """Titles and tables, headings first: classes, the largest confusions and most confident errors, calibration."""
    tables = []
    classes = analysis.get("per_class") or []
    if classes:
        title = "Classes" if len(classes) <= SHOWN_CLASSES else f"The {SHOWN_CLASSES} classes with the lowest F1"
        tables.append((title, class_rows(classes, SHOWN_CLASSES)))
    confusions = confusion_rows(analysis.get("confusion"), SHOWN_ERRORS)
    if confusions:
        tables.append(("Largest confusions", confusions))
    errors = analysis.get("errors") or []
    if errors:
        of_numbers = "difference" in errors[0]
        rows: list[tuple[str, ...]] = [("text", "right", "predicted", "difference" if of_numbers else "probability")]
        for error in errors[:SHOWN_ERRORS]:
            text = " ".join(f"{error['words']}: {error['text']}".split() if "words" in error else error["text"].split())
            text = text if len(text) <= SHOWN_TEXT else text[: SHOWN_TEXT - 1] + "…"
            rows.append((text, *error_cells(error)))
        tables.append(("Largest errors" if of_numbers else "Most confident errors", rows))
    calibration = analysis.get("calibration")
    if calibration:
        line = calibration_line(calibration)
        tables.append((line, calibration_rows(calibration)))
    return tables


_ADVISED = ("epochs", "learning_rate", "model", "class_weights", "metrics", "frozen")
"""The options that advice names, which are keywords in Python."""


@dataclass(frozen=True, repr=False, kw_only=True)
class FinetuneResult(Analysed):
    """A fine-tuned model and its scores on the development set.

    Attributes:
        output: the run's directory; None if nothing was trained.
        model: the model directory; of several seeds or rates that of the best one, None for a benchmark or folds.
        scores: on the development set; medians over seeds, means over folds, and `task/score` for a benchmark.
        baseline: scores of the majority baseline; of vectors from pairs, those of a random choice.
        linear_baseline: scores of a linear model on the same rows, and its `method`.
        report: the content of results.json, or of summary.json for several seeds or a benchmark.
        reading: how the rows were read, if nothing was trained.
        task: the declaration; None for a benchmark.
        found: everything that the run or the runs returned.
    """

    output: Path | None = None
    model: Path | None = None
    scores: Mapping[str, float | None] = field(default_factory=dict)
    baseline: Mapping[str, float | None] | None = None
    linear_baseline: Mapping[str, Any] | None = None
    report: Mapping[str, Any] = field(default_factory=dict)
    reading: DataReport | None = None
    task: DeclaredTask | None = None
    found: FinetuningResult | SeedsResult | BenchmarkResult | Comparison | None = None

    @property
    def analysis(self) -> Mapping[str, Any]:
        """Where the model is right and wrong; of several seeds or rates that of `model`, of folds that of the fold with
        the median score."""
        if isinstance(self.found, Comparison):
            return self.found.typical.report
        if isinstance(self.found, FinetuningResult) or self.model is None:
            return self.report
        return read_versioned(self.model.parent / RESULTS_NAME)

    def title(self) -> str:
        name = self.task.title if self.task is not None else self.report.get("benchmark", self.report.get("task"))
        if self.output is None:
            return f"FinetuneResult: rows of {name}; nothing was trained"
        training = self.report.get("training")
        about = (
            f", {counted(training['steps'], 'steps')} on {counted(training['examples'], 'rows')}" if training else ""
        )
        runs = (
            f", the median of {counted(len(self.found.runs), 'seeds')}" if isinstance(self.found, SeedsResult) else ""
        )
        return f"FinetuneResult: {name}{about}{runs}"

    def rows(self) -> list[tuple[str, ...]]:
        if self.reading is not None:
            return self.reading.rows()
        if isinstance(self.found, Comparison):
            return comparison_rows(self.found)
        linear = self.linear_baseline or {"method": "", "scores": None}
        frozen = self.report.get("frozen_head") or {"scores": None}
        baseline = AT_RANDOM if self.report.get("task") == "contrastive" else MAJORITY
        compared = {baseline: self.baseline, linear["method"]: linear["scores"]}
        compared["before training"] = self.report.get("before")
        if not self.report.get("settings", {}).get("frozen"):
            compared[FROZEN] = frozen["scores"]
        return score_rows(self.scores, compared)

    def remarks(self) -> list[str]:
        lines = [self.found.conclusion] if isinstance(self.found, Comparison) else []
        lines += [f"model: {self.model}"] if self.model is not None else []
        lines += [in_python(line, _ADVISED) for line in advice_lines(self.report)]
        if isinstance(self.found, FinetuningResult) and self.output is not None:
            report = self.output / REPORT_NAME
            lines += [f"report: {report}"] if report.exists() else []
            lines += run_notes(self.report)
        return lines

    def curves(self) -> dict[str, Points]:
        if self.output is None or not isinstance(self.found, FinetuningResult):
            return {}
        return journal_curves(self.output, list(self.scores)[:1])


@dataclass(frozen=True, kw_only=True)
class ScoredSplit:
    """Scores of one or several models on a split of a task."""

    task: DeclaredTask
    models: tuple[str, ...]
    split: str
    found: EvaluatedModels
    precision: Precision
    submission: Mapping[Path, int] = field(default_factory=dict)
    """Files for the benchmark's server -> predictions in each."""


@dataclass(frozen=True, repr=False, kw_only=True)
class EvaluateResult(Analysed):
    """Scores of a model, or of several.

    Attributes:
        scores: of the model, or of all models together; empty without labels. For several depths or precisions those of
            the first row.
        baseline: scores of the majority baseline.
        report: the content of the file `results`.
        found: everything that was computed.
    """

    scores: Mapping[str, float | None]
    baseline: Mapping[str, float | None] | None
    report: Mapping[str, Any]
    found: ScoredSplit | Sequence[PrecisionScore] | DepthCurve | CrossEvaluation

    @property
    def analysis(self) -> Mapping[str, Any]:
        return self.found.found.analysis if isinstance(self.found, ScoredSplit) else {}

    @property
    def predictions(self) -> list[dict[str, Any]]:
        """One dict for each example: `id`, `prediction`, `gold`, and probabilities or the position in the context."""
        return self.found.found.together.predictions if isinstance(self.found, ScoredSplit) else []

    def title(self) -> str:
        match self.found:
            case ScoredSplit(task=task, split=split, found=found, precision=precision):
                examples = len(found.together.predictions)
                return f"EvaluateResult: {counted(examples, 'examples')} of {task.title}, {split}, {precision}"
            case DepthCurve(examples=examples):
                return f"EvaluateResult: {counted(examples, 'examples')} at several depths"
            case CrossEvaluation(sequences=sequences):
                return f"EvaluateResult: {counted(sequences, 'held-out sequences')}; accuracy in percent"
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
                return score_rows(self.scores, {MAJORITY: self.baseline})
            case found:
                return precision_rows(found)

    def remarks(self) -> list[str]:
        if not isinstance(self.found, ScoredSplit):
            return []
        models = self.found.models
        lines = [f"{number}: {model}" for number, model in enumerate(models, start=1)] if len(models) > 1 else []
        lines += self.report.get("warnings", ())
        return lines + data_warnings(self.found.found.together.counts)


# --------------------------------------------------------------------------------------------------------------------
# Tables of scores, headings first: for `repr`, notebooks and the terminal.

TOGETHER = "together"
_HEADINGS = {
    "masked_tokens": "MLM",
    "next_sentence": "NSP",
    "sentence_order": "SOP",
}


def is_score(name: str) -> bool:
    """Whether a name is that of a score, not of a chosen threshold, which has no baseline."""
    return "thresh" not in name


def shown_if_known(scores: Mapping[str, float | None] | None, name: str) -> str:
    """A score, or a dash if there is none of that name."""
    return format_score(scores[name]) if scores is not None and name in scores else "-"


def score_rows(
    scores: Mapping[str, float | None], compared: Mapping[str, Mapping[str, float | None] | None]
) -> list[tuple[str, ...]]:
    """Scores beside others of the same names, such as those of the majority baseline."""
    others = {heading: values for heading, values in compared.items() if values}
    rows = [("", "score", *others)]
    for name, value in scores.items():
        cells = (format_score(each[name]) if name in each and is_score(name) else "" for each in others.values())
        rows.append((name, format_score(value), *cells))
    return rows if len(rows) > 1 else []


def comparison_rows(found: Comparison) -> list[tuple[str, ...]]:
    """The scores of each run; of folds mean and standard deviation, too; and those of simpler models, of folds their
    means."""
    more = ("mean", "deviation") if found.by == "fold" else ()
    simpler = found.simpler
    headings = [f"{name}, mean" if more else name for name in simpler]
    rows: list[tuple[str, ...]] = [("score", *(run.name for run in found.runs), *more, *headings)]
    names = dict.fromkeys(name for run in found.runs for name in run.scores)
    for name in filter(is_score, names):
        cells = [shown_if_known(run.scores, name) for run in found.runs]
        if more:
            cells += [shown_if_known(found.means, name), shown_if_known(found.deviations, name)]
        cells += [shown_if_known(scores, name) for scores in simpler.values()]
        rows.append((name, *cells))
    return rows


def together_rows(found: EvaluatedModels) -> list[tuple[str, ...]]:
    """Scores of each model, by number because paths may be long, and of all together."""
    together = found.together
    baseline = found.together.baseline
    numbers = [str(number) for number in range(1, len(found.members) + 1)]
    rows: list[tuple[str, ...]] = [("score", *numbers, TOGETHER, *([] if baseline is None else [MAJORITY]))]
    for name, score in together.scores.items():
        if is_score(name):
            members = (format_score(member.scores[name]) for member in found.members)
            rows.append(
                (name, *members, format_score(score), *([] if baseline is None else [format_score(baseline[name])]))
            )
    return rows


def depth_rows(curve: DepthCurve) -> list[tuple[str, ...]]:
    """A row for each depth: GFLOPs and milliseconds of an example, and scores."""
    metrics = [name for name in curve.points[0].scores if is_score(name)]
    rows: list[tuple[str, ...]] = [("depth", "GFLOPs", "ms", *metrics)]
    for point in curve.points:
        costs = (f"{point.gflops:.3g}", f"{point.milliseconds:.3g}")
        rows.append((str(point.depth), *costs, *(format_score(point.scores[name]) for name in metrics)))
    if curve.baseline is not None:
        rows.append((MAJORITY, "-", "-", *(format_score(curve.baseline[name]) for name in metrics)))
    return rows


def precision_rows(results: Sequence[PrecisionScore]) -> list[tuple[str, ...]]:
    """A row for each precision: scores, difference in the first score, changed answers, seconds, verdict."""
    names = [name for name in results[0].evaluation.scores if is_score(name)]
    rows: list[tuple[str, ...]] = [("precision", *names, "difference", "answers changed", "seconds", "score")]
    for result in results:
        difference = ""
        changed = ""
        verdict = ""
        if result.precision != EXACT:
            difference = f"{result.difference:+.2f}"
            verdict = "ok" if result.holds else "lower"
            changed = f"{result.changed:,} of {len(result.evaluation.predictions):,}"
        scores = (format_score(result.evaluation.scores[name]) for name in names)
        rows.append((result.precision, *scores, difference, changed, f"{result.evaluation.seconds:.1f}", verdict))
    return rows


def pretrained_rows(found: CrossEvaluation) -> list[tuple[str, ...]]:
    """A row for each model and a column for each test, in percent; then the majority baseline and the counts."""
    rows: list[tuple[str, ...]] = [("accuracy, %", "objective", *(_HEADINGS[test] for test in found.counts), "loss")]
    for model in found.models:
        masked = model.scores.get("masked_tokens")  # none if all held-out tokens are unknown
        loss = "-" if masked is None else f"{masked.loss:.3f}"
        accuracies = (_accuracy(model.scores.get(test)) for test in found.counts)
        rows.append((model.model, model.sentence_objective, *accuracies, loss))
    baselines = {test: score.baseline for model in found.models for test, score in model.scores.items()}
    shares = (f"{100 * baselines[test]:.1f}" if test in baselines else "-" for test in found.counts)
    return [
        *rows,
        (MAJORITY, "", *shares, ""),
        ("n", "", *(f"{count:,}" for count in found.counts.values()), ""),
    ]


def _accuracy(score: Score | None) -> str:
    """An accuracy, with its 95 % interval on a second line."""
    return "-" if score is None else f"{100 * score.accuracy:.1f}\n{100 * score.low:.1f}–{100 * score.high:.1f}"
