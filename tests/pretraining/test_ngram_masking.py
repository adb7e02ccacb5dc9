"""Masks: whole words, n-grams with p(n) ∝ 1/n, the budget filled, 80/10/10, and nothing special touched."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.pretraining.ngram_masking import MaskingRecipe, NgramMasking
from albert.runtime.errors import InvalidConfiguration

CLS, SEP, MASK, N_SPECIAL = 2, 3, 4, 5
VOCABULARY = 50
WORD_STARTS = np.array([piece < 30 for piece in range(VOCABULARY)])  # 5 to 29 begin a word, 30 to 49 continue it


def masking(**changes):
    return NgramMasking(MaskingRecipe(**changes), WORD_STARTS, MASK, range(N_SPECIAL))


def sequence(first, second, seed=0, continued=0.3):
    """[CLS] first [SEP] second [SEP] of random pieces; this share of them continues a word."""
    draws = np.random.default_rng(seed)

    def pieces(count):
        ids = draws.integers(5, 30, count)
        inner = draws.random(count) < continued
        inner[:1] = False
        return np.where(inner, draws.integers(30, 50, count), ids)

    return np.concatenate([[CLS], pieces(first), [SEP], pieces(second), [SEP]]).astype(np.int64)


def words_of(ids):
    """Word number of each token, -1 for special ones; a segment's first piece begins a word whatever it is."""
    words, word = [], -1
    for place, piece in enumerate(ids):
        if piece < N_SPECIAL:
            words.append(-1)
            continue
        if WORD_STARTS[piece] or place == 0 or ids[place - 1] < N_SPECIAL:
            word += 1
        words.append(word)
    return np.array(words)


any_ids = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=60).map(
    lambda ids: np.array(ids, dtype=np.int64)
)
seeds = st.integers(0, 2**32)


@given(any_ids, seeds, st.sampled_from([0.01, 0.15, 0.9]), st.integers(1, 5))
def test_spans_are_whole_words_of_one_segment_and_never_overlap(ids, seed, share, longest):
    spans = masking(share=share, max_ngram=longest).choose_spans(ids, np.random.default_rng(seed))
    words = words_of(ids)
    covered = [place for begin, end in spans for place in range(begin, end)]
    assert len(covered) == len(set(covered)) <= max(1, round(share * len(ids)))
    for begin, end in spans:
        assert begin < end and (ids[begin:end] >= N_SPECIAL).all()
        touched = sorted(set(words[begin:end].tolist()))
        assert len(touched) <= longest and touched == list(range(touched[0], touched[0] + len(touched)))
        assert np.isin(words, touched).nonzero()[0].tolist() == list(range(begin, end))


@given(any_ids, seeds)
def test_labels_are_the_original_tokens_and_all_else_is_untouched(ids, seed):
    before = ids.copy()
    found = masking()(ids, np.random.default_rng(seed))
    assert (ids == before).all()
    assert (found.labels == ids[found.positions]).all()
    assert (np.diff(found.positions) > 0).all()
    rest = np.setdiff1d(np.arange(len(ids)), found.positions)
    assert (found.token_ids[rest] == ids[rest]).all()
    assert found.token_ids.dtype == found.positions.dtype == found.labels.dtype == np.int64


@given(any_ids, seeds)
def test_special_tokens_are_never_masked_and_never_drawn_as_replacements(ids, seed):
    found = masking(share=0.9, replace_with_mask=0.1, replace_with_random=0.9)(ids, np.random.default_rng(seed))
    assert (found.labels >= N_SPECIAL).all()
    replaced = found.token_ids[found.positions]
    assert ((replaced == MASK) | (replaced >= N_SPECIAL)).all()


@pytest.mark.parametrize("ids", [[2], [2, 3], [2, 3, 3], [0, 1, 2, 3, 4], [1, 1, 1, 1, 1, 1, 1]], ids=str)
def test_a_sequence_of_special_tokens_gets_no_mask(ids):
    found = masking()(np.array(ids, dtype=np.int64), np.random.default_rng(0))
    assert len(found.positions) == 0 and found.token_ids.tolist() == ids


@pytest.mark.parametrize("piece", [7, 40])
def test_a_single_token_is_masked_whether_or_not_it_begins_a_word(piece):
    for ids, place in (([piece], 0), ([CLS, piece, SEP], 1)):
        found = masking()(np.array(ids, dtype=np.int64), np.random.default_rng(0))
        assert found.positions.tolist() == [place] and found.labels.tolist() == [piece]


def test_a_word_longer_than_the_budget_is_left_alone():
    ids = np.array([CLS, 7, *[40] * 20, SEP], dtype=np.int64)
    assert masking().choose_spans(ids, np.random.default_rng(0)) == []


def test_a_mask_never_crosses_a_separator():
    """The second segment begins inside a word, by its pieces; it is a word of its own all the same."""
    ids = np.array([CLS, 7, 8, SEP, 40, 41, 9, SEP], dtype=np.int64)
    seen = set()
    for seed in range(300):
        seen |= set(masking(share=0.5).choose_spans(ids, np.random.default_rng(seed)))
    assert {(1, 2), (2, 3), (1, 3), (4, 6), (6, 7), (4, 7)} == seen


@pytest.mark.parametrize(("first", "second"), [(20, 30), (60, 65), (250, 259), (13, 0)])
def test_the_budget_of_15_percent_is_filled_exactly(first, second):
    for seed in range(40):
        ids = sequence(first, second, seed)
        found = masking()(ids, np.random.default_rng(seed))
        assert len(found.positions) == max(1, round(0.15 * len(ids)))


def test_span_lengths_follow_one_over_n():
    """The first span of a sequence meets no other and, with room, no limit: .545, .273, .182 (chi-square)."""
    counts = np.zeros(4)
    words = words_of(ids := sequence(150, 150))
    room = masking()
    for seed in range(3000):
        begin, end = room.choose_spans(ids, np.random.default_rng(seed))[0]
        if (ids[begin : begin + 12] < N_SPECIAL).any():
            continue  # near the end of a segment, spans are shorter
        counts[words[end - 1] - words[begin] + 1] += 1
    expected = counts.sum() * np.array([1, 1 / 2, 1 / 3]) / (11 / 6)
    assert ((counts[1:] - expected) ** 2 / expected).sum() < 13.8  # one in a thousand


def test_all_spans_of_long_sequences_are_near_one_over_n():
    counts = np.zeros(4)
    for seed in range(60):
        words = words_of(ids := sequence(1000, 1000, seed))
        for begin, end in masking(share=0.03).choose_spans(ids, np.random.default_rng(seed)):
            counts[words[end - 1] - words[begin] + 1] += 1
    shares = counts[1:] / counts.sum()
    assert shares == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.04)


@pytest.mark.parametrize("longest", [1, 2])
def test_no_span_has_more_words_than_allowed(longest):
    words = words_of(ids := sequence(200, 200))
    found = {
        words[end - 1] - words[begin] + 1
        for seed in range(50)
        for begin, end in masking(max_ngram=longest).choose_spans(ids, np.random.default_rng(seed))
    }
    assert found == set(range(1, longest + 1))


def test_80_percent_become_masks_10_random_10_stay():
    masked = random = kept = 0
    for seed in range(120):
        found = masking()(sequence(250, 250, seed), np.random.default_rng(seed))
        replaced = found.token_ids[found.positions]
        masked += int((replaced == MASK).sum())
        kept += int((replaced == found.labels).sum())
        random += int(((replaced != MASK) & (replaced != found.labels)).sum())
    total = masked + random + kept
    # A random token is the original one of 45 times.
    assert masked / total == pytest.approx(0.8, abs=0.015)
    assert random / total == pytest.approx(0.1 * 44 / 45, abs=0.012)
    assert kept / total == pytest.approx(0.1 + 0.1 / 45, abs=0.012)


def test_random_replacements_are_uniform_over_all_ordinary_tokens():
    counts = np.zeros(VOCABULARY)
    for seed in range(60):
        found = masking(replace_with_mask=0.0, replace_with_random=1.0)(sequence(250, 250), np.random.default_rng(seed))
        counts += np.bincount(found.token_ids[found.positions], minlength=VOCABULARY)
    assert (counts[:N_SPECIAL] == 0).all()
    expected = counts.sum() / (VOCABULARY - N_SPECIAL)
    assert ((counts[N_SPECIAL:] - expected) ** 2 / expected).sum() < 78.7  # chi-square, 44 degrees, one in a thousand


def test_equal_draws_give_equal_masks():
    ids = sequence(40, 40)
    one, again, other = (masking()(ids, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))
    assert not np.array_equal(one.positions, other.positions)


def test_special_ids_stand_anywhere_in_the_vocabulary():
    turned = np.random.default_rng(3).permutation(VOCABULARY)  # as in the Chinese models, where [MASK] is 103
    word_starts = np.empty_like(WORD_STARTS)
    word_starts[turned] = WORD_STARTS
    special = turned[:N_SPECIAL].tolist()
    elsewhere = NgramMasking(MaskingRecipe(replace_with_random=0.2), word_starts, int(turned[MASK]), special)
    here = masking(replace_with_random=0.2)
    for seed in range(50):
        ids = sequence(30, 20, seed)
        found = elsewhere(turned[ids], np.random.default_rng(seed))
        usual = here(ids, np.random.default_rng(seed))
        assert (found.positions == usual.positions).all()
        assert (found.labels == turned[usual.labels]).all()
        replaced = found.token_ids[found.positions]
        assert ((replaced == turned[MASK]) == (usual.token_ids[usual.positions] == MASK)).all()
        assert not set(replaced.tolist()) & (set(special) - {int(turned[MASK])})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"share": 0.0}, "masking.share: is 0.0, a number between 0 and 1 is needed"),
        ({"share": 1.0}, "masking.share: is 1.0, a number between 0 and 1 is needed"),
        ({"max_ngram": 0}, "masking.max_ngram: is 0, at least 1 is needed"),
        ({"replace_with_mask": 0.95}, "masking: the shares of [MASK] and random tokens do not fit into 1"),
        ({"replace_with_random": -0.1}, "masking: the shares of [MASK] and random tokens do not fit into 1"),
    ],
)
def test_impossible_shares_are_refused(changes, message):
    with pytest.raises(InvalidConfiguration) as refusal:
        MaskingRecipe(**changes)
    assert str(refusal.value) == message
