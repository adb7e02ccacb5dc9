"""Sample statistics have their expected values under every combination of options, and deviations are detected."""

from itertools import product

import numpy as np
import pytest

from albert.pretraining.sampling import PretrainingSamples
from albert.pretraining.segments import NO_LABEL
from albert.pretraining.statistics import measure, tokens_cut
from albert.recipes.pretraining import MaskingRecipe, SequenceRecipe

MAX_SCORE = 4.5
OBJECTIVES = ("sop", "nsp", "none")
MASKINGS = [
    MaskingRecipe(),
    MaskingRecipe(unit="token", max_ngram=1),
    MaskingRecipe(max_predictions=5, replacement="span"),
    MaskingRecipe(max_ngram=5, favor_shorter=False, replace_with_mask=0.5, replace_with_random=0.5),
]


@pytest.fixture(scope="module")
def corpus(corpus_of):
    """Words of one to four pieces of 300, no two sentences alike."""
    rng = np.random.default_rng(0)
    return corpus_of(
        [[rng.integers(20, 300, rng.integers(2, 12)) for _ in range(rng.integers(1, 30))] for _ in range(300)]
    )


def figures_of(corpus, sequences, masking, seed=0):
    samples = PretrainingSamples(corpus, sequences, masking, seed)
    return {figure.name: figure for figure in measure(samples, np.arange(4000))}


@pytest.mark.parametrize(("objective", "masking"), list(product(OBJECTIVES, MASKINGS)))
def test_statistics_have_their_expected_values(corpus, objective, masking):
    figures = figures_of(corpus, SequenceRecipe(max_length=64, objective=objective), masking)
    if objective == "none":
        figures.pop("negatives among labelled pairs")
    scores = {name: figure.score for name, figure in figures.items() if figure.score is not None}
    assert len(scores) >= 8
    assert {name: score for name, score in scores.items() if abs(score) > MAX_SCORE} == {}
    masked = figures["masked, of all tokens"]
    assert masked.seen == pytest.approx(masked.expected, rel=0.02) and masked.seen <= masked.expected


def test_budgets_and_segments_shorten_masked_spans(corpus):
    figures = figures_of(corpus, SequenceRecipe(max_length=128), MaskingRecipe())
    one, two, three = (figures[f"masked spans of n = {n}, shrunk to fit"].seen for n in (1, 2, 3))
    assert 6 / 11 < one < 0.65 and 2 / 11 > three > 0.1
    assert one + two + three == pytest.approx(1)


def test_cut_tokens_are_counted(corpus):
    recipe = SequenceRecipe(max_length=16, keep_pairs=True, short_probability=0.0)
    samples = PretrainingSamples(corpus, recipe, MaskingRecipe(), 0)
    batch = samples.batch(np.arange(samples.per_epoch))
    kept = int((batch.lengths - np.where(batch.order_labels == NO_LABEL, 2, 3)).sum())
    assert tokens_cut([corpus], recipe, 0).seen == pytest.approx(1 - kept / corpus.n_tokens)
    assert 0.05 < 1 - kept / corpus.n_tokens < 0.9
    assert tokens_cut([corpus], SequenceRecipe(max_length=16), 0).seen == 0


def test_an_unfair_coin_is_detected(corpus, monkeypatch):
    def biased_keys(purpose, seed, epoch, items):
        return np.where(items % 5, np.uint64(1 << 63), np.uint64(0)).astype(np.uint64)

    monkeypatch.setattr("albert.pretraining.sampling.item_keys", biased_keys)
    figures = figures_of(corpus, SequenceRecipe(max_length=64), MaskingRecipe())
    assert figures["negatives among labelled pairs"].score > 20
