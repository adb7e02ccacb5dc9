"""`albert finetune`: one task, several seeds or a whole benchmark, and the tables of their results."""

import shlex
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from albert.api.options import Finetune
from albert.api.results import Reading
from albert.api.tasks import run_finetune
from albert.cli.options import open_console
from albert.cli.render import show_reading, show_statistics, table
from albert.finetuning.evaluation import advice, published_lines, scores_table, shortened, shown
from albert.finetuning.options import FULL_WIDTH
from albert.finetuning.run_record import FinetuningResult
from albert.finetuning.seeds import (
    SUMMARY_NAME,
    BenchmarkResult,
    SeedsResult,
    TaskOutcome,
)
from albert.runtime.devices import default_precision, pick_device
from albert.runtime.environment import world
from albert.tasks.task import Option, Pair, Published, QuestionInContext, Single, Task, Words

# --------------------------------------------------------------------------------------------------------------------
# What `albert finetune` says before it learns, and when it is done.


def show_figures(console: Console, figures: Mapping[str, Any]) -> None:
    """Print how a run learns, before it does; for the figures see `TaskRun.figures`."""
    factor = figures["rate_factor"]
    why = "" if factor == 1 else f" ({factor:.3g} times the recipe's for H below {FULL_WIDTH})"
    console.print(
        f"learning rate {figures['learning_rate']:.3g}{why}, batch size {figures['batch_size']:,}, "
        f"{figures['epochs']:.3g} epochs of {figures['examples']:,} examples: {figures['steps']:,} updates; "
        f"at most {figures['max_length']:,} tokens, {figures['precision']} on {figures['device']}",
        markup=False,
    )
    console.file.flush()


def show_result(console: Console, task: Task, result: FinetuningResult) -> None:
    """Print a run's scores beside what they are compared with, and all that was cut, left out or new."""
    report = result.report
    if result.already_complete:
        console.print(f"{result.model_directory.parent} is complete already; nothing was trained", markup=False)
    for note in report["notes"]:
        console.print(note, markup=False)
    training, evaluation = report["training"], report["evaluation"]
    console.print(
        f"{training['steps']:,} steps over {training['examples']:,} of {training['rows']:,} training rows "
        f"({training['epochs']:.3g} epochs) in {training['seconds']:,.0f} s"
    )
    for part, counts in (("training", training), ("development set", evaluation)):
        for line in shortened(counts):
            console.print(f"{part}: {line}")
    for split, scores in report.get("further_scores", {}).items():
        console.print(f"{split}: " + ", ".join(f"{name} {shown(value)}" for name, value in scores.items()))
    if training.get("windows_left_out"):
        console.print(f"training: {training['windows_left_out']:,} windows without the answer left out")
    if training.get("held_out"):
        console.print(f"training: {training['held_out']:,} questions held out to choose the threshold on")
    if "selection" in report:
        console.print(report["selection"]["note"], markup=False)
    for line in scores_table(task, result.scores, report["baseline"], report.get("linear_baseline")):
        console.print(line, markup=False)
    computed_in, usual = report.get("computed_in"), default_precision(pick_device())
    if computed_in not in (None, usual):
        others = f"albert evaluate, predict and serve compute in {usual} on this machine"
        console.print(
            f"scores computed in {computed_in}; {others}, with --precision {computed_in} as here", markup=False
        )
    if report.get("advice"):
        console.print(report["advice"], markup=False)
    console.print(f"[bold]{escape(str(result.model_directory))}[/bold] is ready")
    console.print(f"next: albert predict {shlex.quote(str(result.model_directory))} {_question(task)}", markup=False)


def _question(task: Task) -> str:
    """What `albert predict` may ask a model of this task."""
    match task.inputs:
        case QuestionInContext() if isinstance(task.target, Option):
            return '--question "Who came?" --context "He came home." --choose "he" "she"'
        case QuestionInContext():
            return '--question "Who came?" --context "He came home."'
        case Pair():
            return '--classify "He came home." --pair "He is at home."'
        case Words():
            return '--tag "He came home ."'
        case Single():
            return '--classify "He came home."'


# --------------------------------------------------------------------------------------------------------------------
# A benchmark as one table: every score beside the constant answer's and the paper's, and the average.


def show_benchmark(console: Console, result: BenchmarkResult, output: Path) -> None:
    """Print the table, what is missing, which runs failed, and where the paper's figures come from."""
    made = table(None, "task", "score", "median", "all runs", "runs", "constant", "paper")
    for outcome in result.outcomes:
        for score in result.average.parts[outcome.task.name]:
            made.add_row(outcome.task.name, score, *_figures(outcome, score))
    average = result.average.of(result.scores)
    published = next(iter(result.average.published), None)
    shown_average = "-" if average is None else f"{average:.1f}"
    made.add_row("Avg", "", shown_average, "", "", "", "-" if published is None else f"{published.score:g}")
    console.print(made)
    for line in (*_remarks(result), *_sources(result)):
        console.print(line, markup=False)
    console.print(f"[bold]{escape(str(output / SUMMARY_NAME))}[/bold] has all of it")


def _figures(outcome: TaskOutcome, score: str) -> tuple[str, ...]:
    paper = _published(outcome, score)
    last = "-" if paper is None else f"{paper.score:g}"
    spread = None if outcome.found is None else outcome.found.spreads.get(score)
    if outcome.found is None or spread is None:
        return ("-", "-", "-", "-", last)
    baseline = outcome.found.baseline or {}
    constant = shown(baseline[score]) if score in baseline else "-"
    runs = f"{spread.runs}" if not spread.undefined else f"{spread.runs} of {spread.runs + spread.undefined}"
    return (shown(spread.median), f"{spread.lowest:.2f}–{spread.highest:.2f}", runs, constant, last)


def _published(outcome: TaskOutcome, score: str) -> Published | None:
    return next((each for each in outcome.task.published if each.metric == score), None)


def _remarks(result: BenchmarkResult) -> Iterator[str]:
    for outcome in result.outcomes:
        if outcome.started_from is not None:
            yield f"{outcome.task.name} starts from {outcome.started_from}"
        elif outcome.found is not None and outcome.task.intermediate is not None:
            yield f"{outcome.task.name} starts from the model itself: none learnt {outcome.task.intermediate}"
        if outcome.found is not None:
            for run in outcome.found.failed:
                yield f"{outcome.task.name}, seed {run.seed} failed: {run.failure}"
        elif not any(line.startswith(f"{outcome.task.name}: ") for line in result.missing_files):
            yield f"{outcome.task.name} is not learnt: {outcome.missing}"
    for line in result.missing_files:
        yield f"missing: {line}"
    for diagnosed in result.diagnostics:
        for split, scores in diagnosed.scores.items():
            told = ", ".join(f"{name} {shown(value)}" for name, value in scores.items())
            yield f"{diagnosed.task.name}, {split}: {told or 'answered, not scored'} (by {diagnosed.model})"
        yield from (f"missing: {diagnosed.task.name}: {line}" for line in diagnosed.missing)
    if result.lacking:
        yield f"Avg is of all {len(result.average.parts)} tasks; it lacks {', '.join(result.lacking)}"
    yield from dict.fromkeys(each.found.selection for each in result.outcomes if each.found is not None)


def _sources(result: BenchmarkResult) -> Iterator[str]:
    groups: dict[tuple[str, str], list[str]] = {}
    for outcome in result.outcomes:
        papers = (_published(outcome, score) for score in result.average.parts[outcome.task.name])
        for paper in papers:
            if paper is not None:
                groups.setdefault((paper.model, paper.source), []).append(outcome.task.name)
    for paper in result.average.published[:1]:
        groups.setdefault((paper.model, paper.source), []).append("Avg")
    for (model, source), names in groups.items():
        yield f"paper: {model}, {source}: {', '.join(names)}"


# --------------------------------------------------------------------------------------------------------------------
# The runs of several seeds as tables: the scores of each, then where every score lies.


def show_seeds(console: Console, task: Task, found: SeedsResult, output: Path) -> None:
    """Print all runs, the spread of their scores, which of them failed, and what is published."""
    for note in found.notes:
        console.print(note, markup=False)
    console.print(found.selection, markup=False)
    console.print(_runs(found))
    console.print(_spreads(found))
    for run in found.failed:
        console.print(f"seed {run.seed} failed: {run.failure}", markup=False)
    if found.failed:
        console.print("failed runs are among those that the median is of", markup=False)
    if found.baseline is None:
        console.print("no constant answer exists for this task, so no run is judged to have failed", markup=False)
    if told := advice(found.medians, found.baseline, found.linear_baseline):
        console.print(f"median: {told}", markup=False)
    for line in published_lines(task):
        console.print(line, markup=False)
    console.print(f"[bold]{escape(str(output / SUMMARY_NAME))}[/bold] has all of it")


def _runs(found: SeedsResult) -> Table:
    made = table(None, "score", *(run.directory.name for run in found.runs))
    for name in found.spreads:
        made.add_row(name, *(shown(run.scores[name]) if name in run.scores else "-" for run in found.runs))
    if any(run.step is not None for run in found.runs):
        made.add_row("after step", *("-" if run.step is None else f"{run.step:,}" for run in found.runs), style="dim")
    return made


def _spreads(found: SeedsResult) -> Table:
    linear = found.linear_baseline if found.linear_baseline and found.linear_baseline["scores"] else None
    made = table(
        None,
        "score",
        "median",
        "lowest",
        "quartiles",
        "highest",
        "runs",
        "constant",
        *([linear["method"]] if linear else []),
    )
    for name, spread in found.spreads.items():
        quartiles = f"{spread.lower_quartile:.2f}–{spread.upper_quartile:.2f}"
        constant = "-" if found.baseline is None or name not in found.baseline else shown(found.baseline[name])
        places = (shown(spread.median), shown(spread.lowest), quartiles, shown(spread.highest))
        beside = [shown(linear["scores"][name]) if name in linear["scores"] else "-"] if linear else []
        made.add_row(name, *places, str(spread.runs), constant, *beside)
    return made


def run(args: Finetune) -> None:
    """Run `albert finetune`."""
    console = open_console()
    result = run_finetune(args, partial(_show_rows, console), partial(show_figures, console))
    if not world().is_first or args.output is None or result.found is None:
        return
    match result.found:
        case BenchmarkResult() as found:
            show_benchmark(console, found, args.output)
        case SeedsResult() as found:
            assert result.task is not None
            show_seeds(console, result.task, found, args.output)
        case FinetuningResult() as found:
            assert result.task is not None
            show_result(console, result.task, found)


def _show_rows(console: Console, reading: Reading) -> None:
    if reading.read is not None:
        show_reading(console, reading.read)
    show_statistics(console, reading.statistics, reading.max_length)
