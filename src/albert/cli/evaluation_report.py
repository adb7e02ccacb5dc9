"""What `albert evaluate` says of a task: one model's scores, or those of several beside what they say together."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from albert.cli.light_tables import table
from albert.finetuning.evaluate import EvaluatedModels
from albert.finetuning.summary import published_lines, scores_table, shortened, shown
from albert.inference.precision import InferencePrecision
from albert.runtime.durable_files import write_text
from albert.tasks.submission import submission_files
from albert.tasks.task import Task

TOGETHER = "together"


def show_evaluation(
    console: Console, task: Task, models: tuple[str, ...], found: EvaluatedModels, precision: InferencePrecision
) -> None:
    """Print how the models were opened and computed, what was cut, and the scores."""
    for member in found.members:
        for note in member.notes:
            console.print(note, markup=False)
    evaluation = found.together
    console.print(f"{len(evaluation.predictions):,} examples in {evaluation.seconds:,.1f} s, in {precision}")
    for model, member in zip(models, found.members, strict=True):
        for line in shortened(member.evaluation.counts):
            console.print(line if len(models) == 1 else f"{model}: {line}", markup=False)
    if not evaluation.scores:
        return
    if len(models) == 1:
        for line in scores_table(task, evaluation.scores, evaluation.baseline):
            console.print(line, markup=False)
        return
    for note in evaluation.notes:
        console.print(f"{TOGETHER}: {note}", markup=False)
    for number, model in enumerate(models, start=1):
        console.print(f"{number}: {model}", markup=False)
    console.print(_side_by_side(found))
    for line in published_lines(task):
        console.print(line, markup=False)


def results(
    task: Task, models: tuple[str, ...], split: str, found: EvaluatedModels, precision: InferencePrecision
) -> dict[str, Any]:
    """The scores as `--results` writes them."""
    evaluation = found.together
    named = models[0] if len(models) == 1 else list(models)
    about = {"task": task.name, "model": named, "split": split, "precision": precision}
    scores: dict[str, Any] = {"scores": dict(evaluation.scores), "baseline": evaluation.baseline}
    if len(models) > 1:
        each = zip(models, found.members, strict=True)
        scores["of_each"] = {model: dict(member.evaluation.scores) for model, member in each}
    return about | scores | {"counts": dict(evaluation.counts)}


def write_submission(console: Console, task: Task, split: str, found: EvaluatedModels, directory: Path) -> None:
    """Write the files that are handed in, and say where they are."""
    for name, content in submission_files(task, split, found.together.predictions).items():
        write_text(directory / name, content)
        console.print(f"[bold]{escape(str(directory / name))}[/bold]: {len(found.together.predictions):,} predictions")


def _side_by_side(found: EvaluatedModels) -> Table:
    """Rows of scores; the models have their numbers, whose paths may be long."""
    together, baseline = found.together, found.together.baseline
    numbers = [str(place) for place in range(1, len(found.members) + 1)]
    made = table(None, "score", *numbers, TOGETHER, *([] if baseline is None else ["constant answer"]))
    for name, score in together.scores.items():
        each = (shown(member.evaluation.scores[name]) for member in found.members)
        constant = [] if baseline is None else [shown(baseline[name])]
        if "thresh" not in name:
            made.add_row(name, *each, shown(score), *constant)
    return made
