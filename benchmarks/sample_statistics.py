"""Samples of real text, counted, beside what theory says of them: masks, n-grams, swaps, lengths, padding.

A score is how many standard deviations a figure is away from its expectation. Prints a table and writes it as CSV.

    python benchmarks/sample_statistics.py --data corpus --samples 100000
"""

import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from harness import append_rows
from rich.console import Console
from rich.table import Table

from albert.cli.options import parse
from albert.pretraining.masking import MaskingRecipe
from albert.pretraining.sampling import CorpusBlocks, PretrainingSamples, SequenceRecipe, pack_documents
from albert.pretraining.statistics import Figure, measure
from albert.text.shards import TokenCorpus

KINDS = {
    "sop 128": (SequenceRecipe(max_length=128), MaskingRecipe()),
    "sop 512": (SequenceRecipe(), MaskingRecipe()),
    "nsp 128, tokens": (SequenceRecipe(max_length=128, objective="nsp"), MaskingRecipe(unit="token", max_ngram=1)),
    "none 128, spans": (SequenceRecipe(max_length=128, objective="none"), MaskingRecipe(replacement="span")),
    "reference 512, 20": (SequenceRecipe(objective="sop-reference"), MaskingRecipe(max_predictions=20)),
}


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Count samples.

    Example: python benchmarks/sample_statistics.py --data corpus --samples 100000
    """

    data: Path
    """What `albert prepare` wrote."""
    samples: int = 100_000
    """Of each kind."""
    seed: int = 0
    output: Path = Path("results/benchmark-sample-statistics.csv")


def main(arguments: list[str]) -> None:
    """Run and report."""
    asked = parse(Benchmark, arguments, "sample_statistics.py")
    corpus = TokenCorpus.open(asked.data, "train", verify=False)
    found: dict[str, dict[str, Figure]] = {}
    for kind, (sequences, masking) in KINDS.items():
        samples = PretrainingSamples(corpus, sequences, masking, asked.seed)
        figures = measure(samples, np.arange(asked.samples))
        if sequences.objective != "sop-reference":
            figures.append(short_sequences(samples, asked.seed))
        found[kind] = {figure.name: figure for figure in figures}
    names = list(dict.fromkeys(name for figures in found.values() for name in figures))
    table = Table("seen (score)", *found, box=None)
    for name in names:
        table.add_row(name, *(_cell(figures.get(name)) for figures in found.values()))
    Console(width=150).print(table)
    rows = []
    for kind, figures in found.items():
        for figure in figures.values():
            values = (figure.seen, figure.expected, figure.score)
            shown = ["" if value is None else f"{value:.6g}" for value in values]
            rows.append([kind, asked.samples, figure.name, *shown])
    append_rows(asked.output, ("kind", "samples", "figure", "seen", "expected", "score"), rows, same=("kind", "figure"))


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return ""
    seen = f"{figure.seen:,.1f}" if figure.seen > 2 else f"{figure.seen:.4f}"
    return seen if figure.score is None else f"{seen} ({figure.score:+.1f})"


def short_sequences(samples: PretrainingSamples, seed: int) -> Figure:
    """How many sequences of epoch 0 are halves of a longer one, though it would have fitted.

    Args:
        samples: of the objective "sop", "nsp" or "none".
        seed: theirs.
    """
    recipe = replace(samples.recipe, neighbours_probability=0.0)
    asked = recipe.short_probability
    eligible = whole = cut = 0
    blocks = CorpusBlocks(samples.corpus)
    for block in range(len(blocks)):
        documents = blocks.documents(block)
        longest = pack_documents(replace(recipe, short_probability=0.0), seed, documents, 0)
        places = np.searchsorted(documents.sentence_starts, longest.begin)
        eligible += int((np.searchsorted(documents.sentence_starts, longest.end) - places > 1).sum())
        whole += len(longest)
        cut += len(pack_documents(recipe, seed, documents, 0)) - len(longest)
    chance = asked / (2 - asked)
    total = whole + cut
    deviation = 2 * math.sqrt(eligible * chance * (1 - chance)) / total
    return Figure("cut short, of all", 2 * cut / total, 2 * eligible * chance / total, deviation)


if __name__ == "__main__":
    main(sys.argv[1:])
