"""Tokens a second on a CPU by number of workers, on a quiet machine and with one core taken by another process.

Pre-training of two small models, a fine-tuning and inference of a small model, on made-up tokens. "workers" are threads
of the package that compute a part of a batch each, with one thread of torch; "threads" is one worker for which torch
splits every operation (inference has workers alone). All systems of a case take turns in one process, first while the
machine is quiet, then beside a process that spins on one of its cores. Prints and appends a row for each case, load and
system, with how many times slower it is than on the quiet machine, and draws the rates as a picture.

    python benchmarks/workers.py --rounds 9

The machine must have nothing else to do. Measured is elapsed time: waiting for a core is what this is about.
"""

import albert  # noqa: F401 (before torch, which reads how its threads wait when it is loaded)

# isort: split
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from harness import interleave, report, spinning_process
from matplotlib.figure import Figure
from torch import nn

from albert.checkpoints.model_directory import open_model
from albert.cli.options import parse
from albert.experiments.curves import COLORS, MARKERS, bare, save_figure
from albert.finetuning.data import TaskBatches
from albert.finetuning.objective import task_loss
from albert.inference.engine import PackedModel
from albert.model.albert import AlbertForPreTraining
from albert.optim.optimizer import build_optimizer
from albert.optim.recipe import OptimizerRecipe
from albert.pretraining.batches import PretrainingBatches, pretraining_objective
from albert.pretraining.recipe import PAPER_BASE
from albert.pretraining.sampling import Sample, Samples
from albert.runtime.devices import default_precision
from albert.runtime.environment import Precision, Ranks
from albert.tasks.examples import Sequences
from albert.training.update import BatchSource, Objective, update

CPU = torch.device("cpu")
COLUMNS = ("case", "precision", "load", "system", "number", "rounds", "tokens_per_second", "slower_than_quiet")
System = tuple[str, int]
"""Workers or threads, and how many."""


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Measure workers.

    Example: python benchmarks/workers.py --rounds 9
    """

    model: Path = Path("models/tiny")
    """What is fine-tuned and answers."""
    hidden_sizes: tuple[int, ...] = (128, 256)
    """Of what is pre-trained: four layers, 32 sequences of 64 or 128 tokens."""
    precision: Precision | None = None
    """Of pre-training and inference; None: what this processor is best at. Fine-tuning is in fp32."""
    rounds: int = 9
    output: Path = Path("results/benchmark-workers.csv")
    picture: Path = Path("results/benchmark-workers.png")


@dataclass(frozen=True)
class Case:
    """A load: `systems` do the same work each time, on so many tokens."""

    name: str
    precision: str
    tokens: int
    systems: dict[System, Callable[[], object]]


def main(arguments: list[str]) -> None:
    """Run and report."""
    asked = parse(Benchmark, arguments, "workers.py")
    cores = torch.get_num_threads()
    precision = asked.precision or default_precision(CPU)
    numbers = sorted({1, cores, *(2**power for power in range(1, cores.bit_length()) if 2**power <= cores)})
    cases = [_pretraining(width, precision, numbers) for width in asked.hidden_sizes]
    cases += [_finetuning(asked.model, numbers), _inference(asked.model, precision, numbers)]
    rows = [row for case in cases for row in _rows(case, asked.rounds)]
    torch.set_num_threads(cores)
    report(asked.output, COLUMNS, rows)
    _draw(rows, asked.picture)


def _rows(case: Case, rounds: int) -> list[dict[str, object]]:
    quiet = interleave(case.systems, rounds)
    with spinning_process():
        busy = interleave(case.systems, rounds)
    rows = []
    for load, found in (("quiet", quiet), ("one core taken", busy)):
        for (system, number), seconds in found.items():
            took, before = statistics.median(seconds), statistics.median(quiet[system, number])
            rows.append(
                {
                    "case": case.name,
                    "precision": case.precision,
                    "load": load,
                    "system": system,
                    "number": number,
                    "rounds": rounds,
                    "tokens_per_second": round(case.tokens / took),
                    "slower_than_quiet": f"{took / before:.2f}",
                }
            )
    return rows


# --------------------------------------------------------------------------------------------------------------------
# What is measured.


class _RandomSamples:
    """The same random sequences in every batch, of which the usual share is to be predicted."""

    def __init__(self, vocabulary: int, sequences: int, length: int) -> None:
        draws, made = np.random.default_rng(0), []
        for _ in range(sequences):
            ids = draws.integers(5, vocabulary, length)
            masked = np.sort(draws.permutation(length)[: round(0.15 * length)])
            made.append(Sample(ids, np.zeros(length, np.int64), masked, ids[masked], int(draws.integers(2))))
        self._samples, self.per_epoch, self.preferred_batch = Samples.joined(made), sequences, sequences

    def batch(self, numbers: np.ndarray) -> Samples:
        return self._samples

    def lengths(self, numbers: np.ndarray) -> np.ndarray:
        return self._samples.lengths


def _pretraining(width: int, precision: Precision, numbers: list[int]) -> Case:
    config = replace(
        PAPER_BASE.model, hidden_size=width, num_hidden_layers=4, num_attention_heads=width // 64,
        intermediate_size=4 * width,
    )  # fmt: skip
    length = width // 2
    samples = _RandomSamples(config.vocab_size, 32, length)

    def batches(workers: int) -> BatchSource:
        return PretrainingBatches(samples, 32, 32, workers=workers)

    model, optimizer = AlbertForPreTraining(config), PAPER_BASE.optimizer
    systems = _updates(model, optimizer, batches, pretraining_objective, precision, numbers)
    return Case(f"pre-training, H {width}, 4 layers, 32 x {length}", precision, 32 * length, systems)


def _finetuning(directory: Path, numbers: list[int]) -> Case:
    draws = np.random.default_rng(1)
    lengths = draws.integers(16, 129, 32)
    starts = np.concatenate(([0], np.cumsum(lengths)))
    sequences = Sequences(draws.integers(5, 8000, starts[-1]).astype(np.int32), starts, lengths.astype(np.int32))
    targets = draws.integers(0, 2, 32)

    def batches(workers: int) -> BatchSource:
        return TaskBatches(sequences, targets, "choice", 32, 0, 8192, workers=workers)

    model = open_model(directory, "classification", num_labels=2, new_head=True).model
    optimizer = OptimizerRecipe(kind="adamw", learning_rate=2e-5)
    systems = _updates(model, optimizer, batches, task_loss, "fp32", numbers)
    return Case("fine-tuning, H 128, 4 layers, 32 of 16 to 128", "fp32", int(lengths.sum()), systems)


def _updates(
    model: nn.Module,
    recipe: OptimizerRecipe,
    batches: Callable[[int], BatchSource],
    objective: Objective,
    precision: Precision,
    numbers: list[int],
) -> dict[System, Callable[[], object]]:
    """An update by so many workers, or by one worker and so many threads."""
    model.train()
    optimizer = build_optimizer(recipe, model)

    def system(way: str, number: int) -> Callable[[], object]:
        workers = number if way == "workers" else 1
        made = batches(workers).micro_batches(0, 0, 1)

        def run() -> None:
            torch.set_num_threads(number)
            update(model, optimizer, made, objective, learning_rate=1e-5, clip_norm=1.0, precision=precision,
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


# --------------------------------------------------------------------------------------------------------------------
# The picture: rates by number of workers, one panel a case.


def _draw(rows: list[dict[str, object]], picture: Path) -> None:
    cases = list(dict.fromkeys(row["case"] for row in rows))
    figure = Figure(figsize=(4 * len(cases), 3.4), layout="constrained")
    panels = figure.subplots(1, len(cases), squeeze=False)[0]
    for panel, case in zip(panels, cases, strict=True):
        curves: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for row in rows:
            if row["case"] == case:
                system, load, number, rate = (row[key] for key in ("system", "load", "number", "tokens_per_second"))
                assert isinstance(number, int) and isinstance(rate, int)
                curves.setdefault((str(system), str(load)), []).append((number, rate))
        for (system, load), points in curves.items():
            if system == "threads":  # one thread is one worker
                points += [point for point in curves["workers", load] if point[0] == 1]
            x, y = zip(*sorted(points), strict=True)
            place, style = ("workers", "threads").index(system), "-" if load == "quiet" else "--"
            panel.plot(x, y, style, marker=MARKERS[place], color=COLORS[place], label=f"{system}, {load}")
        numbers = sorted({number for points in curves.values() for number, _ in points})
        panel.set(title=str(case), xlabel="workers, or threads of one worker", ylim=(0, None), xticks=numbers)
        panel.title.set_size(8)
        bare(panel)
    panels[0].set_ylabel("tokens a second")
    panels[0].legend(fontsize=7)
    save_figure(figure, picture)


if __name__ == "__main__":
    main(sys.argv[1:])
