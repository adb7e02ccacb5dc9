"""A linear probe cannot predict the order of our segments from their surface; it can where segments leak it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from albert.pretraining.masking import MaskingRecipe
from albert.pretraining.sampling import PretrainingSamples, SequenceRecipe
from albert.pretraining.segments import SWAPPED

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(Path(__file__).parents[2] / "dev" / "benchmarks")  # for the scripts' imports of each other
    from order_probe import judge, pairs_of

BEGIN, END = 10, 11


@pytest.fixture(scope="module")
def corpus(corpus_of):
    """Sentences of random tokens and lengths, between a first and a last token: no meaning, only surface."""
    rng = np.random.default_rng(0)

    def sentence(length):
        return np.concatenate([[BEGIN], rng.integers(20, 60, length), [END]])

    lengths = [np.clip(rng.lognormal(1.6, 0.6, 60), 1, 40).astype(int) for _ in range(900)]
    return corpus_of([list(map(sentence, document)) for document in lengths])


def pairs(corpus, **changes):
    samples = PretrainingSamples(corpus, SequenceRecipe(**{"max_length": 64, **changes}), MaskingRecipe(), 0)
    return pairs_of(samples, 3 * samples.per_epoch)


@pytest.mark.parametrize("objective", ["sop", "nsp"])
@pytest.mark.parametrize(
    "changes",
    [
        {"short_probability": 0.0, "max_length": 48},
        {"short_probability": 0.1, "max_length": 96},
        {"short_probability": 1.0, "max_length": 48},
        {"max_length": 16, "keep_pairs": True},
    ],
    ids=str,
)
def test_the_surface_does_not_predict_the_order(corpus, objective, changes):
    data = pairs(corpus, objective=objective, **changes)
    if "keep_pairs" in changes:
        assert data.cut[:, 0].mean() > 0.3 and data.cut[:, 3].mean() > 0.3 and not data.cut[:, 1:3].any()
    else:
        assert not data.cut.any()
    result = judge(data)
    assert result.accuracy < 0.5 + 0.01 + 3 * result.deviation
    assert result.deviation < 0.008


def test_the_probe_detects_cuts_and_lengths_that_depend_on_the_order(corpus):
    data = pairs(corpus)
    swapped = data.labels == SWAPPED
    cut, chosen = data.cut.copy(), np.random.default_rng(0).random(len(data)) < 0.5
    for column in range(4):  # always at the outer ends of the text
        cut[:, column] = chosen & (swapped if column in (1, 2) else ~swapped)
    assert judge(replace(data, cut=cut)).accuracy > 0.7
    lengths = data.lengths.copy()
    lengths[:, 0] += 2 * swapped
    assert judge(replace(data, lengths=lengths)).accuracy > 0.52
