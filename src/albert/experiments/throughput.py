"""How fast architectures are on this machine: encoder passes and whole pre-training steps, with random weights.

Speed does not depend on what the weights are. Several architectures take turns, so that a ratio between them means
something on a machine that others use too; each figure is a median over the turns.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from albert.model.albert import AlbertForPreTraining
from albert.model.config import AlbertConfig
from albert.model.training_memory import count_training_memory
from albert.optim.optimizer import build_optimizer
from albert.optim.optimizer_recipe import OptimizerRecipe
from albert.pretraining.batches import PretrainingBatch, collate
from albert.pretraining.ngram_masking import MaskingRecipe
from albert.pretraining.objective import pretraining_objective
from albert.pretraining.samples import Sample
from albert.runtime.devices import autocast
from albert.runtime.errors import OutOfResources
from albert.runtime.free_memory import free_memory
from albert.runtime.precisions import Precision
from albert.runtime.progress import progress
from albert.runtime.world import World
from albert.training.update import update

FEWEST_ROUNDS, MOST_ROUNDS = 3, 15
MEASURED_TOKENS = 512
"""Tokens of a batch when nobody says how many sequences: four sequences of 128."""


@dataclass(frozen=True, kw_only=True)
class Throughput:
    """Median times of one architecture.

    Args:
        batch_size, sequence_length: the batch: so many sequences of so many tokens, without padding.
        inference_seconds: of a forward pass of the encoder.
        training_seconds: of a pre-training step: forward, backward, clipping and LAMB.
        rounds: over how many the medians are.
    """

    batch_size: int
    sequence_length: int
    inference_seconds: float
    training_seconds: float
    rounds: int

    @property
    def tokens(self) -> int:
        """Tokens of the batch."""
        return self.batch_size * self.sequence_length


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Throughput by the names that were given, and under which circumstances."""

    results: dict[str, Throughput]
    device: str
    precision: Precision
    threads: int


def measure_throughput(
    architectures: Mapping[str, AlbertConfig],
    *,
    sequence_length: int,
    batch_size: int | None = None,
    device: torch.device,
    precision: Precision,
    seconds: float = 8.0,
) -> Measurement:
    """Time them in turns.

    Args:
        architectures: what to measure, by name.
        sequence_length: tokens of a sequence.
        batch_size: sequences; None: as many as make `MEASURED_TOKENS`, at least one.
        device: where to compute.
        precision: "bf16" for mixed precision.
        seconds: how long to measure, after a turn to warm up; `FEWEST_ROUNDS` to `MOST_ROUNDS` turns are taken.

    Raises:
        OutOfResources: weights, gradients, moments and activations are more than the memory that is free.
    """
    sequences = max(1, MEASURED_TOKENS // sequence_length) if batch_size is None else batch_size
    _refuse_too_large(architectures, sequence_length, sequences, device, precision)
    with progress("Warming up", len(architectures), "models") as bar:
        passes: dict[str, dict[str, Callable[[], None]]] = {}
        for name, config in architectures.items():
            passes[name] = _passes(config, sequence_length, sequences, device, precision)
            for run in passes[name].values():
                run()
            bar.advance()
    times: dict[tuple[str, str], list[float]] = {}
    rounds, spent = 0, 0.0
    with progress("Measuring", seconds, "seconds") as bar:
        while rounds < FEWEST_ROUNDS or (spent < seconds and rounds < MOST_ROUNDS):
            for name, runs in passes.items():
                for kind, run in runs.items():
                    times.setdefault((name, kind), []).append(_seconds(run, device))
                    bar.advance(times[name, kind][-1])
            rounds, spent = rounds + 1, sum(map(sum, times.values()))
    results = {
        name: Throughput(
            batch_size=sequences,
            sequence_length=sequence_length,
            inference_seconds=statistics.median(times[name, "inference"]),
            training_seconds=statistics.median(times[name, "training"]),
            rounds=rounds,
        )
        for name in architectures
    }
    return Measurement(results=results, device=device.type, precision=precision, threads=torch.get_num_threads())


def _passes(
    config: AlbertConfig, length: int, sequences: int, device: torch.device, precision: Precision
) -> dict[str, Callable[[], None]]:
    batch = random_batch(config, length, sequences).to(device)
    model = AlbertForPreTraining(config).to(device)
    optimizer = build_optimizer(OptimizerRecipe(), model)

    def inference() -> None:
        model.eval()
        with torch.inference_mode(), autocast(device, precision):
            model.albert(batch.packed)

    def training() -> None:
        model.train()
        update(
            model,
            optimizer,
            [batch],
            pretraining_objective,
            learning_rate=1e-4,
            clip_norm=1.0,
            precision=precision,
            device=device,
            here=World(),
        )

    return {"inference": inference, "training": training}


def random_batch(config: AlbertConfig, length: int, sequences: int) -> PretrainingBatch:
    """Random tokens without padding, of which the usual share is to be predicted."""
    draws = np.random.default_rng(0)
    masked = max(1, round(MaskingRecipe().share * length))
    samples = []
    for _ in range(sequences):
        ids = draws.integers(0, config.vocab_size, length)
        positions = np.sort(draws.permutation(length)[:masked])
        samples.append(Sample(ids, np.zeros(length, np.int64), positions, ids[positions], int(draws.integers(2))))
    return collate(samples)


def _seconds(run: Callable[[], None], device: torch.device) -> float:
    started = time.perf_counter()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started


def _refuse_too_large(
    architectures: Mapping[str, AlbertConfig], length: int, sequences: int, device: torch.device, precision: Precision
) -> None:
    free = free_memory(device)
    needed = 0
    for config in architectures.values():
        kind = "cuda" if device.type == "cuda" else "cpu"
        needed += count_training_memory(
            config, batch_size=sequences, sequence_length=length, device=kind, precision=precision
        ).peak
    if free is not None and needed > free:
        raise OutOfResources(
            " and ".join(architectures),
            f"training on {sequences} × {length} tokens needs {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free",
            "take a smaller model, fewer sequences (--batch-size) or shorter ones (--sequence-length)",
        )
