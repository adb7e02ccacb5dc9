"""Fine-tuning on a task: all input is read and checked first, then the model is trained, evaluated and written.

RUN/recipe.json            the whole run as a value
    journal.jsonl          one event per line
    model/                 the Hugging Face model directory
    predictions-dev.jsonl  one object per development example; further splits of the task have their own file
    results.json           scores, baselines, counts, speed, seed, errors
    report.html            the results as a page; written last"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from albert.checkpoints.model_directory import save_model_directory
from albert.finetuning.data import (
    PreparedSplit,
    TaskBatches,
    arrays_fingerprint,
    balanced_weights,
    encode_split,
    prepare_split,
    read_examples,
)
from albert.finetuning.evaluation import ComputeOptions, write_predictions
from albert.finetuning.frozen_head import describe, solve_head
from albert.finetuning.model import RandomEncoder, Start, StartedModel, fit_length, start_model
from albert.finetuning.objective import TeacherLogits, open_teacher, training_setup
from albert.finetuning.options import BY_DEFAULT, RecipeLike, plan_learning, requested_recipe
from albert.finetuning.report_page import REPORT_NAME, write_report
from albert.finetuning.run_record import (
    FinetuningResult,
    FinetuningSettings,
    examples_fingerprint,
    page_examples,
    recorded_settings,
    resolve_plan_settings,
    resolve_settings,
    start_identity,
    task_fingerprint,
)
from albert.finetuning.scoring import Scorer
from albert.finetuning.selection import BestModel
from albert.finetuning.task_report import task_card, task_report
from albert.finetuning.task_work import FROZEN_HEAD_NAME, TaskWork
from albert.finetuning.work import Announce, finished
from albert.runtime.devices import default_precision, describe_machine, pick_device
from albert.runtime.distributed import process_group
from albert.runtime.environment import Ranks, world
from albert.runtime.errors import InvalidConfiguration, MissingInput
from albert.runtime.json_files import Journal, read_versioned, save_versioned, to_json
from albert.tasks.custom import TableSource
from albert.tasks.declared import DeclaredTask
from albert.tasks.metrics import TARGET_SCALE_KEY
from albert.tasks.recipe import TaskRecipe
from albert.tasks.table_task import RecipeChanges, save_table_task
from albert.training.loop import train
from albert.training.metric_logger import require_logger
from albert.training.record import Run, read_record
from albert.training.run_folder import RunFolder
from albert.training.update import training_workers

HEAD_NOT_SOLVED = "the encoder's states hardly depend on the text: the head was not solved on them"


def finetune(
    task: DeclaredTask,
    start: Start,
    data: Path,
    output: Path,
    recipe: RecipeLike = None,
    settings: FinetuningSettings | None = None,
    teacher_logits: TeacherLogits | None = None,
    announce: Announce | None = None,
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

    Raises:
        MissingInput, DamagedData: the model or the data cannot be read.
        InvalidConfiguration: a setting is invalid.
        CannotCreate: `output` holds another run.
        Diverged, Stopped: see `training.loop.Training`.
    """
    folder = RunFolder(output)
    record = read_record(folder, task.name)  # of the run to resume
    requested = requested_recipe(task, recipe, record)
    if "train" not in task.source.splits:
        remedy = "albert evaluate scores a model of another task on it"
        raise InvalidConfiguration(task.title, "has no training set", remedy)
    settings = settings or FinetuningSettings()
    device = pick_device(settings.device, world().local_rank)
    precision = settings.precision or default_precision(device)
    compute = ComputeOptions(device, precision, settings.micro_batch_tokens)
    require_logger(settings.log)
    with process_group(device) as ranks:
        # The encoder, with a head.
        settings = resolve_settings(task, start, settings, record)
        pairs = (settings.encode_pairs or "together", bool(settings.match_embedding))
        started = start_model(start, task.target, requested.recipe, settings.seed, *pairs)
        is_loaded = not isinstance(start, RandomEncoder)
        about_model = [note for note in started.notes if is_loaded and note not in started.changed]
        notes = [note for note in started.notes if note not in about_model]
        positions = started.config.max_position_embeddings
        requested = replace(requested, recipe=fit_length(requested.recipe, positions))
        longest = requested_recipe(task, recipe).recipe.max_length  # the record of a resumed run has the fitted length
        if requested.recipe.max_length == positions < longest:
            remedy = "--max-position-embeddings makes more positions"
            notes.append(f"sequences of at most {positions} tokens, not {longest}: {remedy}")

        # Rows to features. Everything is read before anything is written: bad input leaves no directory behind.
        examples, counts = read_examples(task, data, "train", settings.max_train_examples, settings.seed)
        held_out = None
        if task.target.may_be_absent and settings.null_threshold == "train":
            examples, held = task.target.hold_out(examples, settings.seed)
            counts["held_out"] = len(held)
            held_out = encode_split(task, "held-out questions", held, {}, started.tokenizer, requested.recipe)
        if settings.threshold == "train":
            examples, held = task.target.hold_out(examples, settings.seed)
            if held:
                counts["held_out"] = len(held)
                held_out = encode_split(task, "held-out rows", held, {}, started.tokenizer, requested.recipe)
        n_classes = task.target.n_outputs or 0
        plan = plan_learning(requested, started.config.hidden_size, len(examples), n_classes)
        if plan.recipe.batch_size < ranks.size:
            why = f"{plan.recipe.batch_size} sequences are fewer than {ranks.size} processes"
            raise InvalidConfiguration("batch_size", why, "choose a larger batch")
        if settings.frozen:
            plan = replace(plan, updates=0, warmup_updates=0, epochs=0.0)
        teacher = None
        if settings.distillation is not None:
            teacher = open_teacher(task, settings.distillation, examples, teacher_logits)
        train_split = encode_split(task, "train", examples, counts, started.tokenizer, plan.recipe)
        dev_split = prepare_split(task, data, "dev", started.tokenizer, plan.recipe)
        settings = resolve_plan_settings(task, settings, plan, len(dev_split.examples), record)
        further = []
        for split in task.further_splits:
            try:
                further.append(prepare_split(task, data, split, started.tokenizer, plan.recipe))
            except MissingInput as error:
                notes.append(f"{split} is not scored: {error}")
        batches = task_batches(task, train_split, plan.recipe, settings, training_workers(device, ranks))
        if settings.class_weights is not None:
            if not task.target.class_names:
                why = f"need classes, labels or tags, {task.title} has none"
                raise InvalidConfiguration("class_weights", why, "leave them out")
            batches = replace(batches, class_weights=balanced_weights(batches.targets, n_classes))
        scale = task.target.number_scale(batches.targets)
        if scale is not None:
            batches = replace(batches, targets=scale.standardised(batches.targets))
            teacher = None if teacher is None else replace(teacher, scale=scale)
        untrained = untrained_positions(started, [train_split, dev_split, *further])
        notes += untrained
        started = replace(started, notes=tuple(notes))

        # The run: a new one, one that goes on, or a complete one; another run is refused.
        record = {
            "task": task.name,
            "inputs": to_json(task.inputs),
            "target": to_json(task.target),
            "start": started.source,
            **({"changes": dict(started.changes)} if started.changes else {}),
            "recipe": to_json(plan.recipe),
            BY_DEFAULT: list(plan.by_default),
            "settings": recorded_settings(settings),
            **({} if scale is None else {TARGET_SCALE_KEY: vars(scale)}),
        }
        sequences = batches.sequences
        identity = {
            "recipe": task_fingerprint(record),
            "training data": arrays_fingerprint(sequences.tokens, sequences.starts, batches.targets),
            "development set": examples_fingerprint(dev_split.examples),
            **start_identity(started),
            **({} if teacher is None else {"teacher": teacher.fingerprint}),
        }
        run = Run(folder=folder, record=record, identity=identity)
        with folder.locked(ranks.is_first):
            already_complete = run.is_complete()
            if not already_complete:
                if ranks.is_first:
                    save_versioned(folder.recipe_path, record)

                # The head, solved on the states of the frozen encoder.
                model = started.model
                if scale is not None and started.changes.get("keep_head"):
                    scale.take_out(model.classifier)
                model.to(device)
                scorer = Scorer(
                    task=task,
                    model=model,
                    compute=compute,
                    train_split=train_split,
                    dev_split=dev_split,
                    further=tuple(further),
                    held_out=held_out,
                    threshold=settings.threshold,
                    scale=scale,
                )
                solved = None
                if settings.solve_head or settings.frozen:
                    solved = solve_and_score_head(folder, scorer, batches, settings.frozen, ranks)

                # Training.
                setup = training_setup(
                    model,
                    task.target,
                    batches,
                    compute,
                    freeze_encoder=settings.freeze_encoder,
                    teacher=teacher,
                    distillation=settings.distillation,
                )
                best = None
                if settings.select == "best":
                    best = BestModel(folder.best_path, identity["development set"])
                before_training = () if solved is None else (solved,)
                work = TaskWork(
                    description=f"Fine-tuning on {task.title}",
                    module=setup.module,
                    source=setup.source,
                    device=device,
                    workers=batches.workers,
                    plan=plan,
                    settings=settings,
                    compute=compute,
                    task=task,
                    started=started,
                    folder=folder,
                    scorer=scorer,
                    batches=batches,
                    objective=setup.objective,
                    notes=(*setup.notes, *before_training),
                    best=best,
                )
                if ranks.is_first:
                    journal = Journal(folder.journal_path)
                    journal.write("model", step=0, notes=about_model)
                    journal.close()
                work.start(ranks, announce, (*untrained, *before_training))
                if ranks.is_first and not folder.checkpoints():
                    work.offer_probe()
                training = train(work, work.training_plan, run)

                # Scores, predictions, the model and the report.
                if ranks.is_first:
                    evaluation = work.evaluate_result()
                    further_evaluations = scorer.evaluate_further(evaluation.threshold)
                    for name, each in {"dev": evaluation, **further_evaluations}.items():
                        write_predictions(folder.path / f"predictions-{name}.jsonl", each)
                    report = task_report(work, training, evaluation, further_evaluations)
                    shown = page_examples(task, dev_split.examples, settings.page_examples)
                    task.target.fold(evaluation.threshold, model)
                    save_model_directory(
                        folder.model_path,
                        model,
                        started.tokenizer_directory,
                        extra=work.config_keys() | (evaluation.threshold.keys if evaluation.threshold else {}),
                        card=task_card(work, evaluation, report, shown),
                        examples=shown,
                        replace=True,
                    )
                    machine = describe_machine()
                    run.finish(report | {"seed": settings.seed, "computed_in": precision, "machine": machine})
            result = finished(folder, ranks, already_complete)
            if ranks.is_first:
                if not already_complete or not (folder.path / REPORT_NAME).exists():
                    write_report(folder)
                if not already_complete:
                    save_custom_task(task, plan.recipe, output)
            return result


def solve_and_score_head(
    folder: RunFolder, scorer: Scorer, batches: TaskBatches, frozen: bool, ranks: Ranks
) -> str | None:
    """Solve the head on frozen features, unless a checkpoint holds it; returns a line about its score.

    `frozen_head.json` keeps the score for the report.

    Args:
        frozen: whether the solved head is the result, so that its strength is chosen by cross-validation.
    """
    path = folder.path / FROZEN_HEAD_NAME
    if not folder.checkpoints():
        solved = solve_head(scorer.model, scorer.task.target, batches, scorer.compute, cross_validate=frozen)
        if solved is None:
            path.unlink(missing_ok=True)
            return HEAD_NOT_SOLVED
        if not ranks.is_first:
            return None
        with scorer.original_units():
            evaluation = scorer.evaluate()
            further = scorer.evaluate_further(evaluation.threshold)
        line = describe(solved, evaluation.scores, alone=frozen)
        further_scores = {name: dict(each.scores) for name, each in further.items()}
        scores = {"scores": dict(evaluation.scores), "further_scores": further_scores}
        save_versioned(path, {**scores, "line": line, **to_json(solved)})
    return read_versioned(path)["line"] if path.is_file() else HEAD_NOT_SOLVED


def untrained_positions(started: StartedModel, splits: Sequence[PreparedSplit]) -> list[str]:
    """A line if sequences reach positions that pre-training never trained."""
    trained = started.trained_positions
    longer = 0 if trained is None else sum(int((each.features.sequences.lengths > trained).sum()) for each in splits)
    if not longer:
        return []
    total = sum(len(each.features.sequences) for each in splits)
    remedy = f"--max-length {trained} cuts them there, --extend-positions derives the others"
    return [f"positions from {trained} on were never trained, and {longer:,} of {total:,} texts reach them: {remedy}"]


# --------------------------------------------------------------------------------------------------------------------
# The training examples or windows, and their batches.


def task_batches(
    task: DeclaredTask, split: PreparedSplit, recipe: TaskRecipe, settings: FinetuningSettings, workers: int = 1
) -> TaskBatches:
    """The batches of a run."""
    features = split.features
    sequences, targets = task.target.training_part(split.examples, features, task.title)
    return TaskBatches(
        sequences,
        targets,
        task.target.term,
        recipe.batch_size,
        settings.seed,
        settings.micro_batch_tokens,
        features.n_options,
        task.target.per_token,
        workers,
        options=features.options,
    )


def save_custom_task(task: DeclaredTask, recipe: TaskRecipe, directory: Path) -> None:
    """Write the task of a user's own table beside the model, so that `albert evaluate` needs no columns."""
    if isinstance(task.source, TableSource):
        table = task.source.table_task
        files = {name: path.absolute() for name in ("train", "dev") if (path := getattr(table, name)) is not None}
        values = to_json(recipe)
        del values["examples"]  # of the task's own training set; a user's table has epochs or steps alone
        save_table_task(directory, replace(table, **files, recipe=RecipeChanges(**values)))
