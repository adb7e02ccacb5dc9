"""Nothing but meaning gives the order away; and the judge notices what does."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from albert.pretraining.masking import MaskingRecipe
from albert.pretraining.sampling import PretrainingSamples, SequenceRecipe
from albert.pretraining.segments import SWAPPED

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")  # where scripts find each other
    from order_probe import judge, pairs_of, untruncated_pairs

BEGIN, END = 10, 11


@pytest.fixture(scope="module")
def corpus(corpus_of):
    """Sentences of random pieces and of all lengths, with marks where they begin and end: no meaning, many traces."""
    draws = np.random.default_rng(0)
    return corpus_of(
        [
            [
                np.concatenate([[BEGIN], draws.integers(20, 60, length), [END]])
                for length in np.clip(draws.lognormal(1.6, 0.6, 60), 1, 40).astype(int)
            ]
            for _ in range(900)
        ]
    )


def pairs(corpus, **changes):
    samples = PretrainingSamples(corpus, SequenceRecipe(**{"max_length": 64, **changes}), MaskingRecipe(), 0)
    return pairs_of(samples, 3 * samples.per_epoch)


@pytest.mark.parametrize("objective", ["sop", "nsp"])
@pytest.mark.parametrize("short", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("max_length", [48, 96])
def test_the_surface_tells_nothing(corpus, objective, short, max_length):
    seen = pairs(corpus, objective=objective, short_probability=short, max_length=max_length)
    verdict = judge(seen)
    assert not seen.cut.any()
    assert verdict.accuracy < 0.5 + 0.01 + 3 * verdict.deviation
    assert verdict.deviation < 0.008


@pytest.mark.parametrize("objective", ["sop", "nsp"])
def test_the_surface_tells_nothing_where_pairs_are_kept_and_cut(corpus, objective):
    seen = pairs(corpus, objective=objective, max_length=16, keep_pairs=True)
    verdict = judge(seen)
    assert seen.cut[:, 0].mean() > 0.3 and seen.cut[:, 3].mean() > 0.3 and not seen.cut[:, 1:3].any()
    assert verdict.accuracy < 0.5 + 0.01 + 3 * verdict.deviation
    assert verdict.deviation < 0.008


def test_text_that_was_never_cut_tells_nothing_here_either(corpus):
    seen = untruncated_pairs(corpus, 5, 20_000, 0)
    verdict = judge(seen)
    assert len(seen) > 8000 and (seen.labels == SWAPPED).mean() == pytest.approx(0.5, abs=0.02)
    assert verdict.accuracy < 0.5 + 3 * verdict.deviation


def test_the_reference_s_segments_give_more_away(corpus):
    verdict = judge(pairs(corpus, objective="sop-reference", max_length=48, short_probability=0.0))
    assert verdict.accuracy > verdict.majority + 0.03


def test_a_cut_at_the_end_of_the_text_would_be_seen(corpus):
    """The pilot lost tokens at the front of the earlier segment and at the end of the later one."""
    seen = pairs(corpus)
    swapped = seen.labels == SWAPPED
    cut = seen.cut.copy()
    lost = np.random.default_rng(0).random(len(seen)) < 0.5
    cut[:, 0], cut[:, 3] = lost & ~swapped, lost & ~swapped
    cut[:, 1], cut[:, 2] = lost & swapped, lost & swapped
    assert judge(replace(seen, cut=cut)).accuracy > 0.7


def test_a_longer_sentence_where_segments_meet_would_be_seen(corpus):
    seen = pairs(corpus)
    lengths = seen.lengths.copy()
    lengths[:, 0] += 2 * (seen.labels == SWAPPED)
    assert judge(replace(seen, lengths=lengths)).accuracy > 0.52
