"""One task learnt with several seeds: the median and how far the runs lie apart, and which of them failed.

OUTPUT/seed-0, seed-1, …   a run each; what is finished already is found
    summary.json           every run and the spread of every score, written anew after each run
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from albert.finetuning.distillation import Said
from albert.finetuning.finetune import finetune, keep_own_task
from albert.finetuning.learning_plan import AskedRecipe, kept_recipe
from albert.finetuning.run_record import FinetuningResult, FinetuningSettings
from albert.finetuning.start import Start
from albert.runtime.errors import CannotCreate, Diverged, InvalidConfiguration
from albert.runtime.strict_json import from_json, save_json
from albert.runtime.world import world
from albert.tasks.baseline import is_better
from albert.tasks.task import Task, TaskRecipe
from albert.training.run_folder import RunFolder

SUMMARY_NAME = "summary.json"


@dataclass(frozen=True, kw_only=True)
class SeedRun:
    """The run of one seed. Scores of a further split are called `score/split`; `failure` says what went wrong."""

    seed: int
    directory: Path
    scores: Mapping[str, float | None]
    step: int | None = None
    """Of the model, where it is not the last."""
    failure: str | None = None


@dataclass(frozen=True, kw_only=True)
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
    scored, `notes` are those of the last run.
    """

    task: str
    runs: tuple[SeedRun, ...]
    baseline: Mapping[str, float | None] | None
    selection: str
    notes: tuple[str, ...] = ()
    linear_baseline: Mapping[str, Any] | None = None
    """A `LinearBaseline` as plain values, of the last run."""

    @property
    def failed(self) -> tuple[SeedRun, ...]:
        """The runs that learnt nothing."""
        return tuple(run for run in self.runs if run.failure is not None)

    @property
    def spreads(self) -> dict[str, Spread]:
        """The spread of every score that some run has."""
        names = dict.fromkeys(name for run in self.runs for name in run.scores)
        found = {name: spread_of([run.scores.get(name) for run in self.runs]) for name in names}
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
    recipe: AskedRecipe,
    settings: FinetuningSettings,
    n_seeds: int,
    announce: Callable[[Mapping[str, Any]], None] | None = None,
) -> SeedsResult:
    """Fine-tune with the seeds `settings.seed`, `settings.seed + 1`, …; a run that diverges ends no other.

    Args:
        task, start, data, recipe, settings: see `finetune`. All runs learn by the recipe of the first. The seed decides
            the head, the order, dropout, and what is drawn where `max_train_examples` says so.
        output: the directory of all runs. The same call goes on where an earlier one was stopped.
        n_seeds: how many.
        announce: see `finetune`; called for the first seed.

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
    said: Said = {}
    for seed in range(settings.seed, settings.seed + n_seeds):
        place = output / f"seed-{seed}"
        try:
            told = {} if announce is None or seed != settings.seed else {"announce": announce}
            result = finetune(task, start, data, place, recipe, replace(settings, seed=seed), said, **told)
        except Diverged as error:
            runs.append(SeedRun(seed=seed, directory=place, scores={}, failure=f"diverged: {error.why}"))
        else:
            report = result.report
            runs.append(_seed_run(seed, place, result))
        kept = kept_recipe(RunFolder(place), task)
        if kept is not None:
            recipe = from_json(TaskRecipe, kept["recipe"], str(place))
            if world().is_first:
                keep_own_task(task, recipe, output)
        if world().is_first:
            save_json(output / SUMMARY_NAME, _together(task, runs, report).to_json())
    if all(run.failure and not run.scores for run in runs):
        raise Diverged(output, f"all {n_seeds} runs diverged ({runs[0].failure})", "use a smaller learning rate")
    return _together(task, runs, report)


def why_failed(scores: Mapping[str, float | None], baseline: Mapping[str, float | None] | None) -> str | None:
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


def spread_of(values: Sequence[float | None]) -> Spread | None:
    """The spread of the values that are defined; None when none is."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    lowest, lower, median, upper, highest = np.percentile(known, [0, 25, 50, 75, 100]).tolist()
    return Spread(
        median=median,
        lowest=lowest,
        lower_quartile=lower,
        upper_quartile=upper,
        highest=highest,
        runs=len(known),
        undefined=len(values) - len(known),
    )


def _together(task: Task, runs: Sequence[SeedRun], report: Mapping[str, Any]) -> SeedsResult:
    """The runs so far; what they share is taken from the report of one of them, empty where all diverged."""
    return SeedsResult(
        task=task.name,
        runs=tuple(runs),
        baseline=report.get("baseline"),
        selection=report.get("selection", {}).get("rule", "selection: no run came to its end"),
        notes=tuple(report.get("notes", ())),
        linear_baseline=report.get("linear_baseline"),
    )


def _seed_run(seed: int, place: Path, result: FinetuningResult) -> SeedRun:
    report = result.report
    further = {
        f"{name}/{split}": value
        for split, scores in report.get("further_scores", {}).items()
        for name, value in scores.items()
    }
    return SeedRun(
        seed=seed,
        directory=place,
        scores={**result.scores, **further},
        step=report.get("selection", {}).get("step"),
        failure=why_failed(result.scores, report.get("baseline")),
    )
