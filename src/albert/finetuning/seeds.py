"""Several fine-tuning runs: one task with several seeds, a whole benchmark, and diagnostic sets.

OUTPUT/seed-0, seed-1, …   a run each; finished ones are kept
    summary.json           every run and the spread of every score, written anew after each run"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from albert.finetuning.evaluation import evaluate_directory, write_predictions
from albert.finetuning.model import PretrainedEncoder, Start
from albert.finetuning.objective import TeacherLogits
from albert.finetuning.options import RecipeLike, read_run_record
from albert.finetuning.run import finetune, save_custom_task
from albert.finetuning.run_record import FinetuningSettings
from albert.runtime.environment import world
from albert.runtime.errors import CannotCreate, Diverged, InvalidConfiguration, MissingInput
from albert.runtime.json_files import from_json, save_json, to_json
from albert.runtime.progress import progress
from albert.tasks.metrics import is_better
from albert.tasks.submission import DECLARED, Average
from albert.tasks.task import Task, TaskRecipe
from albert.training.run_folder import RunFolder

SUMMARY_NAME = "summary.json"


@dataclass(frozen=True, kw_only=True)
class SeedRun:
    """The run of one seed. Scores of a further split are called `score/split`; `failure` says what went wrong."""

    seed: int
    directory: Path
    scores: Mapping[str, float | None]
    step: int | None = None  # of the model, where it is not the last
    failure: str | None = None


@dataclass(frozen=True)
class Spread:
    """Where the values of several runs lie; quartiles are interpolated. `undefined` runs have none."""

    median: float
    lowest: float
    lower_quartile: float
    upper_quartile: float
    highest: float
    runs: int
    undefined: int


@dataclass(frozen=True, kw_only=True)
class SeedsResult:
    """All runs of a task, and what a constant answer and a linear model score.

    Failed runs stay in: a median without them would be of chosen runs. `selection` says which model of a run is
    scored; `notes` and `linear_baseline` (a `LinearBaseline` as plain values) are those of the last run.
    """

    task: str
    runs: tuple[SeedRun, ...]
    baseline: Mapping[str, float | None] | None
    selection: str
    notes: tuple[str, ...] = ()
    linear_baseline: Mapping[str, Any] | None = None

    @property
    def failed(self) -> tuple[SeedRun, ...]:
        return tuple(run for run in self.runs if run.failure is not None)

    @property
    def spreads(self) -> dict[str, Spread]:
        """The spread of every score that some run has."""
        names = dict.fromkeys(name for run in self.runs for name in run.scores)
        found = {name: score_spread([run.scores.get(name) for run in self.runs]) for name in names}
        return {name: spread for name, spread in found.items() if spread is not None}

    @property
    def medians(self) -> dict[str, float]:
        """The median of every score; none of one that is undefined in a run."""
        return {name: spread.median for name, spread in self.spreads.items() if not spread.undefined}

    @property
    def best(self) -> SeedRun:
        """The run with the best first score, the first of equals."""
        best = self.runs[0]
        for run in self.runs[1:]:
            name = next(iter(run.scores), "")
            best = run if is_better(name, run.scores.get(name), next(iter(best.scores.values()), None)) else best
        return best

    def to_json(self) -> dict[str, Any]:
        """What `summary.json` holds."""
        return {
            "task": self.task,
            "scores": {name: vars(spread) for name, spread in self.spreads.items()},
            "baseline": None if self.baseline is None else dict(self.baseline),
            "linear_baseline": self.linear_baseline,
            "failed_seeds": [run.seed for run in self.failed],
            "runs": [{**vars(run), "directory": run.directory.name} for run in self.runs],
            "selection": self.selection,
            "notes": list(self.notes),
        }


def finetune_seeds(
    task: Task,
    start: Start,
    data: Path,
    output: Path,
    recipe: RecipeLike,
    settings: FinetuningSettings,
    n_seeds: int,
    announce: Callable[[Mapping[str, Any]], None] | None = None,
) -> SeedsResult:
    """Fine-tune with the seeds `settings.seed`, `settings.seed + 1`, …; a run that diverges ends no other.

    Args:
        task, start, data, recipe, settings: see `finetune`. All runs learn by the recipe of the first. The seed decides
            the head, the order, dropout, and what is drawn where `max_train_examples` says so.
        output: the directory of all runs. The same call goes on where an earlier one was stopped.

    Raises:
        CannotCreate: `output` holds a run of its own, or other runs.
        Diverged: every run did.
    """
    if n_seeds < 1:
        raise InvalidConfiguration("seeds", f"are {n_seeds}, at least 1 is needed")
    if RunFolder(output).recipe_path.exists():
        raise CannotCreate(output, "holds one run, not those of several seeds", "choose another output")
    runs: list[SeedRun] = []
    report: Mapping[str, Any] = {}
    teacher_logits: TeacherLogits = {}

    def so_far() -> SeedsResult:
        """What the runs share is taken from the report of one of them, empty where all diverged."""
        return SeedsResult(
            task=task.name,
            runs=tuple(runs),
            baseline=report.get("baseline"),
            selection=report.get("selection", {}).get("rule", "selection: no run came to its end"),
            notes=tuple(report.get("notes", ())),
            linear_baseline=report.get("linear_baseline"),
        )

    for seed in range(settings.seed, settings.seed + n_seeds):
        place = output / f"seed-{seed}"
        try:
            told = {} if announce is None or seed != settings.seed else {"announce": announce}
            result = finetune(task, start, data, place, recipe, replace(settings, seed=seed), teacher_logits, **told)
        except Diverged as error:
            runs.append(SeedRun(seed=seed, directory=place, scores={}, failure=f"diverged: {error.why}"))
        else:
            report, scores = result.report, dict(result.scores)
            for split, further in report.get("further_scores", {}).items():
                scores |= {f"{name}/{split}": value for name, value in further.items()}
            step = report.get("selection", {}).get("step")
            failure = failure_reason(result.scores, report.get("baseline"))
            runs.append(SeedRun(seed=seed, directory=place, scores=scores, step=step, failure=failure))
        kept = read_run_record(RunFolder(place), task)
        if kept is not None:
            recipe = from_json(TaskRecipe, kept["recipe"], str(place))
            if world().is_first:
                save_custom_task(task, recipe, output)
        if world().is_first:
            save_json(output / SUMMARY_NAME, so_far().to_json())
    if all(run.failure and not run.scores for run in runs):
        raise Diverged(output, f"all {n_seeds} runs diverged ({runs[0].failure})", "use a smaller learning rate")
    return so_far()


def failure_reason(scores: Mapping[str, float | None], baseline: Mapping[str, float | None] | None) -> str | None:
    """Why a run counts as failed, None when it does not: by its first score it is no better than the constant answer.

    A correlation with a constant is undefined, and 0 stands for it. Where no constant answer exists, nothing is judged.
    """
    if baseline is None or not scores:
        return None
    name, score = next(iter(scores.items()))
    constant = baseline.get(name) or 0.0
    if score is None:
        return f"{name} is undefined, every answer is the same"
    if is_better(name, score, constant):
        return None
    return f"{name} {score:.2f} is no better than the constant answer's {constant:.2f}"


def score_spread(values: Sequence[float | None]) -> Spread | None:
    """The spread of the values that are defined; None when none is."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    lowest, lower, median, upper, highest = np.percentile(known, [0, 25, 50, 75, 100]).tolist()
    return Spread(median, lowest, lower, upper, highest, len(known), len(values) - len(known))


# --------------------------------------------------------------------------------------------------------------------
# Diagnostic sets: not trained on; answered by the model of another task.
#
# OUTPUT/TASK/predictions-SPLIT.jsonl for every split whose file is there, whether its answers are known or not


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
        scores = {split: dict(each) for split, each in self.scores.items()}
        return {"model": self.model, "scores": scores, "missing": list(self.missing)}


def diagnose(
    task: Task, model: str | None, data: Path, output: Path, settings: FinetuningSettings
) -> DiagnosticOutcome:
    """Let a model answer every split of a diagnostic set whose file is there.

    Args:
        model: fine-tuned on the task that it belongs to; None: there is none, and nothing is answered.

    Raises:
        DamagedData: a file is not what it should be.
    """
    if model is None:
        return DiagnosticOutcome(task=task, missing=("no model has learnt the task that it belongs to",))
    scores: dict[str, Mapping[str, float | None]] = {}
    missing = []
    compute = {name: getattr(settings, name) for name in ("device", "micro_batch_tokens")}
    compute["precision"] = settings.precision or "fp32"
    for split in task.source.splits:
        try:
            found = evaluate_directory(task, model, data, split, **compute, needs_labels=False).evaluation
        except MissingInput as error:
            missing.append(str(error))
            continue
        output.mkdir(parents=True, exist_ok=True)
        write_predictions(output / f"predictions-{split}.jsonl", found)
        scores[split] = dict(found.scores)
    return DiagnosticOutcome(task=task, model=model, scores=scores, missing=tuple(missing))


# --------------------------------------------------------------------------------------------------------------------
# A whole benchmark: every task whose files are there, and the average over all of them.
#
# OUTPUT/TASK/seed-0, …      the runs of each task; finished ones are kept
#     TASK/summary.json      their spread
#     summary.json           all tasks, what is missing, and the average; written anew after each task
#
# Some tasks start from the model of another one, their `intermediate` (Lan et al. 2019, footnote 4); that one is
# learnt first, and of its runs the one with the best development score is the start. Such a run answers the
# diagnostic set too.


@dataclass(frozen=True, kw_only=True)
class TaskOutcome:
    """What came of one task: its runs, or why there are none."""

    task: Task
    result: SeedsResult | None = None
    started_from: str | None = None  # the model of another task, where it is not the one that all others start from
    missing: str | None = None

    def to_json(self) -> dict[str, Any]:
        if self.result is None:
            return {"missing": self.missing}
        return {"started_from": self.started_from, **self.result.to_json(), "published": to_json(self.task.published)}


@dataclass(frozen=True)
class BenchmarkResult:
    """All tasks in the order of the average, and the files that are missing, a line each."""

    name: str
    average: Average
    outcomes: tuple[TaskOutcome, ...]
    missing_files: tuple[str, ...]
    diagnostics: tuple[DiagnosticOutcome, ...] = ()

    @property
    def scores(self) -> dict[str, dict[str, float]]:
        return {each.task.name: each.result.medians for each in self.outcomes if each.result is not None}

    @property
    def missing_tasks(self) -> tuple[str, ...]:
        """The tasks that leave the average undefined: not learnt, or without one of its scores."""
        scores = self.scores
        return tuple(name for name, parts in self.average.parts.items() if not {*parts} <= {*scores.get(name, {})})

    def to_json(self) -> dict[str, Any]:
        return {
            "benchmark": self.name,
            "average": self.average.of(self.scores),
            "average_lacks": list(self.missing_tasks),
            "average_published": to_json(self.average.published),
            "missing_files": list(self.missing_files),
            "tasks": {each.task.name: each.to_json() for each in self.outcomes},
            "diagnostics": {each.task.name: each.to_json() for each in self.diagnostics},
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
    intermediate: str | None = None,
) -> BenchmarkResult:
    """Fine-tune on every task of a benchmark; a task that diverges ends no other.

    Args:
        output: the directory of all runs. The same call goes on where an earlier one was stopped.
        intermediate: a model that was fine-tuned on the intermediate task before, to start from in place of the one
            that is learnt here.

    Raises:
        MissingInput: there are the files of no task.
        DamagedData: a file is not what it should be; all are read before the first task is learnt.
    """
    tasks = [DECLARED[task] for task in average.parts]
    absent, missing_files = _missing(tasks, data)
    if len(absent) == len(tasks):
        raise MissingInput(data, f"has no task of {name} with training and development files", missing_files[0])
    outcomes = {task.name: TaskOutcome(task=task, missing=absent.get(task.name)) for task in tasks}
    needed_first = {task.intermediate for task in tasks}
    for task in sorted(tasks, key=lambda task: task.name not in needed_first):
        if task.name in absent:
            continue
        other = None if task.intermediate is None else intermediate or _best_model(outcomes[task.intermediate])
        begin = start if other is None else PretrainedEncoder(other)
        try:
            found = finetune_seeds(task, begin, data, output / task.name, recipe, settings, n_seeds)
            outcomes[task.name] = TaskOutcome(task=task, result=found, started_from=other)
        except Diverged as error:
            outcomes[task.name] = TaskOutcome(task=task, missing=str(error))
        if world().is_first:
            done = BenchmarkResult(name, average, tuple(outcomes.values()), missing_files)
            save_json(output / SUMMARY_NAME, done.to_json())
    if not world().is_first:
        return BenchmarkResult(name, average, tuple(outcomes.values()), missing_files)
    diagnosed = tuple(
        diagnose(DECLARED[each], _best_model(outcomes[other]), data, output / each, settings)
        for each, other in average.diagnostics.items()
    )
    result = BenchmarkResult(name, average, tuple(outcomes.values()), missing_files, diagnosed)
    save_json(output / SUMMARY_NAME, result.to_json())
    return result


def _missing(tasks: Sequence[Task], data: Path) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """The tasks that cannot be learnt, each with why, and a line for every file that is missing."""
    absent: dict[str, str] = {}
    lines = []
    with progress("Reading", total=len(tasks), unit="tasks") as bar:
        for task in tasks:
            for split in ("train", "dev", *task.further_splits):
                try:
                    task.source.read(data, split)
                except MissingInput as error:
                    lines.append(f"{task.name}: {error}")
                    if split not in task.further_splits:
                        absent.setdefault(task.name, str(error))
            bar.advance()
    return absent, tuple(lines)


def _best_model(outcome: TaskOutcome) -> str | None:
    """The best run of a task that was learnt; None when nothing was."""
    if outcome.result is None or outcome.result.best.failure is not None:
        return None
    return str(outcome.result.best.directory)
