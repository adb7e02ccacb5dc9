"""`albert finetune`: a pre-trained encoder learns a task."""

from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from albert.checkpoints.location import find_model
from albert.cli.benchmark_table import show_benchmark
from albert.cli.console import open_console
from albert.cli.finetuning_options import Finetune
from albert.cli.finetuning_report import show_figures, show_result
from albert.cli.seeds_table import show_seeds
from albert.cli.table_report import show_reading, show_statistics
from albert.finetuning.architecture_changes import ArchitectureChanges
from albert.finetuning.benchmark import finetune_benchmark
from albert.finetuning.distillation import Distillation
from albert.finetuning.finetune import finetune
from albert.finetuning.learning_plan import recipe_basis
from albert.finetuning.run_record import FinetuningSettings
from albert.finetuning.seeds import finetune_seeds
from albert.finetuning.start import PretrainedEncoder, Start, random_encoder_like
from albert.runtime.errors import UsageError
from albert.runtime.world import world
from albert.tasks.averages import BENCHMARKS
from albert.tasks.custom import ReadTask, read_task
from albert.tasks.declared import find_task
from albert.tasks.tables.statistics import table_statistics
from albert.tasks.tables.table_task import HeldOut
from albert.tasks.task import Span, Target, Task, TaskRecipe
from albert.text.tokenizer_directory import load_tokenizer


def run(asked: Finetune) -> int:
    """Run `albert finetune`."""
    if asked.init == "random" and asked.keep_head:
        raise UsageError("--keep-head", "and --init random contradict each other", "give one of them")
    if asked.output is None and not asked.statistics_only:
        raise UsageError("--output", "is needed: the run's directory", "or --statistics-only, to see the rows first")
    console = open_console()
    if asked.task is not None and asked.task.lower() in BENCHMARKS:
        _finetune_benchmark(asked, asked.task.lower(), console)
        return 0
    if asked.intermediate is not None:
        raise UsageError("--intermediate", "goes with a benchmark", "name the model with --model")
    read = _own_task(asked) if asked.task is None else None
    task = read.task if read is not None else _declared_task(asked)
    recipe = asked.recipe()
    basis = recipe_basis(task, recipe)
    if world().is_first and (read is not None or asked.statistics_only):
        _show_rows(asked, task, read, basis.recipe.max_length, console)
    if asked.output is None or asked.statistics_only:
        return 0
    if read is not None:
        read.check()
    run = (task, _start(asked), asked.data or Path(), asked.output)
    settings, announce = _settings(asked), partial(show_figures, console)
    if asked.seeds is not None:
        seeds = finetune_seeds(*run, recipe, settings, asked.seeds, announce)
        if world().is_first:
            show_seeds(console, task, seeds, asked.output)
    else:
        result = finetune(*run, recipe, settings, announce=announce)
        if world().is_first:
            show_result(console, task, result)
    return 0


def _finetune_benchmark(asked: Finetune, name: str, console: Console) -> None:
    given = asked.table.given()
    given += [f"--{option}" for option in ("train", "dev") if getattr(asked, option) is not None]
    given += ["--span-head"] if asked.span_head is not None else []
    switches = ("keep_head", "second_release", "statistics_only")
    given += ["--" + option.replace("_", "-") for option in switches if getattr(asked, option)]
    if given:
        raise UsageError(given[0], f"goes with one task, {name} has many")
    if asked.data is None:
        raise UsageError("--data", "is needed to find the tasks' files", "see albert finetune --help")
    assert asked.output is not None
    recipe, settings = asked.recipe(), _settings(asked)
    result = finetune_benchmark(
        name,
        BENCHMARKS[name],
        _start(asked),
        asked.data,
        asked.output,
        recipe,
        settings,
        1 if asked.seeds is None else asked.seeds,
        asked.intermediate,
    )
    if world().is_first:
        show_benchmark(console, result, asked.output)


def _declared_task(asked: Finetune) -> Task:
    assert asked.task is not None
    files = {split: path for split, path in (("train", asked.train), ("dev", asked.dev)) if path is not None}
    given = asked.table.given() + (["--held-out-share"] if asked.held_out_share is not None else [])
    if given:
        raise UsageError(given[0], f"goes with your own tables, the task {asked.task} has its own columns")
    if asked.data is None and len(files) < 2:
        raise UsageError("--data", "is needed to find the task's files", "see albert finetune --help")
    task = find_task(asked.task)
    recipe = _published_recipe(task, asked)
    return replace(task, source=task.source.with_files(files), target=_target(task, asked), recipe=recipe)


def _own_task(asked: Finetune) -> ReadTask:
    """The user's own task, from flags and a task file, with what its rows tell."""
    table = asked.table.task(train=asked.train, dev=asked.dev)
    if table.train is None:
        remedy = "name a declared task, or your own file with --train"
        raise UsageError("albert finetune", "no training file" if asked.table.given() else "no task", remedy)
    if table.dev is not None and asked.held_out_share is not None:
        raise UsageError("--held-out-share", "goes without --dev", "give one of them")
    share = table.held_out.share if asked.held_out_share is None else asked.held_out_share
    read = read_task(replace(table, held_out=HeldOut(share=share, seed=asked.seed)))
    return replace(read, task=replace(read.task, target=_target(read.task, asked)))


def _show_rows(asked: Finetune, task: Task, read: ReadTask | None, max_length: int, console: Console) -> None:
    """How the rows are read, and what they are like, in the tokens of the model."""
    tokenizer = load_tokenizer(find_model(asked.model, asked.revision))
    if read is not None:
        show_reading(console, read)
        tables = read.tables
    else:
        tables = {split: task.source.read(asked.data or Path(), split) for split in ("train", "dev")}
    show_statistics(console, table_statistics(task, tables, tokenizer, max_length), max_length)


def _target(task: Task, asked: Finetune) -> Target:
    if asked.span_head is None:
        return task.target
    if not isinstance(task.target, Span):
        raise UsageError("--span-head", f"goes with tasks whose answers are spans, {task.name} has none")
    return replace(task.target, head=asked.span_head)


def _published_recipe(task: Task, asked: Finetune) -> TaskRecipe:
    if not asked.second_release:
        return task.recipe
    if task.second_recipe is None:
        raise UsageError("--second-release", f"{task.name} has one recipe for both releases", "leave it out")
    return task.second_recipe


def _start(asked: Finetune) -> Start:
    """Where the weights come from."""
    start = PretrainedEncoder(asked.model, asked.revision, _architecture(asked), asked.keep_head)
    return random_encoder_like(start) if asked.init == "random" else start


def _architecture(asked: Finetune) -> ArchitectureChanges:
    if asked.depth is None:
        return asked.architecture
    if asked.architecture.num_hidden_layers not in (None, asked.depth):
        raise UsageError("--depth", "and --num-hidden-layers are the same thing", "give one of them")
    return replace(asked.architecture, num_hidden_layers=asked.depth)


def _distillation(asked: Finetune) -> Distillation | None:
    options = {
        "temperature": asked.distillation_temperature,
        "weight": asked.distillation_weight,
        "revision": asked.teacher_revision,
    }
    given = {name: value for name, value in options.items() if value is not None}
    if asked.teacher is None:
        for name in given:
            switch = "--teacher-revision" if name == "revision" else f"--distillation-{name}"
            raise UsageError(switch, "goes with --teacher", "name a fine-tuned model with it")
        return None
    return Distillation(teacher=asked.teacher, **given)


def _settings(asked: Finetune) -> FinetuningSettings:
    """How to compute.

    Raises:
        UsageError: it contradicts itself.
    """
    if asked.freeze_encoder and asked.encoder_dropout:
        raise UsageError("--encoder-dropout", "of a frozen encoder is none", "leave it or --freeze-encoder out")
    return FinetuningSettings(
        seed=asked.seed,
        null_threshold=asked.null_threshold,
        select=asked.select,
        max_train_examples=asked.max_train_examples,
        evaluate_every=asked.evaluate_every,
        checkpoint_every=asked.checkpoint_every,
        micro_batch_tokens=asked.micro_batch_tokens,
        optimizer=asked.optimizer,
        device=asked.device,
        precision=asked.precision,
        workers=asked.workers,
        exits=asked.exits,
        freeze_encoder=asked.freeze_encoder,
        distillation=_distillation(asked),
    )
