"""Whether pre-training stays finite and calm: thousands of updates on real text for every optimiser and precision.

A tiny network takes 2,000 updates with LAMB and with AdamW, in float32 and in bf16, each from the same weights and on
the same batches. A run is stable when all of this holds:

- every loss and gradient norm is finite, and so are all weights and moments at the end;
- no update is a spike: a loss or gradient norm more than DEVIATIONS robust deviations above the median of the 128
  updates before it, in logarithms, the definition of `training/update.py`; no mean loss over 50 updates is more
  than RISE above the lowest such mean before it;
- the masked-token loss of the last 100 updates is below the entropy of the tokens' frequencies, which is what a model
  reaches that knows nothing but how frequent every token is: the plateau that users report for other code is there;
- no gradient norm after the warm-up is above NORMS times their median;
- LAMB's trust ratios, read every 50 updates, are within RATIOS.

Prints a table, appends rows to a CSV, and exits with 1 when a run was not stable.

    python benchmarks/stability.py --data corpus
"""

import math
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from harness import append_rows
from rich.console import Console
from rich.table import Table

from albert.cli.options import parse
from albert.model.albert import AlbertForPreTraining
from albert.model.config import AlbertConfig
from albert.optim.lamb import Lamb
from albert.optim.optimizer import OptimizerRecipe, build_optimizer
from albert.optim.recipe import warmup_then_linear
from albert.pretraining.batches import PretrainingBatches, pretraining_objective
from albert.pretraining.masking import MaskingRecipe
from albert.pretraining.sampling import PretrainingSamples, SequenceRecipe
from albert.runtime.devices import seed_torch
from albert.runtime.environment import Precision, world
from albert.runtime.progress import progress
from albert.text.shards import TokenCorpus
from albert.training.update import DivergenceHistory, Guard, UpdateFigures, non_finite_state, update

DEVIATIONS = 8.0
RISE = 0.25
"""Nats."""
NORMS = 10.0
RATIOS = (1e-4, 10.0)
RECIPES = {
    "lamb": OptimizerRecipe(kind="lamb", learning_rate=8e-3, beta2=0.99),
    "adamw": OptimizerRecipe(kind="adamw", learning_rate=1e-3, beta2=0.98),
}
COLUMNS = ("finite", "spikes", "rise", "loss_first", "loss_last", "frequencies", "norm_median", "norm_max",
           "ratio_min", "ratio_max", "stable")  # fmt: skip
CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Train a tiny network with every optimiser and precision, and watch it.

    Example: python benchmarks/stability.py --data corpus --steps 2000
    """

    data: Path
    """What `albert prepare` wrote."""
    optimizers: tuple[Literal["lamb", "adamw"], ...] = ("lamb", "adamw")
    precisions: tuple[Precision, ...] = ("fp32", "bf16")
    steps: int = 2000
    warmup_steps: int = 100
    max_length: int = 64
    batch_size: int = 16
    hidden_size: int = 64
    layers: int = 4
    seed: int = 0
    output: Path = Path("results/benchmark-stability.csv")


@dataclass
class Course:
    """What was seen of a run."""

    warmup_steps: int
    losses: list[float] = field(default_factory=list)
    token_losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    finite: bool = True
    spikes: int = 0
    guard: Guard = field(default_factory=lambda: Guard(DivergenceHistory(), DEVIATIONS))

    def add(self, figures: UpdateFigures) -> None:
        """Note one update."""
        self.finite &= figures.alarm is None
        self.spikes += figures.alarm is None and self.guard(figures) is not None
        self.losses.append(figures.loss)
        self.token_losses.append(figures.losses["masked_tokens"] / figures.counts["masked_tokens"])
        self.norms.append(figures.gradient_norm)

    def figures(self, frequencies: float) -> dict[str, object]:
        """The columns; `frequencies` is the entropy of the tokens' frequencies, nats."""
        means = np.array(self.losses[: len(self.losses) // 50 * 50]).reshape(-1, 50).mean(axis=1)
        rise = float((means - np.minimum.accumulate(means)).max())
        norms = self.norms[self.warmup_steps :]
        first, last = statistics.mean(self.token_losses[:10]), statistics.mean(self.token_losses[-100:])
        calm = self.spikes == 0 and rise <= RISE and max(norms) <= NORMS * statistics.median(norms)
        ratios = (min(self.ratios), max(self.ratios)) if self.ratios else (math.nan, math.nan)
        in_range = not self.ratios or (RATIOS[0] <= ratios[0] and ratios[1] <= RATIOS[1])
        stable = self.finite and calm and last < frequencies and in_range
        numbers = (rise, first, last, frequencies, statistics.median(norms), max(norms), *ratios)
        shown = ("" if math.isnan(number) else f"{number:.4g}" for number in numbers)
        return dict(zip(COLUMNS, (self.finite, self.spikes, *shown, stable), strict=True))


def main(arguments: list[str]) -> None:
    """Run and report."""
    asked = parse(Benchmark, arguments, "stability.py")
    torch.set_num_threads(1)
    corpus = TokenCorpus.open(asked.data, "train", verify=False)
    samples = PretrainingSamples(corpus, SequenceRecipe(max_length=asked.max_length), MaskingRecipe(), asked.seed)
    frequencies = _entropy(samples, 20_000)
    shape = f"H{asked.hidden_size} L{asked.layers} length {asked.max_length} batch {asked.batch_size}"
    rows = []
    for kind in asked.optimizers:
        for precision in asked.precisions:
            course = _trained(asked, RECIPES[kind], precision, samples)
            rows.append({"optimizer": kind, "precision": precision, **course.figures(frequencies)})
            about = {"shape": shape, "steps": asked.steps}
            append_rows(asked.output, [*about, *rows[-1]], [about | rows[-1]])
    table = Table(*rows[0], box=None)
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console(width=160).print(table)
    sys.exit(0 if all(row["stable"] for row in rows) else 1)


def _trained(asked: Benchmark, recipe: OptimizerRecipe, precision: Precision, samples: PretrainingSamples) -> Course:
    seed_torch("initialization", asked.seed)
    model = AlbertForPreTraining(
        AlbertConfig(
            vocab_size=samples.corpus.vocab_size,
            embedding_size=asked.hidden_size,
            hidden_size=asked.hidden_size,
            num_hidden_layers=asked.layers,
            num_attention_heads=max(1, asked.hidden_size // 32),
            intermediate_size=4 * asked.hidden_size,
        )
    ).train()
    optimizer = build_optimizer(recipe, model)
    batches = PretrainingBatches(samples, asked.batch_size, asked.batch_size)
    course = Course(asked.warmup_steps)
    with progress(f"{recipe.kind}, {precision}", asked.steps, "steps") as bar:
        for step in range(asked.steps):
            figures = update(
                model,
                optimizer,
                batches.micro_batches(step, 0, 1),
                pretraining_objective,
                learning_rate=warmup_then_linear(step, recipe.learning_rate, asked.warmup_steps, asked.steps),
                clip_norm=1.0,
                precision=precision,
                device=CPU,
                ranks=world(),
            )
            course.add(figures)
            if step % 50 == 49 and isinstance(optimizer, Lamb):
                course.ratios += optimizer.statistics().values()
            bar.advance()
            if figures.alarm is not None:
                break
    course.finite &= non_finite_state(model, optimizer) is None
    return course


def _entropy(samples: PretrainingSamples, count: int) -> float:
    """Of the frequencies of masked tokens, nats."""
    frequencies = np.bincount(samples.batch(np.arange(count)).masked_labels)
    shares = frequencies[frequencies > 0] / frequencies.sum()
    return float(-(shares * np.log(shares)).sum())


if __name__ == "__main__":
    main(sys.argv[1:])
