"""Speed of architectures on this machine: encoder passes and pre-training steps, with random weights.

Speed does not depend on the values of the weights. Architectures are timed in turns, so that their ratios are
meaningful on a shared machine; each figure is a median over the turns."""

import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import torch

from albert.model.albert import AlbertForPreTraining
from albert.model.cost import count_training_memory, masked_tokens_of
from albert.optim.optimizer import build_optimizer
from albert.pretraining.batches import PretrainingBatch, Sample, collate, pretraining_objective
from albert.recipes.architecture import EncoderConfig
from albert.recipes.optimizer import OptimizerRecipe
from albert.runtime.devices import autocast, free_memory
from albert.runtime.environment import Precision, Ranks
from albert.runtime.errors import OutOfResources
from albert.runtime.progress import progress
from albert.training.update import update

MIN_ROUNDS = 3
MAX_ROUNDS = 15
MEASURED_TOKENS = 512
"""Tokens of a batch by default: four sequences of 128."""
Name = TypeVar("Name", bound=Hashable)


def interleaved_timing(
    runs: Mapping[Name, Callable[[], object]],
    device: torch.device,
    seconds: float,
    *,
    advance: Callable[[float], None] = lambda _: None,
) -> dict[Name, list[float]]:
    """Time several functions in turns, and return the seconds of every call.

    Args:
        seconds: how long to measure, within `MIN_ROUNDS` to `MAX_ROUNDS` rounds.
    """
    times: dict[Name, list[float]] = {name: [] for name in runs}
    rounds = 0
    spent = 0.0
    while rounds < MIN_ROUNDS or (spent < seconds and rounds < MAX_ROUNDS):
        for name, run in runs.items():
            times[name].append(_seconds(run, device))
            advance(times[name][-1])
        rounds = rounds + 1
        spent = sum(map(sum, times.values()))
    return times


@dataclass(frozen=True, kw_only=True)
class Throughput:
    """Median times of one architecture.

    Args:
        batch_size, sequence_length: of the batch, without padding.
        inference_seconds: of a forward pass of the encoder.
        training_seconds: of a pre-training step: forward, backward, clipping and LAMB.
    """

    batch_size: int
    sequence_length: int
    inference_seconds: float
    training_seconds: float
    rounds: int

    @property
    def tokens(self) -> int:
        return self.batch_size * self.sequence_length


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Throughput by name, with device, precision and number of threads."""

    results: dict[str, Throughput]
    device: str
    precision: Precision
    threads: int


def measure_throughput(
    architectures: Mapping[str, EncoderConfig],
    *,
    sequence_length: int,
    batch_size: int | None = None,
    device: torch.device,
    precision: Precision,
    seconds: float = 8.0,
) -> Measurement:
    """Time inference and training of architectures, in turns.

    Args:
        batch_size: sequences; None for `MEASURED_TOKENS` tokens, at least one sequence.
        seconds: how long to measure, after a warm-up round.

    Raises:
        OutOfResources: they do not fit into memory.
    """
    sequences = max(1, MEASURED_TOKENS // sequence_length) if batch_size is None else batch_size
    _refuse_too_large(architectures, sequence_length, sequences, device, precision)
    runs: dict[tuple[str, str], Callable[[], None]] = {}
    with progress("Warming up", len(architectures), "models") as bar:
        for name, config in architectures.items():
            for kind, run in _passes(config, sequence_length, sequences, device, precision).items():
                runs[name, kind] = run
                run()
            bar.advance()
    with progress("Measuring", seconds, "seconds") as bar:
        times = interleaved_timing(runs, device, seconds, advance=bar.advance)
    results = {
        name: Throughput(
            batch_size=sequences,
            sequence_length=sequence_length,
            inference_seconds=statistics.median(times[name, "inference"]),
            training_seconds=statistics.median(times[name, "training"]),
            rounds=len(times[name, "training"]),
        )
        for name in architectures
    }
    return Measurement(results=results, device=device.type, precision=precision, threads=torch.get_num_threads())


def _passes(
    config: EncoderConfig, length: int, sequences: int, device: torch.device, precision: Precision
) -> dict[str, Callable[[], None]]:
    batch = random_batch(config, length, sequences).to(device)
    model = AlbertForPreTraining(config).to(device)
    step = training_step(model, OptimizerRecipe(), precision, device)

    def inference() -> None:
        model.eval()
        with torch.inference_mode(), autocast(device, precision):
            model.albert(batch.packed)

    return {"inference": inference, "training": lambda: step([batch])}


def training_step(
    model: AlbertForPreTraining, recipe: OptimizerRecipe, precision: Precision, device: torch.device
) -> Callable[[Sequence[PretrainingBatch]], None]:
    """A function that makes an update over micro-batches."""
    optimizer = build_optimizer(recipe, model)

    def step(batches: Sequence[PretrainingBatch]) -> None:
        model.train()
        settings: dict[str, Any] = {"learning_rate": 1e-6, "clip_norm": 1.0, "precision": precision}
        update(model, optimizer, batches, pretraining_objective, **settings, device=device, ranks=Ranks())

    return step


def random_batch(config: EncoderConfig, length: int, sequences: int) -> PretrainingBatch:
    """A pre-training batch of random tokens without padding."""
    random = np.random.default_rng(0)
    samples = []
    for _ in range(sequences):
        ids = random.integers(0, config.vocab_size, length)
        positions = np.sort(random.permutation(length)[: masked_tokens_of(length)])
        samples.append(Sample(ids, np.zeros(length, np.int64), positions, ids[positions], int(random.integers(2))))
    return collate(samples)


def _seconds(run: Callable[[], object], device: torch.device) -> float:
    started = time.perf_counter()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started


def _refuse_too_large(
    architectures: Mapping[str, EncoderConfig], length: int, sequences: int, device: torch.device, precision: Precision
) -> None:
    free = free_memory(device)
    kind: Literal["cpu", "cuda"] = "cuda" if device.type == "cuda" else "cpu"
    batch: dict[str, Any] = {"batch_size": sequences, "sequence_length": length, "device": kind, "precision": precision}
    needed = sum(count_training_memory(config, **batch).peak for config in architectures.values())
    if free is not None and needed > free:
        raise OutOfResources(
            " and ".join(architectures),
            f"training on {sequences} × {length} tokens needs {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free",
            "take a smaller model, fewer sequences (--batch-size) or shorter ones (--max-length)",
        )
