"""The results of fine-tuning: of one run, of several seeds, rates or folds, and of the tasks of a benchmark."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
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
    score_in,
    score_table,
    without_thresholds,
)
from albert.runtime.json_files import read_versioned
from albert.runtime.words import counted, in_epochs
from albert.tasks.declared import UNNAMED, DeclaredTask
from albert.tasks.submission import BENCHMARKS, DECLARED
from albert.tasks.task import BEST_CONSTANT
from albert.training.run_folder import RESULTS_NAME, SUMMARY_NAME

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
# Several runs. `report` is the content of summary.json.


def _of_one(directory: Path | None) -> dict[str, Any]:
    """The classes and errors of one of several runs, and its page."""
    if directory is None or not (directory / RESULTS_NAME).is_file():
        return {"analysis": {}, "page": None}
    page = directory / PAGE_NAME
    return {"analysis": read_versioned(directory / RESULTS_NAME), "page": page if page.exists() else None}


def _failures(report: Mapping[str, Any]) -> list[str]:
    return [f"seed {run['seed']} failed: {run['failure']}" for run in report["runs"] if run["failure"] is not None]


def result_of_seeds(report: Mapping[str, Any], output: Path, best: Path, model: Path, task: DeclaredTask) -> Result:
    """The result of runs with several seeds: medians, and the classes of the run in `best`."""
    runs = report["runs"]
    simpler = report["simpler_models"]
    by_run = score_table({run["directory"]: run["scores"] for run in runs}, corner="score")
    if any(run["step"] is not None for run in runs):
        steps = ("-" if run["step"] is None else str(run["step"]) for run in runs)
        by_run = Table([*by_run.rows, ["after step", *steps]], minor=1)
    rows = [["score", "median", "lowest", "quartiles", "highest", "runs", *simpler]]
    for name, spread in report["scores"].items():
        quartiles = f"{spread['lower_quartile']:.2f}–{spread['upper_quartile']:.2f}"
        median, lowest, highest = (format_score(spread[each]) for each in ("median", "lowest", "highest"))
        compared = (score_in(scores, name) for scores in simpler.values())
        rows.append([name, median, lowest, quartiles, highest, str(spread["runs"]), *compared])
    failures = _failures(report)
    failures += ["medians include failed runs"] if failures else []
    if report["baseline"] is None:
        failures.append("there is no constant answer to compare with, so failed runs are not detected")
    one = _of_one(best)
    shown = Shown(
        heading=f"Fine-tuning on {task.title}",
        summary=f"the median of {counted(len(runs), 'seeds')}",
        before=[*report["notes"], report["selection"]],
        tables=[by_run, Table(rows)],
        notes=[*failures, *published_lines([vars(each) for each in task.published])],
        advice=advice_lines(report),
        analysis_of=f"{best.name}, the best run",
        page=one["page"],
        written=[(output / SUMMARY_NAME, " has all of it")],
        following=predict_command(model, task),
    )
    scores = {name: spread["median"] for name, spread in report["scores"].items() if not spread["undefined"]}
    return Result(
        scores=scores,
        baselines=baselines(report),
        report=report,
        output=output,
        model=model,
        analysis=one["analysis"],
        shown=shown,
    )


def result_of_comparison(
    report: Mapping[str, Any],
    output: Path,
    *,
    scores: Scores,
    typical: Path,
    why_typical: str,
    failures: Sequence[str],
    model: Path | None,
    task: DeclaredTask,
) -> Result:
    """The result of runs with several rates or of folds; folds leave no model.

    Args:
        scores: of the chosen rate, or the means over the folds.
        typical: the run whose classes and errors are shown, and why it is this one.
        failures: a line for each run that diverged.
    """
    is_folds = report["by"] == "fold"
    columns: dict[str, Scores] = {run["name"]: without_thresholds(run["scores"]) for run in report["runs"]}
    if is_folds:
        columns |= {"mean": without_thresholds(report["mean"])}
        columns |= {"deviation": without_thresholds(report["deviation"])}
    simpler = report["simpler_models"]
    known = {name for values in columns.values() for name in values}
    for name, values in simpler.items():
        columns[f"{name}, mean" if is_folds else name] = {k: value for k, value in values.items() if k in known}
    one = _of_one(typical)
    shown = Shown(
        heading=f"Fine-tuning on {task.title}",
        summary=f"{counted(len(report['runs']), 'folds' if is_folds else 'learning rates')}",
        tables=[score_table(columns, corner="score")],
        notes=[*failures, report["conclusion"]],
        advice=advice_lines(report),
        analysis_of=f"{typical.name}, {why_typical}",
        page=one["page"],
        written=[] if model is None else [(model, " is ready")],
        following="" if model is None else predict_command(model, task),
    )
    of_dev = {name: {k: value for k, value in values.items() if "/" not in k} for name, values in simpler.items()}
    return Result(
        scores=scores,
        baselines=of_dev,
        report=report,
        output=output,
        model=model,
        analysis=one["analysis"],
        shown=shown,
    )


# --------------------------------------------------------------------------------------------------------------------
# A benchmark as one table: every score beside the constant answer's and the paper's, and the average.


def result_of_benchmark(report: Mapping[str, Any], output: Path, models: Mapping[str, Path]) -> Result:
    """The result of all tasks of a benchmark: scores are called TASK/SCORE.

    Args:
        models: task -> its best model.
    """
    average = BENCHMARKS[report["benchmark"]]
    tasks = report["tasks"]
    rows = [["task", "score", "median", "all runs", "runs", BEST_CONSTANT, "paper"]]
    sources: dict[tuple[str, str], list[str]] = {}
    scores: dict[str, float | None] = {}
    constants: dict[str, float | None] = {}
    for name, metrics in average.parts.items():
        found = tasks[name]
        published = {each.metric: each for each in reversed(DECLARED[name].published)}
        for metric, spread in found.get("scores", {}).items():
            if not spread["undefined"]:
                scores[f"{name}/{metric}"] = spread["median"]
        for metric, value in (found.get("baseline") or {}).items():
            constants[f"{name}/{metric}"] = value
        for metric in metrics:
            paper = "-"
            if metric in published:
                paper = f"{published[metric].score:g}"
                sources.setdefault((published[metric].model, published[metric].source), []).append(name)
            rows.append([name, metric, *_spread_cells(found, metric), paper])
    paper = "-"
    for each in average.published[:1]:
        paper = f"{each.score:g}"
        sources.setdefault((each.model, each.source), []).append("Avg")
    mean = report["average"]
    rows.append(["Avg", "", "-" if mean is None else f"{mean:.1f}", "", "", "", paper])
    lines = [*_benchmark_notes(report)]
    lines += [f"paper: {model}, {source}: {', '.join(names)}" for (model, source), names in sources.items()]
    following = [predict_command(model, DECLARED[name]) for name, model in models.items()]
    shown = Shown(
        heading=f"Fine-tuning on {report['benchmark']}",
        summary=counted(sum("runs" in each for each in tasks.values()), "tasks"),
        tables=[Table(rows)],
        notes=lines,
        written=[(output / SUMMARY_NAME, " has all of it")],
        following=following[0] if following else "",
    )
    return Result(scores=scores, baselines={BEST_CONSTANT: constants}, report=report, output=output, shown=shown)


def _spread_cells(found: Mapping[str, Any], metric: str) -> list[str]:
    """Median, lowest to highest, number of runs, and the constant answer's score."""
    spread = found.get("scores", {}).get(metric)
    if spread is None:
        return ["-", "-", "-", "-"]
    runs = str(spread["runs"])
    if spread["undefined"]:
        runs += f" of {spread['runs'] + spread['undefined']}"
    lowest_to_highest = f"{spread['lowest']:.2f}–{spread['highest']:.2f}"
    return [format_score(spread["median"]), lowest_to_highest, runs, score_in(found["baseline"], metric)]


def _benchmark_notes(report: Mapping[str, Any]) -> Iterator[str]:
    """Where tasks start from, and what failed or is missing."""
    for name, found in report["tasks"].items():
        intermediate = DECLARED[name].intermediate
        if "runs" not in found:
            if not any(line.startswith(f"{name}: ") for line in report["missing_files"]):
                yield f"{name} is left out: {found['missing']}"
            continue
        if found["started_from"] is not None:
            yield f"{name} starts from {found['started_from']}"
        elif intermediate is not None:
            yield f"{name} starts from the model itself: {intermediate} was not trained"
        yield from (f"{name}, {line}" for line in _failures(found))
    for line in report["missing_files"]:
        yield f"missing: {line}"
    for name, diagnosed in report["diagnostics"].items():
        for split, scores in diagnosed["scores"].items():
            shown = ", ".join(f"{metric} {format_score(value)}" for metric, value in scores.items())
            yield f"{name}, {split}: {shown or 'answered, not scored'} (by {diagnosed['model']})"
        yield from (f"missing: {name}: {line}" for line in diagnosed["missing"])
    if report["average_lacks"]:
        yield f"Avg is of all {len(report['tasks'])} tasks; it lacks {', '.join(report['average_lacks'])}"
    yield from dict.fromkeys(found["selection"] for found in report["tasks"].values() if "selection" in found)
