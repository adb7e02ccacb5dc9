"""What a fine-tuning run trains by its recipe, and what it returns: every run; an encoder with a head on a task."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from albert.checkpoints.model_directory import write_model
from albert.checkpoints.sentence_transformers import SENTENCE_KEY
from albert.finetuning.batches import TaskBatches
from albert.finetuning.evaluation import ComputeOptions, Evaluation
from albert.finetuning.fill_in import Recipe
from albert.finetuning.initial_model import InitialModel
from albert.finetuning.opened_model import head_description
from albert.finetuning.scoring import Scorer
from albert.finetuning.selection import BestModel, evaluations_without_gain
from albert.optim.optimizer import build_optimizer
from albert.recipes.finetuning import FinetuningSettings
from albert.runtime.environment import Ranks
from albert.runtime.files import new_directory
from albert.runtime.json_files import read_versioned, to_json
from albert.tasks.declared import DeclaredTask
from albert.tasks.metrics import TARGET_SCALE_KEY
from albert.training.metric_logger import Log
from albert.training.run_folder import RunFolder
from albert.training.self_check import check_attention_kernel
from albert.training.task import TrainingTask
from albert.training.update import Batch, Objective, Sums

PROBE_NAME = "frozen_head.json"
"""In a run's folder: how the head that was solved on frozen features scores."""
Announce = Callable[[Mapping[str, Any]], None]
"""Shows a user how a run trains, before its first update: the values of `Recipe.figures`, and `before_training`,
lines about what was computed so far, and `frozen`, whether only the head is learned."""


@dataclass(frozen=True)
class FinetuningResult:
    """Scores on the development set, the content of `results.json`, and the model directory."""

    scores: Mapping[str, float | None]
    report: Mapping[str, Any] = field(repr=False)
    model_directory: Path
    already_complete: bool = False


@dataclass(kw_only=True)
class FinetuningTask(TrainingTask):
    """Fine-tuning by a recipe."""

    recipe: Recipe
    compute: ComputeOptions
    optimizer: Optimizer = field(init=False)
    evaluates: bool = field(init=False)
    log: Log = field(init=False)

    def __post_init__(self) -> None:
        settings = self.recipe.settings
        self.optimizer = build_optimizer(self.recipe.optimizer, self.module)
        self.log = settings.log
        self.evaluates = settings.evaluation_interval is not None

    def learning_rate(self, step: int, budget_used: float) -> float:
        return self.recipe.learning_rate(step)

    def announce(self, announce: Announce | None, ranks: Ranks, before_training: Sequence[str] = ()) -> None:
        """Announce the training, and check the attention kernel of a GPU on the first batch."""
        if announce is not None and ranks.is_first:
            figures = self.recipe.figures(self.device.type, self.workers)
            more = {"before_training": tuple(before_training), "frozen": self.recipe.settings.frozen}
            announce(figures | more)
        if self.device.type == "cuda":
            batch = self.source.micro_batches(0, ranks.rank, ranks.size)[0]
            check = check_attention_kernel(self.module, self.loss, batch, self.compute.precision, self.device, ranks)
            self.self_checks = [check]


# --------------------------------------------------------------------------------------------------------------------
# An encoder with a head, on a task.


@dataclass(kw_only=True)
class TaskTraining(FinetuningTask):
    """An encoder and a head on a task, with its scores and the choice of the best model."""

    initial: InitialModel
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
    def task(self) -> DeclaredTask:
        return self.scorer.task

    @property
    def settings(self) -> FinetuningSettings:
        return self.recipe.settings

    @property
    def model(self) -> nn.Module:
        """The model with its head, which is evaluated and saved; `module` is the form of it that is trained."""
        return self.initial.model

    def loss(self, model: nn.Module, batch: Batch) -> Sums:
        return self.objective(model, batch)

    def evaluate(self) -> dict[str, float]:
        """The scores on the development set; the model is kept if they are the best so far."""
        with self.scorer.original_units():
            self.latest = self.scorer.evaluate()
        self._keep_if_best(self.latest.scores)
        return self.latest.defined_scores

    def offer_probe(self) -> None:
        """Before the first update: keep the model with its solved head as the best so far, if the best is kept."""
        solved = self.frozen_head()
        if solved is not None:
            self._keep_if_best(solved["scores"], is_probe=True)

    def _keep_if_best(self, scores: Mapping[str, float | None], is_probe: bool = False) -> None:
        if self.best is not None and self.best.is_improved_by(scores):
            with new_directory(self.best.directory, replace=True) as directory:
                self.save(directory)
                self.best.write_score(directory, scores, is_probe)

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
            self.scorer.scale.bake(self.model.classifier)
        if self.best is None and self.latest is not None:
            return self.latest
        return self.scorer.evaluate()

    def save(self, directory: Path) -> None:
        """Write the current model as a model directory."""
        with self.scorer.original_units():
            write_model(directory, self.model, self.initial.tokenizer_directory, extra=self.config_keys())

    def config_keys(self) -> dict[str, Any]:
        """What `config.json` says of the head."""
        trained_positions = self.initial.trained_positions
        if trained_positions is not None:
            longest = int(self.batches.sequences.lengths.max())
            trained_positions = max(trained_positions, longest)
        keys = head_description(self.task, self.recipe.values, trained_positions)
        if self.scorer.scale is not None:
            keys[TARGET_SCALE_KEY] = vars(self.scorer.scale)
        if self.initial.sentence_vectors is not None:
            keys[SENTENCE_KEY] = to_json(self.initial.sentence_vectors)
        return keys

    def frozen_head(self) -> dict[str, Any] | None:
        """How the head that was solved on frozen features scores; None if none was."""
        path = self.folder.path / PROBE_NAME
        return read_versioned(path) if path.is_file() else None
