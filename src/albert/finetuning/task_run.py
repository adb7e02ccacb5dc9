"""Fine-tuning on a task, from top to bottom.

What happens, in order; the workflow of all runs (`training/run.py`) calls these steps and keeps what is written whole:

1. `TaskRequest.open` reads everything and writes nothing: the rows as examples; the recipe, with what was left open
   filled in (`fill_in`: the learning rate, epochs, batch size, which model is the result); the encoder with a head
   (`initial_model`); the teacher, if there is one; the rows as tokens; fingerprints of all of these.
2. `same_run` (`training/same_run.py`) says whether OUTPUT holds another run, which is refused, this one, which is
   resumed, or nothing.
3. `TaskRun.set_up` solves the head on the frozen encoder (`probe.py`), which may be the whole run (`frozen`), and says
   what is trained: the model, its loss (`objective.py`), and its batches (`batches.py`).
4. The loop (`training/loop.py`) takes the updates, evaluates at intervals, keeps the best model, and saves checkpoints.
5. `TaskRun.score` evaluates the model that is the result, and simpler ones beside it.
6. `TaskRun.write` writes the predictions, the model with its card, and `results.json` last; then the page.

RUN/recipe.json            the whole run as a value
    inputs.json            fingerprints of rows, weights, tokenizer and teacher
    journal.jsonl          one event per line; tensorboard/ has the same curves
    frozen_head.json       how the solved head scored, where one was solved
    model/                 the Hugging Face model directory
    predictions-dev.jsonl  one object per development example; further splits of the task have their own file
    task.json              your table's task, so that `evaluate` needs no columns
    results.json           scores, baselines, counts, speed, seed, errors; it says that the run is finished
    report.html            the results as a page; with matplotlib curves.png is beside it"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from albert.checkpoints.hub import model_name
from albert.checkpoints.model_directory import save_model_directory
from albert.columns.read import TableSource
from albert.finetuning.batches import (
    PreparedSplit,
    TaskBatches,
    arrays_fingerprint,
    balanced_weights,
    encode_split,
    prepare_split,
    read_examples,
)
from albert.finetuning.evaluation import ComputeOptions, Evaluation, write_predictions
from albert.finetuning.fill_in import (
    Recipe,
    RecipeLike,
    choose_pairs,
    fill_in,
    given_values,
    read_record,
    recipe_record,
)
from albert.finetuning.initial_model import (
    InitialModel,
    RandomEncoder,
    Start,
    beginning_of,
    initial_model,
    start_inputs,
)
from albert.finetuning.objective import Teacher, TeacherLogits, open_teacher, training_setup
from albert.finetuning.page_examples import page_examples
from albert.finetuning.probe import describe, solve_head
from albert.finetuning.scoring import Scorer
from albert.finetuning.selection import BestModel
from albert.finetuning.task_report import task_card, task_report
from albert.finetuning.task_training import PROBE_NAME, Announce, FinetuningResult, TaskTraining
from albert.recipes.finetuning import FinetuningSettings, RecipeChanges, TaskRecipe
from albert.report.notes import HEAD_NOT_SOLVED
from albert.report.page import PAGE_NAME
from albert.report.runs import result_of_run
from albert.runtime.devices import default_precision, describe_machine
from albert.runtime.environment import Ranks
from albert.runtime.errors import InvalidConfiguration, MissingInput
from albert.runtime.files import write_text
from albert.runtime.json_files import Journal, read_versioned, save_versioned, to_json
from albert.runtime.words import counted
from albert.tasks.declared import DeclaredTask
from albert.tasks.examples import Example
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
            defaults, see `albert.finetuning.fill_in`.
        teacher_logits: logits that earlier runs computed and that are not computed again; those of this run's teacher
            are added.
        announce: called before the first update with the learning rate, batch size, epochs, updates and length; see
            `Recipe.figures`.
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
    request = TaskRequest(
        task=task,
        start=start,
        data=data,
        recipe=recipe,
        settings=settings,
        teacher_logits=teacher_logits,
        announce=announce,
        read_from=read_from,
    )
    return run_training(request.open, output, settings.device, replace)


def check_run(
    task: DeclaredTask, start: Start, data: Path, output: Path, recipe: RecipeLike, settings: FinetuningSettings
) -> None:
    """Raise what `finetune` would refuse of a new run; everything is read, and nothing is written or trained."""
    require_logger(settings.log)
    request = TaskRequest(task=task, start=start, data=data, recipe=recipe, settings=settings)
    check_training(request.open, output, settings.device)


# --------------------------------------------------------------------------------------------------------------------
# Everything that is read, before anything is written.


@dataclass(frozen=True, kw_only=True)
class TaskRequest:
    """What `finetune` is asked for."""

    task: DeclaredTask
    start: Start
    data: Path
    recipe: RecipeLike
    settings: FinetuningSettings
    teacher_logits: TeacherLogits | None = None
    announce: Announce | None = None
    read_from: Sequence[Path] = ()

    def open(self, earlier: RunFolder, device: torch.device, ranks: Ranks) -> "TaskRun":
        """The rows, the recipe with nothing left open, the encoder with its head, and the rows as tokens.

        Args:
            earlier: the folder of the run to resume.
        """
        task = self.task
        longest = given_values(task, self.recipe)[0].max_length
        if "train" not in task.source.splits:
            remedy = "albert evaluate scores a model of another task on it"
            raise InvalidConfiguration(task.title, "has no training set", remedy)

        # The rows, and the recipe. What the model refuses is refused before the rows are read.
        beginning = beginning_of(self.start)
        choose_pairs(task, beginning, self.settings.encode_pairs, self.settings.match_embedding, None)
        rows, counts = read_examples(task, self.data, "train", self.settings.max_train_examples, self.settings.seed)
        dev_rows, dev_counts = read_examples(task, self.data, "dev")
        record = read_record(earlier, task.name)
        precision = default_precision(device)
        recipe, examples, held_out = fill_in(
            task, beginning, self.recipe, self.settings, record, rows, len(dev_rows), precision
        )
        if recipe.values.batch_size < ranks.size:
            why = f"{recipe.values.batch_size} sequences are fewer than {ranks.size} processes"
            raise InvalidConfiguration("batch_size", why, "choose a larger batch")
        settings = recipe.settings
        compute = ComputeOptions(device, recipe.precision, settings.micro_batch_tokens)

        # The encoder with a head, and the teacher.
        pairs = (settings.encode_pairs or "together", bool(settings.match_embedding))
        initial = initial_model(self.start, task.target, recipe.values, settings.seed, *pairs)
        is_loaded = not isinstance(self.start, RandomEncoder)
        about_model = [note for note in initial.notes if is_loaded and note not in initial.changed]
        notes = [note for note in initial.notes if note not in about_model]
        positions = beginning.config.max_position_embeddings
        if recipe.values.max_length == positions < longest:
            remedy = "architecture.max_position_embeddings makes more positions"
            notes.append(f"sequences of at most {counted(positions, 'tokens')}, not {longest}: {remedy}")
        teacher = None
        if settings.distillation is not None:
            teacher = open_teacher(task, settings.distillation, examples, self.teacher_logits)

        # The rows as tokens.
        if held_out:
            counts["held_out"] = len(held_out)
        encoding = (initial.tokenizer, recipe.values)
        tuning_split = encode_split(task, "held-out rows", held_out, {}, *encoding) if held_out else None
        train_split = encode_split(task, "train", examples, counts, *encoding)
        dev_split = encode_split(task, "dev", dev_rows, dev_counts, *encoding)
        further = []
        for split in task.further_splits:
            try:
                further.append(prepare_split(task, self.data, split, *encoding))
            except MissingInput as error:
                notes.append(f"{split} is not scored: {error}")
        batches = task_batches(task, train_split, recipe.values, settings, training_workers(device, ranks))
        scale = task.target.number_scale(batches.targets)
        if scale is not None:
            batches = replace(batches, targets=scale.standardised(batches.targets))
            teacher = None if teacher is None else replace(teacher, scale=scale)
        untrained = untrained_positions(initial, [train_split, dev_split, *further])
        initial = replace(initial, notes=(*notes, *untrained))
        scorer = Scorer(
            task=task,
            model=initial.model,
            compute=compute,
            train_split=train_split,
            dev_split=dev_split,
            further=tuple(further),
            held_out=tuning_split,
            threshold=settings.threshold,
            scale=scale,
        )
        return TaskRun(
            record=record_of(initial, recipe, scorer),
            inputs=inputs_of(initial, batches, scorer, teacher, settings),
            plan=recipe.training_plan,
            ranks=ranks,
            device=device,
            read_from=self.read_from,
            recipe=recipe,
            initial=initial,
            about_model=about_model,
            untrained=untrained,
            batches=batches,
            scorer=scorer,
            teacher=teacher,
            announce=self.announce,
        )


def task_batches(
    task: DeclaredTask, split: PreparedSplit, values: TaskRecipe, settings: FinetuningSettings, workers: int = 1
) -> TaskBatches:
    """The training examples or windows in the batches of a run."""
    features = task.target.to_train(split.examples, split.features, task.title)
    has_slots = bool(features.slot_of.any())
    weights = None
    if settings.class_weights is not None:
        weights = balanced_weights(features.targets, task.target.n_outputs or 0)
    return TaskBatches(
        features.sequences,
        features.targets,
        task.target.term,
        values.batch_size,
        settings.seed,
        settings.micro_batch_tokens,
        example_of=features.example_of if has_slots else None,
        slot_of=features.slot_of if has_slots else None,
        per_token=task.target.per_token,
        workers=workers,
        class_weights=weights,
    )


def untrained_positions(initial: InitialModel, splits: Sequence[PreparedSplit]) -> list[str]:
    """A line if sequences reach positions that pre-training never trained."""
    trained = initial.trained_positions
    longer = 0 if trained is None else sum(int((each.features.sequences.lengths > trained).sum()) for each in splits)
    if not longer:
        return []
    total = sum(len(each.features.sequences) for each in splits)
    remedy = f"max_length={trained} cuts them there, architecture.extend_positions=true derives the others"
    return [f"positions from {trained} on were never trained, and {longer:,} of {total:,} texts reach them: {remedy}"]


def record_of(initial: InitialModel, recipe: Recipe, scorer: Scorer) -> dict[str, Any]:
    """The content of `recipe.json`."""
    distillation = recipe.settings.distillation
    return {
        "task": scorer.task.name,
        "inputs": to_json(scorer.task.inputs),
        "target": to_json(scorer.task.target),
        "metrics": [metric.__name__ for metric in scorer.task.metrics],
        "start": initial.source,
        **({"changes": dict(initial.changes)} if initial.changes else {}),
        **recipe_record(recipe, None if distillation is None else model_name(distillation.teacher)),
        **({} if scorer.scale is None else {TARGET_SCALE_KEY: vars(scorer.scale)}),
    }


def inputs_of(
    initial: InitialModel,
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
        **start_inputs(initial),
    }
    for split in scorer.further:
        inputs[split.split] = Input(counted(len(split.examples), "examples"), examples_fingerprint(split.examples))
    if teacher is not None and settings.distillation is not None:
        inputs["teacher"] = Input(model_name(settings.distillation.teacher), teacher.fingerprint)
    return inputs


def examples_fingerprint(examples: Sequence[Example]) -> str:
    """SHA-256 over texts and answers in order, independent of file paths."""
    digest = hashlib.sha256()
    for row in examples:
        digest.update(repr((row.texts, row.target, row.answers, row.options, row.group)).encode())
    return digest.hexdigest()


# --------------------------------------------------------------------------------------------------------------------
# The run.


@dataclass(kw_only=True)
class TaskRun(RunWork[FinetuningResult]):
    """Fine-tuning on a task, opened."""

    MAY_CHANGE = FINETUNING_MAY_CHANGE

    recipe: Recipe
    initial: InitialModel
    about_model: list[str]
    """What was loaded, for the journal."""
    untrained: list[str]
    batches: TaskBatches
    scorer: Scorer
    teacher: Teacher | None
    announce: Announce | None
    training: TaskTraining = field(init=False, repr=False)
    evaluation: Evaluation = field(init=False, repr=False)
    further: Mapping[str, Evaluation] = field(init=False, repr=False)

    def set_up(self, run: Run, is_new: bool) -> TaskTraining:
        """The probe, if it is wanted: the head solved on the states of the frozen encoder; then what is trained."""
        folder = run.folder
        settings = self.recipe.settings
        scorer = self.scorer
        model: Any = self.initial.model
        if scorer.scale is not None and self.initial.changes.get("keep_head"):
            scorer.scale.take_out(model.classifier)
        model.to(self.device)
        before_training = []
        if settings.solve_head or settings.frozen:
            before_training += filter(None, [self._probe(folder, is_new)])
        setup = training_setup(
            model,
            scorer.task.target,
            self.batches,
            scorer.compute,
            freeze_encoder=settings.freeze_encoder,
            teacher=self.teacher,
            distillation=settings.distillation,
        )
        self.training = TaskTraining(
            description=f"Fine-tuning on {scorer.task.title}",
            module=setup.module,
            source=setup.source,
            device=self.device,
            workers=self.batches.workers,
            recipe=self.recipe,
            compute=scorer.compute,
            initial=self.initial,
            folder=folder,
            scorer=scorer,
            batches=self.batches,
            objective=setup.objective,
            notes=(*setup.notes, *before_training),
            best=BestModel(folder.best_path) if settings.select == "best" else None,
        )
        if self.ranks.is_first:
            journal = Journal(folder.journal_path)
            journal.write("model", step=0, notes=self.about_model)
            journal.close()
        self.training.announce(self.announce, self.ranks, (*self.untrained, *before_training))
        if self.ranks.is_first and is_new:
            self.training.offer_probe()
        return self.training

    def _probe(self, folder: RunFolder, is_new: bool) -> str | None:
        """Solve the head on frozen features, unless a checkpoint holds it; returns a line about its score.

        `frozen_head.json` keeps the score for the report. A frozen head is the result, so that its strength is chosen
        by cross-validation.
        """
        path = folder.path / PROBE_NAME
        scorer = self.scorer
        frozen = self.recipe.settings.frozen
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
        self.evaluation = self.training.evaluate_result()
        self.further = self.scorer.evaluate_further(self.evaluation.target)
        report = task_report(self.training, training, self.evaluation, self.further)
        computed = {"computed_in": self.scorer.compute.precision, "machine": describe_machine()}
        return report | {"seed": self.recipe.settings.seed, **computed}

    def write(self, folder: RunFolder, report: Mapping[str, Any]) -> None:
        """The predictions, the model with its card, and the task of your table."""
        for name, evaluation in {"dev": self.evaluation, **self.further}.items():
            write_predictions(folder.path / f"predictions-{name}.jsonl", evaluation)
        task = self.scorer.task
        tuned = self.evaluation.target
        shown = page_examples(task, self.scorer.dev_split.examples, self.recipe.settings.page_examples)
        tuned.bake(self.initial.model)
        save_model_directory(
            folder.model_path,
            self.initial.model,
            self.initial.tokenizer_directory,
            extra=self.training.config_keys() | tuned.tuned_keys,
            card=task_card(self.training, self.evaluation, report, shown),
            examples=shown,
            replace=True,
        )
        save_custom_task(task, self.recipe.values, folder.path)

    def result(self, folder: RunFolder, report: Mapping[str, Any], already_complete: bool) -> FinetuningResult:
        if self.ranks.is_first and not (already_complete and (folder.path / PAGE_NAME).exists()):
            write_text(folder.path / PAGE_NAME, result_of_run(report, folder.path).page())
        return FinetuningResult(report["scores"], report, folder.model_path, already_complete)


def save_custom_task(task: DeclaredTask, recipe: TaskRecipe, directory: Path) -> None:
    """Write the task of your table beside the model, so that `albert evaluate` needs no columns."""
    if isinstance(task.source, TableSource):
        table = task.source.table_task
        files = {name: path.absolute() for name in ("train", "dev") if (path := getattr(table, name)) is not None}
        values = to_json(recipe)
        del values["examples"]  # of the task's own training set; your table has epochs or steps alone
        save_table_task(directory, replace(table, **files, recipe=RecipeChanges(**values)))
