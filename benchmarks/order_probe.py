"""What a judge of surfaces can tell of sentence order, under every option that cuts or orders segments.

Beside each stands what the same judge gets on text that was never cut to a length (for next sentences: a coin), and how
many points it is above that, or above the more frequent answer. Masks have no say: the judge sees what was under them.
Prints a table and writes it as CSV.

    python benchmarks/order_probe.py --data corpus
"""

import csv
import sys
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.table import Table

from albert.cli.options import parse
from albert.experiments.order_probe import Pairs, Verdict, judge, pairs_of, untruncated_pairs
from albert.pretraining.masking import MaskingRecipe
from albert.pretraining.sampling import PretrainingSamples, SequenceRecipe
from albert.pretraining.segments import SentenceObjective
from albert.runtime.progress import progress
from albert.text.shards import TokenCorpus

COLUMNS = (
    "objective", "max_length", "short", "keep_pairs", "pairs", "accuracy", "deviation", "majority", "text_allows",
    "above",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Ask a judge of surfaces for the order of segments.

    Example: python benchmarks/order_probe.py --data corpus --samples 200000
    """

    data: Path
    """What `albert prepare` wrote."""
    samples: int = 120_000
    """Most samples of each kind."""
    lengths: tuple[int, ...] = (64, 128, 512)
    objectives: tuple[SentenceObjective, ...] = ("sop", "nsp", "sop-reference")
    short: tuple[float, ...] = (0.0, 0.1, 0.5)
    keep_pairs: tuple[bool, ...] = (False, True)
    """The reference's pairs know no such thing, and are asked once."""
    seed: int = 0
    output: Path = Path("results/benchmark-order-probe.csv")


def main(arguments: list[str]) -> None:
    """Run and report."""
    asked = parse(Benchmark, arguments, "order_probe.py")
    corpus = TokenCorpus.open(asked.data, "train", verify=False)
    kinds = [
        (max_length, objective, short, keep_pairs)
        for max_length, objective, short, keep_pairs in product(
            asked.lengths, asked.objectives, asked.short, asked.keep_pairs
        )
        if not (keep_pairs and objective == "sop-reference")
    ]
    allowed: dict[int, Verdict] = {}
    rows = []
    with progress("Judging", len(kinds), "kinds of samples") as bar:
        for max_length, objective, short, keep_pairs in kinds:
            recipe = SequenceRecipe(
                max_length=max_length, objective=objective, short_probability=short, keep_pairs=keep_pairs
            )
            samples = PretrainingSamples(corpus, recipe, MaskingRecipe(), asked.seed)
            pairs = pairs_of(samples, min(asked.samples, samples.per_epoch))
            if max_length not in allowed:
                allowed[max_length] = judge(_like(pairs, corpus, asked.seed))
            found, text = judge(pairs), 0.5 if objective == "nsp" else allowed[max_length].accuracy
            shares = (found.accuracy, found.deviation, found.majority, text)
            above = f"{100 * (found.accuracy - max(text, found.majority)):+.2f}"
            rows.append(
                [objective, max_length, short, keep_pairs, len(pairs), *(f"{share:.4f}" for share in shares), above]
            )
            bar.advance()
    _report(asked.output, rows)


def _like(pairs: Pairs, corpus: TokenCorpus, seed: int) -> Pairs:
    """As many untruncated pairs, of about as many tokens."""
    wanted, sentences = pairs.lengths.sum(axis=1).mean(), 2
    found = untruncated_pairs(corpus, sentences, len(pairs), seed)
    while True:
        sentences += 1
        more = untruncated_pairs(corpus, sentences, len(pairs), seed)
        if abs(more.lengths.sum(axis=1).mean() - wanted) > abs(found.lengths.sum(axis=1).mean() - wanted):
            return found
        found = more


def _report(output: Path, rows: list[list[object]]) -> None:
    table = Table(*COLUMNS, box=None)
    for row in rows:
        table.add_row(*map(str, row))
    Console(width=120).print(table)
    today = time.strftime("%Y-%m-%d")
    with open(output, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([["date", *COLUMNS], *([today, *row] for row in rows)])


if __name__ == "__main__":
    main(sys.argv[1:])
