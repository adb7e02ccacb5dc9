"""`albert finetune`: a pre-trained encoder learns a task."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from tyro.conf import Positional

from albert.cli.command_line import parse
from albert.cli.finetuning_report import show_result
from albert.cli.seeds_table import show_seeds
from albert.finetuning.architecture_changes import ArchitectureChanges
from albert.finetuning.best_model import SelectedBy
from albert.finetuning.finetune import finetune
from albert.finetuning.held_out_threshold import ThresholdFrom
from albert.finetuning.run_record import FinetuningSettings
from albert.finetuning.seeds import finetune_seeds
from albert.finetuning.start import PretrainedEncoder, random_encoder_like
from albert.optim.optimizer import OptimizerRecipe
from albert.runtime.devices import Precision
from albert.runtime.distributed import world
from albert.runtime.errors import UsageError
from albert.tasks.custom import CUSTOM_RECIPE, declare_custom_task
from albert.tasks.declared import DECLARED, find_task
from albert.tasks.task import Span, SpanHeadKind, Target, Task, TaskRecipe

DESCRIPTION = f"""Fine-tune a model on a declared task or on your own table, and evaluate it.

TASK is one of {", ".join(DECLARED)}. Without TASK, --train and --dev name your own files (.csv, .tsv or .jsonl, plain
or .gz) and --text, --pair, --label their columns. The same command goes on with a run that was stopped.

The model's encoder learns with a new head. Its architecture may change before it does: other depth or sharing, more
positions; what became of the weights is told.

Examples:
  albert finetune sst-2 --model runs/small --data glue --output runs/sst-2
  albert finetune --train my.csv --dev dev.csv --text review --label stars \\
    --model runs/small --output runs/stars
  albert finetune rte --model runs/mnli --data glue --output runs/rte --seeds 5 --select best
  albert finetune squad-2.0 --model albert/albert-base-v2 --data squad --output runs/squad2
  albert finetune race --model albert/albert-base-v2 --second-release --data . --output runs/race
  albert finetune squad-1.1 --model albert/albert-base-v2 --data squad --output runs/squad \\
    --max-position-embeddings 1024 --max-length 1024"""

AS_IT_IS = ArchitectureChanges()


@dataclass(frozen=True, kw_only=True)
class Finetune:
    """What to learn, from what, and how. What is not set comes from the task's own recipe."""

    task: Positional[str | None] = None
    """A declared task; leave it out for your own files."""
    model: str
    """A model directory, a run that made one, or a Hub id."""
    revision: str | None = None
    """A branch, tag or commit of a Hub repository."""
    output: Path
    """The run's directory."""
    data: Path | None = None
    """The task's data folder: files in DATA/TASK/ or in DATA itself."""
    init: Literal["pretrained", "random"] = "pretrained"
    """random: the same architecture without its weights, as a control."""
    keep_head: bool = False
    """Go on with the model's own head, its outputs matched to the task's labels by name; else a new one is drawn."""
    train: Path | None = None
    """The training file; with TASK, instead of the official one and in its layout."""
    dev: Path | None = None
    """The development file."""
    text: str | None = None
    """Your own files: the column of the text."""
    pair: str | None = None
    """Your own files: the column of a second text."""
    label: str | None = None
    """Your own files: the column of the label or number."""
    regression: bool = False
    """Your own files: the label is a number to predict."""
    architecture: Annotated[ArchitectureChanges, tyro.conf.arg(name="")] = AS_IT_IS
    learning_rate: float | None = None
    batch_size: int | None = None
    """Sequences per step over all processes."""
    epochs: float | None = None
    steps: int | None = None
    """Optimiser updates, instead of epochs."""
    warmup_share: float | None = None
    """Share of the steps in which the learning rate rises."""
    weight_decay: float | None = None
    max_length: int | None = None
    """Tokens of a sequence; longer ones are cut and counted."""
    question_length: int | None = None
    """Tokens of a question on a text; with options, of question and option."""
    stride: int | None = None
    """Span tasks: tokens between the windows of a long context."""
    span_head: SpanHeadKind | None = None
    """Span tasks: joint, the paper's head for SQuAD 2.0; or independent start and end, which transformers opens too."""
    null_threshold: ThresholdFrom = "train"
    """Where a question may have no answer, the questions on which the threshold for that is chosen: some kept back from
    train, or as the reference does it dev, which is then no fair score."""
    second_release: bool = False
    """The recipe for the models of ALBERT's second release where it differs (RACE)."""
    encoder_dropout: float | None = None
    head_dropout: float | None = None
    optimizer: Literal["adamw", "lamb"] = "adamw"
    seed: int = 0
    seeds: int | None = None
    """So many runs with the seeds from --seed on, in OUTPUT/seed-0 and so on: their median and spread are told."""
    select: SelectedBy = "last"
    """best: the model with the best development score of all evaluations, as in the paper; that score is somewhat
    high, being chosen on the set it is reported on. Every summary says which it was."""
    max_train_examples: int | None = None
    """Learn from a sample of the training rows, drawn by the seed."""
    evaluate_every: int | None = None
    """Steps between evaluations; when not set, at the end only, or with --select best every 100 as in the paper."""
    checkpoint_every: int | None = None
    """Steps between checkpoints; every ten minutes when not set."""
    micro_batch_tokens: int = 8192
    """Tokens that go through the model at once; less needs less memory and changes no result."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Precision | None = None
    """bf16 on a GPU and fp32 on a CPU when not set."""
    workers: int = 0
    """Processes that make batches."""


def main(arguments: list[str]) -> int:
    """Run `albert finetune`."""
    asked = parse(Finetune, arguments, "albert finetune", DESCRIPTION)
    task = _task(asked)
    recipe = _recipe(_published_recipe(task, asked), asked)
    optimizer = OptimizerRecipe(
        kind=asked.optimizer, learning_rate=recipe.learning_rate, weight_decay=recipe.weight_decay
    )
    settings = FinetuningSettings(
        seed=asked.seed,
        null_threshold=asked.null_threshold,
        select=asked.select,
        max_train_examples=asked.max_train_examples,
        evaluate_every=asked.evaluate_every,
        checkpoint_every=asked.checkpoint_every,
        micro_batch_tokens=asked.micro_batch_tokens,
        optimizer=optimizer,
        device=asked.device,
        precision=asked.precision,
        workers=asked.workers,
    )
    if asked.init == "random" and asked.keep_head:
        raise UsageError("--keep-head", "and --init random contradict each other", "give one of them")
    start = PretrainedEncoder(asked.model, asked.revision, asked.architecture, asked.keep_head)
    start = random_encoder_like(start) if asked.init == "random" else start
    console, run = Console(soft_wrap=True, highlight=False), (task, start, asked.data or Path(), asked.output)
    if asked.seeds is not None:
        seeds = finetune_seeds(*run, recipe, settings, asked.seeds)
        if world().is_first:
            show_seeds(console, task, seeds, asked.output)
    else:
        result = finetune(*run, recipe, settings)
        if world().is_first:
            show_result(console, task, result)
    return 0


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


def _recipe(recipe: TaskRecipe, asked: Finetune) -> TaskRecipe:
    names = (
        "learning_rate",
        "batch_size",
        "warmup_share",
        "weight_decay",
        "max_length",
        "question_length",
        "stride",
        "encoder_dropout",
        "head_dropout",
    )
    chosen: dict[str, Any] = {n: getattr(asked, n) for n in names if getattr(asked, n) is not None}
    if asked.steps is not None and asked.epochs is not None:
        raise UsageError("--steps", "and --epochs say the same thing twice", "give one of them")
    if asked.steps is not None:
        chosen |= {"steps": asked.steps, "epochs": None, "examples": None}
    if asked.epochs is not None:
        chosen |= {"steps": None, "epochs": asked.epochs, "examples": None}
    recipe = replace(recipe, **chosen)
    recipe.check()
    return recipe
