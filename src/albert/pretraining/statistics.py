"""Statistics of samples, with their expected values."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from albert.pretraining.batches import batch_of
from albert.pretraining.masking import NgramMasking, Words
from albert.pretraining.sampling import PretrainingSamples, SampleDetails, pack_documents
from albert.pretraining.segments import SWAPPED, CorpusBlocks
from albert.recipes.pretraining import SequenceRecipe
from albert.runtime.progress import progress
from albert.text.shards import TokenCorpus

MICRO_BATCH = 32
QUANTILES = (5, 25, 50, 75, 95)


@dataclass(frozen=True)
class Figure:
    """An observed share or mean, and its expected value.

    Attributes:
        expected: by theory; None where there is no expectation.
        deviation: one standard deviation of `seen` around `expected`, 0 where it is exact; None where the expectation
            is approximate.
    """

    name: str
    seen: float
    expected: float | None = None
    deviation: float | None = None

    @property
    def score(self) -> float | None:
        """The difference in standard deviations; infinite where it should be exact and is not."""
        if self.expected is None or self.deviation is None:
            return None
        if self.deviation == 0:
            return 0.0 if self.seen == self.expected else math.inf
        return (self.seen - self.expected) / self.deviation


def measure(samples: PretrainingSamples, numbers: np.ndarray) -> list[Figure]:
    """Figures of the samples with these numbers."""
    masking = samples.masking
    recipe = samples.masking.recipe
    at_once = samples.preferred_batch
    counts: Counter[str] = Counter()
    random_tokens = np.zeros(len(masking.special), dtype=np.int64)
    drawn, spans = (np.zeros(recipe.max_ngram + 1, dtype=np.int64) for _ in range(2))
    lengths: list[np.ndarray] = []
    with progress("Counting", len(numbers), "samples") as bar:
        for begin in range(0, len(numbers), at_once):
            batch = samples.details(numbers[begin : begin + at_once])
            counts.update(_count(batch, masking))
            random_tokens += _random_tokens(batch, masking)
            drawn += np.bincount(_drawn_ngrams(batch, masking), minlength=len(drawn))
            spans += np.bincount(batch.spans.words, minlength=len(spans))
            lengths.append(batch.samples.lengths)
            bar.advance(len(batch.samples.lengths))
    n = counts["sequences"]
    tokens = counts["tokens"]
    replacements = counts["replacements"]
    ngrams = enumerate(zip(drawn[1:].tolist(), masking.ngram_shares.tolist(), strict=True), start=1)
    vocabulary = int((~masking.special).sum())
    every_length = np.concatenate(lengths)
    same = recipe.replace_with_random / vocabulary  # a random token equal to the original
    kept = 1 - recipe.replace_with_mask - recipe.replace_with_random + same
    other = replacements - counts["[MASK]"] - counts["kept"]
    return [
        Figure("masked, of all tokens", counts["masked"] / tokens, counts["budget"] / tokens),
        Figure("sequences above their budget", counts["overfilled"] / n, 0.0, 0.0),
        Figure("sequences below their budget", counts["unfilled"] / n, 0.0),
        *(_share(f"draws of n = {k}", count, int(drawn.sum()), expected) for k, (count, expected) in ngrams),
        *(
            Figure(f"masked spans of n = {k}, shrunk to fit", count / max(int(spans.sum()), 1))
            for k, count in enumerate(spans[1:].tolist(), start=1)
        ),
        _share("become [MASK], of the masked", counts["[MASK]"], replacements, recipe.replace_with_mask),
        _share("become another token", other, replacements, recipe.replace_with_random - same),
        _share("stay as they are", counts["kept"], replacements, kept),
        _spread(random_tokens[~masking.special]),
        Figure("special tokens among them", float(random_tokens[masking.special].sum()), 0.0, 0.0),
        _share("negatives among labelled pairs", counts["swapped"], counts["labelled"], 0.5),
        Figure("asked for their order, of all", counts["labelled"] / n),
        Figure("tokens of a sequence, mean", float(every_length.mean())),
        *(Figure(f"  of {share} % at most", float(np.percentile(every_length, share))) for share in QUANTILES),
        Figure("sequences longer than allowed", float((every_length > samples.recipe.max_length).mean()), 0.0, 0.0),
        Figure("padding, of all tokens computed", 1 - tokens / counts["tokens computed"], 0.0, 0.0),
        Figure("padding, of all cells of attention", 1 - tokens / counts["cells"]),
    ]


def tokens_cut(corpora: Sequence[TokenCorpus], recipe: SequenceRecipe, seed: int) -> Figure:
    """The share of tokens of epoch 0 that are cut off because two or three sentences are kept together."""
    cut = 0
    total = 0
    for corpus in corpora:
        blocks = CorpusBlocks(corpus)
        for block in range(len(blocks)):
            sequences = pack_documents(recipe, seed, blocks.documents(block), 0)
            lengths = sequences.end - sequences.begin
            cut += int(np.maximum(lengths - recipe.max_tokens, 0).sum())
            total += int(lengths.sum())
    return Figure("cut off, of all tokens of an epoch", cut / max(total, 1))


def _share(name: str, seen: int, count: int, expected: float) -> Figure:
    """The share of independent events, with its binomial deviation."""
    return Figure(name, seen / max(count, 1), expected, math.sqrt(expected * (1 - expected) / max(count, 1)))


def _spread(ordinary: np.ndarray) -> Figure:
    """How evenly random replacements are spread over the vocabulary."""
    vocabulary = len(ordinary)
    total = int(ordinary.sum())
    bins = max(2, min(vocabulary, total // 20))
    bin_of = np.arange(vocabulary) * bins // vocabulary
    expected = np.bincount(bin_of) * total / vocabulary
    squares = (np.bincount(bin_of, weights=ordinary) - expected) ** 2 / np.maximum(expected, 1e-9)
    spread = float(squares.sum()) / (bins - 1)
    return Figure("chi-square of other tokens, by degree", spread, 1.0, math.sqrt(2 / (bins - 1)))


def _count(batch: SampleDetails, masking: NgramMasking) -> dict[str, int]:
    samples = batch.samples
    lengths = samples.lengths
    masked = samples.masked_counts
    budgets = masking.recipe.budgets(lengths)
    packed = [batch_of(samples.part(i, i + MICRO_BATCH)).packed for i in range(0, len(lengths), MICRO_BATCH)]
    labels = samples.masked_labels
    replaced = samples.token_ids[samples.masked_positions]
    if masking.recipe.replacement == "span":  # one draw per span
        sizes = batch.spans.end - batch.spans.begin
        labels, replaced = (tokens[np.cumsum(sizes) - sizes] for tokens in (labels, replaced))
    return {
        "sequences": len(lengths),
        "tokens": int(lengths.sum()),
        "tokens computed": sum(part.token_ids.numel() for part in packed),
        "cells": sum(group.positions.numel() for part in packed for group in part.groups),
        "masked": int(masked.sum()),
        "budget": int(budgets.sum()),
        "unfilled": int((masked < budgets).sum()),
        "overfilled": int((masked > budgets).sum()),
        "labelled": samples.counts["sentence_order"],
        "swapped": int((samples.order_labels == SWAPPED).sum()),
        "replacements": len(labels),
        "[MASK]": int((replaced == masking.mask_id).sum()),
        "kept": int((replaced == labels).sum()),
    }


def _drawn_ngrams(batch: SampleDetails, masking: NgramMasking) -> np.ndarray:
    """The n drawn for every word, used or not."""
    token_ids = batch.samples.token_ids.copy()
    token_ids[batch.samples.masked_positions] = batch.samples.masked_labels
    words = Words.find(token_ids, batch.samples.lengths, masking.word_starts, masking.special)
    return masking.draw_starts(words, batch.mask_keys)[1]


def _random_tokens(batch: SampleDetails, masking: NgramMasking) -> np.ndarray:
    """How often each id replaced another."""
    labels = batch.samples.masked_labels
    replaced = batch.samples.token_ids[batch.samples.masked_positions]
    random = replaced[(replaced != masking.mask_id) & (replaced != labels)]
    return np.bincount(random, minlength=len(masking.special))
