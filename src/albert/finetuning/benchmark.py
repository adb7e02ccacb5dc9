"""A whole benchmark: every task whose files are there, and the average over all of them.

OUTPUT/TASK/seed-0, …      the runs of each task; what is finished already is found
    TASK/summary.json      their spread
    summary.json           all tasks, what is missing, and the average; written anew after each task

Some tasks start from the model of another one, their `intermediate` (Lan et al. 2019, footnote 4); that one is learnt
first, and of its runs the one with the best development score is the start. Such a run answers the diagnostic set too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albert.finetuning.diagnostic_sets import DiagnosticOutcome, diagnose
from albert.finetuning.learning_plan import AskedRecipe
from albert.finetuning.run_record import FinetuningSettings
from albert.finetuning.seeds import SUMMARY_NAME, SeedsResult, finetune_seeds
from albert.finetuning.start import PretrainedEncoder, Start
from albert.runtime.errors import Diverged, MissingInput
from albert.runtime.progress import progress
from albert.runtime.strict_json import save_json, to_json
from albert.runtime.world import world
from albert.tasks.averages import Average
from albert.tasks.declared import DECLARED
from albert.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class TaskOutcome:
    """What came of one task: its runs, or why there are none."""

    task: Task
    found: SeedsResult | None = None
    started_from: str | None = None
    """The model of another task, where it is not the one that all others start from."""
    missing: str | None = None
    """Why it was not learnt."""

    def to_json(self) -> dict[str, Any]:
        """What the benchmark's `summary.json` holds of it."""
        if self.found is None:
            return {"missing": self.missing}
        return {"started_from": self.started_from, **self.found.to_json(), "published": to_json(self.task.published)}


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
        """The medians of every task that was learnt."""
        return {each.task.name: each.found.medians for each in self.outcomes if each.found is not None}

    @property
    def lacking(self) -> tuple[str, ...]:
        """The tasks that leave the average undefined: not learnt, or without one of its scores."""
        scores = self.scores
        return tuple(name for name, parts in self.average.parts.items() if not {*parts} <= {*scores.get(name, {})})

    def to_json(self) -> dict[str, Any]:
        """What `summary.json` holds."""
        return {
            "benchmark": self.name,
            "average": self.average.of(self.scores),
            "average_lacks": list(self.lacking),
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
    recipe: AskedRecipe,
    settings: FinetuningSettings,
    n_seeds: int = 1,
    intermediate: str | None = None,
) -> BenchmarkResult:
    """Fine-tune on every task of a benchmark; a task that diverges ends no other.

    Args:
        name: what the benchmark is called.
        average: which tasks it has.
        start: where the weights come from.
        data: the folder of all tasks.
        output: the directory of all runs. The same call goes on where an earlier one was stopped.
        recipe, settings: see `finetune`, for each task; the seed is the first of its runs.
        n_seeds: runs of each task.
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
        other = None if task.intermediate is None else intermediate or _model_of(outcomes[task.intermediate])
        begin = start if other is None else PretrainedEncoder(other)
        try:
            found = finetune_seeds(task, begin, data, output / task.name, recipe, settings, n_seeds)
            outcomes[task.name] = TaskOutcome(task=task, found=found, started_from=other)
        except Diverged as error:
            outcomes[task.name] = TaskOutcome(task=task, missing=str(error))
        if world().is_first:
            done = BenchmarkResult(name, average, tuple(outcomes.values()), missing_files)
            save_json(output / SUMMARY_NAME, done.to_json())
    if not world().is_first:
        return BenchmarkResult(name, average, tuple(outcomes.values()), missing_files)
    diagnosed = tuple(
        diagnose(DECLARED[each], _model_of(outcomes[other]), data, output / each, settings)
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


def _model_of(outcome: TaskOutcome) -> str | None:
    """The best run of a task that was learnt; None when nothing was."""
    if outcome.found is None or outcome.found.best.failure is not None:
        return None
    return str(outcome.found.best.directory)
