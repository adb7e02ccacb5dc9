"""What the training loop is told by a recipe."""

from functools import partial

import torch

from albert.model.training_flops import pretraining_flops
from albert.pretraining.batches import PretrainingBatch
from albert.pretraining.recipes import PretrainingRecipe
from albert.runtime.matmul_rate import measured_matmul_rate
from albert.training.machine_figures import Meter
from albert.training.objective import Batch
from albert.training.plan import TrainingPlan


def plan_of(recipe: PretrainingRecipe) -> TrainingPlan:
    """How long and how often."""
    total = recipe.schedule.total_steps
    return TrainingPlan(
        total_steps=total,
        max_tokens=recipe.max_tokens,
        max_minutes=recipe.max_minutes,
        seed=recipe.seed,
        clip_norm=recipe.clip_norm,
        on_divergence=recipe.on_divergence,
        spike_deviations=recipe.spike_deviations,
        max_rollbacks=recipe.max_rollbacks,
        precision=recipe.settled_precision,
        log_every=recipe.log_every,
        evaluate_every=recipe.evaluate_every or max(1, total // 10),
        checkpoint_every=recipe.checkpoint_every,
        checkpoint_minutes=recipe.checkpoint_minutes,
        keep_checkpoints=recipe.keep_checkpoints,
        workers=recipe.workers,
    )


def meter_of(recipe: PretrainingRecipe, place: torch.device) -> Meter:
    """What tells the useful work of a batch, and what this device could do."""

    def flops(batch: Batch) -> float:
        assert isinstance(batch, PretrainingBatch)
        return pretraining_flops(recipe.model, batch.packed.lengths, batch.counts["masked_tokens"])

    return Meter(flops, partial(measured_matmul_rate, place, recipe.settled_precision))
