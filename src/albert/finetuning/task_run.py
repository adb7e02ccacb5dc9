"""A fine-tuning run from its first update to its last file.

RUN/recipe.json            the whole run as a value
    journal.jsonl          what happened, one event a line
    model/                 the Hugging Face model directory
    predictions-dev.jsonl  one object per example of the development set, and so for further splits of the task
    results.json           scores, baselines, counts, speed, seed; written last
"""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from albert.checkpoints.model_directory import save_model_directory, write_model
from albert.finetuning.batches import TaskBatches
from albert.finetuning.best_model import BestModel, selection_of
from albert.finetuning.distillation import Teacher
from albert.finetuning.evaluate import write_predictions
from albert.finetuning.evaluation import Computing, Evaluation, evaluate_model, predict_split
from albert.finetuning.held_out_threshold import threshold_for
from albert.finetuning.learning_plan import LearningPlan
from albert.finetuning.run_record import (
    RESULTS_NAME,
    FinetuningResult,
    FinetuningSettings,
    complete_run,
    optimizer_of,
    refuse_another_run,
    run_card,
    run_identity,
    run_record,
    run_report,
)
from albert.finetuning.splits import PreparedSplit
from albert.finetuning.start import StartedModel, head_description
from albert.finetuning.summary import advice
from albert.finetuning.ways_of_learning import WayOfLearning, way_of_learning
from albert.model.depth import EXITS_KEY
from albert.optim.optimizer import build_optimizer
from albert.optim.schedule import warmup_then_linear
from albert.runtime.distributed import wait_for_all
from albert.runtime.durable_files import remove_directory
from albert.runtime.late_modules import load_by_name
from albert.runtime.strict_json import read_json_object, save_json
from albert.runtime.world import World
from albert.tasks.null_threshold import NullThreshold
from albert.tasks.number_scale import TARGET_SCALE_KEY, NumberScale
from albert.tasks.task import Score, Task, TaskRecipe
from albert.training.loop import train
from albert.training.plan import TrainingPlan, TrainingResult
from albert.training.run_folder import RunFolder


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
    computing: Computing
    here: World
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
    def recipe(self) -> TaskRecipe:
        return self.plan.recipe

    @property
    def model(self) -> nn.Module:
        return self.started.model

    def complete(self) -> FinetuningResult:
        """Train to the end, evaluate, and write everything; or return what an earlier call wrote."""
        return self._with_scale()._complete()

    def _with_scale(self) -> "TaskRun":
        """This run with numbers as standard scores; a run of an earlier version goes on with the numbers themselves."""
        if not isinstance(self.task.target, Score):
            return self
        if self.run.recipe_path.exists() and TARGET_SCALE_KEY not in read_json_object(self.run.recipe_path):
            return self
        scale = NumberScale.of(self.batches.targets)
        batches = replace(self.batches, targets=scale.standardised(self.batches.targets))
        teacher = None if self.teacher is None else replace(self.teacher, scale=scale)
        return replace(self, batches=batches, teacher=teacher, scale=scale)

    def _complete(self) -> FinetuningResult:
        identity = run_identity(
            self.task, self.started, self.batches, self.dev_split, self.recipe, self.settings, self.teacher
        )
        finished = complete_run(self.run.path, self.run.model_path, identity)
        if finished is not None:
            if self.here.is_first:
                self._remove_needless()  # which the call that finished it may not have lived to do
            return finished
        self.model.to(self.computing.device)
        best = None
        if self.settings.select == "best":
            best = BestModel(self.run.path / "best", self._save, identity["development set"])
        latest: list[Evaluation] = []

        def evaluate() -> dict[str, float]:
            with self._folded():
                latest[:] = [self._evaluated()]
            if best is not None:
                best.consider(latest[0].scores)
            return latest[0].defined_scores

        record = run_record(self.task, self.started, self.plan, self.settings)
        if self.scale is not None:
            record[TARGET_SCALE_KEY] = vars(self.scale)
            if self.started.changes.get("keep_head"):
                self.scale.take_out(self.started.model.classifier)
        refuse_another_run(self.run, record)
        if self.here.is_first:
            save_json(self.run.recipe_path, record)
        way = way_of_learning(
            self.model,
            self.batches,
            self.depths,
            self.computing,
            freeze_encoder=self.settings.freeze_encoder,
            teacher=self.teacher,
            distillation=self.settings.distillation,
        )
        if self.announce is not None and self.here.is_first:
            self.announce(self.figures)
        training = self._train(way, identity, evaluate)
        if not self.here.is_first:
            wait_for_all(self.here)
            report = read_json_object(self.run.path / RESULTS_NAME)
            return FinetuningResult(report["scores"], report, self.run.model_path)
        if best is not None:
            self.model.load_state_dict(best.tensors(self.task.target))
            latest.clear()
        elif self.scale is not None:
            self.scale.fold_in(self.model.classifier)
        evaluation = latest[0] if latest else self._evaluated()
        selection = selection_of(self.settings.select, evaluation.scores, self.run.journal_path)
        further = {
            split.split: evaluate_model(self.model, self.task, split, self.computing, threshold=evaluation.threshold)
            for split in self.further
        }
        linear = self._linear_baseline()
        report = {
            **run_report(record, self.task, self.train_split, self.batches, training, evaluation, self._notes(way)),
            "linear_baseline": linear,
            "advice": advice(evaluation.scores, evaluation.baseline, linear),
            "selection": selection.to_json(),
            "further_scores": {split: dict(each.scores) for split, each in further.items()},
            "identity": identity,
        }
        card = run_card(self.run.path.name, self.task, self.started, self.recipe, evaluation, selection, linear)
        self._write(evaluation, further, report, card)
        wait_for_all(self.here)
        return FinetuningResult(evaluation.scores, report, self.run.model_path)

    @property
    def figures(self) -> dict[str, Any]:
        """How the run learns: `learning_rate` at its peak, `rate_factor` (by which the recipe's was multiplied for the
        model's width), `batch_size`, `epochs`, `steps` (updates), `examples`, `max_length` in tokens, `precision` and
        `device`."""
        plan = self.plan
        return {
            "learning_rate": optimizer_of(self.settings, self.recipe).learning_rate,
            "rate_factor": plan.rate_factor,
            "batch_size": self.recipe.batch_size,
            "epochs": plan.epochs,
            "steps": plan.updates,
            "examples": plan.examples,
            "max_length": self.recipe.max_length,
            "precision": self.computing.precision,
            "device": self.computing.device.type,
        }

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
        return evaluate_model(self.model, self.task, self.dev_split, self.computing, threshold=self._threshold())

    def _threshold(self) -> NullThreshold | None:
        """From where on a question has no answer, as the questions held out say."""
        if self.held_out is None:
            return None
        answers = predict_split(self.model, self.task.target, self.held_out, self.computing)
        assert isinstance(answers, list)
        held = self.held_out.examples
        return threshold_for(held, answers, f"{len(held):,} questions held out of the training set")

    def _train(
        self, way: WayOfLearning, identity: dict[str, str], evaluate: Callable[[], dict[str, float]]
    ) -> TrainingResult:
        settings, steps, warmup = self.settings, self.plan.updates, self.plan.warmup_updates
        optimizer = optimizer_of(settings, self.recipe)
        return train(
            way.module,
            build_optimizer(optimizer, way.module),
            lambda step, _: warmup_then_linear(step, optimizer.learning_rate, warmup, steps),
            way.source,
            way.objective,
            TrainingPlan(
                total_steps=steps,
                seed=settings.seed,
                precision=self.computing.precision,
                evaluate_every=settings.evaluation_interval,
                checkpoint_every=settings.checkpoint_every,
                keep_checkpoints=1,
                workers=settings.workers,
            ),
            self.run,
            device=self.computing.device,
            identity=identity,
            save_model=self._save,
            evaluate=evaluate if settings.evaluation_interval else None,
            description=f"Fine-tuning {self.task.name}",
        )

    def _save(self, directory: Path) -> None:
        """Write the model as it stands while it learns, for others to open."""
        with self._folded():
            write_model(directory, self.model, self.started.tokenizer_directory, extra=self._extra())

    def _folded(self) -> AbstractContextManager[None]:
        """The learning model with outputs in the unit of the data."""
        return nullcontext() if self.scale is None else self.scale.folded(self.model.classifier)

    def _extra(self) -> dict[str, Any]:
        extra = head_description(self.task, self.recipe, self.started.trained_positions)
        if len(self.depths) > 1:
            extra[EXITS_KEY] = list(self.depths)
        if self.scale is not None:
            extra[TARGET_SCALE_KEY] = vars(self.scale)
        return extra

    def _notes(self, way: WayOfLearning) -> tuple[str, ...]:
        told = [*self.started.notes, *way.notes]
        if len(self.depths) > 1:
            told.append(f"the head learnt to answer after layers {', '.join(map(str, self.depths))}")
        if self.scale is not None:
            told.append(
                f"numbers are learnt as standard scores: training mean {self.scale.mean:.4g}, "
                f"deviation {self.scale.deviation:.4g}, both in the saved head"
            )
        return tuple(told)

    def _write(self, evaluation: Evaluation, further: dict[str, Evaluation], report: dict, card: str) -> None:
        for split, each in {"dev": evaluation, **further}.items():
            write_predictions(self.run.path / f"predictions-{split}.jsonl", each)
        save_model_directory(
            self.run.model_path,
            self.model,
            self.started.tokenizer_directory,
            extra=self._extra() | (evaluation.threshold.keys if evaluation.threshold else {}),
            card=card,
            replace=True,
        )
        save_json(self.run.path / RESULTS_NAME, report)  # last: its presence says that the run is complete
        self._remove_needless()

    def _remove_needless(self) -> None:
        """What only served to go on, or to choose the model."""
        for needless in (self.run.checkpoints_path, self.run.path / "best"):
            if needless.is_dir():
                remove_directory(needless)
