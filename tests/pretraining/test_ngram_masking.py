"""Masks: whole words, n-grams with p(n) ∝ 1/n, the budget filled, 80/10/10, and nothing special touched."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.pretraining.masking import MaskingRecipe, NgramMasking, Words

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
    """Where its spans begin and end."""
    begin, end, _ = masking(**changes).choose_spans(ids, np.array([len(ids)]), key(seed))
    return list(zip(begin.tolist(), end.tolist(), strict=True))


def one_by_one(ids, seed, **changes):
    """The rule of choose_spans, as it is written down."""
    chooser = masking(**changes)
    words = Words.find(ids, np.array([len(ids)]), chooser.word_starts, SPECIAL)
    order, lengths = chooser.drawn(words, key(seed))
    segments = np.cumsum(ids < N_SPECIAL)[words.begin]
    budget = max(1, round(chooser.recipe.share * len(ids)))
    budget = min(budget, chooser.recipe.max_predictions or budget)
    covered, spans = set(), []
    for word in order.tolist():
        last = min(word + int(lengths[word]), len(words.begin)) - 1
        while last >= word and (segments[last] != segments[word] or words.end[last] - words.begin[word] > budget):
            last -= 1
        places = set(range(words.begin[word], words.end[last])) if last >= word else set()
        if not places or places & covered:
            continue
        covered |= places
        spans.append((int(words.begin[word]), int(words.end[last])))
        budget -= len(places)
        if budget == 0:
            break
    return sorted(spans)


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
    spans = spans_of(ids, seed, share=share, max_ngram=longest)
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
    found = masked(ids, seed)
    assert (ids == before).all()
    assert (found.labels == ids[found.positions]).all()
    assert (np.diff(found.positions) > 0).all()
    rest = np.setdiff1d(np.arange(len(ids)), found.positions)
    assert (found.token_ids[rest] == ids[rest]).all()
    assert found.token_ids.dtype == found.positions.dtype == found.labels.dtype == np.int64


@given(any_ids, seeds)
def test_special_tokens_are_never_masked_and_never_drawn_as_replacements(ids, seed):
    found = masked(ids, seed, share=0.9, replace_with_mask=0.1, replace_with_random=0.9)
    assert (found.labels >= N_SPECIAL).all()
    replaced = found.token_ids[found.positions]
    assert ((replaced == MASK) | (replaced >= N_SPECIAL)).all()


@pytest.mark.parametrize("ids", [[2], [2, 3], [2, 3, 3], [0, 1, 2, 3, 4], [1, 1, 1, 1, 1, 1, 1]], ids=str)
def test_a_sequence_of_special_tokens_gets_no_mask(ids):
    found = masked(np.array(ids, dtype=np.int64), 0)
    assert len(found.positions) == 0 and found.token_ids.tolist() == ids


@pytest.mark.parametrize("piece", [7, 40])
def test_a_single_token_is_masked_whether_or_not_it_begins_a_word(piece):
    for ids, place in (([piece], 0), ([CLS, piece, SEP], 1)):
        found = masked(np.array(ids, dtype=np.int64), 0)
        assert found.positions.tolist() == [place] and found.labels.tolist() == [piece]


def test_a_mask_never_crosses_a_separator():
    """The second segment begins inside a word, by its pieces; it is a word of its own all the same."""
    ids = np.array([CLS, 7, 8, SEP, 40, 41, 9, SEP], dtype=np.int64)
    seen = set()
    for seed in range(300):
        seen |= set(spans_of(ids, seed, share=0.5))
    assert {(1, 2), (2, 3), (1, 3), (4, 6), (6, 7), (4, 7)} == seen


@pytest.mark.parametrize(("first", "second"), [(20, 30), (60, 65), (250, 259), (13, 0)])
def test_the_budget_of_15_percent_is_filled_exactly(first, second):
    for seed in range(40):
        ids = sequence(first, second, seed)
        found = masked(ids, seed)
        assert len(found.positions) == max(1, round(0.15 * len(ids)))


@pytest.mark.parametrize(("favor_shorter", "expected"), [(True, [6, 3, 2]), (False, [2, 3, 6])])
def test_span_lengths_are_drawn_with_one_over_n(favor_shorter, expected):
    """.545, .273, .182 or the other way round (chi-square)."""
    ids = sequence(1500, 1500)
    words = Words.find(ids, np.array([len(ids)]), WORD_STARTS, SPECIAL)
    counts = np.zeros(4)
    for seed in range(10):
        _, drawn = masking(favor_shorter=favor_shorter).drawn(words, key(seed))
        counts += np.bincount(drawn, minlength=4)
    expected = counts.sum() * np.array(expected) / 11
    assert counts[0] == 0 and ((counts[1:] - expected) ** 2 / expected).sum() < 13.8  # one in a thousand


def test_every_word_is_as_likely_to_be_first_as_every_other():
    ids, copies = sequence(20, 20), 4000
    lengths = np.full(copies, len(ids))
    words = Words.find(np.tile(ids, copies), lengths, WORD_STARTS, SPECIAL)
    order, _ = masking().drawn(words, np.arange(copies).astype(np.uint64))
    counts = np.bincount(order[words.first] - words.first)
    expected = copies / len(counts)
    assert len(counts) == words.count[0]
    assert ((counts - expected) ** 2 / expected).sum() < len(counts) + 4 * np.sqrt(2 * len(counts))


def test_all_spans_of_long_sequences_are_near_one_over_n():
    counts = np.zeros(4)
    for seed in range(60):
        ids = sequence(1000, 1000, seed)
        found = masking(share=0.03).choose_spans(ids, np.array([len(ids)]), key(seed))
        words = words_of(ids)
        assert (words[found.end - 1] - words[found.begin] + 1 == found.words).all()
        counts += np.bincount(found.words, minlength=4)
    shares = counts[1:] / counts.sum()
    assert shares == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.04)


options = {
    "share": st.sampled_from([0.01, 0.15, 0.9]),
    "max_ngram": st.integers(1, 5),
    "max_predictions": st.sampled_from([None, 1, 3, 20]),
    "unit": st.sampled_from(["word", "token"]),
    "favor_shorter": st.booleans(),
    "replacement": st.sampled_from(["token", "span"]),
}


@given(any_ids, seeds, st.fixed_dictionaries(options))
def test_rounds_of_all_sequences_give_what_taking_words_one_by_one_gives(ids, seed, changes):
    assert spans_of(ids, seed, **changes) == one_by_one(ids, seed, **changes)


@given(st.lists(any_ids, min_size=1, max_size=6), seeds, st.fixed_dictionaries(options))
def test_a_sequence_is_masked_in_a_batch_as_alone(sequences, seed, changes):
    keys = np.arange(seed, seed + len(sequences)).astype(np.uint64)
    lengths = np.array([len(ids) for ids in sequences])
    together = masking(**changes)(np.concatenate(sequences), lengths, keys)
    alone = [masked(ids, key, **changes) for ids, key in zip(sequences, keys.tolist(), strict=True)]
    starts = np.cumsum(lengths) - lengths
    assert (together.token_ids == np.concatenate([one.token_ids for one in alone])).all()
    assert (together.labels == np.concatenate([one.labels for one in alone])).all()
    for column in (lambda m: m.positions, lambda m: m.spans.begin, lambda m: m.spans.end):
        moved = [column(one) + start for one, start in zip(alone, starts, strict=True)]
        assert (column(together) == np.concatenate(moved)).all()
    assert (together.spans.words == np.concatenate([one.spans.words for one in alone])).all()


def test_single_tokens_can_be_the_unit():
    """A word of many pieces is masked in part."""
    ids = np.array([CLS, 7, *[40] * 60, SEP], dtype=np.int64)
    found = masked(ids, 0, unit="token", max_ngram=1)
    assert len(found.positions) == round(0.15 * 63)
    assert (found.spans.end - found.spans.begin == 1).all()
    assert max(np.diff(spans_of(ids, 0, unit="token", max_ngram=4), axis=1)) <= 4


def fates(found):
    replaced = found.token_ids[found.positions]
    return np.where(replaced == MASK, 0, np.where(replaced == found.labels, 2, 1))


def test_with_replacement_by_span_all_tokens_of_a_span_share_one_fate():
    """A random token may happen to be the one that was there; of 45 it seldom is."""
    shares = np.zeros(3)
    for seed in range(200):
        found = masked(sequence(250, 250, seed), seed, replacement="span", max_ngram=5)
        sizes = found.spans.end - found.spans.begin
        edges = np.cumsum(sizes)
        for kinds in np.split(fates(found), edges[:-1]):
            assert len(set(kinds.tolist())) == 1 or (0 not in kinds and 1 in kinds)
            shares[kinds[0]] += 1
    assert shares / shares.sum() == pytest.approx([0.8, 0.1, 0.1], abs=0.02)


def test_with_replacement_by_token_the_tokens_of_a_span_have_fates_of_their_own():
    mixed = 0
    for seed in range(50):
        found = masked(sequence(250, 250, seed), seed)
        edges = np.cumsum(found.spans.end - found.spans.begin)
        mixed += sum(len(set(kinds.tolist())) > 1 for kinds in np.split(fates(found), edges[:-1]))
    assert mixed > 100


def test_80_percent_become_masks_10_random_10_stay():
    as_mask = random = kept = 0
    for seed in range(120):
        found = masked(sequence(250, 250, seed), seed)
        replaced = found.token_ids[found.positions]
        as_mask += int((replaced == MASK).sum())
        kept += int((replaced == found.labels).sum())
        random += int(((replaced != MASK) & (replaced != found.labels)).sum())
    total = as_mask + random + kept
    # A random token is the original one of 45 times.
    assert as_mask / total == pytest.approx(0.8, abs=0.015)
    assert random / total == pytest.approx(0.1 * 44 / 45, abs=0.012)
    assert kept / total == pytest.approx(0.1 + 0.1 / 45, abs=0.012)


def test_random_replacements_are_uniform_over_all_ordinary_tokens():
    counts = np.zeros(VOCABULARY)
    for seed in range(60):
        found = masked(sequence(250, 250), seed, replace_with_mask=0.0, replace_with_random=1.0)
        counts += np.bincount(found.token_ids[found.positions], minlength=VOCABULARY)
    assert (counts[:N_SPECIAL] == 0).all()
    expected = counts.sum() / (VOCABULARY - N_SPECIAL)
    assert ((counts[N_SPECIAL:] - expected) ** 2 / expected).sum() < 78.7  # chi-square, 44 degrees, one in a thousand


def test_special_ids_stand_anywhere_in_the_vocabulary():
    turned = np.random.default_rng(3).permutation(VOCABULARY)  # as in the Chinese models, where [MASK] is 103
    word_starts = np.empty_like(WORD_STARTS)
    word_starts[turned] = WORD_STARTS
    special = turned[:N_SPECIAL].tolist()
    elsewhere = NgramMasking(MaskingRecipe(replace_with_random=0.2), word_starts, int(turned[MASK]), special)
    for seed in range(50):
        ids = sequence(30, 20, seed)
        found = elsewhere(turned[ids], np.array([len(ids)]), key(seed))
        usual = masked(ids, seed, replace_with_random=0.2)
        assert (found.positions == usual.positions).all()
        assert (found.labels == turned[usual.labels]).all()
        replaced = found.token_ids[found.positions]
        assert ((replaced == turned[MASK]) == (usual.token_ids[usual.positions] == MASK)).all()
        assert not set(replaced.tolist()) & (set(special) - {int(turned[MASK])})
