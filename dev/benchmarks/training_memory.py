"""Predicted and measured peak memory of pre-training steps, over models, lengths, precisions and checkpointing.

    python dev/benchmarks/training_memory.py

Each case runs in its own process: it imports everything, trains the smallest model (libraries, threads), and then makes
two steps of two micro-batches each; measured is the largest growth of the resident set. The C library keeps freed
memory by default; with MALLOC_MMAP_THRESHOLD_=65536 blocks from 64 kB on are unmapped when they are freed.
"""

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import harness
import torch

from albert.model.albert import AlbertForPreTraining
from albert.model.config import PRESETS, AlbertConfig
from albert.model.cost import count_training_memory
from albert.optim.optimizer import OptimizerRecipe, build_optimizer
from albert.paper.throughput import random_batch
from albert.pretraining.batches import pretraining_objective
from albert.pretraining.recipe import RECIPES
from albert.runtime.environment import Precision, Ranks
from albert.training.update import update

CPU = torch.device("cpu")
MODELS = {"small": RECIPES["small"].model, **PRESETS}
STEPS = 2
COLUMNS = ("model", "length", "batch_size", "precision", "activation_checkpointing", "allocator", "predicted_mb",
           "measured_mb", "error_percent")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Compare predicted and measured memory."""

    models: tuple[str, ...] = ("small", "albert-base", "bert-base")
    """Presets, or "small", the model of that recipe."""
    lengths: tuple[int, ...] = (128, 512)
    tokens: int = 2048
    """Tokens of a micro-batch."""
    precisions: tuple[Precision, ...] = ("fp32", "bf16")
    output: Path = Path("results/benchmark-training-memory.csv")


class Case(NamedTuple):
    """What one process measures."""

    model: str
    length: int
    batch_size: int
    precision: Precision
    activation_checkpointing: bool


def measure(args: Benchmark) -> Iterator[list[object]]:
    """A row for each case."""
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"
    grid = itertools.product(args.models, args.lengths, args.precisions, (False, True))
    cases = [Case(model, length, max(1, args.tokens // length), *rest) for model, length, *rest in grid]
    for case, measured in zip(cases, harness.in_new_processes(growth, cases), strict=True):
        predicted = count_training_memory(
            MODELS[case.model], batch_size=case.batch_size, sequence_length=case.length, precision=case.precision,
            activation_checkpointing=case.activation_checkpointing,
        ).peak  # fmt: skip
        figures = [f"{number / 1e6:.1f}" for number in (predicted, measured)]
        yield [*case, "exact", *figures, f"{100 * (predicted / measured - 1):+.1f}"]


def growth(case: Case) -> int:
    """The largest growth of this process's resident set in bytes."""
    smallest = replace(MODELS["small"], num_hidden_layers=1, vocab_size=100)
    few = case._replace(length=16, batch_size=1)
    return harness.memory_growth(partial(_train, smallest, few), partial(_train, MODELS[case.model], case))


def _train(config: AlbertConfig, case: Case) -> None:
    model = AlbertForPreTraining(config).train()
    model.albert.encoder.checkpointing = case.activation_checkpointing
    optimizer = build_optimizer(OptimizerRecipe(), model)
    for _ in range(STEPS):
        batches = [random_batch(config, case.length, case.batch_size) for _ in range(2)]
        update(model, optimizer, batches, pretraining_objective, learning_rate=1e-4, clip_norm=1.0,
               precision=case.precision, device=CPU, ranks=Ranks())  # fmt: skip


main = harness.script(Benchmark, COLUMNS, measure, same=COLUMNS[:6])

if __name__ == "__main__":
    main()
