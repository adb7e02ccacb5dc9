"""A pre-trained encoder meets a task: everything is read, checked and encoded before anything is written."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from albert.finetuning.distillation import Said, open_teacher
from albert.finetuning.evaluation import Computing
from albert.finetuning.exits import exit_depths
from albert.finetuning.held_out_threshold import hold_out
from albert.finetuning.learnt import task_batches
from albert.finetuning.opened_for_task import fit_length
from albert.finetuning.run_record import FinetuningResult, FinetuningSettings
from albert.finetuning.splits import PreparedSplit, Subset, encode_split, prepare_split, read_examples
from albert.finetuning.start import Start, start_model
from albert.finetuning.task_run import TaskRun
from albert.runtime.devices import pick_device
from albert.runtime.distributed import process_group
from albert.runtime.errors import InvalidConfiguration, MissingInput
from albert.runtime.precisions import Precision
from albert.runtime.world import world
from albert.tasks.task import Span, Task, TaskRecipe
from albert.text.tokenizer import Tokenizer
from albert.training.run_folder import RunFolder


def finetune(
    task: Task,
    start: Start,
    data: Path,
    output: Path,
    recipe: TaskRecipe | None = None,
    settings: FinetuningSettings | None = None,
    said: Said | None = None,
    announce: Callable[[Mapping[str, Any]], None] | None = None,
) -> FinetuningResult:
    """Fine-tune an encoder on a task and evaluate it on the development set.

    Args:
        task: the declaration.
        start: where the weights come from.
        data: the task's data folder.
        output: the run directory. The same call goes on where an earlier one was stopped; a finished run is
            returned as it is.
        recipe: how to train; None takes the task's own.
        settings: how to compute.
        said: what teachers said in earlier runs, which need not be asked for again; what this run's teacher says is
            added.
        announce: told rate, batch size, epochs, updates and length before the first update; see `TaskRun.figures`.

    Raises:
        MissingInput, DamagedData: the model or the data cannot be read.
        InvalidConfiguration: a setting that cannot work.
        CannotCreate: `output` holds another run.
        Diverged, Stopped: see `training.loop.train`.
    """
    recipe, settings = recipe or task.recipe, settings or FinetuningSettings()
    recipe.check()
    if "train" not in task.source.splits:
        remedy = "albert evaluate scores a model of another task on it"
        raise InvalidConfiguration(task.name, "has no training set", remedy)
    device = pick_device(settings.device, world().local_rank)
    precision: Precision = settings.precision or ("bf16" if device.type == "cuda" else "fp32")
    computing = Computing(device, precision, settings.micro_batch_tokens)
    run = RunFolder(output)
    with process_group(device) as here:
        if recipe.batch_size < here.size:
            why = f"{recipe.batch_size} sequences are fewer than {here.size} processes"
            raise InvalidConfiguration("batch_size", why, "choose a larger batch")
        started = start_model(start, task.target, recipe, settings.seed)
        asked, positions = recipe.max_length, started.config.max_position_embeddings
        recipe = fit_length(recipe, positions)
        if recipe.max_length < asked:
            note = (
                f"sequences of at most {positions} tokens, not {asked}: --max-position-embeddings makes more positions"
            )
            started = replace(started, notes=(*started.notes, note))
        # Everything is read before anything is written: bad input leaves no directory behind.
        number = settings.max_train_examples
        subset = None if number is None else Subset(number, settings.seed)
        examples, counts = read_examples(task, data, "train", subset)
        held_out = None
        if isinstance(task.target, Span) and task.target.may_be_absent and settings.null_threshold == "train":
            examples, held = hold_out(examples, settings.seed)
            counts["held_out"] = len(held)
            held_out = encode_split(task, "what is held out", held, {}, started.tokenizer, recipe)
        depths = exit_depths(settings.exits, started.config)
        distillation = settings.distillation
        teacher = None if distillation is None else open_teacher(task, distillation, examples, said)
        train_split = encode_split(task, "train", examples, counts, started.tokenizer, recipe)
        dev_split = prepare_split(task, data, "dev", started.tokenizer, recipe)
        further, absent = _further_splits(task, data, started.tokenizer, recipe)
        started = replace(started, notes=(*started.notes, *absent))
        batches = task_batches(task, train_split, recipe, settings)
        work = TaskRun(
            task=task,
            started=started,
            run=run,
            recipe=recipe,
            settings=settings,
            computing=computing,
            here=here,
            train_split=train_split,
            dev_split=dev_split,
            batches=batches,
            held_out=held_out,
            further=further,
            depths=depths,
            teacher=teacher,
            announce=announce,
        )
        with run.locked() if here.is_first else nullcontext():
            return work.complete()


def _further_splits(
    task: Task, data: Path, tokenizer: Tokenizer, recipe: TaskRecipe
) -> tuple[tuple[PreparedSplit, ...], tuple[str, ...]]:
    """The splits that are scored beside dev, and lines on those whose files are not there."""
    found, absent = [], []
    for split in task.further_splits:
        try:
            found.append(prepare_split(task, data, split, tokenizer, recipe))
        except MissingInput as error:
            absent.append(f"{split} is not scored: {error}")
    return tuple(found), tuple(absent)
