"""Masking: whole words, n-grams with p(n) ∝ 1/n, a filled budget, 80/10/10, special tokens left alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.pretraining.masking import NgramMasking, Words
from albert.recipes.pretraining import MaskingRecipe

CLS, SEP, MASK, N_SPECIAL = 2, 3, 4, 5
VOCABULARY = 50
WORD_STARTS = np.array([piece < 30 for piece in range(VOCABULARY)])  # 5 to 29 begin a word, 30 to 49 continue it

SPECIAL = np.arange(VOCABULARY) < N_SPECIAL


def masking(**changes):
    return NgramMasking(MaskingRecipe(**changes), WORD_STARTS, MASK, range(N_SPECIAL))


def key(seed):
    return np.array([seed], dtype=np.uint64)


def masked(ids, seed, **changes):
    """One sequence, masked."""
    return masking(**changes)(ids, np.array([len(ids)]), key(seed))


def spans_of(ids, seed, **changes):
    """Begin and end of its spans."""
    begin, end, _ = masking(**changes).choose_spans(ids, np.array([len(ids)]), key(seed))
    return list(zip(begin.tolist(), end.tolist(), strict=True))


def one_by_one(ids, seed, **changes):
    """The rule of `choose_spans`, word by word."""
    chooser = masking(**changes)
    words = Words.find(ids, np.array([len(ids)]), chooser.word_starts, SPECIAL)
    order, lengths = chooser.draw_starts(words, key(seed))
    segments = np.cumsum(ids < N_SPECIAL)[words.begin]
    budget = max(1, round(chooser.recipe.share * len(ids)))
    budget = min(budget, chooser.recipe.max_predictions or budget)
    covered, spans = set(), []
    for word in order.tolist():
        last = min(word + int(lengths[word]), len(words.begin)) - 1
        while last >= word and (segments[last] != segments[word] or words.end[last] - words.begin[word] > budget):
            last -= 1
        span = set(range(words.begin[word], words.end[last])) if last >= word else set()
        if not span or span & covered:
            continue
        covered |= span
        spans.append((int(words.begin[word]), int(words.end[last])))
        budget -= len(span)
        if budget == 0:
            break
    return sorted(spans)


def sequence(first, second, seed=0, continued=0.3):
    """[CLS] first [SEP] second [SEP] of random pieces; this share of them continues a word."""
    rng = np.random.default_rng(seed)

    def pieces(count):
        ids = rng.integers(5, 30, count)
        inner = rng.random(count) < continued
        inner[:1] = False
        return np.where(inner, rng.integers(30, 50, count), ids)

    return np.concatenate([[CLS], pieces(first), [SEP], pieces(second), [SEP]]).astype(np.int64)


any_ids = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=60).map(
    lambda ids: np.array(ids, dtype=np.int64)
)
seeds = st.integers(0, 2**32)


@given(any_ids, seeds)
def test_labels_are_the_original_tokens_and_other_tokens_are_unchanged(ids, seed):
    before = ids.copy()
    result = masked(ids, seed)
    assert (ids == before).all()
    assert (result.labels == ids[result.positions]).all()
    assert (np.diff(result.positions) > 0).all()
    rest = np.setdiff1d(np.arange(len(ids)), result.positions)
    assert (result.token_ids[rest] == ids[rest]).all()
    assert result.token_ids.dtype == result.positions.dtype == result.labels.dtype == np.int64


@given(any_ids, seeds)
def test_special_tokens_are_never_masked_and_never_drawn_as_replacements(ids, seed):
    result = masked(ids, seed, share=0.9, replace_with_mask=0.1, replace_with_random=0.9)
    assert (result.labels >= N_SPECIAL).all()
    replaced = result.token_ids[result.positions]
    assert ((replaced == MASK) | (replaced >= N_SPECIAL)).all()


@pytest.mark.parametrize(
    ("ids", "positions"),
    [
        ([2, 3, 3], []),
        ([0, 1, 2, 3, 4], []),
        *(case for piece in (7, 40) for case in (([piece], [0]), ([CLS, piece, SEP], [1]))),
    ],
    ids=str,
)
def test_special_tokens_get_no_mask_and_a_single_token_always_does(ids, positions):
    result = masked(np.array(ids, dtype=np.int64), 0)
    assert result.positions.tolist() == positions and result.labels.tolist() == [ids[i] for i in positions]


def test_a_mask_never_crosses_a_separator():
    """The first piece of the second segment continues a word by its form; it begins one all the same."""
    ids = np.array([CLS, 7, 8, SEP, 40, 41, 9, SEP], dtype=np.int64)
    spans = {span for seed in range(300) for span in spans_of(ids, seed, share=0.5)}
    assert spans == {(1, 2), (2, 3), (1, 3), (4, 6), (6, 7), (4, 7)}


@pytest.mark.parametrize(("first", "second"), [(20, 30), (60, 65), (250, 259), (13, 0)])
def test_the_budget_of_15_percent_is_filled_exactly(first, second):
    for seed in range(40):
        ids = sequence(first, second, seed)
        assert len(masked(ids, seed).positions) == max(1, round(0.15 * len(ids)))


@pytest.mark.parametrize(("favor_shorter", "expected"), [(True, [6, 3, 2]), (False, [2, 3, 6])])
def test_span_lengths_are_drawn_with_one_over_n(favor_shorter, expected):
    """.545, .273, .182 or the other way round (chi-square)."""
    ids = sequence(1500, 1500)
    words = Words.find(ids, np.array([len(ids)]), WORD_STARTS, SPECIAL)
    counts = np.zeros(4)
    for seed in range(10):
        _, drawn = masking(favor_shorter=favor_shorter).draw_starts(words, key(seed))
        counts += np.bincount(drawn, minlength=4)
    expected = counts.sum() * np.array(expected) / 11
    assert counts[0] == 0 and ((counts[1:] - expected) ** 2 / expected).sum() < 13.8  # one in a thousand


def test_every_word_is_equally_likely_to_be_first():
    ids, copies = sequence(20, 20), 4000
    lengths = np.full(copies, len(ids))
    words = Words.find(np.tile(ids, copies), lengths, WORD_STARTS, SPECIAL)
    order, _ = masking().draw_starts(words, np.arange(copies).astype(np.uint64))
    counts = np.bincount(order[words.first] - words.first)
    expected = copies / len(counts)
    assert len(counts) == words.count[0]
    assert ((counts - expected) ** 2 / expected).sum() < len(counts) + 4 * np.sqrt(2 * len(counts))


options = {
    "share": st.sampled_from([0.01, 0.15, 0.9]),
    "max_ngram": st.integers(1, 5),
    "max_predictions": st.sampled_from([None, 1, 3, 20]),
    "unit": st.sampled_from(["word", "token"]),
    "favor_shorter": st.booleans(),
    "replacement": st.sampled_from(["token", "span"]),
}


@given(any_ids, seeds, st.fixed_dictionaries(options))
def test_spans_are_those_of_taking_words_one_by_one(ids, seed, changes):
    assert spans_of(ids, seed, **changes) == one_by_one(ids, seed, **changes)


@given(st.lists(any_ids, min_size=1, max_size=6), seeds, st.fixed_dictionaries(options))
def test_a_sequence_is_masked_the_same_in_a_batch_and_alone(sequences, seed, changes):
    keys = np.arange(seed, seed + len(sequences)).astype(np.uint64)
    lengths = np.array([len(ids) for ids in sequences])
    batch = masking(**changes)(np.concatenate(sequences), lengths, keys)
    alone = [masked(ids, key, **changes) for ids, key in zip(sequences, keys.tolist(), strict=True)]
    starts = np.cumsum(lengths) - lengths
    for column in (lambda m: m.token_ids, lambda m: m.labels, lambda m: m.spans.words):
        assert (column(batch) == np.concatenate([column(single) for single in alone])).all()
    for column in (lambda m: m.positions, lambda m: m.spans.begin, lambda m: m.spans.end):
        moved = [column(single) + start for single, start in zip(alone, starts, strict=True)]
        assert (column(batch) == np.concatenate(moved)).all()


AS_MASK, AS_RANDOM, UNCHANGED = range(3)


def replacements(result):
    """The kind of replacement of each masked token. A random token equals the original one of 45 times."""
    replaced = result.token_ids[result.positions]
    return np.where(replaced == MASK, AS_MASK, np.where(replaced == result.labels, UNCHANGED, AS_RANDOM))


def by_span(result):
    return np.split(replacements(result), np.cumsum(result.spans.end - result.spans.begin)[:-1])


def test_replacement_span_draws_once_for_all_tokens_of_a_span():
    shares = np.zeros(3)
    for seed in range(200):
        for kinds in by_span(masked(sequence(250, 250, seed), seed, replacement="span", max_ngram=5)):
            assert len(set(kinds.tolist())) == 1 or (AS_MASK not in kinds and AS_RANDOM in kinds)
            shares[kinds[0]] += 1
    assert shares / shares.sum() == pytest.approx([0.8, 0.1, 0.1], abs=0.02)


def test_80_percent_become_masks_10_random_10_stay():
    results = [masked(sequence(250, 250, seed), seed) for seed in range(120)]
    counts = np.bincount(np.concatenate([replacements(result) for result in results]), minlength=3)
    shares = counts / counts.sum()
    assert shares[AS_MASK] == pytest.approx(0.8, abs=0.015)
    assert shares[AS_RANDOM] == pytest.approx(0.1 * 44 / 45, abs=0.012)
    assert shares[UNCHANGED] == pytest.approx(0.1 + 0.1 / 45, abs=0.012)
