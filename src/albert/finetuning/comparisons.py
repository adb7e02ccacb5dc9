"""Several runs on the user's own table that are compared: learning rates (--try), and folds (--folds).

OUTPUT/rate-0.0001, … or fold-1, …   the runs; finished ones are kept
    summary.json                      the scores of each, updated after each run"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from albert.finetuning.model import Start
from albert.finetuning.options import RecipeLike
from albert.finetuning.run import finetune
from albert.finetuning.run_record import FinetuningResult, FinetuningSettings
from albert.finetuning.seeds import SUMMARY_NAME
from albert.runtime.environment import lazy_import, world
from albert.runtime.errors import CannotCreate, Diverged, InvalidConfiguration
from albert.runtime.json_files import save_json
from albert.tasks.custom import TableSource
from albert.tasks.metrics import is_better
from albert.tasks.recipe import TaskRecipe
from albert.tasks.source import Rows
from albert.tasks.table_task import RecipeChanges
from albert.tasks.task import Task
from albert.training.run_folder import RunFolder

Announce = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """A run; `scores` are empty if it diverged. Scores of a test set are named `score/test`."""

    name: str
    directory: Path
    scores: Mapping[str, float | None]
    report: Mapping[str, Any]


@dataclass(frozen=True)
class Comparison:
    """Runs that differ in their learning rate, of which the one with the best development score is chosen; or folds of
    a table, each of which is scored once by a model that was trained on the others."""

    task: str
    by: Literal["rate", "fold"]
    runs: tuple[ComparedRun, ...]

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
        """The run whose classes and errors are shown: that of the chosen rate, or the fold with the median score."""
        if self.by == "rate":
            return self.best
        name = self.first_metric
        scored = [run for run in self.runs if run.scores.get(name) is not None]
        scored.sort(key=lambda run: run.scores[name] or 0.0)
        return scored[(len(scored) - 1) // 2] if scored else self.runs[0]

    @property
    def means(self) -> dict[str, float]:
        """The mean over runs of each score that all of them have."""
        return {name: float(np.mean(values)) for name, values in self._complete_scores().items()}

    @property
    def deviations(self) -> dict[str, float]:
        """The standard deviation between runs of each score that all of them have."""
        if len(self.runs) < 2:
            return {}
        return {name: float(np.std(values, ddof=1)) for name, values in self._complete_scores().items()}

    def _complete_scores(self) -> dict[str, list[float]]:
        """The values of each score that all runs have."""
        complete = {}
        for name in self.runs[0].scores:
            values = [run.scores.get(name) for run in self.runs]
            known = [value for value in values if value is not None]
            if len(known) == len(values):
                complete[name] = known
        return complete

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
            f"{name} {spread} (mean and standard deviation of {len(self.runs)} folds); the same command without "
            "--folds trains a model on the whole table"
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
            "conclusion": self.conclusion,
        }


def compare_rates(
    task: Task,
    start: Start,
    data: Path,
    output: Path,
    recipe: RecipeLike,
    settings: FinetuningSettings,
    rates: Sequence[float],
    announce: Announce | None = None,
) -> Comparison:
    """Fine-tune with each learning rate; a test set is scored by every run and chooses nothing."""
    if len(set(rates)) < 2:
        raise InvalidConfiguration("try", "needs two different learning rates at least", "such as --try 1e-4 2.5e-4")
    _check_output(output)
    runs: list[ComparedRun] = []
    for rate in rates:
        if isinstance(recipe, TaskRecipe):
            changed: RecipeLike = replace(recipe, learning_rate=rate)
        else:
            changed = replace(recipe or RecipeChanges(), learning_rate=rate)
        directory = output / f"rate-{rate:g}"
        runs.append(_run(f"rate {rate:g}", directory, task, start, data, changed, settings, announce))
        _save(output, Comparison(task.name, "rate", tuple(runs)))
    return _finished(output, Comparison(task.name, "rate", tuple(runs)))


def compare_folds(
    task: Task,
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
    _check_output(output)
    assert isinstance(task.source, TableSource)
    rows = task.source.read(data, "train")
    fold = folds_of(task, rows, n_folds, settings.seed)
    settings = replace(settings, select=settings.select or "last")  # choosing on a fold would make its score too good
    runs: list[ComparedRun] = []
    for number in range(n_folds):
        others = [row for row, own in zip(rows.rows, fold, strict=True) if own != number]
        held = [row for row, own in zip(rows.rows, fold, strict=True) if own == number]
        tables = {"train": Rows(others, {**rows.counts, "rows": len(others)}), "dev": Rows(held, {"rows": len(held)})}
        part = replace(task, source=replace(task.source, tables={**task.source.tables, **tables}))
        directory = output / f"fold-{number + 1}"
        shown = announce if number == 0 else None
        runs.append(_run(f"fold {number + 1}", directory, part, start, data, recipe, settings, shown))
        _save(output, Comparison(task.name, "fold", tuple(runs)))
    return _finished(output, Comparison(task.name, "fold", tuple(runs)))


def folds_of(task: Task, rows: Rows, n_folds: int, seed: int) -> np.ndarray:
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


def _run(
    name: str,
    directory: Path,
    task: Task,
    start: Start,
    data: Path,
    recipe: RecipeLike,
    settings: FinetuningSettings,
    announce: Announce | None,
) -> ComparedRun:
    try:
        result: FinetuningResult = finetune(task, start, data, directory, recipe, settings, announce=announce)
    except Diverged as error:
        return ComparedRun(name=name, directory=directory, scores={}, report={"failure": f"diverged: {error.why}"})
    scores = dict(result.scores)
    for split, further in result.report.get("further_scores", {}).items():
        scores |= {f"{metric}/{split}": value for metric, value in further.items()}
    return ComparedRun(name=name, directory=directory, scores=scores, report=result.report)


def _check_output(output: Path) -> None:
    if RunFolder(output).recipe_path.exists() or any(output.glob("seed-*/recipe.json")):
        raise CannotCreate(
            output, "holds other runs, not those that are compared here", "choose another --output, or add --replace"
        )


def _save(output: Path, comparison: Comparison) -> None:
    if world().is_first:
        save_json(output / SUMMARY_NAME, comparison.to_json())


def _finished(output: Path, comparison: Comparison) -> Comparison:
    if all(not run.scores for run in comparison.runs):
        why = f"all {len(comparison.runs)} runs diverged ({comparison.runs[0].report['failure']})"
        raise Diverged(output, why, "use a smaller learning rate")
    return comparison
