"""The results of fine-tuning: of one run, and of several that differ in their seed, learning rate or fold."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from albert.report.advice import advice_lines, baselines, is_frozen
from albert.report.curves import journal_of, points_of
from albert.report.following import predict_command
from albert.report.notes import (
    COUNTED_BEFORE,
    HEAD_NOT_SOLVED,
    counts_of_rows,
    published_lines,
    settings_line,
)
from albert.report.page import PAGE_NAME
from albert.report.reading import DataReport
from albert.report.result import Result, Shown
from albert.report.tables import (
    Scores,
    Table,
    compared_scores,
    format_score,
    score_table,
    without_thresholds,
)
from albert.runtime.json_files import read_versioned
from albert.runtime.words import counted, in_epochs
from albert.tasks.declared import UNNAMED, DeclaredTask
from albert.training.run_folder import RESULTS_NAME, SUMMARY_NAME, RunFolder

OF_VECTORS = {"vectors": "texts", "contrastive": "pairs"}
"""The tasks of `albert finetune-vectors` -> what their examples are."""


def result_of_rows(task: DeclaredTask, reading: DataReport | None, report: Mapping[str, Any]) -> Result:
    """How the rows of a task were read, where nothing was trained."""
    shown = Shown(heading=f"Rows of {task.title}", summary="nothing was trained")
    return Result(scores={}, report=report, reading=reading, shown=shown)


# --------------------------------------------------------------------------------------------------------------------
# One run.


def result_of_run(
    report: Mapping[str, Any],
    output: Path,
    *,
    model: Path | None = None,
    task: DeclaredTask | None = None,
    already_complete: bool = False,
    usual_precision: str | None = None,
) -> Result:
    """The result of a run.

    Args:
        report: the content of its results.json.
        output: its folder, which has its journal.
        task: None: vectors were learned.
        usual_precision: in which other commands compute here; None: nothing is said about it.
    """
    training = report["training"]
    examples = report["evaluation"]["examples"]
    what = OF_VECTORS.get(report["task"])
    heading = f"Fine-tuning on {'your table' if report['task'] == UNNAMED else report['task']}"
    if what is not None:
        heading = f"Fine-tuning of vectors of {what}"
    summary = f"{counted(training['examples'], what or 'training rows')}, "
    summary += f"{counted(examples, what or 'rows')} of the development set"
    if training["steps"]:
        summary += f", {counted(training['steps'], 'updates')} ({in_epochs(training['epochs'])})"
    before = [f"scored on {counted(examples, what)} that are not trained on"] if what is not None else []
    before += [report["selection"]["note"]] if "selection" in report else []
    page = output / PAGE_NAME
    ended = [f"{output} is complete already; nothing was trained"] if already_complete else []
    following = ""
    if model is not None and task is not None:
        following = predict_command(model, task)
    elif model is not None:
        following = f"export sentence-transformers {shlex.quote(str(model))} --output vectors"
    shown = Shown(
        heading=heading,
        summary=f"{summary}, from {report['start']}",
        before=before,
        ended=[*ended, _ended(report, what)],
        tables=list(_score_tables(report)),
        notes=_notes(report, usual_precision),
        said=() if already_complete else _said(report, what is None),
        advice=advice_lines(report),
        settings=settings_line(report) if what is None else "",
        curves=points_of(journal_of(output), list(report["scores"])[:1]),
        page=page if page.exists() else None,
        written=[] if model is None else [(model, " is ready")],
        following=following,
    )
    return Result(
        scores=report["scores"],
        baselines=baselines(report),
        report=report,
        output=output,
        model=model,
        already_complete=already_complete,
        analysis=report,
        shown=shown,
    )


def _ended(report: Mapping[str, Any], what: str | None) -> str:
    """What was done, and in which time."""
    training = report["training"]
    rows = counted(training["rows"], "training rows") if what is None else counted(training["examples"], what)
    if is_frozen(report):
        return f"head solved on {training['examples']:,} of {rows} in {report['frozen_head']['seconds']:,.0f} s"
    steps = counted(training["steps"], "steps")
    done = f"{steps} over {training['examples']:,} of {rows} ({in_epochs(training['epochs'])})"
    return f"{done} in {training['seconds']:,.0f} s"


def _score_tables(report: Mapping[str, Any]) -> Iterator[Table]:
    """The scores on the development set, then those on further sets."""
    found = [compared_scores(report["scores"], baselines(report), title="Scores on the development set")]
    for split, scores in report.get("further_scores", {}).items():
        simpler = report.get("further_baselines", {}).get(split, {})
        found.append(compared_scores(scores, simpler, title=f"Scores on {split}", corner=split))
    yield from filter(None, found)


def _notes(report: Mapping[str, Any], usual_precision: str | None) -> list[str]:
    """What a run noticed, what was cut or left out in its rows, and scores to compare with."""
    lines = [*report.get("notes", ()), *counts_of_rows(report)]
    training = report.get("training_scores")
    if training is not None and training["scores"]:
        scores = ", ".join(f"{name} {format_score(value)}" for name, value in _main(training["scores"]).items())
        lines.append(f"on {counted(training['examples'], 'training rows')}: {scores}")
    linear = report.get("linear_baseline")
    if linear is not None and linear["left_out"] is not None:
        lines.append(f"{linear['method']} is left out: {linear['left_out']}")
    lines += published_lines(report.get("published", ()))
    computed_in = report.get("computed_in")
    if usual_precision is not None and computed_in not in (None, usual_precision):
        others = f"albert evaluate, predict and serve compute in {usual_precision}"
        lines.append(f"scores computed in {computed_in}; {others}, with --precision {computed_in} as here")
    return lines


def _main(scores: Scores) -> dict[str, float | None]:
    return {name: value for name, value in without_thresholds(scores).items() if not name.startswith("entity_f1_")}


def _said(report: Mapping[str, Any], of_task: bool) -> set[str]:
    """The notes of a run that are shown before its training."""
    said = {HEAD_NOT_SOLVED, (report.get("frozen_head") or {}).get("line", "")}
    if of_task:
        said |= {*counts_of_rows(report)} - {*counts_of_rows(report, leave_out=COUNTED_BEFORE)}
    return said


# --------------------------------------------------------------------------------------------------------------------
# Several runs.


def result_of_sweep(
    report: Mapping[str, Any], output: Path, best: Path, detailed: Path, why_detailed: str, task: DeclaredTask
) -> Result:
    """The result of runs that differ in their seed, learning rate or fold; folds leave no model.

    Args:
        report: the content of summary.json.
        best: the folder of the best run.
        detailed: that of the run whose classes and errors are shown, and which one it is in words.
    """
    by = report["by"]
    statistics = [name for name in ("median", "mean", "deviation", "together") if name in report]
    columns: dict[str, Scores] = {run["name"]: without_thresholds(run["scores"]) for run in report["runs"]}
    columns |= {name: without_thresholds(report[name]) for name in statistics}
    known = {name for values in columns.values() for name in values}
    simpler = report["simpler_models"]
    for name, values in simpler.items():
        heading = f"{name}, mean" if by == "fold" else name
        columns[heading] = {score: value for score, value in values.items() if score in known}
    failures = [f"{run['name']}: {run['failure']}" for run in report["runs"] if run["failure"] is not None]
    results = read_versioned(detailed / RESULTS_NAME) if (detailed / RESULTS_NAME).is_file() else {}
    page = detailed / PAGE_NAME
    model = None if by == "fold" else RunFolder(best).model_path
    shown = Shown(
        heading=f"Fine-tuning on {task.title}",
        summary=counted(len(report["runs"]), {"seed": "seeds", "rate": "learning rates", "fold": "folds"}[by]),
        before=[*report["notes"], *filter(None, [report["selection"]])],
        tables=[score_table(columns, corner="score")],
        notes=[*failures, report["conclusion"], *published_lines([vars(each) for each in task.published])],
        advice=advice_lines(report),
        analysis_of=f"{detailed.name}, {why_detailed}",
        page=page if page.exists() else None,
        written=[(output / SUMMARY_NAME, " has all of it"), *([] if model is None else [(model, " is ready")])],
        following="" if model is None else predict_command(model, task),
    )
    of_dev = {name: {k: value for k, value in values.items() if "/" not in k} for name, values in simpler.items()}
    return Result(
        scores=report["scores"],
        baselines=of_dev,
        report=report,
        output=output,
        model=model,
        analysis=results,
        shown=shown,
    )
