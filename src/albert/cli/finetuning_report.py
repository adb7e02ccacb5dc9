"""What `albert finetune` says before it learns, and when it is done."""

import shlex
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

from albert.finetuning.learning_plan import FULL_WIDTH
from albert.finetuning.run_record import FinetuningResult
from albert.finetuning.summary import scores_table, shortened, shown
from albert.tasks.task import Option, Pair, QuestionInContext, Single, Task, Words


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
