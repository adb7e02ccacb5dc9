"""`finetune`: an encoder learns a task. All input is read and checked first; then training, evaluation, writing."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from albert.checkpoints.model_directory import write_model
from albert.finetuning.data import PreparedSplit, Subset, TaskBatches, encode_split, prepare_split, read_examples
from albert.finetuning.evaluation import (
    ComputeOptions,
    Evaluation,
    advice,
    evaluate_model,
    hold_out,
    predict_split,
    threshold_for,
    write_predictions,
)
from albert.finetuning.model import (
    Start,
    StartedModel,
    choose_pair_encoding,
    exit_depths,
    fit_length,
    head_description,
    start_model,
)
from albert.finetuning.objective import Teacher, TeacherLogits, TrainingSetup, open_teacher, term_of, training_setup
from albert.finetuning.options import LearningPlan, RecipeLike, plan_learning, read_run_record, requested_recipe
from albert.finetuning.run_record import (
    BestModel,
    FinetuningResult,
    FinetuningSettings,
    begin_run,
    describe_selection,
    finish_run,
    optimizer_of,
    page_examples,
    result_of_first_rank,
    run_card,
    run_identity,
    run_record,
    run_report,
)
from albert.model.albert import EXITS_KEY
from albert.optim.optimizer import build_optimizer
from albert.optim.recipe import warmup_then_linear
from albert.runtime.devices import finetuning_precision, pick_device
from albert.runtime.distributed import process_group
from albert.runtime.environment import Ranks, load_by_name, world
from albert.runtime.errors import InvalidConfiguration, MissingInput
from albert.tasks.custom import TableSource
from albert.tasks.examples import SpanFeatures, TagFeatures
from albert.tasks.metrics import TARGET_SCALE_KEY, NumberScale, check_numbers
from albert.tasks.table_task import RecipeChanges, save_table_task
from albert.tasks.task import Score, Span, Task, TaskRecipe
from albert.text.tokenizer import Tokenizer
from albert.training.logging import TrainingPlan, TrainingResult
from albert.training.loop import Training
from albert.training.run_folder import RunFolder
from albert.training.update import training_workers

# --------------------------------------------------------------------------------------------------------------------
# A fine-tuning run: training, evaluation, and the files it writes.
#
# RUN/recipe.json            the whole run as a value
#     journal.jsonl          what happened, one event a line
#     model/                 the Hugging Face model directory
#     predictions-dev.jsonl  one object per example of the development set, and so for further splits of the task
#     results.json           scores, baselines, counts, speed, seed; written last


@dataclass(frozen=True, kw_only=True)
class TaskRun:
    """Everything a run needs, put together once.

    `scale` is that of numbers to predict, in whose standard scores `batches` and `teacher` are then.
    """

    task: Task
    started: StartedModel
    run: RunFolder
    plan: LearningPlan
    settings: FinetuningSettings
    compute: ComputeOptions
    ranks: Ranks
    train_split: PreparedSplit
    dev_split: PreparedSplit
    batches: TaskBatches
    held_out: PreparedSplit | None
    further: tuple[PreparedSplit, ...]
    depths: tuple[int, ...]
    teacher: Teacher | None = None
    scale: NumberScale | None = None
    announce: Callable[[Mapping[str, Any]], None] | None = None

    @property
    def model(self) -> nn.Module:
        return self.started.model

    def complete(self) -> FinetuningResult:
        """Train to the end, evaluate, and write everything; or return what an earlier call wrote."""
        recipe, settings, scale = self.plan.recipe, self.settings, self.scale
        identity = run_identity(self.task, self.started, self.batches, self.dev_split, recipe, settings, self.teacher)
        record = run_record(self.task, self.started, self.plan, settings)
        if scale is not None:
            record[TARGET_SCALE_KEY] = vars(scale)
        finished = begin_run(self.run, record, identity, self.ranks)
        if finished is not None:
            return finished
        if scale is not None and self.started.changes.get("keep_head"):
            scale.take_out(self.model.classifier)
        self.model.to(self.compute.device)
        best = None
        if settings.select == "best":
            best = BestModel(self.run.path / "best", self._save, identity["development set"])
        latest: list[Evaluation] = []

        def evaluate() -> dict[str, float]:
            with self._folded():
                latest[:] = [self._evaluated()]
            if best is not None:
                best.consider(latest[0].scores)
            return latest[0].defined_scores

        setup = training_setup(
            self.model,
            self.batches,
            self.depths,
            self.compute,
            freeze_encoder=settings.freeze_encoder,
            teacher=self.teacher,
            distillation=settings.distillation,
        )
        training = train_model(
            setup,
            self.plan,
            settings,
            self.compute,
            self.run,
            announce=self.announce,
            workers=self.batches.workers,
            identity=identity,
            save_model=self._save,
            evaluate=evaluate,
            description=f"Fine-tuning on {self.task.title}",
        )
        if not self.ranks.is_first:
            return result_of_first_rank(self.run, self.ranks)
        if best is not None:
            self.model.load_state_dict(best.tensors(self.task.target, settings.encode_pairs or "together"))
            latest.clear()
        elif scale is not None:
            scale.fold_in(self.model.classifier)
        evaluation = latest[0] if latest else self._evaluated()
        further = {
            split.split: evaluate_model(self.model, self.task, split, self.compute, threshold=evaluation.threshold)
            for split in self.further
        }
        for split, each in {"dev": evaluation, **further}.items():
            write_predictions(self.run.path / f"predictions-{split}.jsonl", each)
        selection = describe_selection(settings.select, evaluation.scores, self.run.journal_path)
        linear = self._linear_baseline()
        report = {
            **run_report(record, self.task, self.train_split, self.batches, training, evaluation, self._notes(setup)),
            "linear_baseline": linear,
            "advice": advice(evaluation.scores, evaluation.baseline, linear),
            "selection": selection,
            "computed_in": self.compute.precision,
            "workers": self.batches.workers,
            "further_scores": {split: dict(each.scores) for split, each in further.items()},
            "identity": identity,
        }
        shown = page_examples(self.task, self.dev_split.examples, settings.page_examples)
        about = [selection["note"]]
        if shown:
            about.append(f"examples.json holds {len(shown)} rows of the development set, without labels")
        card = run_card(self.run.path.name, self.task, self.started, recipe, evaluation, linear, about)
        extra = self._extra() | (evaluation.threshold.keys if evaluation.threshold else {})
        return finish_run(
            self.run, self.ranks, self.started, self.model, report, extra=extra, card=card, examples=shown
        )

    def _linear_baseline(self) -> dict[str, Any] | None:
        """What a linear model reaches on the same rows, as plain values; None where the task has none."""
        if not self.dev_split.labelled:
            return None
        started = time.perf_counter()
        fit = load_by_name("albert.tasks.linear_baseline").linear_baseline
        found = fit(self.task, self.train_split.examples, self.dev_split.examples)
        return None if found is None else {**vars(found), "seconds": time.perf_counter() - started}

    def _evaluated(self) -> Evaluation:
        """The model as it stands, on the development set."""
        threshold = None
        if self.held_out is not None:
            answers = predict_split(self.model, self.task.target, self.held_out, self.compute)
            assert isinstance(answers, list)
            held = self.held_out.examples
            threshold = threshold_for(held, answers, f"{len(held):,} questions held out of the training set")
        return evaluate_model(self.model, self.task, self.dev_split, self.compute, threshold=threshold)

    def _save(self, directory: Path) -> None:
        """Write the model as it stands while it learns, for others to open."""
        with self._folded():
            write_model(directory, self.model, self.started.tokenizer_directory, extra=self._extra())

    def _folded(self) -> AbstractContextManager[None]:
        """The learning model with outputs in the unit of the data."""
        return nullcontext() if self.scale is None else self.scale.folded(self.model.classifier)

    def _extra(self) -> dict[str, Any]:
        extra = head_description(self.task, self.plan.recipe, self.started.trained_positions)
        if len(self.depths) > 1:
            extra[EXITS_KEY] = list(self.depths)
        if self.scale is not None:
            extra[TARGET_SCALE_KEY] = vars(self.scale)
        return extra

    def _notes(self, setup: TrainingSetup) -> tuple[str, ...]:
        notes = [*self.started.notes, *setup.notes]
        if len(self.depths) > 1:
            notes.append(f"the head learnt to answer after layers {', '.join(map(str, self.depths))}")
        if self.scale is not None:
            notes.append(
                f"numbers are learnt as standard scores: training mean {self.scale.mean:.4g}, "
                f"deviation {self.scale.deviation:.4g}, both in the saved head"
            )
        return tuple(notes)


def train_model(
    setup: TrainingSetup,
    plan: LearningPlan,
    settings: FinetuningSettings,
    compute: ComputeOptions,
    run: RunFolder,
    *,
    evaluate: Callable[[], dict[str, float]],
    announce: Callable[[Mapping[str, Any]], None] | None,
    workers: int = 1,
    **options: Any,
) -> TrainingResult:
    """Train as planned: the rate rises, then falls linearly; for the rest see `training.loop.Training`."""
    optimizer = optimizer_of(settings, plan.recipe)
    if announce is not None and world().is_first:
        announce(plan.figures(optimizer.learning_rate, compute.precision, compute.device.type, workers))
    return Training(
        setup.module,
        build_optimizer(optimizer, setup.module),
        lambda step, _: warmup_then_linear(step, optimizer.learning_rate, plan.warmup_updates, plan.updates),
        setup.source,
        setup.objective,
        TrainingPlan(
            total_steps=plan.updates,
            seed=settings.seed,
            precision=compute.precision,
            evaluate_every=settings.evaluation_interval,
            checkpoint_every=settings.checkpoint_every,
            keep_checkpoints=1,
            workers=settings.workers,
        ),
        run,
        device=compute.device,
        evaluate=evaluate if settings.evaluation_interval else None,
        compute_workers=workers,
        **options,
    ).complete()


# --------------------------------------------------------------------------------------------------------------------
# The training examples or windows that are used, and their batches.


def task_batches(
    task: Task, split: PreparedSplit, recipe: TaskRecipe, settings: FinetuningSettings, workers: int = 1
) -> TaskBatches:
    """The batches of a run.

    Raises:
        InvalidConfiguration: no window of the training set holds an answer, or no sentence a word; the numbers to learn
            are all the same, or too large.
    """
    features = split.features
    sequences, targets = features.sequences, features.targets
    if isinstance(task.target, Score):
        check_numbers(task.target, targets)
    if isinstance(features, SpanFeatures):
        learnt = training_windows(task, split, features)
        sequences, targets = sequences.select(learnt), np.maximum(targets[learnt], 0)
    if isinstance(features, TagFeatures):
        learnt = features.learnable
        if not len(learnt):
            raise InvalidConfiguration(task.title, "no sentence of the training set has a word")
        sequences, targets = sequences.select(learnt), targets[sequences.token_indices(learnt)]
    return TaskBatches(
        sequences,
        targets,
        term_of(task.target),
        recipe.batch_size,
        settings.seed,
        settings.micro_batch_tokens,
        features.n_options,
        isinstance(features, TagFeatures),
        workers,
    )


def training_windows(task: Task, split: PreparedSplit, features: SpanFeatures) -> np.ndarray:
    """Indices of the windows that say something.

    Where every question has an answer, those that hold it: the others have nothing to point at. Where it may be
    absent, they all do, and those without it point at [CLS]; but not those of a question whose answer no window holds.
    """
    holds = features.targets[:, 0] >= 0
    if not holds.any():
        raise InvalidConfiguration(task.title, "no window of the training set holds an answer")
    if not (isinstance(task.target, Span) and task.target.may_be_absent):
        return np.flatnonzero(holds)
    of_example = np.array([window.example for window in features.windows])
    placed = np.array([not example.answers for example in split.examples])
    placed[of_example[holds]] = True
    return np.flatnonzero(placed[of_example])


def finetune(
    task: Task,
    start: Start,
    data: Path,
    output: Path,
    recipe: RecipeLike = None,
    settings: FinetuningSettings | None = None,
    teacher_logits: TeacherLogits | None = None,
    announce: Callable[[Mapping[str, Any]], None] | None = None,
) -> FinetuningResult:
    """Fine-tune an encoder on a task and evaluate it on the development set.

    The same task, start and recipe give the same model and files here and from `albert finetune`.

    Args:
        output: the run directory. The same call goes on where an earlier one was stopped; a finished run is
            returned as it is.
        recipe: a `TaskRecipe` is taken as it is; `RecipeChanges` say what is to be another than the default, None
            that nothing is. For the defaults see `learning_plan`.
        teacher_logits: of earlier runs, which are not computed again; those of this run's teacher are
            added.
        announce: told rate, batch size, epochs, updates and length before the first update; see `LearningPlan.figures`.

    Raises:
        MissingInput, DamagedData: the model or the data cannot be read.
        InvalidConfiguration: a setting that cannot work.
        CannotCreate: `output` holds another run.
        Diverged, Stopped: see `training.loop.Training`.
    """
    settings, run = settings or FinetuningSettings(), RunFolder(output)
    kept = read_run_record(run, task)
    basis = requested_recipe(task, recipe, kept)
    if "train" not in task.source.splits:
        remedy = "albert evaluate scores a model of another task on it"
        raise InvalidConfiguration(task.title, "has no training set", remedy)
    device = pick_device(settings.device, world().local_rank)
    precision = settings.precision or finetuning_precision(device)
    compute = ComputeOptions(device, precision, settings.micro_batch_tokens)
    with process_group(device) as ranks:
        pairs = choose_pair_encoding(task, start, settings.encode_pairs, settings.exits is not None, kept)
        settings = replace(settings, encode_pairs=pairs)
        started = start_model(start, task.target, basis.recipe, settings.seed, pairs)
        positions = started.config.max_position_embeddings
        basis = replace(basis, recipe=fit_length(basis.recipe, positions))
        wanted = requested_recipe(task, recipe).recipe.max_length  # a run that goes on has kept the fitted length
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
        if recipe.batch_size < ranks.size:
            why = f"{recipe.batch_size} sequences are fewer than {ranks.size} processes"
            raise InvalidConfiguration("batch_size", why, "choose a larger batch")
        settings = _complete_settings(settings, recipe, kept)
        depths = exit_depths(settings.exits, started.config)
        distillation = settings.distillation
        teacher = None if distillation is None else open_teacher(task, distillation, examples, teacher_logits)
        train_split = encode_split(task, "train", examples, counts, started.tokenizer, recipe)
        dev_split = prepare_split(task, data, "dev", started.tokenizer, recipe)
        further, absent = _further_splits(task, data, started.tokenizer, recipe)
        started = replace(started, notes=(*started.notes, *absent))
        batches = task_batches(task, train_split, recipe, settings, training_workers(device, ranks))
        scale = number_scale(task, batches, kept)
        if scale is not None:
            batches = replace(batches, targets=scale.standardised(batches.targets))
            teacher = None if teacher is None else replace(teacher, scale=scale)
        work = TaskRun(
            task=task,
            started=started,
            run=run,
            plan=plan,
            settings=settings,
            compute=compute,
            ranks=ranks,
            train_split=train_split,
            dev_split=dev_split,
            batches=batches,
            held_out=held_out,
            further=further,
            depths=depths,
            teacher=teacher,
            scale=scale,
            announce=announce,
        )
        with run.locked() if ranks.is_first else nullcontext():
            result = work.complete()
            if ranks.is_first:
                save_custom_task(task, recipe, output)
            return result


def number_scale(task: Task, batches: TaskBatches, kept: Mapping[str, Any] | None) -> NumberScale | None:
    """The scale in whose standard scores numbers are learnt; a run of an earlier version goes on without."""
    if not isinstance(task.target, Score) or (kept is not None and TARGET_SCALE_KEY not in kept):
        return None
    return NumberScale.of(batches.targets)


def save_custom_task(task: Task, recipe: TaskRecipe, directory: Path) -> None:
    """Write what a task on own tables is beside what was learnt, so that `albert evaluate` need not be told."""
    if isinstance(task.source, TableSource):
        asked = task.source.table_task
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
