"""Tokens per second on a CPU by number of workers, on an idle machine and with one core used by another process.

    python dev/benchmarks/workers.py --rounds 9

Pre-training of two small models, fine-tuning and inference of a small model, on random tokens. "workers" are threads of
the package that compute a part of a batch each, with one thread of torch; "threads" is one worker for which torch
divides every operation (inference has workers alone). All systems of a case alternate in one process, first on the idle
machine, then while another process uses one core. Prints and appends a row for each case, load and system, with the
slowdown from the idle machine, and draws the rates.

The machine must be otherwise idle. Measured is elapsed time, because waiting for a core counts.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import harness
import numpy as np
import torch
from pictures import draw
from torch import nn

from albert.checkpoints.model_directory import open_model
from albert.finetuning.batches import TaskBatches
from albert.finetuning.objective import TaskLoss
from albert.inference.engine import PackedModel
from albert.model.albert import AlbertForPreTraining
from albert.optim.optimizer import build_optimizer
from albert.pretraining.batches import pretraining_objective
from albert.pretraining.throughput import random_batch
from albert.recipes.optimizer import OptimizerRecipe
from albert.recipes.pretraining import PAPER_BASE
from albert.runtime.devices import fastest_precision
from albert.runtime.environment import Precision, Ranks
from albert.tasks.examples import Sequences
from albert.tasks.single_label import SingleLabel
from albert.training.update import Batch, Objective, update

CPU = torch.device("cpu")
COLUMNS = ("case", "precision", "load", "system", "number", "rounds", "tokens_per_second", "slower_than_quiet")
System = tuple[str, int]  # workers or threads, and how many


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Measure workers."""

    model: Path = Path("models/tiny")
    """The model for fine-tuning and inference."""
    hidden_sizes: tuple[int, ...] = (128, 256)
    """Widths of the pre-trained models: four layers, 32 sequences of 64 or 128 tokens."""
    precision: Precision | None = None
    """Of pre-training and inference; None: the default of this processor. Fine-tuning is in fp32."""
    rounds: int = 9
    output: Path = Path("results/benchmark-workers.csv")
    picture: Path = Path("results/benchmark-workers.png")


@dataclass(frozen=True)
class Case:
    """A case: `systems` do the same work on `tokens` tokens."""

    name: str
    precision: str
    tokens: int
    systems: dict[System, Callable[[], object]]


def measure(args: Benchmark) -> Iterator[dict[str, object]]:
    """A row for each case, load and system, and the picture."""
    cores = torch.get_num_threads()
    precision = args.precision or fastest_precision(CPU)
    numbers = sorted({1, cores, *(2**power for power in range(1, cores.bit_length()) if 2**power <= cores)})
    cases = [_pretraining(width, precision, numbers) for width in args.hidden_sizes]
    cases += [_finetuning(args.model, numbers), _inference(args.model, precision, numbers)]
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for case in cases:
        seconds = {"quiet": harness.interleave(case.systems, args.rounds)}
        with harness.spinning_process():
            seconds["one core taken"] = harness.interleave(case.systems, args.rounds)
        panel = panels[case.name] = {}
        for load, system in product(seconds, case.systems):
            took, before = (statistics.median(seconds[name][system]) for name in (load, "quiet"))
            rate = round(case.tokens / took)
            ways = {way for way, _ in case.systems} if system == ("workers", 1) else {system[0]}
            for way in sorted(ways, reverse=True):  # one thread is one worker
                panel.setdefault(f"{way}, {load}", []).append((system[1], rate))
            yield {"case": case.name, "precision": case.precision, "load": load, "system": system[0],
                   "number": system[1], "rounds": args.rounds, "tokens_per_second": rate,
                   "slower_than_quiet": f"{took / before:.2f}"}  # fmt: skip
    torch.set_num_threads(cores)
    draw(args.picture, panels, "workers, or threads of one worker", "tokens a second", ylim=(0, None), xticks=numbers)


# --------------------------------------------------------------------------------------------------------------------
# The cases.


def _pretraining(width: int, precision: Precision, numbers: list[int]) -> Case:
    config = replace(
        PAPER_BASE.model, hidden_size=width, num_hidden_layers=4, num_attention_heads=width // 64,
        intermediate_size=4 * width,
    )  # fmt: skip
    length = width // 2

    def batches(workers: int) -> Sequence[Batch]:
        return [random_batch(config, length, len(range(part, 32, workers))) for part in range(workers)]

    model, optimizer = AlbertForPreTraining(config), PAPER_BASE.optimizer
    systems = _updates(model, optimizer, batches, pretraining_objective, precision, numbers)
    return Case(f"pre-training, H {width}, 4 layers, 32 x {length}", precision, 32 * length, systems)


def _finetuning(directory: Path, numbers: list[int]) -> Case:
    draws = np.random.default_rng(1)
    lengths = draws.integers(16, 129, 32)
    starts = np.concatenate(([0], np.cumsum(lengths)))
    sequences = Sequences(draws.integers(5, 8000, starts[-1]).astype(np.int32), starts, lengths.astype(np.int32))
    targets = draws.integers(0, 2, 32)

    def batches(workers: int) -> Sequence[Batch]:
        return TaskBatches(sequences, targets, "choice", 32, 0, 8192, workers=workers).micro_batches(0, 0, 1)

    model = open_model(directory, "classification", num_labels=2, new_head=True).model
    optimizer = OptimizerRecipe(kind="adamw", learning_rate=2e-5)
    systems = _updates(model, optimizer, batches, TaskLoss(SingleLabel(("0", "1"), "label")), "fp32", numbers)
    return Case("fine-tuning, H 128, 4 layers, 32 of 16 to 128", "fp32", int(lengths.sum()), systems)


def _updates(
    model: nn.Module,
    recipe: OptimizerRecipe,
    batches: Callable[[int], Sequence[Batch]],
    objective: Objective,
    precision: Precision,
    numbers: list[int],
) -> dict[System, Callable[[], object]]:
    """An update by a number of workers, or by one worker with a number of threads."""
    model.train()
    optimizer = build_optimizer(recipe, model)

    def system(way: str, number: int) -> Callable[[], object]:
        workers = number if way == "workers" else 1
        inputs = batches(workers)

        def run() -> None:
            torch.set_num_threads(number)
            update(model, optimizer, inputs, objective, learning_rate=1e-5, clip_norm=1.0, precision=precision,
                   device=CPU, ranks=Ranks(), workers=workers)  # fmt: skip

        return run

    ways = [("workers", number) for number in numbers] + [("threads", number) for number in numbers[1:]]
    return {way: system(*way) for way in ways}


def _inference(directory: Path, precision: Precision, numbers: list[int]) -> Case:
    draws = np.random.default_rng(2)
    texts = [draws.integers(5, 8000, length) for length in draws.integers(16, 129, 128)]
    types = [np.zeros_like(text) for text in texts]
    packed = PackedModel(open_model(directory, "encoder").model, CPU, precision=precision)

    def system(number: int) -> Callable[[], object]:
        def run() -> None:
            torch.set_num_threads(number)
            packed.rows(texts, types)

        return run

    systems = {("workers", number): system(number) for number in numbers}
    name = "inference, H 128, 4 layers, 128 of 16 to 128"
    return Case(name, precision, sum(map(len, texts)), systems)


main = harness.script(Benchmark, COLUMNS, measure)

if __name__ == "__main__":
    main()
