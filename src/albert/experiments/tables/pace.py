"""How fast a recipe learns on this machine: a few real updates, or, where they would take too long, its operations.

Speed does not depend on what the weights are, nor on what the tokens say.
"""

import statistics
import time
from dataclasses import dataclass
from typing import Literal

import torch

from albert.model.parameter_count import count_flops
from albert.model.training_flops import PASSES, pretraining_flops
from albert.model.training_memory import count_training_memory
from albert.optim.optimizer import build_optimizer
from albert.pretraining.batches import PretrainingBatch
from albert.pretraining.objective import pretraining_objective
from albert.pretraining.recipes import PretrainingRecipe
from albert.pretraining.untrained_model import untrained_model
from albert.runtime.free_memory import free_memory
from albert.runtime.matmul_rate import measured_matmul_rate
from albert.runtime.world import World
from albert.training.update import update

MEASURED_SECONDS = 1.0
"""Spent on trying, after an update that warms up."""
LONGEST_TRY = 3.0
"""Seconds; a micro-batch that would take longer is not tried."""
ASSUMED_EFFICIENCY = 0.5
"""Of matrix products alone, for what is not tried."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How fast, and in how much memory.

    Args:
        tokens: of an update.
        update_seconds: of an update.
        flops_per_second: useful operations.
        memory: bytes at the peak.
        measured: whether it was tried; else it follows from operations.
    """

    tokens: float
    update_seconds: float
    flops_per_second: float
    memory: int
    measured: bool

    def seconds_of(self, flops: float) -> float:
        """Of other work of the same model."""
        return flops / self.flops_per_second


def measure_pace(recipe: PretrainingRecipe, batch: PretrainingBatch, device: torch.device) -> Pace:
    """Take a few updates, of one micro-batch and of two.

    Args:
        recipe: with its precision and vocabulary settled.
        batch: one of its micro-batches.
        device: where to compute.
    """
    lengths, masked = list(batch.packed.lengths), batch.counts["masked_tokens"]
    flops, memory = pretraining_flops(recipe.model, lengths, masked), peak_memory(recipe, device)
    parts = recipe.batch_size / len(lengths)
    tokens = parts * batch.n_tokens
    rate = ASSUMED_EFFICIENCY * measured_matmul_rate(device, recipe.settled_precision)
    free = free_memory(device)
    if flops / rate > LONGEST_TRY or (free is not None and memory > free):
        return Pace(
            tokens=tokens, update_seconds=parts * flops / rate, flops_per_second=rate, memory=memory, measured=False
        )
    one, two = _update_seconds(recipe, batch.to(device), device)
    part = max(two - one, 0.25 * one)  # on a busy machine the difference of two medians may be anything
    return Pace(
        tokens=tokens,
        update_seconds=one + (parts - 1) * part,
        flops_per_second=flops / one,
        memory=memory,
        measured=True,
    )


def peak_memory(recipe: PretrainingRecipe, device: torch.device) -> int:
    """Bytes of an update at its peak."""
    kind: Literal["cpu", "cuda"] = "cuda" if device.type == "cuda" else "cpu"
    return count_training_memory(
        recipe.model,
        batch_size=recipe.micro_batch_size,
        sequence_length=recipe.sequences.max_length,
        device=kind,
        precision=recipe.settled_precision,
        optimizer=recipe.optimizer.kind,
        activation_checkpointing=recipe.activation_checkpointing,
    ).peak


def encoder_flops(recipe: PretrainingRecipe, tokens: float, length: float, learning: bool) -> float:
    """Operations of the encoder over tokens in sequences of some length, forward, or backward as well."""
    forward = count_flops(recipe.model, max(1, round(length))).forward
    return tokens * forward * (PASSES if learning else 1)


def _update_seconds(recipe: PretrainingRecipe, batch: PretrainingBatch, device: torch.device) -> tuple[float, float]:
    """Median seconds of an update of one micro-batch and of one of two.

    On a processor it is the time that the threads computed, so that what others do meanwhile does not count.
    """
    model = untrained_model(recipe).to(device).train()
    model.albert.encoder.checkpointing = recipe.activation_checkpointing
    optimizer = build_optimizer(recipe.optimizer, model)

    clock, shared_by = (time.process_time, torch.get_num_threads()) if device.type == "cpu" else (time.perf_counter, 1)

    def seconds(parts: int) -> float:
        started = clock()
        update(
            model,
            optimizer,
            [batch] * parts,
            pretraining_objective,
            learning_rate=1e-6,
            clip_norm=recipe.clip_norm,
            precision=recipe.settled_precision,
            device=device,
            here=World(),
        )
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return (clock() - started) / shared_by

    seconds(1)
    found: dict[int, list[float]] = {1: [], 2: []}
    while len(found[1]) < 3 or sum(map(sum, found.values())) < MEASURED_SECONDS:
        for parts, each in found.items():
            each.append(seconds(parts))
        if sum(map(sum, found.values())) > LONGEST_TRY:
            break
    return statistics.median(found[1]), statistics.median(found[2])
