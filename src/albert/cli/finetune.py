"""`albert finetune`: one task, several seeds or a whole benchmark, and the tables of their results."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from albert.api.options import Finetune
from albert.checkpoints.hub import find_model
from albert.cli.options import open_console
from albert.cli.render import show_reading, show_statistics, table
from albert.finetuning.evaluation import advice, published_lines, scores_table, shortened, shown
from albert.finetuning.model import PretrainedEncoder, Start, random_encoder_like
from albert.finetuning.objective import Distillation
from albert.finetuning.options import FULL_WIDTH, ArchitectureChanges, recipe_basis
from albert.finetuning.run import finetune
from albert.finetuning.run_record import FinetuningResult, FinetuningSettings
from albert.finetuning.seeds import (
    SUMMARY_NAME,
    BenchmarkResult,
    SeedsResult,
    TaskOutcome,
    finetune_benchmark,
    finetune_seeds,
)
from albert.runtime.environment import world
from albert.runtime.errors import UsageError
from albert.tasks.custom import ReadTask, read_task
from albert.tasks.submission import BENCHMARKS, find_task
from albert.tasks.table_task import HeldOut, table_statistics
from albert.tasks.task import Option, Pair, Published, QuestionInContext, Single, Span, Target, Task, TaskRecipe, Words
from albert.text.tokenizer_loading import load_tokenizer

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


def run(args: Finetune) -> int:
    """Run `albert finetune`."""
    if args.init == "random" and args.keep_head:
        raise UsageError("--keep-head", "and --init random contradict each other", "give one of them")
    if args.output is None and not args.statistics_only:
        raise UsageError("--output", "is needed: the run's directory", "or --statistics-only, to see the rows first")
    console = open_console()
    if args.task is not None and args.task.lower() in BENCHMARKS:
        _finetune_benchmark(args, args.task.lower(), console)
        return 0
    if args.intermediate is not None:
        raise UsageError("--intermediate", "goes with a benchmark", "name the model with --model")
    read = _own_task(args) if args.task is None else None
    task = read.task if read is not None else _declared_task(args)
    recipe = args.recipe()
    basis = recipe_basis(task, recipe)
    if world().is_first and (read is not None or args.statistics_only):
        _show_rows(args, task, read, basis.recipe.max_length, console)
    if args.output is None or args.statistics_only:
        return 0
    if read is not None:
        read.check()
    run = (task, _start(args), args.data or Path(), args.output)
    settings, announce = _settings(args), partial(show_figures, console)
    if args.seeds is not None:
        seeds = finetune_seeds(*run, recipe, settings, args.seeds, announce)
        if world().is_first:
            show_seeds(console, task, seeds, args.output)
    else:
        result = finetune(*run, recipe, settings, announce=announce)
        if world().is_first:
            show_result(console, task, result)
    return 0


def _finetune_benchmark(args: Finetune, name: str, console: Console) -> None:
    given = args.table.given()
    given += [f"--{option}" for option in ("train", "dev") if getattr(args, option) is not None]
    given += ["--span-head"] if args.span_head is not None else []
    switches = ("keep_head", "v2_recipe", "statistics_only")
    given += ["--" + option.replace("_", "-") for option in switches if getattr(args, option)]
    if given:
        raise UsageError(given[0], f"goes with one task, {name} has many")
    if args.data is None:
        raise UsageError("--data", "is missing; the tasks' files are looked for there", "see albert finetune --help")
    assert args.output is not None
    recipe, settings = args.recipe(), _settings(args)
    result = finetune_benchmark(
        name,
        BENCHMARKS[name],
        _start(args),
        args.data,
        args.output,
        recipe,
        settings,
        1 if args.seeds is None else args.seeds,
        args.intermediate,
    )
    if world().is_first:
        show_benchmark(console, result, args.output)


def _declared_task(args: Finetune) -> Task:
    assert args.task is not None
    files = {split: path for split, path in (("train", args.train), ("dev", args.dev)) if path is not None}
    given = args.table.given() + (["--held-out-share"] if args.held_out_share is not None else [])
    if given:
        raise UsageError(given[0], f"goes with your own tables, the task {args.task} has its own columns")
    if args.data is None and len(files) < 2:
        raise UsageError("--data", "is missing; the task's files are looked for there", "see albert finetune --help")
    task = find_task(args.task)
    recipe = _published_recipe(task, args)
    return replace(task, source=task.source.with_files(files), target=_target(task, args), recipe=recipe)


def _own_task(args: Finetune) -> ReadTask:
    """The user's own task, from flags and a task file, with what its rows tell."""
    table = args.table.task(train=args.train, dev=args.dev)
    if table.train is None:
        remedy = "name a declared task, or your own file with --train"
        raise UsageError("albert finetune", "no training file" if args.table.given() else "no task", remedy)
    if table.dev is not None and args.held_out_share is not None:
        raise UsageError("--held-out-share", "goes without --dev", "give one of them")
    share = table.held_out.share if args.held_out_share is None else args.held_out_share
    read = read_task(replace(table, held_out=HeldOut(share=share, seed=args.seed)))
    return replace(read, task=replace(read.task, target=_target(read.task, args)))


def _show_rows(args: Finetune, task: Task, read: ReadTask | None, max_length: int, console: Console) -> None:
    """How the rows are read, and what they are like, in the tokens of the model."""
    tokenizer = load_tokenizer(find_model(args.model, args.revision))
    if read is not None:
        show_reading(console, read)
        tables = read.tables
    else:
        tables = {split: task.source.read(args.data or Path(), split) for split in ("train", "dev")}
    show_statistics(console, table_statistics(task, tables, tokenizer, max_length), max_length)


def _target(task: Task, args: Finetune) -> Target:
    if args.span_head is None:
        return task.target
    if not isinstance(task.target, Span):
        raise UsageError("--span-head", f"goes with tasks whose answers are spans, {task.name} has none")
    return replace(task.target, head=args.span_head)


def _published_recipe(task: Task, args: Finetune) -> TaskRecipe:
    if not args.v2_recipe:
        return task.recipe
    if task.second_recipe is None:
        raise UsageError("--v2-recipe", f"{task.name} has one recipe for both releases", "leave it out")
    return task.second_recipe


def _start(args: Finetune) -> Start:
    """Where the weights come from."""
    start = PretrainedEncoder(args.model, args.revision, _architecture(args), args.keep_head)
    return random_encoder_like(start) if args.init == "random" else start


def _architecture(args: Finetune) -> ArchitectureChanges:
    if args.depth is None:
        return args.architecture
    if args.architecture.num_hidden_layers not in (None, args.depth):
        raise UsageError("--depth", "and --num-hidden-layers are the same thing", "give one of them")
    return replace(args.architecture, num_hidden_layers=args.depth)


def _distillation(args: Finetune) -> Distillation | None:
    options = {
        "temperature": args.distillation_temperature,
        "weight": args.distillation_weight,
        "revision": args.teacher_revision,
    }
    given = {name: value for name, value in options.items() if value is not None}
    if args.teacher is None:
        for name in given:
            switch = "--teacher-revision" if name == "revision" else f"--distillation-{name}"
            raise UsageError(switch, "goes with --teacher", "name a fine-tuned model with it")
        return None
    return Distillation(teacher=args.teacher, **given)


def _settings(args: Finetune) -> FinetuningSettings:
    """How to compute.

    Raises:
        UsageError: it contradicts itself.
    """
    if args.freeze_encoder and args.encoder_dropout:
        raise UsageError("--encoder-dropout", "has no effect with --freeze-encoder", "leave it or --freeze-encoder out")
    return FinetuningSettings(
        seed=args.seed,
        null_threshold=args.null_threshold,
        select=args.select,
        max_train_examples=args.max_train_examples,
        evaluate_every=args.evaluate_every,
        checkpoint_every=args.checkpoint_every,
        micro_batch_tokens=args.micro_batch_tokens,
        optimizer=args.optimizer,
        device=args.device,
        precision=args.precision,
        workers=args.workers,
        exits=args.exits,
        freeze_encoder=args.freeze_encoder,
        distillation=_distillation(args),
    )
