"""Fine-tuning on a task, from top to bottom.

`open_run` reads, fills in and checks everything; `TaskRun` is what the workflow of all runs (`albert.training.run`)
then sets up, trains, scores and writes.

RUN/recipe.json            the whole run as a value
    inputs.json            fingerprints of rows, weights, tokenizer and teacher
    journal.jsonl          one event per line
    model/                 the Hugging Face model directory
    predictions-dev.jsonl  one object per development example; further splits of the task have their own file
    results.json           scores, baselines, counts, speed, seed, errors
    report.html            the results as a page; written last"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from albert.checkpoints.hub import model_name
from albert.checkpoints.model_directory import save_model_directory
from albert.columns.read import TableSource
from albert.finetuning.data import (
    PreparedSplit,
    TaskBatches,
    arrays_fingerprint,
    balanced_weights,
    encode_split,
    prepare_split,
    read_examples,
)
from albert.finetuning.evaluation import ComputeOptions, Evaluation, write_predictions
from albert.finetuning.frozen_head import describe, solve_head
from albert.finetuning.model import (
    RandomEncoder,
    Start,
    StartedModel,
    fit_length,
    planned_config,
    start_model,
)
from albert.finetuning.objective import Teacher, TeacherLogits, open_teacher, training_setup
from albert.finetuning.options import BY_DEFAULT, RecipeLike, requested_recipe
from albert.finetuning.page_examples import page_examples
from albert.finetuning.run_record import (
    FilledIn,
    FinetuningResult,
    examples_fingerprint,
    fit_to_rows,
    read_record,
    recorded_settings,
    resolve_settings,
    start_inputs,
)
from albert.finetuning.scoring import Scorer
from albert.finetuning.selection import BestModel
from albert.finetuning.task import FROZEN_HEAD_NAME, Announce, TaskTraining, training_plan
from albert.finetuning.task_report import task_card, task_report
from albert.recipes.finetuning import FinetuningSettings, RecipeChanges, TaskRecipe
from albert.report.notes import HEAD_NOT_SOLVED
from albert.report.page import PAGE_NAME
from albert.report.runs import result_of_run
from albert.runtime.devices import describe_machine
from albert.runtime.environment import Ranks
from albert.runtime.errors import InvalidConfiguration, MissingInput
from albert.runtime.files import write_text
from albert.runtime.json_files import Journal, read_versioned, save_versioned, to_json
from albert.runtime.words import counted
from albert.tasks.declared import DeclaredTask
from albert.tasks.metrics import TARGET_SCALE_KEY
from albert.tasks.table_task import save_table_task
from albert.training.logging import TrainingResult
from albert.training.metric_logger import require_logger
from albert.training.run import RunWork, check_training, run_training
from albert.training.run_folder import RunFolder
from albert.training.same_run import FINETUNING_MAY_CHANGE, Input, Run
from albert.training.update import training_workers


def finetune(
    task: DeclaredTask,
    start: Start,
    data: Path,
    output: Path,
    recipe: RecipeLike = None,
    settings: FinetuningSettings | None = None,
    teacher_logits: TeacherLogits | None = None,
    announce: Announce | None = None,
    replace: bool = False,
    read_from: Sequence[Path] = (),
) -> FinetuningResult:
    """Fine-tune an encoder on a task and evaluate it on the development set.

    The same task, start and recipe give the same model and files as `albert finetune`.

    Args:
        output: the run directory. A stopped run is resumed by the same call; a finished run is returned as it is.
        recipe: a `TaskRecipe` is used unchanged; `RecipeChanges` replace some of the defaults; None uses the
            defaults, see `albert.finetuning.options`.
        teacher_logits: logits that earlier runs computed and that are not computed again; those of this run's teacher
            are added.
        announce: called before the first update with the learning rate, batch size, epochs, updates and length; see
            `LearningPlan.figures`.
        replace: remove an earlier run in `output` after all checks, and begin anew.
        read_from: files that the run reads: a run that contains one is not replaced.

    Raises:
        MissingInput, DamagedData: the model or the data cannot be read.
        InvalidConfiguration: a setting is invalid.
        CannotCreate: `output` holds another run; with `replace`, it is not a run, is in use, or contains an input.
        Diverged, Stopped: see `training.loop.train`.
    """
    settings = settings or FinetuningSettings()
    require_logger(settings.log)
    open_work = partial(open_run, task, start, data, recipe, settings, teacher_logits, announce, read_from)
    return run_training(open_work, output, settings.device, replace)


def check_run(
    task: DeclaredTask, start: Start, data: Path, output: Path, recipe: RecipeLike, settings: FinetuningSettings
) -> None:
    """Raise what `finetune` would refuse of a new run; everything is read, and nothing is written or trained."""
    require_logger(settings.log)
    check_training(partial(open_run, task, start, data, recipe, settings, None, None, ()), output, settings.device)


# --------------------------------------------------------------------------------------------------------------------
# Everything that is read, before anything is written.


def open_run(
    task: DeclaredTask,
    start: Start,
    data: Path,
    recipe: RecipeLike,
    settings: FinetuningSettings,
    teacher_logits: TeacherLogits | None,
    announce: Announce | None,
    read_from: Sequence[Path],
    earlier: RunFolder,
    device: torch.device,
    ranks: Ranks,
) -> "TaskRun":
    """The rows, the settings with nothing left open, the encoder with its head, and the rows as tokens."""
    # The settings and the rows.
    record = read_record(earlier, task.name)  # of the run to resume
    requested = requested_recipe(task, recipe, record)
    if "train" not in task.source.splits:
        remedy = "albert evaluate scores a model of another task on it"
        raise InvalidConfiguration(task.title, "has no training set", remedy)
    settings = resolve_settings(task, start, settings, record, device)
    config = planned_config(start)
    examples, counts = read_examples(task, data, "train", settings.max_train_examples, settings.seed)
    dev_examples, dev_counts = read_examples(task, data, "dev")

    # The recipe, fitted to both.
    positions = config.max_position_embeddings
    requested = replace(requested, recipe=fit_length(requested.recipe, positions))
    filled = fit_to_rows(task, requested, settings, record, config.hidden_size, examples, len(dev_examples))
    settings = filled.settings
    plan = filled.plan
    if plan.recipe.batch_size < ranks.size:
        why = f"{plan.recipe.batch_size} sequences are fewer than {ranks.size} processes"
        raise InvalidConfiguration("batch_size", why, "choose a larger batch")
    assert settings.precision is not None, "it is filled in"
    compute = ComputeOptions(device, settings.precision, settings.micro_batch_tokens)

    # The encoder, with a head, and the teacher.
    pairs = (settings.encode_pairs or "together", bool(settings.match_embedding))
    started = start_model(start, task.target, plan.recipe, settings.seed, *pairs)
    is_loaded = not isinstance(start, RandomEncoder)
    about_model = [note for note in started.notes if is_loaded and note not in started.changed]
    notes = [note for note in started.notes if note not in about_model]
    longest = requested_recipe(task, recipe).recipe.max_length  # the record of a resumed run has the fitted length
    if plan.recipe.max_length == positions < longest:
        remedy = "architecture.max_position_embeddings makes more positions"
        notes.append(f"sequences of at most {counted(positions, 'tokens')}, not {longest}: {remedy}")
    teacher = None
    if settings.distillation is not None:
        teacher = open_teacher(task, settings.distillation, filled.examples, teacher_logits)

    # The rows as tokens.
    if filled.held_out:
        counts["held_out"] = len(filled.held_out)
    encoding = (started.tokenizer, plan.recipe)
    held_out = encode_split(task, "held-out rows", filled.held_out, {}, *encoding) if filled.held_out else None
    train_split = encode_split(task, "train", filled.examples, counts, *encoding)
    dev_split = encode_split(task, "dev", dev_examples, dev_counts, *encoding)
    further = []
    for split in task.further_splits:
        try:
            further.append(prepare_split(task, data, split, *encoding))
        except MissingInput as error:
            notes.append(f"{split} is not scored: {error}")
    batches = task_batches(task, train_split, plan.recipe, settings, training_workers(device, ranks))
    if settings.class_weights is not None:
        weights = balanced_weights(batches.targets, task.target.n_outputs or 0)
        batches = replace(batches, class_weights=weights)
    scale = task.target.number_scale(batches.targets)
    if scale is not None:
        batches = replace(batches, targets=scale.standardised(batches.targets))
        teacher = None if teacher is None else replace(teacher, scale=scale)
    untrained = untrained_positions(started, [train_split, dev_split, *further])
    started = replace(started, notes=(*notes, *untrained))
    scorer = Scorer(
        task=task,
        model=started.model,
        compute=compute,
        train_split=train_split,
        dev_split=dev_split,
        further=tuple(further),
        held_out=held_out,
        threshold=settings.threshold,
        scale=scale,
    )
    return TaskRun(
        record=record_of(task, started, filled, scorer),
        inputs=inputs_of(started, batches, scorer, teacher, settings),
        plan=training_plan(plan, settings, settings.precision),
        ranks=ranks,
        device=device,
        read_from=read_from,
        filled=filled,
        started=started,
        about_model=about_model,
        untrained=untrained,
        batches=batches,
        scorer=scorer,
        teacher=teacher,
        announce=announce,
    )


def task_batches(
    task: DeclaredTask, split: PreparedSplit, recipe: TaskRecipe, settings: FinetuningSettings, workers: int = 1
) -> TaskBatches:
    """The training examples or windows in the batches of a run."""
    features = task.target.to_train(split.examples, split.features, task.title)
    has_slots = bool(features.slot_of.any())
    return TaskBatches(
        features.sequences,
        features.targets,
        task.target.term,
        recipe.batch_size,
        settings.seed,
        settings.micro_batch_tokens,
        example_of=features.example_of if has_slots else None,
        slot_of=features.slot_of if has_slots else None,
        per_token=task.target.per_token,
        workers=workers,
    )


def untrained_positions(started: StartedModel, splits: Sequence[PreparedSplit]) -> list[str]:
    """A line if sequences reach positions that pre-training never trained."""
    trained = started.trained_positions
    longer = 0 if trained is None else sum(int((each.features.sequences.lengths > trained).sum()) for each in splits)
    if not longer:
        return []
    total = sum(len(each.features.sequences) for each in splits)
    remedy = f"max_length={trained} cuts them there, architecture.extend_positions=true derives the others"
    return [f"positions from {trained} on were never trained, and {longer:,} of {total:,} texts reach them: {remedy}"]


def record_of(task: DeclaredTask, started: StartedModel, filled: FilledIn, scorer: Scorer) -> dict[str, Any]:
    """The content of `recipe.json`."""
    return {
        "task": task.name,
        "inputs": to_json(task.inputs),
        "target": to_json(task.target),
        "start": started.source,
        **({"changes": dict(started.changes)} if started.changes else {}),
        "recipe": to_json(filled.plan.recipe),
        BY_DEFAULT: list(filled.plan.by_default),
        "settings": recorded_settings(filled.settings),
        **({} if scorer.scale is None else {TARGET_SCALE_KEY: vars(scorer.scale)}),
    }


def inputs_of(
    started: StartedModel,
    batches: TaskBatches,
    scorer: Scorer,
    teacher: Teacher | None,
    settings: FinetuningSettings,
) -> dict[str, Input]:
    """What decides the result beside the record."""
    sequences = batches.sequences
    trained = arrays_fingerprint(sequences.tokens, sequences.starts, batches.targets)
    scored = scorer.dev_split.examples
    inputs = {
        "training data": Input(counted(len(scorer.train_split.examples), "examples"), trained),
        "development set": Input(counted(len(scored), "examples"), examples_fingerprint(scored)),
        **start_inputs(started),
    }
    if teacher is not None and settings.distillation is not None:
        inputs["teacher"] = Input(model_name(settings.distillation.teacher), teacher.fingerprint)
    return inputs


# --------------------------------------------------------------------------------------------------------------------
# The run.


@dataclass(kw_only=True)
class TaskRun(RunWork[FinetuningResult]):
    """Fine-tuning on a task, opened."""

    MAY_CHANGE = FINETUNING_MAY_CHANGE

    filled: FilledIn
    started: StartedModel
    about_model: list[str]
    """What was loaded, for the journal."""
    untrained: list[str]
    batches: TaskBatches
    scorer: Scorer
    teacher: Teacher | None
    announce: Announce | None
    task: TaskTraining = field(init=False, repr=False)
    evaluation: Evaluation = field(init=False, repr=False)
    further: Mapping[str, Evaluation] = field(init=False, repr=False)

    def set_up(self, run: Run, is_new: bool) -> TaskTraining:
        """The head, solved on the states of the frozen encoder if that is wanted; then what is trained."""
        folder = run.folder
        settings = self.filled.settings
        scorer = self.scorer
        model: Any = self.started.model
        if scorer.scale is not None and self.started.changes.get("keep_head"):
            scorer.scale.take_out(model.classifier)
        model.to(self.device)
        before_training = []
        if settings.solve_head or settings.frozen:
            before_training += filter(None, [self._solve_head(folder, is_new)])
        setup = training_setup(
            model,
            scorer.task.target,
            self.batches,
            scorer.compute,
            freeze_encoder=settings.freeze_encoder,
            teacher=self.teacher,
            distillation=settings.distillation,
        )
        best = None
        if settings.select == "best":
            best = BestModel(folder.best_path)
        self.task = TaskTraining(
            description=f"Fine-tuning on {scorer.task.title}",
            module=setup.module,
            source=setup.source,
            device=self.device,
            workers=self.batches.workers,
            plan=self.filled.plan,
            settings=settings,
            compute=scorer.compute,
            task=scorer.task,
            started=self.started,
            folder=folder,
            scorer=scorer,
            batches=self.batches,
            objective=setup.objective,
            notes=(*setup.notes, *before_training),
            best=best,
        )
        if self.ranks.is_first:
            journal = Journal(folder.journal_path)
            journal.write("model", step=0, notes=self.about_model)
            journal.close()
        self.task.announce(self.announce, self.ranks, (*self.untrained, *before_training))
        if self.ranks.is_first and is_new:
            self.task.offer_probe()
        return self.task

    def _solve_head(self, folder: RunFolder, is_new: bool) -> str | None:
        """Solve the head on frozen features, unless a checkpoint holds it; returns a line about its score.

        `frozen_head.json` keeps the score for the report. A frozen head is the result, so that its strength is chosen
        by cross-validation.
        """
        path = folder.path / FROZEN_HEAD_NAME
        scorer = self.scorer
        frozen = self.filled.settings.frozen
        if is_new:
            solved = solve_head(scorer.model, scorer.task.target, self.batches, scorer.compute, cross_validate=frozen)
            if solved is None:
                path.unlink(missing_ok=True)
                return HEAD_NOT_SOLVED
            if not self.ranks.is_first:
                return None
            with scorer.original_units():
                evaluation = scorer.evaluate()
                further = scorer.evaluate_further(evaluation.target)
            line = describe(solved, evaluation.scores, alone=frozen)
            further_scores = {name: dict(each.scores) for name, each in further.items()}
            scores = {"scores": dict(evaluation.scores), "further_scores": further_scores}
            save_versioned(path, {**scores, "line": line, **to_json(solved)})
        return read_versioned(path)["line"] if path.is_file() else HEAD_NOT_SOLVED

    def score(self, training: TrainingResult) -> dict[str, Any]:
        """The scores of the model that is the result, beside those of simpler ones."""
        if not self.ranks.is_first:
            return {}
        self.evaluation = self.task.evaluate_result()
        self.further = self.scorer.evaluate_further(self.evaluation.target)
        report = task_report(self.task, training, self.evaluation, self.further)
        computed = {"computed_in": self.scorer.compute.precision, "machine": describe_machine()}
        return report | {"seed": self.filled.settings.seed, **computed}

    def write(self, folder: RunFolder, report: Mapping[str, Any]) -> None:
        """The predictions, the model with its card, and the task of a user's table."""
        for name, evaluation in {"dev": self.evaluation, **self.further}.items():
            write_predictions(folder.path / f"predictions-{name}.jsonl", evaluation)
        task = self.scorer.task
        tuned = self.evaluation.target
        shown = page_examples(task, self.scorer.dev_split.examples, self.filled.settings.page_examples)
        tuned.bake(self.started.model)
        save_model_directory(
            folder.model_path,
            self.started.model,
            self.started.tokenizer_directory,
            extra=self.task.config_keys() | tuned.tuned_keys,
            card=task_card(self.task, self.evaluation, report, shown),
            examples=shown,
            replace=True,
        )
        save_custom_task(task, self.filled.plan.recipe, folder.path)

    def result(self, folder: RunFolder, report: Mapping[str, Any], already_complete: bool) -> FinetuningResult:
        if self.ranks.is_first and not (already_complete and (folder.path / PAGE_NAME).exists()):
            write_text(folder.path / PAGE_NAME, result_of_run(report, folder.path).page())
        return FinetuningResult(report["scores"], report, folder.model_path, already_complete)


def save_custom_task(task: DeclaredTask, recipe: TaskRecipe, directory: Path) -> None:
    """Write the task of a user's table beside the model, so that `albert evaluate` needs no columns."""
    if isinstance(task.source, TableSource):
        table = task.source.table_task
        files = {name: path.absolute() for name in ("train", "dev") if (path := getattr(table, name)) is not None}
        values = to_json(recipe)
        del values["examples"]  # of the task's own training set; a user's table has epochs or steps alone
        save_table_task(directory, replace(table, **files, recipe=RecipeChanges(**values)))
