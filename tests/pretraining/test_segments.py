"""Packing sentences into sequences, ordering segments, and negative examples for NSP."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.pretraining.segments import (
    IN_ORDER,
    NO_LABEL,
    SWAPPED,
    Documents,
    NegativeSegments,
    Segments,
    SequenceTable,
    TokenRanges,
    cut_to_length,
    order_segments,
    pack_sentences,
)

documents = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=20), min_size=1, max_size=6)
settings = {"lengths": documents, "max_tokens": st.integers(2, 60), "short": st.sampled_from([0.0, 0.1, 1.0])}


def documents_of(lengths):
    """Documents from the sentence lengths of each."""
    sentences = [length for document in lengths for length in document]
    return Documents(np.cumsum([0, *sentences], dtype=np.int64), np.cumsum([0, *map(len, lengths)], dtype=np.int64))


def pack(lengths, max_tokens=25, short=0.1, seed=0, epoch=0, keep_pairs=False):
    return pack_sentences(documents_of(lengths), max_tokens, short, seed, epoch, keep_pairs)


def random_documents(count, sentences, seed=0):
    """Sentence lengths as in real text: log-normal, mean 24, deviation two thirds of it."""
    rng = np.random.default_rng(seed)
    return [np.clip(rng.lognormal(3.0, 0.6, sentences), 2, 120).astype(int).tolist() for _ in range(count)]


def assert_covers(table, lengths):
    """Every token is in exactly one sequence."""
    assert table.begin[0] == 0 and table.end[-1] == sum(map(sum, lengths))
    assert (table.begin[1:] == table.end[:-1]).all() and (table.begin < table.end).all()


def token_ranges(begin, length):
    return TokenRanges(np.array(begin), np.array(length))


# ---- packing ---------------------------------------------------------------------------------------------------------


@given(**settings, epoch=st.integers(0, 3))
def test_every_token_is_in_one_sequence_and_only_overlong_sentences_are_cut(lengths, max_tokens, short, epoch):
    table = pack(lengths, max_tokens, short, epoch=epoch)
    assert_covers(table, lengths)
    sentence_starts = documents_of(lengths).sentence_starts
    for edge in set(table.begin.tolist()) - set(sentence_starts.tolist()):
        sentence = np.searchsorted(sentence_starts, edge) - 1
        assert sentence_starts[sentence + 1] - sentence_starts[sentence] > max_tokens


def test_overlong_sentence_is_cut_into_equal_parts_without_order():
    table = pack([[5, 103, 5]], max_tokens=25)
    inside = (table.begin >= 5) & (table.end <= 108)
    assert (table.end - table.begin)[inside].tolist() == [20, 21, 20, 21, 21]
    assert (table.split == table.end)[inside].all()


@given(**settings)
def test_keep_pairs_leaves_only_single_sentence_documents_alone(lengths, max_tokens, short):
    table = pack(lengths, max_tokens, short, keep_pairs=True)
    assert_covers(table, lengths)
    alone = table.split == table.end
    assert all(len(lengths[document]) == 1 for document in table.document[alone].tolist())
    sentence_starts = documents_of(lengths).sentence_starts
    first, last = (np.searchsorted(sentence_starts, edges[~alone]) for edges in (table.begin, table.end))
    too_long = (table.end - table.begin)[~alone] > max_tokens
    assert np.isin(last - first, (2, 3))[too_long].all()


def test_short_probability_is_the_share_of_short_sequences():
    """With sentences of one token only short sequences are less than half full."""
    lengths = [[1] * 4000 for _ in range(50)]
    uncut = pack(lengths, max_tokens=100, short=0.0)
    assert (uncut.end - uncut.begin).min() >= 50
    table = pack(lengths, max_tokens=100, short=0.1)
    assert 2 * (len(table) - len(uncut)) / len(table) == pytest.approx(0.1, abs=0.02)
    cut_lengths = (table.end - table.begin)[~np.isin(table.begin, uncut.begin)]
    assert cut_lengths.min() <= 5 and cut_lengths.max() >= 90
    assert cut_lengths.mean() == pytest.approx(50, abs=5)


def test_split_is_uniform_over_sentence_boundaries():
    table = pack([[2] * 6] * 6000, max_tokens=12, short=0.0)
    counts = np.bincount((table.split - table.begin) // 2, minlength=6)[1:]
    assert counts.sum() == 6000
    assert (np.abs(counts - 1200) < 4 * np.sqrt(1200)).all()


@pytest.mark.parametrize(("max_tokens", "sentences"), [(61, 40), (125, 5), (125, 40), (509, 100)])
def test_first_and_second_segments_have_equal_lengths_on_average(max_tokens, sentences):
    table = pack(random_documents(40_000 // sentences, sentences), max_tokens)
    difference = (2 * table.split - table.begin - table.end)[table.split < table.end]
    assert abs(difference.mean()) < 3.5 * difference.std() / np.sqrt(len(difference))
    longer, shorter = int((difference > 0).sum()), int((difference < 0).sum())
    assert abs(longer - shorter) < 3.5 * np.sqrt(longer + shorter)


# ---- order -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objective", "labels", "first", "second"),
    [
        ("sop", [IN_ORDER, SWAPPED, NO_LABEL], [15, 4], [10, 5]),
        ("nsp", [IN_ORDER, SWAPPED, NO_LABEL], [10, 5], [91, 3]),
        ("none", [NO_LABEL] * 3, [10, 5], [15, 4]),
    ],
)
def test_order_segments_swaps_or_replaces_by_coin(objective, labels, first, second):
    segments = order_segments(
        objective,
        token_ranges([0, 10, 20], [5, 5, 5]),
        token_ranges([5, 15, 25], [4, 4, 0]),
        lambda rows: TokenRanges(rows + 90, rows + 2),
        np.array([False, True, True]),
    )
    assert segments.labels.tolist() == labels
    assert np.stack(segments.first, axis=1).tolist() == [[0, 5], first, [20, 5]]
    assert np.stack(segments.second, axis=1).tolist() == [[5, 4], second, [25, 0]]


def test_cut_to_length_cuts_the_front_of_the_first_and_the_end_of_the_second_segment():
    first, second = token_ranges([100] * 4, [6, 9, 3, 5]), token_ranges([100] * 4, [4, 3, 9, 6])
    cut = cut_to_length(10, Segments(first, second, np.array([IN_ORDER, SWAPPED, SWAPPED, NO_LABEL])))
    assert cut.first.length.tolist() == [6, 7, 3, 5] and cut.second.length.tolist() == [4, 3, 7, 5]
    assert cut.first.begin.tolist() == [100, 102, 100, 100] and cut.second.begin.tolist() == [100] * 4


# ---- negative examples -----------------------------------------------------------------------------------------------


def table_of(rows):
    """Sequences from (document, tokens of the first segment, tokens of the second)."""
    rows = np.array(sorted(rows))
    begin = np.cumsum(rows[:, 1] + rows[:, 2]) - rows[:, 1] - rows[:, 2]
    split = begin + rows[:, 1]
    return SequenceTable(begin, split, split + rows[:, 2], rows[:, 0])


sequences = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 9), st.integers(0, 9)), min_size=2, max_size=30
).filter(lambda rows: len({document for document, _, _ in rows}) > 1)


@given(sequences, st.integers(0, 2**32))
def test_negative_segment_is_a_whole_segment_of_another_document(rows, seed):
    """Or the beginning of one, where no segment fits."""
    table = table_of(rows)
    two = np.flatnonzero(table.split < table.end)
    if len(two) == 0:
        return
    room = np.full(len(two), 6)
    length = np.minimum((table.end - table.split)[two], room)
    keys = two.astype(np.uint64) + np.uint64(seed)
    negative = NegativeSegments(table).sample(table.document[two], length, room, keys)
    sequence = np.searchsorted(table.begin, negative.begin, side="right") - 1
    assert (table.document[sequence] != table.document[two]).all()
    assert ((negative.length > 0) & (negative.length <= 6)).all()
    assert (negative.begin == np.where(table.split < table.end, table.split, table.begin)[sequence]).all()
    assert (negative.length == np.minimum(table.end[sequence] - negative.begin, 6)).all()


def test_negative_segment_has_equal_length_where_possible():
    rng = np.random.default_rng(0)
    table = table_of([(document, 5, rng.integers(1, 20)) for document in range(50) for _ in range(40)])
    length, keys = table.end - table.split, np.arange(len(table)).astype(np.uint64)
    negative = NegativeSegments(table).sample(table.document, length, np.full(len(table), 60), keys)
    assert (negative.length == length).mean() > 0.999
    assert len(np.unique(negative.begin)) > 0.5 * len(table)


def test_the_only_other_document_is_found_beside_a_large_one():
    table = table_of([(0, 5, 7)] * 200_000 + [(1, 5, 9)])
    rows = np.arange(0, 200_000, 20)
    room, keys = np.full(len(rows), 8), rows.astype(np.uint64)
    negative = NegativeSegments(table).sample(table.document[rows], room - 1, room, keys)
    assert (negative.begin == table.split[-1]).all() and (negative.length == 8).all()
