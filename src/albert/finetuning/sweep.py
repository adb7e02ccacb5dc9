"""Several runs on one task that differ in one thing, and what they say together (`albert sweep`).

OUTPUT/seed-0, …; rate-0.0001, …; or fold-1, …   the runs; finished ones are kept
    summary.json                     the scores of each run, updated after each
    predictions-out-of-fold.jsonl    folds: the answer to every row, by the model that was not trained on it"""

import json
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from albert.columns.read import TableSource
from albert.finetuning.evaluation import WITHOUT_ROWS
from albert.finetuning.fill_in import RecipeLike, given_values
from albert.finetuning.initial_model import Start
from albert.finetuning.objective import TeacherLogits
from albert.finetuning.task_run import check_run, finetune
from albert.finetuning.task_training import Announce
from albert.recipes.finetuning import FinetuningSettings, RecipeChanges
from albert.report.advice import advice, all_scores, rows_that_decide, simpler_models
from albert.runtime.devices import pick_device
from albert.runtime.distributed import process_group, wait_for_all
from albert.runtime.environment import lazy_import, world
from albert.runtime.errors import Diverged, InvalidConfiguration
from albert.runtime.files import write_text
from albert.runtime.json_files import save_versioned
from albert.tables.table import Table
from albert.tasks.declared import DeclaredTask
from albert.tasks.metrics import is_beaten, is_better
from albert.tasks.task import MAJORITY
from albert.training.run_folder import SUMMARY_NAME, remove_run
from albert.training.same_run import refuse_other_runs

OUT_OF_FOLD = "predictions-out-of-fold.jsonl"
Varied = Literal["seed", "rate", "fold"]
Scores = Mapping[str, float | None]


# --------------------------------------------------------------------------------------------------------------------
# The runs to make.


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A run to make.

    Attributes:
        name: "seed 0", "rate 0.0001" or "fold 1"; with a hyphen the name of its folder.
    """

    name: str
    task: DeclaredTask
    recipe: RecipeLike
    settings: FinetuningSettings


def seed_variants(task: DeclaredTask, recipe: RecipeLike, settings: FinetuningSettings, seeds: int) -> list[Variant]:
    """A run for each of the seeds `settings.seed`, `settings.seed + 1`, …; InvalidConfiguration if there are none.

    The seed decides the head, the order of examples, dropout, and the rows drawn by `max_train_examples`.
    """
    if seeds < 1:
        raise InvalidConfiguration("--seeds", f"is {seeds}, at least 1 is needed")
    return [
        Variant(name=f"seed {seed}", task=task, recipe=recipe, settings=replace(settings, seed=seed))
        for seed in range(settings.seed, settings.seed + seeds)
    ]


def rate_variants(
    task: DeclaredTask, recipe: RecipeChanges, settings: FinetuningSettings, rates: Sequence[float]
) -> list[Variant]:
    """A run for each learning rate; InvalidConfiguration for rates at which no model learns, for fewer than two, and
    for two that would have the same folder."""
    if len(set(rates)) < 2:
        raise InvalidConfiguration("rates", "are fewer than two different ones", "such as --rates 1e-4 2.5e-4")
    shown = Counter(f"{rate:g}" for rate in rates)
    twice = [rate for rate, count in shown.items() if count > 1]
    if twice:
        raise InvalidConfiguration("rates", f"{twice[0]} is there twice, to six digits", "give each rate once")
    variants = []
    for rate in rates:
        changed = replace(recipe, learning_rate=rate)
        given_values(task, changed)  # which checks the rate
        variants.append(Variant(name=f"rate {rate:g}", task=task, recipe=changed, settings=settings))
    return variants


def fold_variants(task: DeclaredTask, recipe: RecipeLike, settings: FinetuningSettings, folds: int) -> list[Variant]:
    """A run for each fold of the training rows, which is the development set of its run.

    Rows with the same text are in the same fold, and classes are divided evenly. The model after the last update is the
    result: choosing one on the fold would make its score too good.

    Raises:
        InvalidConfiguration: there are fewer texts than folds.
    """
    assert isinstance(task.source, TableSource)
    rows = task.source.read(Path(), "train")
    fold_of = folds_of(task, rows, folds, settings.seed)
    settings = replace(settings, select=settings.select or "last")
    variants = []
    for fold in range(folds):
        others = [row for row, own in zip(rows.rows, fold_of, strict=True) if own != fold]
        held = [row for row, own in zip(rows.rows, fold_of, strict=True) if own == fold]
        tables = {"train": Table(others, {**rows.counts, "rows": len(others)}), "dev": Table(held, {"rows": len(held)})}
        source = replace(task.source, tables={**task.source.tables, **tables})
        of_fold = replace(task, source=source)
        variants.append(Variant(name=f"fold {fold + 1}", task=of_fold, recipe=recipe, settings=settings))
    return variants


def folds_of(task: DeclaredTask, rows: Table, folds: int, seed: int) -> np.ndarray:
    """The number of the fold of each row; InvalidConfiguration if there are fewer texts than folds."""
    texts: dict[tuple[Any, ...], int] = {}
    groups = []
    for row in rows.rows:
        text = task.inputs.group(row)
        groups.append(texts.setdefault(text, len(texts)))
    if not 2 <= folds <= len(texts):
        why = f"is {folds}, from 2 to {len(texts):,} are possible (different texts)"
        raise InvalidConfiguration("folds", why, "such as --folds 5")
    model_selection = lazy_import("sklearn.model_selection")
    labels = np.zeros(len(rows.rows), np.int64)
    splitter = model_selection.GroupKFold(folds, shuffle=True, random_state=seed)
    if task.target.strata:
        labels = np.array([task.target.gold(row, ()) for row in rows.rows])
        if np.bincount(labels).max() >= folds:
            splitter = model_selection.StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
    fold_of = np.zeros(len(rows.rows), np.int64)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class")  # the folds without a class are said with scores
        for fold, (_, held) in enumerate(splitter.split(labels, labels, groups)):
            fold_of[held] = fold
    return fold_of


# --------------------------------------------------------------------------------------------------------------------
# The runs that were made, and what they say together.


@dataclass(frozen=True, kw_only=True)
class SweepRun:
    """A run that ended, or diverged.

    Attributes:
        scores: on the development set, and on a test set as `score/test`; empty if the run diverged.
        report: the content of its `results.json`; empty if it diverged.
        failure: why it diverged, or that it is no better than a constant answer; None: neither.
    """

    name: str
    directory: Path
    scores: Scores
    report: Mapping[str, Any]
    failure: str | None = None


@dataclass(frozen=True)
class Sweep:
    """The runs so far, including failed ones: a median without them would be biased."""

    task: str
    by: Varied
    runs: tuple[SweepRun, ...]
    together: Scores = field(default_factory=dict)
    """Of all folds: the scores of all answers at once, each by the model that was not trained on its row."""

    @property
    def metric(self) -> str:
        """The first score, by which runs are compared."""
        return next((name for run in self.runs for name in run.scores), "")

    @property
    def best(self) -> SweepRun:
        """The run with the best first score on its development set, the first among equals."""
        best = self.runs[0]
        for run in self.runs[1:]:
            if is_better(self.metric, run.scores.get(self.metric), best.scores.get(self.metric)):
                best = run
        return best

    @property
    def shown(self) -> tuple[SweepRun, str]:
        """The run whose classes and errors are shown, and which one it is in words: the best one; of folds that with
        the median score, of an even number the lower one of the two in the middle."""
        if self.by == "rate":
            return self.best, "the chosen run"
        if self.by == "seed":
            return self.best, "the best run"
        scored = [run for run in self.runs if run.scores.get(self.metric) is not None]
        if not scored:
            return self.runs[0], "the first fold"
        scored.sort(key=lambda run: run.scores[self.metric] or 0.0)
        of_median = scored[(len(scored) - 1) // 2]
        if len(scored) == 1:
            return of_median, "the only fold with a score"
        if len(scored) == 2:
            return of_median, "the fold with the lower score"
        if len(scored) % 2 == 0:
            return of_median, "the fold with the lower of the two middle scores"
        return of_median, "the fold with the median score"

    @property
    def statistics(self) -> dict[str, dict[str, float]]:
        """The median of seeds, and the mean and standard deviation of seeds and folds, of each score that all runs
        have."""
        if self.by == "rate":
            return {}
        values = values_of_all([run.scores for run in self.runs])
        found = {"median": {name: float(np.median(own)) for name, own in values.items()}} if self.by == "seed" else {}
        found["mean"] = {name: float(np.mean(own)) for name, own in values.items()}
        if len(self.runs) > 1:
            found["deviation"] = {name: float(np.std(own, ddof=1)) for name, own in values.items()}
        return found

    @property
    def scores(self) -> dict[str, float | None]:
        """Of the chosen rate; the medians over the seeds; the means over the folds."""
        if self.by == "rate":
            return dict(self.best.scores)
        return dict(self.statistics["median" if self.by == "seed" else "mean"])

    @property
    def simpler(self) -> dict[str, dict[str, float | None]]:
        """The scores of simpler models on the same rows: of the run that is shown, or the means over the folds; see
        `simpler_models`."""
        if self.by != "fold":
            return simpler_models(self.shown[0].report)
        of_folds = [simpler_models(run.report) for run in self.runs]
        found: dict[str, dict[str, float | None]] = {}
        for model in of_folds[0]:
            if all(model in fold for fold in of_folds):
                values = values_of_all([fold[model] for fold in of_folds])
                found[model] = {name: float(np.mean(own)) for name, own in values.items()}
        return {model: scores for model, scores in found.items() if scores}

    @property
    def advice(self) -> str | None:
        """Which model to use, if a simpler one is not beaten."""
        report = self.shown[0].report
        settings = report.get("settings", {})
        scored = [rows_that_decide(run.report) for run in self.runs if run.report]
        found = advice(
            self.scores,
            self.simpler,
            is_frozen=settings.get("frozen", False),
            is_weighted=settings.get("class_weights") is not None,
            step=None if self.by == "seed" else report.get("next_step"),
            rows=sum(scored) if self.by == "fold" else max(scored, default=0),
        )
        return f"median: {found}" if found and self.by == "seed" else found

    @property
    def rows_missing(self) -> list[str]:
        """A line for each fold whose mean over the classes is not comparable, as it has no row of some."""
        lines = []
        for run in self.runs if self.by == "fold" and "macro_f1" in self.together else ():
            missing = [repr(each["class"]) for each in run.report.get("per_class") or () if not each["count"]]
            if missing:
                labels = ("the label " if len(missing) == 1 else "the labels ") + ", ".join(missing)
                lines.append(f"{run.name} has no row with {labels}: of macro_f1, read the column together")
        return lines

    @property
    def conclusion(self) -> str:
        """One line about what the runs say."""
        name = self.metric
        number = len(self.runs)
        if self.by == "rate":
            return (
                f"chosen: {self.best.name}, by {name} on the development set; a score that is chosen on the set it is "
                "reported on is somewhat high"
            )
        mean = self.statistics["mean"].get(name)
        deviation = self.statistics.get("deviation", {}).get(name)
        spread = "undefined" if mean is None or deviation is None else f"{mean:.2f} ± {deviation:.2f}"
        if self.by == "seed":
            return f"{name} {spread} (mean and standard deviation of {number} seeds)" if number > 1 else "one seed"
        whole = self.together.get(name)
        together = "" if whole is None else f", {whole:.2f} of all answers together"
        return (
            f"{name} {spread} (mean and standard deviation of {number} folds){together}; albert finetune trains a "
            "model on the whole table"
        )

    def to_json(self) -> dict[str, Any]:
        """The content of `summary.json`."""
        report = self.shown[0].report
        return {
            "task": self.task,
            "by": self.by,
            "runs": [
                {"name": run.name, "directory": run.directory.name, "scores": run.scores, "failure": run.failure}
                for run in self.runs
            ],
            "chosen": self.best.name if self.by == "rate" else None,
            "scores": self.scores,
            **self.statistics,
            **({"together": self.together} if self.together else {}),
            "baseline_name": report.get("baseline_name", MAJORITY),
            "simpler_models": self.simpler,
            "selection": report.get("selection", {}).get("rule"),
            "notes": [*self.rows_missing, *(note for note in report.get("notes", ()) if WITHOUT_ROWS not in note)],
            "conclusion": self.conclusion,
            "next_step": report.get("next_step") if self.by == "rate" else None,
            "advice": self.advice,
        }


def values_of_all(runs: Sequence[Scores]) -> dict[str, list[float]]:
    """The values of each score that all runs have."""
    complete = {}
    for name in runs[0]:
        known = [value for scores in runs if (value := scores.get(name)) is not None]
        if len(known) == len(runs):
            complete[name] = known
    return complete


def failure_reason(scores: Scores, baseline: Scores | None, name: str = MAJORITY) -> str | None:
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


# --------------------------------------------------------------------------------------------------------------------
# Making them.


def run_sweep(
    by: Varied,
    task: DeclaredTask,
    variants: Sequence[Variant],
    start: Start,
    data: Path,
    output: Path,
    announce: Announce | None = None,
    replace: bool = False,
    read_from: Sequence[Path] = (),
) -> Sweep:
    """Make the runs, one after the other; after one that diverges the next one starts.

    The same call resumes runs that were stopped, and keeps those that are complete.

    Args:
        announce: called before the first update of the first run; see `finetune`.
        replace: remove earlier runs in `output` once the first run is known to be possible, and begin anew.
        read_from: files that the runs read: a folder that contains one is not removed.

    Raises:
        CannotCreate: the output holds one run, or runs that differ in something else; with `replace`, it holds what
            the runs read.
        Diverged: all runs diverged.
        Others: see `finetune`.
    """
    first = variants[0]
    found = Sweep(task.name, by, ())
    teacher_logits: TeacherLogits = {}
    device = pick_device(first.settings.device, world().local_rank)
    with process_group(device) as ranks:  # one group for all runs
        if replace:
            check_run(first.task, start, data, output, first.recipe, first.settings)
            if ranks.is_first:
                remove_run(output, read_from)
            wait_for_all(ranks)
        refuse_other_runs(output, by)
        for number, variant in enumerate(variants):
            shown = announce if number == 0 else None
            run = _run(variant, start, data, output, teacher_logits, shown)
            found = Sweep(task.name, by, (*found.runs, run))
            if ranks.is_first:
                save_versioned(output / SUMMARY_NAME, found.to_json())
    if not any(run.report for run in found.runs):
        why = f"all {len(found.runs)} runs diverged ({found.runs[0].failure})"
        raise Diverged(output, why, "use a smaller learning rate")
    if by == "fold" and world().is_first:
        rows = task.source.read(data, "train").rows
        entries = _out_of_fold(found.runs, [row.identifier for row in rows])
        write_text(output / OUT_OF_FOLD, "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries))
        if all(run.report for run in found.runs):
            found = Sweep(task.name, by, found.runs, _scores_together(task, entries))
            save_versioned(output / SUMMARY_NAME, found.to_json())
    return found


def _run(
    variant: Variant,
    start: Start,
    data: Path,
    output: Path,
    teacher_logits: TeacherLogits,
    announce: Announce | None,
) -> SweepRun:
    """A run, whose divergence is a result."""
    directory = output / variant.name.replace(" ", "-")
    arguments = (variant.task, start, data, directory, variant.recipe, variant.settings, teacher_logits, announce)
    try:
        report = finetune(*arguments).report
    except Diverged as error:
        failure = f"diverged: {error.why}"
        return SweepRun(name=variant.name, directory=directory, scores={}, report={}, failure=failure)
    failure = failure_reason(report["scores"], report.get("baseline"), variant.task.target.baseline_name)
    return SweepRun(name=variant.name, directory=directory, scores=all_scores(report), report=report, failure=failure)


def _out_of_fold(runs: Sequence[SweepRun], identifiers: Sequence[str]) -> list[dict[str, Any]]:
    """The predictions of all folds, each with the name of its fold, in the order of the table's rows."""
    entries = []
    for run in runs:
        predictions = run.directory / "predictions-dev.jsonl"
        lines = predictions.read_text(encoding="utf-8").splitlines() if run.report else []
        entries += [json.loads(line) | {"fold": run.name} for line in lines]
    place = {identifier: number for number, identifier in enumerate(identifiers)}
    entries.sort(key=lambda entry: place[entry["id"]])
    return entries


def _scores_together(task: DeclaredTask, entries: Sequence[Mapping[str, Any]]) -> Scores:
    """The scores of the predictions of all folds at once; empty for answers in a text, whose scores are means over
    rows."""
    found = task.target.of_entries(entries)
    return {} if found is None else task.scores(*found)
