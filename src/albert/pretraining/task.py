"""What a pre-training run trains: its model, batches, loss, evaluation and files."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from albert.checkpoints.model_directory import write_model
from albert.checkpoints.sentence_transformers import SENTENCE_KEY
from albert.model.albert import AlbertForPreTraining, set_dropout
from albert.model.cost import pretraining_flops
from albert.pretraining.batches import PretrainingBatch, pretraining_objective
from albert.pretraining.evaluation import HeldOutSamples, HeldOutTests
from albert.pretraining.fixed_shape import FixedBatch, fixed_objective
from albert.pretraining.saved_run import StartRecord
from albert.recipes.pretraining import PretrainingRecipe, dropout_at
from albert.runtime.devices import measured_matmul_rate
from albert.runtime.distributed import gather_weights
from albert.runtime.environment import Ranks
from albert.runtime.json_files import read_journal
from albert.training.logging import MetricLogger, TrainingPlan
from albert.training.run_folder import RunFolder
from albert.training.same_run import Run
from albert.training.state import TrainingState, training_tensors, write_training_state
from albert.training.task import TrainingTask
from albert.training.update import Batch, Sums


def training_plan(recipe: PretrainingRecipe) -> TrainingPlan:
    """The settings of the training loop, of a resolved recipe."""
    total_steps = recipe.schedule.total_steps
    return TrainingPlan(
        total_steps=total_steps,
        max_tokens=recipe.max_tokens,
        max_minutes=recipe.max_minutes,
        seed=recipe.seed,
        clip_norm=recipe.clip_norm,
        on_divergence=recipe.on_divergence,
        max_rollbacks=recipe.max_rollbacks,
        precision=recipe.resolved_precision,
        log_every=recipe.log_every,
        evaluate_every=recipe.evaluate_every or max(1, total_steps // 10),
        checkpoint_every=recipe.checkpoint_every,
        checkpoint_minutes=recipe.checkpoint_minutes,
        keep_checkpoints=recipe.keep_checkpoints,
        workers=recipe.workers,
    )


@dataclass(kw_only=True)
class PretrainingTask(TrainingTask):
    """Masked tokens and sentence order (paper §3.1) on the samples of prepared corpora."""

    recipe: PretrainingRecipe
    model: AlbertForPreTraining
    """The unsharded model, which is evaluated and saved; the trained module itself, unless that is sharded."""
    folder: RunFolder
    tokenizer_directory: Path
    held_out: HeldOutSamples | HeldOutTests | None
    """None: nothing is held out, or this is not the first rank."""
    start: StartRecord | None
    """The trained model that the run started from; None: random weights."""
    ranks: Ranks
    warmup_ended_at: int | None = None
    """The update with which the budget ended the warm-up."""

    def learning_rate(self, step: int, budget_used: float) -> float:
        schedule = self.recipe.schedule
        if self.warmup_ended_at is None and schedule.budget_ends_warmup(step, budget_used):
            self.warmup_ended_at = step
            steps = f"{step:,} of {schedule.warmup_steps:,} steps"
            self.print_note(f"the warm-up ends after {steps}, because a tenth of the budget is used")
        return schedule.learning_rate(step, self.recipe.optimizer.learning_rate, budget_used)

    def before_step(self, step: int) -> Mapping[str, float]:
        """Set the dropout of this update."""
        changes = self.recipe.dropout_changes
        probability = dropout_at(changes, step)
        if probability is None:
            return {}
        assert isinstance(self.module, AlbertForPreTraining)
        set_dropout(self.module, probability)
        return {"dropout": probability} if (step, probability) in changes else {}

    def loss(self, model: nn.Module, batch: Batch) -> Sums:
        return pretraining_objective(model, batch) if self.called is None else fixed_objective(model, batch)

    def gather(self) -> None:
        if self.module is not self.model:
            gather_weights(self.module, self.model, self.ranks)

    def evaluate(self) -> dict[str, float]:
        """Held-out figures, with a warning if two evaluations in a row are no better than the baseline.

        There is no accuracy if all held-out tokens are unknown: such tokens are never masked.
        """
        figures = self._held_out_figures()
        both = [each for each in (self.last_evaluation(), figures) if "masked_tokens_accuracy" in each]
        if len(both) == 2 and all(f["masked_tokens_accuracy"] <= f["masked_tokens_baseline"] for f in both):
            what = f"masked tokens, held out: {figures['masked_tokens_accuracy']:.1%} correct"
            hint = "still no better than a constant prediction; a lower rate or a longer warm-up may help"
            self.print_note(f"{what}, {hint}")
        return figures

    def _held_out_figures(self) -> dict[str, float]:
        assert self.held_out is not None
        return self.held_out.evaluate(self.model.to(self.device), self.device, self.recipe.resolved_precision)

    def last_evaluation(self) -> dict[str, Any]:
        """The figures of the last evaluation in the journal; empty if there is none."""
        records = [record for record in read_journal(self.folder.journal_path) if record["event"] == "evaluation"]
        if not records:
            return {}
        return {name: v for name, v in records[-1].items() if name not in ("event", "time", "step", "seconds")}

    def save(self, directory: Path) -> None:
        write_model(directory, self.model, self.tokenizer_directory, extra=self.extra_config())

    def extra_config(self) -> dict[str, Any]:
        """Keys of `config.json` besides the architecture."""
        trained_positions = self.start.trained_positions if self.start is not None else 0
        keys: dict[str, Any] = {
            "sentence_objective": self.recipe.sequences.objective,
            # Later positions are untrained.
            "max_sequence_length": max(self.recipe.sequences.max_length, trained_positions),
        }
        if self.start is not None and self.start.sentence_vectors is not None:
            keys[SENTENCE_KEY] = self.start.sentence_vectors
        return keys

    def flops(self, batch: Batch) -> float:
        assert isinstance(batch, PretrainingBatch | FixedBatch)
        return pretraining_flops(self.recipe.model, batch.lengths, batch.counts["masked_tokens"])

    def matmul_rate(self) -> float:
        return measured_matmul_rate(self.device, self.recipe.resolved_precision)

    def write_first_checkpoint(self, start: StartRecord, run: Run) -> None:
        """Evaluate the weights of the trained model, and save them as the checkpoint of step 0."""
        for line in start.lines():
            self.print_note(line)
        if self.held_out is not None:
            self.model.eval()
            figures = self._held_out_figures()
            logger = MetricLogger(self.folder, 0, active=True)
            logger.write("evaluation", 0, **figures, tokens=0)
            logger.close()

        def write(directory: Path) -> None:
            self.save(directory)
            tensors = training_tensors(self.model, self.optimizer, self.ranks)
            write_training_state(directory, tensors, TrainingState(identity=run.identity))

        self.folder.save_checkpoint(0, write, self.recipe.keep_checkpoints)

    def print_note(self, note: str) -> None:
        """Print a note, on the first rank."""
        if self.ranks.is_first:
            print(f"albert: note: {note}", file=sys.stderr)
