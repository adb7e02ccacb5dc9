"""A pre-trained encoder meets a task: features, a fresh head, the one training loop, a model others can open.

RUN/recipe.json            the whole run as a value
    journal.jsonl          what happened, one event a line
    model/                 the Hugging Face model directory
    predictions-dev.jsonl  one object per example of the development set, and so for further splits of the task
    results.json           scores, baseline, counts, speed, seed; written last
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from albert.checkpoints.model_directory import save_model_directory, write_model
from albert.finetuning.batches import TaskBatches
from albert.finetuning.evaluate import fit_length, write_predictions
from albert.finetuning.evaluation import Computing, Evaluation, answer_questions, evaluate_model
from albert.finetuning.held_out_threshold import hold_out, threshold_for
from albert.finetuning.learnt import task_batches
from albert.finetuning.objectives import task_loss
from albert.finetuning.run_record import (
    RESULTS_NAME,
    FinetuningResult,
    FinetuningSettings,
    complete_run,
    refuse_another_run,
    run_card,
    run_identity,
    run_record,
    run_report,
)
from albert.finetuning.splits import PreparedSplit, Subset, encode_split, prepare_split, read_examples
from albert.finetuning.start import Start, StartedModel, head_description, start_model
from albert.optim.optimizer import OptimizerRecipe, build_optimizer
from albert.optim.schedule import warmup_then_linear
from albert.runtime.devices import Precision, pick_device
from albert.runtime.distributed import World, process_group, wait_for_all, world
from albert.runtime.durable_files import remove_directory
from albert.runtime.errors import InvalidConfiguration, MissingInput
from albert.runtime.strict_json import save_json
from albert.tasks.null_threshold import NullThreshold
from albert.tasks.task import Span, Task, TaskRecipe
from albert.text.tokenizer import Tokenizer
from albert.training.loop import train
from albert.training.plan import TrainingPlan, TrainingResult
from albert.training.run_folder import RunFolder


def finetune(
    task: Task,
    start: Start,
    data: Path,
    output: Path,
    recipe: TaskRecipe | None = None,
    settings: FinetuningSettings | None = None,
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

    Raises:
        MissingInput, DamagedData: the model or the data cannot be read.
        InvalidConfiguration: a setting that cannot work.
        CannotCreate: `output` holds another run.
        Diverged, Stopped: see `training.loop.train`.
    """
    recipe, settings = recipe or task.recipe, settings or FinetuningSettings()
    recipe.check()
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
        train_split = encode_split(task, "train", examples, counts, started.tokenizer, recipe)
        dev_split = prepare_split(task, data, "dev", started.tokenizer, recipe)
        further, absent = _further_splits(task, data, started.tokenizer, recipe)
        started = replace(started, notes=(*started.notes, *absent))
        batches = task_batches(task, train_split, recipe, settings)
        work = _Run(
            task, started, run, recipe, settings, computing, here, train_split, dev_split, batches, held_out, further
        )
        with run.locked() if here.is_first else nullcontext():
            return work.complete()


@dataclass(frozen=True)
class _Run:
    """Everything a run needs, put together once."""

    task: Task
    started: StartedModel
    run: RunFolder
    recipe: TaskRecipe
    settings: FinetuningSettings
    computing: Computing
    here: World
    train_split: PreparedSplit
    dev_split: PreparedSplit
    batches: TaskBatches
    held_out: PreparedSplit | None
    further: tuple[PreparedSplit, ...]

    @property
    def model(self) -> nn.Module:
        return self.started.model

    def complete(self) -> FinetuningResult:
        """Train to the end, evaluate, and write everything; or return what an earlier call wrote."""
        identity = run_identity(self.task, self.started, self.batches, self.recipe, self.settings)
        finished = complete_run(self.run.path, self.run.model_path, identity)
        if finished is not None:
            return finished
        self.model.to(self.computing.device)
        latest: list[Evaluation] = []

        def evaluate() -> dict[str, float]:
            threshold = self._threshold()
            latest[:] = [evaluate_model(self.model, self.task, self.dev_split, self.computing, threshold=threshold)]
            return latest[0].defined_scores

        record = run_record(self.task, self.started, self.recipe, self.settings)
        refuse_another_run(self.run, record)
        if self.here.is_first:
            save_json(self.run.recipe_path, record)
        training = self._train(identity, evaluate)
        if not self.here.is_first:
            wait_for_all(self.here)
            return FinetuningResult({}, {}, self.run.model_path)
        if not latest:
            evaluate()
        further = {
            split.split: evaluate_model(self.model, self.task, split, self.computing, threshold=latest[0].threshold)
            for split in self.further
        }
        report = {
            **run_report(record, self.task, self.train_split, self.batches, training, latest[0], self.started.notes),
            "further_scores": {split: dict(evaluation.scores) for split, evaluation in further.items()},
            "identity": identity,
        }
        self._write(latest[0], further, report)
        wait_for_all(self.here)
        return FinetuningResult(latest[0].scores, report, self.run.model_path)

    def _threshold(self) -> NullThreshold | None:
        """From where on a question has no answer, as the questions held out say."""
        if self.held_out is None:
            return None
        assert isinstance(self.task.target, Span)
        answers = answer_questions(self.model, self.task.target, self.held_out, self.computing)
        held = self.held_out.examples
        return threshold_for(held, answers, f"{len(held):,} questions held out of the training set")

    def _train(self, identity: dict[str, str], evaluate: Callable[[], dict[str, float]]) -> TrainingResult:
        recipe, settings = self.recipe, self.settings
        optimizer = settings.optimizer or OptimizerRecipe(
            kind="adamw", learning_rate=recipe.learning_rate, weight_decay=recipe.weight_decay
        )
        steps = recipe.total_steps(len(self.train_split.examples))
        warmup = round(recipe.warmup_share * steps)
        return train(
            self.model,
            build_optimizer(optimizer, self.model),
            lambda step: warmup_then_linear(step, optimizer.learning_rate, warmup, steps),
            self.batches,
            task_loss,
            TrainingPlan(
                total_steps=steps,
                seed=settings.seed,
                precision=self.computing.precision,
                evaluate_every=settings.evaluate_every,
                checkpoint_every=settings.checkpoint_every,
                keep_checkpoints=1,
                workers=settings.workers,
            ),
            self.run,
            device=self.computing.device,
            identity=identity,
            save_model=lambda directory: write_model(
                directory,
                self.model,
                self.started.tokenizer_directory,
                extra=self._extra(),
            ),
            evaluate=evaluate if settings.evaluate_every else None,
            description=f"Fine-tuning {self.task.name}",
        )

    def _extra(self) -> dict[str, Any]:
        return head_description(self.task, self.recipe, self.started.trained_positions)

    def _write(self, evaluation: Evaluation, further: dict[str, Evaluation], report: dict) -> None:
        for split, each in {"dev": evaluation, **further}.items():
            write_predictions(self.run.path / f"predictions-{split}.jsonl", each)
        save_model_directory(
            self.run.model_path,
            self.model,
            self.started.tokenizer_directory,
            extra=self._extra() | (evaluation.threshold.keys if evaluation.threshold else {}),
            card=run_card(self.run.path.name, self.task, self.started, self.recipe, evaluation),
            replace=True,
        )
        save_json(self.run.path / RESULTS_NAME, report)  # last: its presence says that the run is complete
        if self.run.checkpoints_path.is_dir():
            remove_directory(self.run.checkpoints_path)


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
