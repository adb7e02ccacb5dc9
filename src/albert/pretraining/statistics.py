"""Statistics of samples, with their expected values."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from albert.pretraining.batches import batch_of
from albert.pretraining.masking import NgramMasking, Words
from albert.pretraining.sampling import CorpusBlocks, PretrainingSamples, SampleDetails, SequenceRecipe, pack_documents
from albert.pretraining.segments import SWAPPED
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
    counts: Counter[str] = Counter()
    random_tokens = np.zeros(len(masking.special), dtype=np.int64)
    drawn, spans = (np.zeros(masking.recipe.max_ngram + 1, dtype=np.int64) for _ in range(2))
    lengths: list[np.ndarray] = []
    with progress("Counting", len(numbers), "samples") as bar:
        for begin in range(0, len(numbers), samples.preferred_batch):
            batch = samples.details(numbers[begin : begin + samples.preferred_batch])
            counts.update(_count(batch, masking))
            random_tokens += _count_replacements(batch, masking, counts)
            drawn += np.bincount(_drawn_ngrams(batch, masking), minlength=len(drawn))
            spans += np.bincount(batch.spans.words, minlength=len(spans))
            lengths.append(batch.samples.lengths)
            bar.advance(len(batch.samples.lengths))
    return [
        *_budget_figures(counts),
        *_ngram_figures(masking, drawn, spans),
        *_replacement_figures(masking, counts, random_tokens),
        _share("swapped or foreign, of those asked", counts["swapped"], counts["labelled"], 0.5),
        Figure("asked for their order, of all", counts["labelled"] / len(numbers)),
        *_length_figures(np.concatenate(lengths), samples.recipe.max_length, counts),
    ]


def tokens_cut(corpora: Sequence[TokenCorpus], recipe: SequenceRecipe, seed: int) -> Figure:
    """The share of tokens of epoch 0 that are cut off because two or three sentences are kept together."""
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
    """The share of independent events, with its binomial deviation."""
    return Figure(name, seen / max(count, 1), expected, math.sqrt(expected * (1 - expected) / max(count, 1)))


def _count(batch: SampleDetails, masking: NgramMasking) -> dict[str, int]:
    samples = batch.samples
    lengths, masked = samples.lengths, samples.masked_counts
    budgets = masking.recipe.budgets(lengths)
    packed = [batch_of(samples.part(i, i + MICRO_BATCH)).packed for i in range(0, len(lengths), MICRO_BATCH)]
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
    }


def _drawn_ngrams(batch: SampleDetails, masking: NgramMasking) -> np.ndarray:
    """The n drawn for every word, used or not."""
    token_ids = batch.samples.token_ids.copy()
    token_ids[batch.samples.masked_positions] = batch.samples.masked_labels
    words = Words.find(token_ids, batch.samples.lengths, masking.word_starts, masking.special)
    return masking.draw_starts(words, batch.mask_keys)[1]


def _count_replacements(batch: SampleDetails, masking: NgramMasking, counts: Counter[str]) -> np.ndarray:
    """Count the replacements of masked tokens; returns how often each id replaced another."""
    labels, replaced = batch.samples.masked_labels, batch.samples.token_ids[batch.samples.masked_positions]
    sizes = batch.spans.end - batch.spans.begin
    drawn = np.cumsum(sizes) - sizes if masking.recipe.replacement == "span" else slice(None)  # one draw per span
    counts["replacements"] += len(labels[drawn])
    counts["[MASK]"] += int((replaced[drawn] == masking.mask_id).sum())
    counts["kept"] += int((replaced[drawn] == labels[drawn]).sum())
    random = replaced[(replaced != masking.mask_id) & (replaced != labels)]
    return np.bincount(random, minlength=len(masking.special))


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


def _replacement_figures(masking: NgramMasking, counts: Counter[str], random_tokens: np.ndarray) -> list[Figure]:
    recipe, vocabulary = masking.recipe, int((~masking.special).sum())
    same = recipe.replace_with_random / vocabulary  # a random token equal to the original
    kept = 1 - recipe.replace_with_mask - recipe.replace_with_random + same
    other = counts["replacements"] - counts["[MASK]"] - counts["kept"]
    ordinary = random_tokens[~masking.special]
    bins = max(2, min(vocabulary, int(ordinary.sum()) // 20))
    seen = np.bincount(np.arange(vocabulary) * bins // vocabulary, weights=ordinary)
    expected = np.bincount(np.arange(vocabulary) * bins // vocabulary) * ordinary.sum() / vocabulary
    spread = float(((seen - expected) ** 2 / np.maximum(expected, 1e-9)).sum()) / (bins - 1)
    return [
        _share("become [MASK], of the masked", counts["[MASK]"], counts["replacements"], recipe.replace_with_mask),
        _share("become another token", other, counts["replacements"], recipe.replace_with_random - same),
        _share("stay as they are", counts["kept"], counts["replacements"], kept),
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
