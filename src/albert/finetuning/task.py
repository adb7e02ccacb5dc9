"""What a fine-tuning run trains: a model by a plan (`FinetuningTask`); an encoder with a head on a task
(`TaskTraining`), with its scores, the choice of the best model, and the files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from albert.checkpoints.model_directory import write_model
from albert.checkpoints.sentence_transformers import SENTENCE_KEY
from albert.finetuning.data import TaskBatches
from albert.finetuning.evaluation import ComputeOptions, Evaluation
from albert.finetuning.model import StartedModel, head_description
from albert.finetuning.options import LearningPlan
from albert.finetuning.scoring import Scorer
from albert.finetuning.selection import BestModel, evaluations_without_gain
from albert.optim.optimizer import build_optimizer
from albert.recipes.finetuning import FinetuningSettings
from albert.runtime.environment import Log, Precision, Ranks
from albert.runtime.files import new_directory
from albert.runtime.json_files import read_versioned, to_json
from albert.tasks.declared import DeclaredTask
from albert.tasks.metrics import TARGET_SCALE_KEY
from albert.training.logging import TrainingPlan
from albert.training.run_folder import RunFolder
from albert.training.self_check import check_attention_kernel
from albert.training.task import TrainingTask
from albert.training.update import Batch, Objective, Sums

Announce = Callable[[Mapping[str, Any]], None]
"""Shows a user how a run trains, before its first update: the values of `LearningPlan.figures`, and `before_training`,
lines about what was computed so far, and `frozen`, whether only the head is learned."""


def training_plan(plan: LearningPlan, settings: FinetuningSettings, precision: Precision) -> TrainingPlan:
    """The settings of the training loop."""
    return TrainingPlan(
        total_steps=plan.updates,
        seed=settings.seed,
        precision=precision,
        evaluate_every=settings.evaluation_interval,
        checkpoint_every=settings.checkpoint_every,
        keep_checkpoints=1,
        workers=settings.workers,
    )


@dataclass(kw_only=True)
class FinetuningTask(TrainingTask):
    """Fine-tuning by a plan."""

    plan: LearningPlan
    settings: FinetuningSettings
    compute: ComputeOptions
    optimizer: Optimizer = field(init=False)
    evaluates: bool = field(init=False)
    log: Log = field(init=False)

    def __post_init__(self) -> None:
        self.optimizer = build_optimizer(self.plan.optimizer, self.module)
        self.log = self.settings.log
        self.evaluates = self.settings.evaluation_interval is not None

    def learning_rate(self, step: int, budget_used: float) -> float:
        return self.plan.learning_rate(step)

    def announce(self, announce: Announce | None, ranks: Ranks, before_training: Sequence[str] = ()) -> None:
        """Announce the training, and check the attention kernel of a GPU on the first batch."""
        if announce is not None and ranks.is_first:
            figures = self.plan.figures(self.compute.precision, self.device.type, self.workers)
            announce(figures | {"before_training": tuple(before_training), "frozen": self.settings.frozen})
        if self.device.type == "cuda":
            batch = self.source.micro_batches(0, ranks.rank, ranks.size)[0]
            check = check_attention_kernel(self.module, self.loss, batch, self.compute.precision, self.device, ranks)
            self.self_checks = [check]


# --------------------------------------------------------------------------------------------------------------------
# An encoder with a head, on a task.

FROZEN_HEAD_NAME = "frozen_head.json"
"""In a run's folder: how the head that was solved on frozen features scores."""


@dataclass(kw_only=True)
class TaskTraining(FinetuningTask):
    """Fine-tuning an encoder and a head on a task."""

    task: DeclaredTask
    started: StartedModel
    folder: RunFolder
    scorer: Scorer
    batches: TaskBatches
    objective: Objective
    notes: tuple[str, ...]
    """What was done before the first update, for the report."""
    best: BestModel | None
    """The best model so far; None: the last one is the result."""
    latest: Evaluation | None = None

    @property
    def model(self) -> nn.Module:
        """The model with its head, which is evaluated and saved; `module` is the form of it that is trained."""
        return self.started.model

    def loss(self, model: nn.Module, batch: Batch) -> Sums:
        return self.objective(model, batch)

    def evaluate(self) -> dict[str, float]:
        """The scores on the development set; the model is kept if they are the best so far."""
        with self.scorer.original_units():
            self.latest = self.scorer.evaluate()
        if self.best is not None and self.best.is_improved_by(self.latest.scores):
            with new_directory(self.best.directory, replace=True) as directory:
                self.save(directory)
                self.best.write_score(directory, self.latest.scores)
        return self.latest.defined_scores

    def offer_probe(self) -> None:
        """Before the first update: keep the model with its solved head as the best so far, if the best is kept."""
        solved = self.frozen_head()
        if self.best is None or solved is None or not self.best.is_improved_by(solved["scores"]):
            return
        with new_directory(self.best.directory, replace=True) as directory:
            self.save(directory)
            self.best.write_score(directory, solved["scores"], is_probe=True)

    @property
    def patience(self) -> int | None:
        return self.settings.patience

    def is_enough(self) -> bool:
        """Return whether so many evaluations were no better than the best as the settings allow."""
        if self.patience is None:
            return False
        assert self.best is not None
        return evaluations_without_gain(self.best.metric, self.folder.journal_path) >= self.patience

    def evaluate_result(self) -> Evaluation:
        """After the last update: give the model the weights that are the run's result, and evaluate them."""
        if self.best is not None:
            pairs = self.settings.encode_pairs or "together"
            self.model.load_state_dict(self.best.tensors(self.task.target, pairs))
        elif self.scorer.scale is not None:
            self.scorer.scale.fold_in(self.model.classifier)
        if self.best is None and self.latest is not None:
            return self.latest
        return self.scorer.evaluate()

    def save(self, directory: Path) -> None:
        """Write the current model as a model directory."""
        with self.scorer.original_units():
            write_model(directory, self.model, self.started.tokenizer_directory, extra=self.config_keys())

    def config_keys(self) -> dict[str, Any]:
        """What `config.json` says of the head."""
        trained_positions = self.started.trained_positions
        if trained_positions is not None:
            longest = int(self.batches.sequences.lengths.max())
            trained_positions = max(trained_positions, longest)
        keys = head_description(self.task, self.plan.recipe, trained_positions)
        if self.scorer.scale is not None:
            keys[TARGET_SCALE_KEY] = vars(self.scorer.scale)
        if self.started.sentence_vectors is not None:
            keys[SENTENCE_KEY] = to_json(self.started.sentence_vectors)
        return keys

    def frozen_head(self) -> dict[str, Any] | None:
        """How the head that was solved on frozen features scores; None if none was."""
        path = self.folder.path / FROZEN_HEAD_NAME
        return read_versioned(path) if path.is_file() else None
