"""Hard examples against the plain objective: the same network, text, seeds and tokens, scored by the plain objective.

Every variant of a seed starts from the same weights and stops after the same number of tokens; its learning rate
follows the share of them that it has seen. Prints held-out figures and the differences from the plain runs of the same
seeds, and writes them as CSV.

    python benchmarks/hard_examples.py --data corpus
"""

import math
import statistics
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from harness import append_rows
from rich.console import Console
from rich.table import Table

from albert.cli.options import parse
from albert.model.albert import AlbertForPreTraining
from albert.model.config import AlbertConfig
from albert.optim.optimizer import OptimizerRecipe, build_optimizer
from albert.optim.recipe import warmup_then_linear
from albert.pretraining.batches import PretrainingBatches, pretraining_objective
from albert.pretraining.evaluation import EVALUATION_SEED, HeldOutSamples
from albert.pretraining.masking import MaskingRecipe
from albert.pretraining.recipe import HardExamplesRecipe
from albert.pretraining.sampling import PretrainingSamples, SequenceRecipe
from albert.runtime.devices import seed_torch
from albert.runtime.environment import world
from albert.runtime.progress import progress
from albert.text.shards import TokenCorpus
from albert.training.update import update

Variant = Literal["plain", "focus", "neighbours"]
FIGURES = ("masked_tokens_loss", "masked_tokens_accuracy", "sentence_order_loss", "sentence_order_accuracy")
CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Train the same small network with and without hard examples.

    Example: python benchmarks/hard_examples.py --data corpus --tokens 4000000 --seeds 0 1 2
    """

    data: Path
    """What `albert prepare` wrote."""
    variants: tuple[Variant, ...] = ("plain", "focus", "neighbours")
    """focus: masked tokens by their loss; neighbours: sequences cut into pairs of sentences."""
    seeds: tuple[int, ...] = (0, 1)
    tokens: int = 2_000_000
    """Of every run."""
    focus: float = 1.0
    share: float = 1.0
    """Of the sequences of more than three sentences that are cut into pairs."""
    max_length: int = 64
    batch_size: int = 32
    hidden_size: int = 128
    layers: int = 4
    learning_rate: float = 1e-3
    sequences: int = 2000
    """Held-out sequences."""
    output: Path = Path("results/benchmark-hard-examples.csv")


def main(arguments: list[str]) -> None:
    """Run and report."""
    asked = parse(Benchmark, arguments, "hard_examples.py")
    torch.set_num_threads(1)
    held_out = TokenCorpus.open(asked.data, "held_out", verify=False)
    corpus = TokenCorpus.open(asked.data, "train", verify=False)
    plain = SequenceRecipe(max_length=asked.max_length)
    masking = MaskingRecipe(max_ngram=1)
    tests = HeldOutSamples(PretrainingSamples(held_out, plain, masking, EVALUATION_SEED), asked.sequences)
    rows = []
    for seed in asked.seeds:
        for variant in asked.variants:
            sequences = replace(plain, neighbours_probability=asked.share if variant == "neighbours" else 0.0)
            samples = PretrainingSamples(corpus, sequences, masking, seed)
            model, steps = _trained(asked, variant, samples, seed)
            figures = tests.evaluate(model.eval(), CPU, "fp32", quiet=True)
            rows.append([variant, seed, steps, *(f"{figures[name]:.4f}" for name in FIGURES)])
            print(*rows[-1], flush=True)
    _report(asked, rows, tests.baselines())


def _trained(
    asked: Benchmark, variant: Variant, samples: PretrainingSamples, seed: int
) -> tuple[AlbertForPreTraining, int]:
    """The model after all tokens, and the number of updates."""
    seed_torch("initialization", seed)
    heads = max(1, asked.hidden_size // 64)
    model = AlbertForPreTraining(
        AlbertConfig(
            vocab_size=samples.corpus.vocab_size,
            hidden_size=asked.hidden_size,
            num_hidden_layers=asked.layers,
            num_attention_heads=heads,
            intermediate_size=4 * asked.hidden_size,
        )
    ).train()
    optimizer = build_optimizer(OptimizerRecipe(kind="adamw", learning_rate=asked.learning_rate, beta2=0.98), model)
    hard = HardExamplesRecipe(focus=asked.focus if variant == "focus" else 0.0)
    batches = PretrainingBatches(samples, asked.batch_size, asked.batch_size, hard)
    seen, steps = 0, 0
    with progress(f"{variant}, seed {seed}", asked.tokens, "tokens") as bar:
        while seen < asked.tokens:
            figures = update(
                model,
                optimizer,
                batches.micro_batches(steps, 0, 1),
                pretraining_objective,
                learning_rate=warmup_then_linear(seen, asked.learning_rate, asked.tokens // 20, asked.tokens),
                clip_norm=1.0,
                precision="fp32",
                device=CPU,
                ranks=world(),
            )
            seen, steps = seen + figures.tokens, steps + 1
            bar.advance(figures.tokens)
    return model, steps


def _report(asked: Benchmark, rows: list[list[object]], baselines: dict[str, float]) -> None:
    table = Table("against plain, mean over seeds", *FIGURES, box=None)
    values = {(row[0], row[1]): [float(str(value)) for value in row[3:]] for row in rows}
    for variant in asked.variants:
        if variant != "plain" and "plain" in asked.variants:
            cells = []
            for place in range(len(FIGURES)):
                differences = [values[variant, seed][place] - values["plain", seed][place] for seed in asked.seeds]
                spread = statistics.stdev(differences) if len(differences) > 1 else math.nan
                cells.append(f"{statistics.mean(differences):+.4f} ± {spread:.4f}")
            table.add_row(variant, *cells)
    Console(width=140).print(table)
    shape = f"H{asked.hidden_size} L{asked.layers} length {asked.max_length} batch {asked.batch_size}"
    settings = {"plain": "", "focus": f"focus {asked.focus:g}", "neighbours": f"share {asked.share:g}"}
    columns = ("shape", "tokens", "variant", "setting", "seed", "steps", *FIGURES, *baselines)
    shares = [f"{share:.4f}" for share in baselines.values()]
    append_rows(
        asked.output,
        columns,
        [[shape, asked.tokens, row[0], settings[str(row[0])], *row[1:], *shares] for row in rows],
    )


if __name__ == "__main__":
    main(sys.argv[1:])
