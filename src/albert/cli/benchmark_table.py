"""A benchmark as one table: every score beside the constant answer's and the paper's, and the average."""

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from albert.cli.light_tables import table
from albert.finetuning.benchmark import BenchmarkResult, TaskOutcome
from albert.finetuning.seeds import SUMMARY_NAME
from albert.finetuning.summary import shown
from albert.tasks.task import Published


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
