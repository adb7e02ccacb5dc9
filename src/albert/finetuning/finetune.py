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
from albert.finetuning.learning_plan import AskedRecipe, kept_recipe, plan_learning, recipe_basis
from albert.finetuning.learnt import task_batches
from albert.finetuning.opened_for_task import fit_length
from albert.finetuning.run_record import FinetuningResult, FinetuningSettings, optimizer_of
from albert.finetuning.splits import PreparedSplit, Subset, encode_split, prepare_split, read_examples
from albert.finetuning.start import Start, start_model
from albert.finetuning.task_run import TaskRun
from albert.runtime.devices import pick_device
from albert.runtime.distributed import process_group
from albert.runtime.errors import InvalidConfiguration, MissingInput
from albert.runtime.precisions import Precision
from albert.runtime.world import world
from albert.tasks.tables.own_tables import OwnTables
from albert.tasks.tables.table_task import RecipeChanges, save_table_task
from albert.tasks.task import Span, Task, TaskRecipe
from albert.text.tokenizer import Tokenizer
from albert.training.run_folder import RunFolder


def finetune(
    task: Task,
    start: Start,
    data: Path,
    output: Path,
    recipe: AskedRecipe = None,
    settings: FinetuningSettings | None = None,
    said: Said | None = None,
    announce: Callable[[Mapping[str, Any]], None] | None = None,
) -> FinetuningResult:
    """Fine-tune an encoder on a task and evaluate it on the development set.

    The same task, start and recipe give the same model and files here and from `albert finetune`.

    Args:
        task: the declaration.
        start: where the weights come from.
        data: the task's data folder.
        output: the run directory. The same call goes on where an earlier one was stopped; a finished run is
            returned as it is.
        recipe: a `TaskRecipe` is taken as it is; `RecipeChanges` say what is to be another than the default, None
            that nothing is. For the defaults see `learning_plan`.
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
    settings, run = settings or FinetuningSettings(), RunFolder(output)
    kept = kept_recipe(run, task)
    basis = recipe_basis(task, recipe, kept)
    if "train" not in task.source.splits:
        remedy = "albert evaluate scores a model of another task on it"
        raise InvalidConfiguration(task.name, "has no training set", remedy)
    device = pick_device(settings.device, world().local_rank)
    precision: Precision = settings.precision or ("bf16" if device.type == "cuda" else "fp32")
    computing = Computing(device, precision, settings.micro_batch_tokens)
    with process_group(device) as here:
        started = start_model(start, task.target, basis.recipe, settings.seed)
        positions = started.config.max_position_embeddings
        basis = replace(basis, recipe=fit_length(basis.recipe, positions))
        wanted = recipe_basis(task, recipe).recipe.max_length  # a run that goes on has kept the fitted length
        if basis.recipe.max_length == positions < wanted:
            note = (
                f"sequences of at most {positions} tokens, not {wanted}: --max-position-embeddings makes more positions"
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
            held_out = encode_split(task, "what is held out", held, {}, started.tokenizer, basis.recipe)
        plan = plan_learning(basis, started.config.hidden_size, len(examples))
        recipe = plan.recipe
        if recipe.batch_size < here.size:
            why = f"{recipe.batch_size} sequences are fewer than {here.size} processes"
            raise InvalidConfiguration("batch_size", why, "choose a larger batch")
        settings = _complete_settings(settings, recipe, kept)
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
            plan=plan,
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
            result = work.complete()
            if here.is_first:
                keep_own_task(task, recipe, output)
            return result


def keep_own_task(task: Task, recipe: TaskRecipe, directory: Path) -> None:
    """Write what a task on own tables is beside what was learnt, so that `albert evaluate` need not be told."""
    if isinstance(task.source, OwnTables):
        asked = task.source.asked
        files = {name: place.resolve() for name in ("train", "dev") if (place := getattr(asked, name)) is not None}
        save_table_task(directory, replace(asked, **files, recipe=RecipeChanges.of(recipe)))


def _complete_settings(
    settings: FinetuningSettings, recipe: TaskRecipe, kept: Mapping[str, Any] | None
) -> FinetuningSettings:
    """With an optimiser that is complete, unless the run that goes on was recorded without."""
    before = kept.get("settings") if kept is not None else None
    if settings.optimizer in (None, "adamw") and isinstance(before, dict) and before.get("optimizer", "") is None:
        return replace(settings, optimizer=None)
    return replace(settings, optimizer=optimizer_of(settings, recipe))


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
