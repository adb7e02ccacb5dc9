"""What samples are like, counted, beside what theory says of them."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from albert.pretraining.batches import batch_of
from albert.pretraining.masking import NgramMasking, Words
from albert.pretraining.sampling import CorpusBlocks, Explained, PretrainingSamples, SequenceRecipe, pack_documents
from albert.pretraining.segments import NO_LABEL, SWAPPED
from albert.runtime.progress import progress
from albert.text.shards import TokenCorpus

MICRO_BATCH = 32
QUANTILES = (5, 25, 50, 75, 95)


@dataclass(frozen=True)
class Figure:
    """A share or a mean that was seen, and what theory says.

    Attributes:
        expected: by theory; None where theory has no say.
        deviation: one standard deviation of `seen` around `expected`, 0 where it is exact; None where the expectation
            holds but roughly.
    """

    name: str
    seen: float
    expected: float | None = None
    deviation: float | None = None

    @property
    def score(self) -> float | None:
        """How many standard deviations away; infinite where it should be exact and is not."""
        if self.expected is None or self.deviation is None:
            return None
        if self.deviation == 0:
            return 0.0 if self.seen == self.expected else math.inf
        return (self.seen - self.expected) / self.deviation


def measure(samples: PretrainingSamples, numbers: np.ndarray) -> list[Figure]:
    """Figures of many samples."""
    masking = samples.masking
    counts: Counter[str] = Counter()
    random_tokens = np.zeros(len(masking.special), dtype=np.int64)
    drawn, spans = (np.zeros(masking.recipe.max_ngram + 1, dtype=np.int64) for _ in range(2))
    lengths: list[np.ndarray] = []
    with progress("Counting", len(numbers), "samples") as bar:
        for begin in range(0, len(numbers), samples.preferred_batch):
            made = samples.explained(numbers[begin : begin + samples.preferred_batch])
            counts.update(_sizes(made, masking))
            random_tokens += _replacement_draws(made, masking, counts)
            drawn += np.bincount(_drawn(made, masking), minlength=len(drawn))
            spans += np.bincount(made.spans.words, minlength=len(spans))
            lengths.append(made.samples.lengths)
            bar.advance(len(made.samples.lengths))
    return [
        *_budget_figures(counts),
        *_ngram_figures(masking, drawn, spans),
        *_fate_figures(masking, counts, random_tokens),
        _share("swapped or foreign, of those asked", counts["swapped"], counts["asked"], 0.5),
        Figure("asked for their order, of all", counts["asked"] / len(numbers)),
        *_length_figures(np.concatenate(lengths), samples.recipe.max_length, counts),
    ]


def tokens_cut(corpora: Sequence[TokenCorpus], recipe: SequenceRecipe, seed: int) -> Figure:
    """How many tokens of epoch 0 are cut off because two or three sentences were kept together."""
    cut = total = 0
    for corpus in corpora:
        blocks = CorpusBlocks(corpus)
        for block in range(len(blocks)):
            sequences = pack_documents(recipe, seed, blocks.documents(block), 0)
            lengths = sequences.end - sequences.begin
            cut += int(np.maximum(lengths - recipe.max_tokens, 0).sum())
            total += int(lengths.sum())
    return Figure("cut off, of all tokens of an epoch", cut / max(total, 1))


def _share(name: str, seen: int, count: int, expected: float) -> Figure:
    """The share of independent things for which something holds."""
    return Figure(name, seen / max(count, 1), expected, math.sqrt(expected * (1 - expected) / max(count, 1)))


def _sizes(made: Explained, masking: NgramMasking) -> dict[str, int]:
    lengths, positions = made.samples.lengths, made.samples.masked_positions
    budgets = masking.recipe.budgets(lengths)
    ends = np.cumsum(lengths)
    masked = np.diff(np.searchsorted(positions, ends), prepend=0)
    parts = [made.samples.part(i, i + MICRO_BATCH) for i in range(0, len(lengths), MICRO_BATCH)]
    packed = [batch_of(part).packed for part in parts]
    return {
        "sequences": len(lengths),
        "tokens": int(lengths.sum()),
        "tokens computed": sum(some.token_ids.numel() for some in packed),
        "cells": sum(group.positions.numel() for some in packed for group in some.groups),
        "masked": len(positions),
        "budget": int(budgets.sum()),
        "unfilled": int((masked < budgets).sum()),
        "overfilled": int((masked > budgets).sum()),
        "asked": int((made.samples.order_labels != NO_LABEL).sum()),
        "swapped": int((made.samples.order_labels == SWAPPED).sum()),
    }


def _drawn(made: Explained, masking: NgramMasking) -> np.ndarray:
    """The n of every word, whether or not its turn came."""
    token_ids = made.samples.token_ids.copy()
    token_ids[made.samples.masked_positions] = made.samples.masked_labels
    words = Words.find(token_ids, made.samples.lengths, masking.word_starts, masking.special)
    return masking.drawn(words, made.mask_keys)[1]


def _replacement_draws(made: Explained, masking: NgramMasking, counts: Counter[str]) -> np.ndarray:
    """Count what became of masked tokens; returns how often each id was drawn in the place of another."""
    labels, replaced = made.samples.masked_labels, made.samples.token_ids[made.samples.masked_positions]
    sizes = made.spans.end - made.spans.begin
    drawn = np.cumsum(sizes) - sizes if masking.recipe.replacement == "span" else slice(None)  # one draw a span
    counts["fates"] += len(labels[drawn])
    counts["[MASK]"] += int((replaced[drawn] == masking.mask_id).sum())
    counts["kept"] += int((replaced[drawn] == labels[drawn]).sum())
    strange = replaced[(replaced != masking.mask_id) & (replaced != labels)]
    return np.bincount(strange, minlength=len(masking.special))


def _budget_figures(counts: Counter[str]) -> list[Figure]:
    return [
        Figure("masked, of all tokens", counts["masked"] / counts["tokens"], counts["budget"] / counts["tokens"]),
        Figure("sequences above their budget", counts["overfilled"] / counts["sequences"], 0.0, 0.0),
        Figure("sequences below their budget", counts["unfilled"] / counts["sequences"], 0.0),
    ]


def _ngram_figures(masking: NgramMasking, drawn: np.ndarray, spans: np.ndarray) -> list[Figure]:
    figures = []
    for n, expected in enumerate(masking.ngram_shares.tolist(), start=1):
        figures.append(_share(f"draws of n = {n}", int(drawn[n]), int(drawn.sum()), expected))
    for n, count in enumerate(spans[1:].tolist(), start=1):
        figures.append(Figure(f"masked spans of n = {n}, shrunk to fit", count / max(int(spans.sum()), 1)))
    return figures


def _fate_figures(masking: NgramMasking, counts: Counter[str], random_tokens: np.ndarray) -> list[Figure]:
    recipe, vocabulary = masking.recipe, int((~masking.special).sum())
    same = recipe.replace_with_random / vocabulary  # drawn at random, and it is the one that was there
    kept = 1 - recipe.replace_with_mask - recipe.replace_with_random + same
    other = counts["fates"] - counts["[MASK]"] - counts["kept"]
    ordinary = random_tokens[~masking.special]
    bins = max(2, min(vocabulary, int(ordinary.sum()) // 20))
    seen = np.bincount(np.arange(vocabulary) * bins // vocabulary, weights=ordinary)
    expected = np.bincount(np.arange(vocabulary) * bins // vocabulary) * ordinary.sum() / vocabulary
    spread = float(((seen - expected) ** 2 / np.maximum(expected, 1e-9)).sum()) / (bins - 1)
    return [
        _share("become [MASK], of the masked", counts["[MASK]"], counts["fates"], recipe.replace_with_mask),
        _share("become another token", other, counts["fates"], recipe.replace_with_random - same),
        _share("stay as they are", counts["kept"], counts["fates"], kept),
        Figure("chi-square of other tokens, by degree", spread, 1.0, math.sqrt(2 / (bins - 1))),
        Figure("special tokens among them", float(random_tokens[masking.special].sum()), 0.0, 0.0),
    ]


def _length_figures(lengths: np.ndarray, longest: int, counts: Counter[str]) -> list[Figure]:
    return [
        Figure("tokens of a sequence, mean", float(lengths.mean())),
        *(Figure(f"  of {share} % at most", float(np.percentile(lengths, share))) for share in QUANTILES),
        Figure("sequences longer than allowed", float((lengths > longest).mean()), 0.0, 0.0),
        Figure("padding, of all tokens computed", 1 - counts["tokens"] / counts["tokens computed"], 0.0, 0.0),
        Figure("padding, of all cells of attention", 1 - counts["tokens"] / counts["cells"]),
    ]
