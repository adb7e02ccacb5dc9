"""What a fine-tuning run on a task trains: the model with its head, its scores, the choice of the best, its files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from albert.checkpoints.model_directory import write_model
from albert.checkpoints.sentence_transformers import SENTENCE_KEY
from albert.finetuning.data import TaskBatches
from albert.finetuning.evaluation import Evaluation
from albert.finetuning.model import StartedModel, head_description
from albert.finetuning.scoring import Scorer
from albert.finetuning.selection import BestModel, evaluations_without_gain
from albert.finetuning.work import FinetuningTask
from albert.runtime.files import new_directory
from albert.runtime.json_files import read_versioned, to_json
from albert.tasks.declared import DeclaredTask
from albert.tasks.metrics import TARGET_SCALE_KEY
from albert.training.run_folder import RunFolder
from albert.training.update import Batch, Objective, Sums

FROZEN_HEAD_NAME = "frozen_head.json"
"""In a run's folder: how the head that was solved on frozen features scores."""


@dataclass(kw_only=True)
class TaskWork(FinetuningTask):
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
