"""Several fine-tuning runs: one task with several seeds, a whole benchmark, and diagnostic sets.

OUTPUT/seed-0, seed-1, …   the runs; finished ones are kept
    summary.json           every run and the spread of every score, updated after each run"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from albert.finetuning.evaluation import evaluate_directory, write_predictions
from albert.finetuning.fill_in import RecipeLike, read_record
from albert.finetuning.initial_model import PretrainedEncoder, Start
from albert.finetuning.objective import TeacherLogits
from albert.finetuning.several import finetune_one, require_one_that_ended
from albert.finetuning.task_run import check_run, save_custom_task
from albert.finetuning.task_training import Announce
from albert.recipes.finetuning import FinetuningSettings, TaskRecipe
from albert.report.advice import advice, simpler_models
from albert.runtime.environment import world
from albert.runtime.errors import Diverged, InvalidConfiguration, MissingInput
from albert.runtime.json_files import from_json, save_versioned, to_json
from albert.runtime.progress import progress
from albert.tasks.declared import DeclaredTask
from albert.tasks.metrics import is_beaten, is_better
from albert.tasks.submission import DECLARED, Average
from albert.tasks.task import MAJORITY
from albert.training.run_folder import SUMMARY_NAME, RunFolder
from albert.training.same_run import refuse_other_runs


@dataclass(frozen=True, kw_only=True)
class SeedRun:
    """The run of one seed. Scores of a further split are named `score/split`; `failure` is the reason of a failure."""

    seed: int
    directory: Path
    scores: Mapping[str, float | None]
    step: int | None = None  # of the model, if it is not the last
    failure: str | None = None


@dataclass(frozen=True)
class Spread:
    """The distribution of a score over runs; quartiles are interpolated. `undefined` runs have no value."""

    median: float
    lowest: float
    lower_quartile: float
    upper_quartile: float
    highest: float
    runs: int
    undefined: int


@dataclass(frozen=True, kw_only=True)
class SeedsResult:
    """All runs of a task, including failed ones: a median without them would be biased.

    Attributes:
        selection: which model of a run is scored.
        linear_baseline: a `LinearBaseline` as plain values; like `notes` that of the last run.
        frozen_head: the scores of the frozen model with a linear head, of the last run.
        simpler: the scores of these three on all splits, of the last run; see `simpler_models`.
        settings: of the last run.
    """

    task: str
    runs: tuple[SeedRun, ...]
    baseline: Mapping[str, float | None] | None
    selection: str
    baseline_name: str = MAJORITY
    notes: tuple[str, ...] = ()
    linear_baseline: Mapping[str, Any] | None = None
    frozen_head: Mapping[str, float | None] | None = None
    simpler: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def advice(self) -> str | None:
        """Which model to use, if the median does not beat a simpler one."""
        is_frozen = self.settings.get("frozen", False)
        is_weighted = self.settings.get("class_weights") is not None
        found = advice(self.medians, self.simpler, is_frozen=is_frozen, is_weighted=is_weighted)
        return found and f"median: {found}"

    @property
    def failed(self) -> tuple[SeedRun, ...]:
        return tuple(run for run in self.runs if run.failure is not None)

    @property
    def spreads(self) -> dict[str, Spread]:
        """The spread of every score that at least one run has."""
        names = dict.fromkeys(name for run in self.runs for name in run.scores)
        spreads = {name: score_spread([run.scores.get(name) for run in self.runs]) for name in names}
        return {name: spread for name, spread in spreads.items() if spread is not None}

    @property
    def medians(self) -> dict[str, float]:
        """The median of every score that is defined in all runs."""
        return {name: spread.median for name, spread in self.spreads.items() if not spread.undefined}

    @property
    def best(self) -> SeedRun:
        """The run with the best first score, the first among equals."""
        best = self.runs[0]
        for run in self.runs[1:]:
            name = next(iter(run.scores), "")
            best = run if is_better(name, run.scores.get(name), next(iter(best.scores.values()), None)) else best
        return best

    def to_json(self) -> dict[str, Any]:
        """The content of `summary.json`."""
        return {
            "task": self.task,
            "scores": {name: vars(spread) for name, spread in self.spreads.items()},
            "baseline": None if self.baseline is None else dict(self.baseline),
            "baseline_name": self.baseline_name,
            "linear_baseline": self.linear_baseline,
            "frozen_head": None if self.frozen_head is None else {"scores": self.frozen_head},
            "simpler_models": self.simpler,
            "advice": self.advice,
            "failed_seeds": [run.seed for run in self.failed],
            "runs": [{**vars(run), "directory": run.directory.name} for run in self.runs],
            "selection": self.selection,
            "notes": list(self.notes),
        }


def finetune_seeds(
    task: DeclaredTask,
    start: Start,
    data: Path,
    output: Path,
    recipe: RecipeLike,
    settings: FinetuningSettings,
    n_seeds: int,
    announce: Announce | None = None,
) -> SeedsResult:
    """Fine-tune with the seeds `settings.seed`, `settings.seed + 1`, …; after a diverged run the next one starts.

    The seed decides the head, the order of examples, dropout, and the rows drawn by `max_train_examples`. All runs use
    the recipe of the first. The same call resumes stopped runs in `output`.
    """
    check_seeds(n_seeds)
    refuse_other_runs(output, "seed")
    runs: list[SeedRun] = []
    divergences: list[str | None] = []
    report: Mapping[str, Any] = {}  # of the last run that did not diverge
    teacher_logits: TeacherLogits = {}
    for seed in range(settings.seed, settings.seed + n_seeds):
        directory = output / f"seed-{seed}"
        shown = announce if seed == settings.seed else None
        run = finetune_one(task, start, data, directory, recipe, replace(settings, seed=seed), teacher_logits, shown)
        report = run.report or report
        divergences.append(run.divergence)
        runs.append(
            SeedRun(
                seed=seed,
                directory=directory,
                scores=run.scores,
                step=run.report.get("selection", {}).get("step"),
                failure=run.divergence
                or failure_reason(run.report.get("scores", {}), run.report.get("baseline"), task.target.baseline_name),
            )
        )
        record = read_record(RunFolder(directory), task.name)
        if record is not None:
            recipe = from_json(TaskRecipe, record["recipe"], str(directory))
            if world().is_first:
                save_custom_task(task, recipe, output)
        if world().is_first:
            save_versioned(output / SUMMARY_NAME, _seeds_result(task, runs, report, settings).to_json())
    require_one_that_ended(output, divergences)
    return _seeds_result(task, runs, report, settings)


def check_seeds(n_seeds: int) -> None:
    """Raise InvalidConfiguration if there are no runs."""
    if n_seeds < 1:
        raise InvalidConfiguration("seeds", f"is {n_seeds}, at least 1 is needed")


def _seeds_result(
    task: DeclaredTask, runs: Sequence[SeedRun], report: Mapping[str, Any], settings: FinetuningSettings
) -> SeedsResult:
    """The result of the runs so far, with what the report of the last one says of all."""
    return SeedsResult(
        task=task.name,
        runs=tuple(runs),
        baseline=report.get("baseline"),
        baseline_name=task.target.baseline_name,
        selection=report.get("selection", {}).get("rule", "selection: no run was completed"),
        notes=tuple(report.get("notes", ())),
        linear_baseline=report.get("linear_baseline"),
        frozen_head=None if settings.frozen else (report.get("frozen_head") or {}).get("scores"),
        simpler=simpler_models(report),
        settings=report.get("settings", {}),
    )


def failure_reason(
    scores: Mapping[str, float | None], baseline: Mapping[str, float | None] | None, name: str = MAJORITY
) -> str | None:
    """Why a run failed: its first score is not better than that of the baseline; None if it is, or if there is none. An
    undefined correlation with a constant counts as 0.

    Args:
        name: of the baseline.
    """
    if baseline is None or not scores:
        return None
    metric, score = next(iter(scores.items()))
    constant = baseline.get(metric) or 0.0
    if score is None:
        return f"{metric} is undefined, every answer is the same"
    if is_beaten(metric, score, constant):
        return None
    return f"{metric} {score:.2f} is no better than the {name}'s {constant:.2f}"


def score_spread(values: Sequence[float | None]) -> Spread | None:
    """The spread of the defined values; None if there are none."""
    defined = [value for value in values if value is not None]
    if not defined:
        return None
    lowest, lower, median, upper, highest = np.percentile(defined, [0, 25, 50, 75, 100]).tolist()
    return Spread(median, lowest, lower, upper, highest, len(defined), len(values) - len(defined))


# --------------------------------------------------------------------------------------------------------------------
# Diagnostic sets have no training data; the model of another task answers them.
#
# OUTPUT/TASK/predictions-SPLIT.jsonl for every split whose file exists, with or without labels


def diagnose(
    task: DeclaredTask, model: str | None, data: Path, output: Path, settings: FinetuningSettings
) -> dict[str, Any]:
    """The `scores` of a `model` of the task that a diagnostic set belongs to, on every split whose file exists.

    `missing` says why others were not evaluated.
    """
    if model is None:
        return {"model": None, "scores": {}, "missing": ["the model of its task is missing"]}
    scores = dict[str, Any]()
    missing = list[str]()
    options = {"device": settings.device, "micro_batch_tokens": settings.micro_batch_tokens}
    options |= {"precision": settings.precision or "fp32", "needs_labels": False}
    for split in task.source.splits:
        try:
            evaluation = evaluate_directory(task, model, data, split, **options)
        except MissingInput as error:
            missing.append(str(error))
            continue
        output.mkdir(parents=True, exist_ok=True)
        write_predictions(output / f"predictions-{split}.jsonl", evaluation)
        scores[split] = dict(evaluation.scores)
    return {"model": model, "scores": scores, "missing": missing}


# --------------------------------------------------------------------------------------------------------------------
# A whole benchmark: every task whose files exist, and the average over all of them.
#
# OUTPUT/TASK/seed-0, …      the runs of each task; finished ones are kept
#     TASK/summary.json      their spread
#     summary.json           all tasks, missing files, and the average; updated after each task
#
# Some tasks start from the model of another one, their `intermediate` (Lan et al. 2019, footnote 4). It is trained
# first; its run with the best development score is the start, and answers the diagnostic set.


@dataclass(frozen=True, kw_only=True)
class TaskOutcome:
    """The runs of one task, or why there are none."""

    task: DeclaredTask
    result: SeedsResult | None = None
    started_from: str | None = None  # the model of another task, if it is not the common start
    missing: str | None = None

    @property
    def best_model(self) -> str | None:
        """The directory of the best run, unless it failed."""
        if self.result is None or self.result.best.failure is not None:
            return None
        return str(self.result.best.directory)

    def to_json(self) -> dict[str, Any]:
        if self.result is None:
            return {"missing": self.missing}
        return {"started_from": self.started_from, **self.result.to_json(), "published": to_json(self.task.published)}


@dataclass(frozen=True)
class BenchmarkResult:
    """All tasks in the order of the average, and a line for each missing file."""

    name: str
    average: Average
    outcomes: tuple[TaskOutcome, ...]
    missing_files: tuple[str, ...]
    diagnostics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def scores(self) -> dict[str, dict[str, float]]:
        return {outcome.task.name: outcome.result.medians for outcome in self.outcomes if outcome.result is not None}

    @property
    def missing_tasks(self) -> tuple[str, ...]:
        """The tasks that lack one of their scores, so that the average is undefined."""
        scores = self.scores
        return tuple(name for name, parts in self.average.parts.items() if not {*parts} <= {*scores.get(name, {})})

    def to_json(self) -> dict[str, Any]:
        return {
            "benchmark": self.name,
            "average": self.average.of(self.scores),
            "average_lacks": list(self.missing_tasks),
            "average_published": to_json(self.average.published),
            "missing_files": list(self.missing_files),
            "tasks": {outcome.task.name: outcome.to_json() for outcome in self.outcomes},
            "diagnostics": self.diagnostics,
        }


def finetune_benchmark(
    name: str,
    average: Average,
    start: Start,
    data: Path,
    output: Path,
    recipe: RecipeLike,
    settings: FinetuningSettings,
    n_seeds: int = 1,
) -> BenchmarkResult:
    """Fine-tune on every task of a benchmark; after a task that diverges the next one starts.

    The same call resumes stopped runs.
    """
    tasks = [DECLARED[task] for task in average.parts]
    missing, missing_files = _missing(name, tasks, data)
    outcomes = {task.name: TaskOutcome(task=task, missing=missing.get(task.name)) for task in tasks}

    needed_first = {task.intermediate for task in tasks}
    for task in sorted(tasks, key=lambda task: task.name not in needed_first):
        if task.name in missing:
            continue
        model = None if task.intermediate is None else outcomes[task.intermediate].best_model
        task_start = start if model is None else PretrainedEncoder(model)
        try:
            found = finetune_seeds(task, task_start, data, output / task.name, recipe, settings, n_seeds)
            outcomes[task.name] = TaskOutcome(task=task, result=found, started_from=model)
        except Diverged as error:
            outcomes[task.name] = TaskOutcome(task=task, missing=str(error))
        result = BenchmarkResult(name, average, tuple(outcomes.values()), missing_files)
        if world().is_first:
            save_versioned(output / SUMMARY_NAME, result.to_json())
    diagnostics = {}
    if world().is_first:
        for diagnostic, task in average.diagnostics.items():
            best = outcomes[task].best_model
            diagnostics[diagnostic] = diagnose(DECLARED[diagnostic], best, data, output / diagnostic, settings)
    result = BenchmarkResult(name, average, tuple(outcomes.values()), missing_files, diagnostics)
    if world().is_first:
        save_versioned(output / SUMMARY_NAME, result.to_json())
    return result


def check_benchmark(
    name: str,
    average: Average,
    start: Start,
    data: Path,
    output: Path,
    recipe: RecipeLike,
    settings: FinetuningSettings,
) -> None:
    """Raise what `finetune_benchmark` would refuse of new runs, by its first task; nothing is written or trained."""
    tasks = [DECLARED[task] for task in average.parts]
    missing, _ = _missing(name, tasks, data)
    check_run(next(task for task in tasks if task.name not in missing), start, data, output, recipe, settings)


def _missing(name: str, tasks: Sequence[DeclaredTask], data: Path) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """The tasks that lack a file, with the reason, and a line for every missing file; MissingInput if all do."""
    missing: dict[str, str] = {}
    lines = []
    with progress("Reading", total=len(tasks), unit="tasks") as bar:
        for task in tasks:
            for split in ("train", "dev", *task.further_splits):
                try:
                    task.source.read(data, split)
                except MissingInput as error:
                    lines.append(f"{task.name}: {error}")
                    if split not in task.further_splits:
                        missing.setdefault(task.name, str(error))
            bar.advance()
    if len(missing) == len(tasks):
        raise MissingInput(data, f"has no task of {name} with training and development files", lines[0])
    return missing, tuple(lines)
