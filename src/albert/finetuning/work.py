"""What every fine-tuning run trains with: a rate that rises and falls linearly, and a model that is written once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.optim import Optimizer

from albert.finetuning.evaluation import ComputeOptions
from albert.finetuning.options import LearningPlan
from albert.finetuning.run_record import FinetuningResult, FinetuningSettings, optimizer_of
from albert.optim.optimizer import build_optimizer
from albert.optim.recipe import OptimizerRecipe, warmup_then_linear
from albert.runtime.distributed import wait_for_all
from albert.runtime.environment import Ranks
from albert.runtime.files import remove_directory
from albert.runtime.json_files import read_versioned
from albert.training.logging import TrainingPlan
from albert.training.metric_logger import Log
from albert.training.run_folder import RunFolder
from albert.training.self_check import check_attention_kernel
from albert.training.task import TrainingTask

Announce = Callable[[Mapping[str, Any]], None]
"""Shows a user how a run trains, before its first update: the values of `LearningPlan.figures`, and `before_training`,
lines about what was computed so far, and `frozen`, whether only the head is learned."""


@dataclass(kw_only=True)
class FinetuningTask(TrainingTask):
    """Fine-tuning by a plan."""

    plan: LearningPlan
    settings: FinetuningSettings
    compute: ComputeOptions
    optimizer_recipe: OptimizerRecipe = field(init=False)
    optimizer: Optimizer = field(init=False)
    evaluates: bool = field(init=False)
    log: Log = field(init=False)

    def __post_init__(self) -> None:
        self.optimizer_recipe = optimizer_of(self.settings, self.plan.recipe)
        self.optimizer = build_optimizer(self.optimizer_recipe, self.module)
        self.log = self.settings.log
        self.evaluates = self.settings.evaluation_interval is not None

    @property
    def training_plan(self) -> TrainingPlan:
        """The settings of the training loop."""
        return TrainingPlan(
            total_steps=self.plan.updates,
            seed=self.settings.seed,
            precision=self.compute.precision,
            evaluate_every=self.settings.evaluation_interval,
            checkpoint_every=self.settings.checkpoint_every,
            keep_checkpoints=1,
            workers=self.settings.workers,
        )

    def learning_rate(self, step: int, budget_used: float) -> float:
        peak = self.optimizer_recipe.learning_rate
        return warmup_then_linear(step, peak, self.plan.warmup_updates, self.plan.updates)

    def start(self, ranks: Ranks, announce: Announce | None, before_training: Sequence[str] = ()) -> None:
        """Announce the training, and check the attention kernel of a GPU on the first batch."""
        if announce is not None and ranks.is_first:
            rate = self.optimizer_recipe.learning_rate
            figures = self.plan.figures(rate, self.compute.precision, self.device.type, self.workers)
            announce(figures | {"before_training": tuple(before_training), "frozen": self.settings.frozen})
        if self.device.type == "cuda":
            batch = self.source.micro_batches(0, ranks.rank, ranks.size)[0]
            check = check_attention_kernel(self.module, self.loss, batch, self.compute.precision, self.device, ranks)
            self.self_checks = [check]


def finished(folder: RunFolder, ranks: Ranks, already_complete: bool) -> FinetuningResult:
    """The result of a complete run, without what only a run that goes on needs."""
    if ranks.is_first:  # also of a run that was complete before: its process may have died before it removed them
        for directory in (folder.checkpoints_path, folder.best_path):
            if directory.is_dir():
                remove_directory(directory)
    wait_for_all(ranks)
    report = read_versioned(folder.results_path)
    return FinetuningResult(report["scores"], report, folder.model_path, already_complete)
