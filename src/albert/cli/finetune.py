"""`albert finetune`: a pre-trained encoder learns a task."""

from dataclasses import replace
from pathlib import Path

from rich.console import Console

from albert.cli.benchmark_table import show_benchmark
from albert.cli.command_line import parse
from albert.cli.finetuning_options import Finetune
from albert.cli.finetuning_report import show_result
from albert.cli.seeds_table import show_seeds
from albert.finetuning.benchmark import finetune_benchmark
from albert.finetuning.finetune import finetune
from albert.finetuning.seeds import finetune_seeds
from albert.runtime.distributed import world
from albert.runtime.errors import UsageError
from albert.tasks.averages import BENCHMARKS
from albert.tasks.custom import CUSTOM_RECIPE, declare_custom_task
from albert.tasks.declared import DECLARED, find_task
from albert.tasks.task import Span, Target, Task, TaskRecipe

DESCRIPTION = f"""Fine-tune a model on a declared task or on your own table, and evaluate it.

TASK is one of {", ".join(DECLARED)}, or {" or ".join(BENCHMARKS)} for a whole benchmark beside the paper's row. Without
TASK, --train and --dev name your own files (.csv, .tsv or .jsonl, plain or .gz) and --text, --pair, --label their
columns. The same command goes on with a run that was stopped.

The model's encoder learns with a new head. Its architecture may change before it does: other depth or sharing, more
positions; what became of the weights is told.

Examples:
  albert finetune sst-2 --model runs/small --data glue --output runs/sst-2
  albert finetune --train my.csv --dev dev.csv --text review --label stars \\
    --model runs/small --output runs/stars
  albert finetune rte --model runs/mnli --data glue --output runs/rte --seeds 5 --select best
  albert finetune glue --model albert/albert-base-v2 --data glue --output runs/glue --seeds 5
  albert finetune squad-2.0 --model albert/albert-base-v2 --data squad --output runs/squad2
  albert finetune race --model albert/albert-base-v2 --second-release --data . --output runs/race
  albert finetune squad-1.1 --model albert/albert-base-v2 --data squad --output runs/squad \\
    --max-position-embeddings 1024 --max-length 1024"""


def main(arguments: list[str]) -> int:
    """Run `albert finetune`."""
    asked = parse(Finetune, arguments, "albert finetune", DESCRIPTION)
    if asked.init == "random" and asked.keep_head:
        raise UsageError("--keep-head", "and --init random contradict each other", "give one of them")
    console = Console(soft_wrap=True, highlight=False)
    if asked.task is not None and asked.task.lower() in BENCHMARKS:
        _finetune_benchmark(asked, asked.task.lower(), console)
        return 0
    if asked.intermediate is not None:
        raise UsageError("--intermediate", "goes with a benchmark", "name the model with --model")
    task = _task(asked)
    recipe = asked.recipe(_published_recipe(task, asked))
    run = (task, asked.start(), asked.data or Path(), asked.output)
    settings = asked.settings(recipe)
    if asked.seeds is not None:
        seeds = finetune_seeds(*run, recipe, settings, asked.seeds)
        if world().is_first:
            show_seeds(console, task, seeds, asked.output)
    else:
        result = finetune(*run, recipe, settings)
        if world().is_first:
            show_result(console, task, result)
    return 0


def _finetune_benchmark(asked: Finetune, name: str, console: Console) -> None:
    own = ("train", "dev", "text", "pair", "label", "span_head")
    given = [option for option in own if getattr(asked, option) is not None]
    given += [option for option in ("regression", "keep_head", "second_release") if getattr(asked, option)]
    if given:
        raise UsageError(f"--{given[0].replace('_', '-')}", f"goes with one task, {name} has many")
    if asked.data is None:
        raise UsageError("--data", "is needed to find the tasks' files", "see albert finetune --help")
    result = finetune_benchmark(
        name,
        BENCHMARKS[name],
        asked.start(),
        asked.data,
        asked.output,
        lambda task: (recipe := asked.recipe(task.recipe), asked.settings(recipe)),
        1 if asked.seeds is None else asked.seeds,
        asked.intermediate,
    )
    if world().is_first:
        show_benchmark(console, result, asked.output)


def _task(asked: Finetune) -> Task:
    files = {split: path for split, path in (("train", asked.train), ("dev", asked.dev)) if path is not None}
    columns = {"--text": asked.text, "--label": asked.label}
    if asked.task is not None:
        given = [name for name, value in {**columns, "--pair": asked.pair}.items() if value is not None]
        if given or asked.regression:
            name = given[0] if given else "--regression"
            raise UsageError(name, f"goes with your own files, the task {asked.task} has its own columns")
        if asked.data is None and len(files) < 2:
            raise UsageError("--data", "is needed to find the task's files", "see albert finetune --help")
        task = find_task(asked.task)
        return replace(task, source=task.source.with_files(files), target=_target(task, asked))
    needed = {"--train": asked.train, "--dev": asked.dev, **columns}
    missing = [name for name, value in needed.items() if value is None]
    if len(missing) == len(needed):
        raise UsageError("albert finetune", "no task", "name a declared task, or your own files with --train")
    if missing or asked.text is None or asked.label is None:
        raise UsageError("albert finetune", f"your own files need {', '.join(missing)} too", "or name a TASK")
    return declare_custom_task(files, asked.text, asked.label, asked.pair, asked.regression, None, CUSTOM_RECIPE)


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
