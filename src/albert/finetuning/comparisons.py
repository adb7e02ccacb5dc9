"""Several runs on the user's table that are compared: learning rates, and folds (`albert sweep`).

OUTPUT/rate-0.0001, … or fold-1, …   the runs; finished ones are kept
    summary.json                      the scores of each, updated after each run"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from albert.columns.read import TableSource
from albert.finetuning.fill_in import RecipeLike, given_values
from albert.finetuning.initial_model import Start
from albert.finetuning.several import SweepRun, finetune_one, require_one_that_ended
from albert.finetuning.task_training import Announce
from albert.recipes.finetuning import FinetuningSettings, RecipeChanges
from albert.report.advice import advice, simpler_models
from albert.runtime.environment import lazy_import, world
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.json_files import save_versioned
from albert.tables.table import Table
from albert.tasks.declared import DeclaredTask
from albert.tasks.metrics import is_better
from albert.training.run_folder import SUMMARY_NAME
from albert.training.same_run import refuse_other_runs


@dataclass(frozen=True, kw_only=True)
class ComparedRun(SweepRun):
    """A run of a comparison."""

    name: str
    directory: Path


@dataclass(frozen=True)
class Comparison:
    """Runs that differ in their learning rate, of which the one with the best development score is chosen; or folds of
    a table, each of which is scored once by a model that was trained on the others."""

    task: str
    by: Literal["rate", "fold"]
    runs: tuple[ComparedRun, ...]

    def with_run(self, name: str, directory: Path, run: SweepRun) -> "Comparison":
        """The comparison with another run."""
        compared = ComparedRun(name=name, directory=directory, **vars(run))
        return replace(self, runs=(*self.runs, compared))

    @property
    def first_metric(self) -> str:
        return next((name for run in self.runs for name in run.scores), "")

    @property
    def best(self) -> ComparedRun:
        """The run with the best first score on its development set, the first among equals."""
        name = self.first_metric
        best = self.runs[0]
        for run in self.runs[1:]:
            best = run if is_better(name, run.scores.get(name), best.scores.get(name)) else best
        return best

    @property
    def typical(self) -> ComparedRun:
        """The run whose classes and errors are shown: that of the chosen rate, or the fold with the median score; of an
        even number of folds the lower one of the two in the middle."""
        if self.by == "rate":
            return self.best
        scored = self._by_score
        return scored[(len(scored) - 1) // 2] if scored else self.runs[0]

    @property
    def why_typical(self) -> str:
        """Which run is the typical one, in words."""
        if self.by == "rate":
            return "the chosen run"
        scored = self._by_score
        if not scored:
            return "the first fold"
        if len(scored) == 1:
            return "the only fold with a score"
        if len(scored) == 2:
            return "the fold with the lower score"
        if len(scored) % 2 == 0:
            return "the fold with the lower of the two middle scores"
        return "the fold with the median score"

    @property
    def _by_score(self) -> list[ComparedRun]:
        """The runs that have the first score, from the lowest one on."""
        name = self.first_metric
        scored = [run for run in self.runs if run.scores.get(name) is not None]
        return sorted(scored, key=lambda run: run.scores[name] or 0.0)

    @property
    def means(self) -> dict[str, float]:
        """The mean over runs of each score that all of them have."""
        return complete_means([run.scores for run in self.runs])

    @property
    def deviations(self) -> dict[str, float]:
        """The standard deviation between runs of each score that all of them have."""
        if len(self.runs) < 2:
            return {}
        values_of = complete_values([run.scores for run in self.runs])
        return {name: float(np.std(values, ddof=1)) for name, values in values_of.items()}

    @property
    def simpler(self) -> dict[str, dict[str, float | None]]:
        """The scores of the majority baseline and of other simpler models on the same rows: of the run with the chosen
        rate, or the means over the folds; see `simpler_models`."""
        if self.by == "rate":
            return simpler_models(self.best.report)
        of_folds = [simpler_models(run.report) for run in self.runs]
        means: dict[str, dict[str, float | None]] = {}
        for model in of_folds[0]:
            if all(model in fold for fold in of_folds):
                means[model] = dict(complete_means([fold[model] for fold in of_folds]))
        return {model: scores for model, scores in means.items() if scores}

    @property
    def advice(self) -> str | None:
        """Which model to use, if a simpler one is not beaten."""
        settings = self.typical.report.get("settings", {})
        return advice(
            self.scores,
            self.simpler,
            is_frozen=settings.get("frozen", False),
            is_weighted=settings.get("class_weights") is not None,
            step=self.next_step,
        )

    @property
    def next_step(self) -> dict[str, str] | None:
        """What to change next, by the typical run."""
        return self.typical.report.get("next_step")

    @property
    def scores(self) -> dict[str, float | None]:
        """Of the chosen rate, or the means over the folds."""
        return dict(self.best.scores) if self.by == "rate" else dict(self.means)

    @property
    def conclusion(self) -> str:
        """One line about what the comparison says."""
        name = self.first_metric
        if self.by == "rate":
            return (
                f"chosen: {self.best.name}, by {name} on the development set; a score that is chosen on the set it is "
                "reported on is somewhat high"
            )
        mean = self.means.get(name)
        deviation = self.deviations.get(name)
        spread = "undefined"
        if mean is not None and deviation is not None:
            spread = f"{mean:.2f} ± {deviation:.2f}"
        return (
            f"{name} {spread} (mean and standard deviation of {len(self.runs)} folds); albert finetune trains a "
            "model on the whole table"
        )

    def to_json(self) -> dict[str, Any]:
        """The content of `summary.json`."""
        return {
            "task": self.task,
            "by": self.by,
            "runs": [{"name": run.name, "directory": run.directory.name, "scores": run.scores} for run in self.runs],
            "chosen": self.best.name if self.by == "rate" else None,
            "mean": self.means,
            "deviation": self.deviations,
            "simpler_models": self.simpler,
            "conclusion": self.conclusion,
            "next_step": self.next_step if self.by == "rate" else None,
            "advice": self.advice,
        }


def complete_values(runs: Sequence[Mapping[str, float | None]]) -> dict[str, list[float]]:
    """The values of each score that all runs have."""
    complete = {}
    for name in runs[0]:
        values = [scores.get(name) for scores in runs]
        known = [value for value in values if value is not None]
        if len(known) == len(values):
            complete[name] = known
    return complete


def complete_means(runs: Sequence[Mapping[str, float | None]]) -> dict[str, float]:
    """The mean over runs of each score that all of them have."""
    return {name: float(np.mean(values)) for name, values in complete_values(runs).items()}


def compare_rates(
    task: DeclaredTask,
    start: Start,
    data: Path,
    output: Path,
    recipe: RecipeLike,
    settings: FinetuningSettings,
    rates: Sequence[float],
    announce: Announce | None = None,
) -> Comparison:
    """Fine-tune with each learning rate; a test set is scored by every run and chooses nothing."""
    recipes = recipes_of(task, recipe, rates)
    refuse_other_runs(output, "rate")
    comparison = Comparison(task.name, "rate", ())
    for rate, changed in recipes.items():
        directory = output / f"rate-{rate:g}"
        run = finetune_one(task, start, data, directory, changed, settings, announce=announce)
        comparison = comparison.with_run(f"rate {rate:g}", directory, run)
        if world().is_first:
            save_versioned(output / SUMMARY_NAME, comparison.to_json())
    require_one_that_ended(output, [run.divergence for run in comparison.runs])
    return comparison


def recipes_of(task: DeclaredTask, recipe: RecipeLike, rates: Sequence[float]) -> dict[float, RecipeLike]:
    """The recipe with each rate; InvalidConfiguration for rates at which no model learns, for fewer than two, and for
    two that would have the same directory."""
    if len(set(rates)) < 2:
        raise InvalidConfiguration("rates", "are fewer than two different ones", "such as --rates 1e-4 2.5e-4")
    shown = Counter(f"{rate:g}" for rate in rates)
    twice = [rate for rate, count in shown.items() if count > 1]
    if twice:
        raise InvalidConfiguration("rates", f"{twice[0]} is there twice, to six digits", "give each rate once")
    recipes: dict[float, RecipeLike] = {}
    for rate in rates:
        recipes[rate] = replace(recipe or RecipeChanges(), learning_rate=rate)
        given_values(task, recipes[rate])
    return recipes


def compare_folds(
    task: DeclaredTask,
    start: Start,
    data: Path,
    output: Path,
    recipe: RecipeLike,
    settings: FinetuningSettings,
    n_folds: int,
    announce: Announce | None = None,
) -> Comparison:
    """Fine-tune once for each fold of the training rows, which is the development set of its run.

    Rows with the same text are in the same fold; classes are divided evenly.
    """
    refuse_other_runs(output, "fold")
    tasks = fold_tasks(task, n_folds, settings.seed)
    settings = replace(settings, select=settings.select or "last")  # choosing on a fold would make its score too good
    comparison = Comparison(task.name, "fold", ())
    for number, part in enumerate(tasks):
        directory = output / f"fold-{number + 1}"
        shown = announce if number == 0 else None
        run = finetune_one(part, start, data, directory, recipe, settings, announce=shown)
        comparison = comparison.with_run(f"fold {number + 1}", directory, run)
        if world().is_first:
            save_versioned(output / SUMMARY_NAME, comparison.to_json())
    require_one_that_ended(output, [run.divergence for run in comparison.runs])
    return comparison


def fold_tasks(task: DeclaredTask, n_folds: int, seed: int) -> list[DeclaredTask]:
    """The task with each fold as its development set; InvalidConfiguration if there are fewer texts than folds."""
    assert isinstance(task.source, TableSource)
    rows = task.source.read(Path(), "train")
    fold = folds_of(task, rows, n_folds, seed)
    tasks = []
    for number in range(n_folds):
        others = [row for row, own in zip(rows.rows, fold, strict=True) if own != number]
        held = [row for row, own in zip(rows.rows, fold, strict=True) if own == number]
        tables = {"train": Table(others, {**rows.counts, "rows": len(others)}), "dev": Table(held, {"rows": len(held)})}
        tasks.append(replace(task, source=replace(task.source, tables={**task.source.tables, **tables})))
    return tasks


def folds_of(task: DeclaredTask, rows: Table, n_folds: int, seed: int) -> np.ndarray:
    """The number of the fold of each row; InvalidConfiguration if there are fewer texts than folds."""
    texts: dict[tuple[Any, ...], int] = {}
    groups = []
    for row in rows.rows:
        text = task.inputs.group(row)
        groups.append(texts.setdefault(text, len(texts)))
    if not 2 <= n_folds <= len(texts):
        why = f"are {n_folds}, from 2 to {len(texts):,} are possible (different texts)"
        raise InvalidConfiguration("folds", why, "such as --folds 5")
    model_selection = lazy_import("sklearn.model_selection")
    labels = np.zeros(len(rows.rows), np.int64)
    splitter = model_selection.GroupKFold(n_folds, shuffle=True, random_state=seed)
    if task.target.strata:
        labels = np.array([task.target.gold(row, ()) for row in rows.rows])
        if np.bincount(labels).max() >= n_folds:
            splitter = model_selection.StratifiedGroupKFold(n_folds, shuffle=True, random_state=seed)
    fold = np.zeros(len(rows.rows), np.int64)
    for number, (_, held) in enumerate(splitter.split(labels, labels, groups)):
        fold[held] = number
    return fold
