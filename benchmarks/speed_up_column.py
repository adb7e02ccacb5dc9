"""The speed-up column of the paper's Table 2 on this machine: sequences a second in training, BERT-large as 1.

The paper measured on TPUs, many of them at once, where sharing parameters also saves what they send to each other; one
machine shows what is left of it. Batches there have 4096 sequences, which no small machine computes at a time: a step
is so many small batches, whose gradients add up, and one update by LAMB. Both parts are timed and put together so.

One model at a time is in memory; in every round each of them is built and measured, and the ratio is taken within the
round, so that other users of the machine change both sides alike.

    python benchmarks/speed_up_column.py --rounds 3
"""

import albert  # noqa: F401 (before torch, which reads how its threads wait when it is loaded)

# isort: split
import gc
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from harness import report, seconds

from albert.cli.options import parse
from albert.experiments.sizes import random_batch
from albert.model.albert import AlbertForPreTraining
from albert.model.config import PRESETS, AlbertConfig
from albert.model.cost import pretraining_flops
from albert.optim.optimizer import OptimizerRecipe, build_optimizer
from albert.pretraining.batches import pretraining_objective
from albert.runtime.devices import autocast, pick_device
from albert.runtime.environment import Precision
from albert.runtime.progress import progress

PAPER = {"bert-base": 4.7, "bert-large": 1.0, "albert-base": 5.6, "albert-large": 1.7, "albert-xlarge": 0.6,
         "albert-xxlarge": 0.3}  # fmt: skip
"""Lan et al. 2019, Table 2, "Speedup"."""
PAPER_BATCH = 4096
COLUMNS = ("length", "batch_size", "precision", "model", "gradient_seconds", "update_seconds", "sequences_per_second",
           "relative", "least", "most", "relative_by_work", "paper")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Measure the speed-up column.

    Example: python benchmarks/speed_up_column.py --lengths 512 --tokens 512
    """

    lengths: tuple[int, ...] = (128, 512)
    tokens: int = 1024
    """Of a batch: as many sequences as that makes, at least one."""
    rounds: int = 3
    precision: Precision = "bf16"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    models: tuple[str, ...] = tuple(PAPER)
    """Presets; BERT-large is what the others are compared with."""
    output: Path = Path("results/benchmark-speed-up-column.csv")


class Seconds(NamedTuple):
    """Of the gradients of one batch, and of one update."""

    gradients: float
    update: float

    def of_a_step(self, batch_size: int) -> float:
        """A step of the paper's batch."""
        return PAPER_BATCH / batch_size * self.gradients + self.update


def main(arguments: list[str]) -> None:
    """Run and report."""
    asked = parse(Benchmark, arguments, "speed_up_column.py")
    device = pick_device(asked.device)
    models = dict.fromkeys((*asked.models, "bert-large"))
    found: dict[tuple[int, str], list[Seconds]] = {(length, name): [] for length in asked.lengths for name in models}
    with progress("Measuring", asked.rounds * len(models), "models") as bar:
        for _ in range(asked.rounds):
            for name in models:
                batches = [(length, max(1, asked.tokens // length)) for length in asked.lengths]
                measured = measure(PRESETS[name], batches, device, asked.precision)
                for length, took in zip(asked.lengths, measured, strict=True):
                    found[length, name].append(took)
                bar.advance()
    _report(asked, found)


def measure(
    config: AlbertConfig, batches: Sequence[tuple[int, int]], device: torch.device, precision: Precision
) -> list[Seconds]:
    """Build a model, time a step for each length and number of sequences, and let go of it."""
    model = AlbertForPreTraining(config).train().to(device)
    optimizer = build_optimizer(OptimizerRecipe(), model)

    def gradients(length: int, sequences: int) -> Callable[[], None]:
        batch = random_batch(config, length, sequences).to(device)

        def run() -> None:
            with autocast(device, precision):
                sums = pretraining_objective(model, batch)
            torch.stack([loss / sequences for loss in sums.losses.values()]).sum().backward()

        return run

    gradients(16, 1)()  # gradients and moments come into being
    optimizer.step()
    found = []
    for length, sequences in batches:
        run = gradients(length, sequences)
        found.append(Seconds(seconds(run, device), seconds(optimizer.step, device)))
    del model, optimizer
    gc.collect()
    return found


def _report(asked: Benchmark, found: dict[tuple[int, str], list[Seconds]]) -> None:
    rows = []
    for (length, name), rounds in found.items():
        batch_size = max(1, asked.tokens // length)
        steps, large = ([each.of_a_step(batch_size) for each in found[length, other]] for other in (name, "bert-large"))
        ratios = sorted(theirs / ours for ours, theirs in zip(steps, large, strict=True))
        work = _flops("bert-large", length) / _flops(name, length)
        relative = [f"{ratio:.2f}" for ratio in (statistics.median(ratios), ratios[0], ratios[-1], work)]
        parts = [f"{statistics.median(part):.3f}" for part in zip(*rounds, strict=True)]
        rate = f"{PAPER_BATCH / statistics.median(steps):.3g}"
        rows.append([length, batch_size, asked.precision, name, *parts, rate, *relative, PAPER.get(name, "")])
    report(asked.output, COLUMNS, rows, same=COLUMNS[:4])


def _flops(name: str, length: int) -> int:
    return pretraining_flops(PRESETS[name], [length], round(0.15 * length))


if __name__ == "__main__":
    main(sys.argv[1:])
