"""Which sentences become sequences: all of them, whole, once; and nothing in the cuts tells their order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.pretraining.segments import Documents, pack_sentences

documents = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=20), min_size=1, max_size=6)


def starts_of(lengths_by_document):
    sentences = [length for document in lengths_by_document for length in document]
    return (
        np.cumsum([0, *sentences], dtype=np.int64),
        np.cumsum([0, *map(len, lengths_by_document)], dtype=np.int64),
    )


def packed(lengths_by_document, max_tokens=25, short=0.1, seed=0, epoch=0, neighbours=0.0, keep_pairs=False):
    documents = Documents(*starts_of(lengths_by_document))
    return pack_sentences(documents, max_tokens, short, seed, epoch, neighbours, keep_pairs)


def random_documents(count, sentences, seed=0):
    """Sentence lengths as in real text: log-normal, mean 24, deviation two thirds of it."""
    draws = np.random.default_rng(seed)
    return [np.clip(draws.lognormal(3.0, 0.6, sentences), 2, 120).astype(int).tolist() for _ in range(count)]


anything = {"lengths": documents, "max_tokens": st.integers(2, 60), "short": st.sampled_from([0.0, 0.1, 1.0])}


@given(**anything, epoch=st.integers(0, 3), neighbours=st.sampled_from([0.0, 0.5, 1.0]))
def test_every_token_belongs_to_exactly_one_sequence(lengths, max_tokens, short, epoch, neighbours):
    table = packed(lengths, max_tokens, short, epoch=epoch, neighbours=neighbours)
    total = sum(map(sum, lengths))
    assert table.begin[0] == 0 and table.end[-1] == total
    assert (table.begin[1:] == table.end[:-1]).all()
    assert (table.begin < table.end).all()


@given(**anything)
def test_no_sentence_is_cut_unless_it_is_longer_than_allowed(lengths, max_tokens, short):
    table = packed(lengths, max_tokens, short)
    sentence_starts, _ = starts_of(lengths)
    for edge in table.begin:
        if edge not in sentence_starts:
            sentence = np.searchsorted(sentence_starts, edge) - 1
            assert sentence_starts[sentence + 1] - sentence_starts[sentence] > max_tokens


def test_a_sentence_longer_than_allowed_is_cut_into_equal_parts_without_an_order():
    table = packed([[5, 103, 5]], max_tokens=25)
    inside = (table.begin >= 5) & (table.end <= 108)
    assert (table.end - table.begin)[inside].tolist() == [20, 21, 20, 21, 21]
    assert (table.split == table.end)[inside].all()


@given(**anything)
def test_keeping_pairs_leaves_no_sentence_alone_that_has_another_in_its_document(lengths, max_tokens, short):
    table = packed(lengths, max_tokens, short, keep_pairs=True)
    alone = table.split == table.end
    assert all(len(lengths[document]) == 1 for document in table.document[alone].tolist())
    sentence_starts, _ = starts_of(lengths)
    first, last = (np.searchsorted(sentence_starts, edges[~alone]) for edges in (table.begin, table.end))
    too_long = (table.end - table.begin)[~alone] > max_tokens
    assert np.isin(last - first, (2, 3))[too_long].all()
    assert table.begin[0] == 0 and (table.begin[1:] == table.end[:-1]).all() and table.end[-1] == sum(map(sum, lengths))


def test_sequences_are_well_filled():
    table = packed(random_documents(300, 200), max_tokens=509, short=0.0)
    assert 0.72 < (table.end - table.begin).mean() / 509 < 0.95


def test_the_asked_share_of_sequences_is_short():
    """Of sentences of one token nothing overflows, so only the short ones are less than half full."""
    documents = [[1] * 4000 for _ in range(50)]
    whole = packed(documents, max_tokens=100, short=0.0)
    assert (whole.end - whole.begin).min() >= 50
    table = packed(documents, max_tokens=100, short=0.1)
    cut = len(table) - len(whole)
    assert 2 * cut / len(table) == pytest.approx(0.1, abs=0.02)
    lengths = (table.end - table.begin)[~np.isin(table.begin, whole.begin)]
    assert lengths.min() <= 5 and lengths.max() >= 90  # anywhere
    assert lengths.mean() == pytest.approx(50, abs=5)


def test_every_split_of_a_sequence_is_as_likely_as_every_other():
    table = packed([[2] * 6] * 6000, max_tokens=12, short=0.0)
    counts = np.bincount((table.split - table.begin) // 2, minlength=6)[1:]
    assert counts.sum() == 6000
    assert (np.abs(counts - 1200) < 4 * np.sqrt(1200)).all()


def test_the_asked_share_of_sequences_is_cut_into_neighbours():
    documents = [[2] * 6 for _ in range(4000)]
    whole = packed(documents, max_tokens=12, short=0.0)
    assert len(whole) == 4000
    table = packed(documents, max_tokens=12, short=0.0, neighbours=0.25)
    lengths = table.end - table.begin
    assert set(lengths.tolist()) == {4, 12}
    assert (lengths == 4).sum() / 3 == pytest.approx(1000, abs=4 * np.sqrt(4000 * 0.25 * 0.75))
    assert ((table.split - table.begin)[lengths == 4] == 2).all()  # nothing but the boundary and a sentence each side
    odd = packed([[2] * 7] * 50, max_tokens=14, short=0.0, neighbours=1.0)
    assert (odd.end - odd.begin).tolist() == [4, 4, 6] * 50


@given(**anything, neighbours=st.sampled_from([0.5, 1.0]))
def test_neighbours_are_parts_of_the_sequences_that_there_are_without(lengths, max_tokens, short, neighbours):
    whole, table = packed(lengths, max_tokens, short), packed(lengths, max_tokens, short, neighbours=neighbours)
    assert set(whole.begin.tolist()) <= set(table.begin.tolist())
    sentence_starts, _ = starts_of(lengths)
    if neighbours == 1.0:
        sentences = np.searchsorted(sentence_starts, table.end) - np.searchsorted(sentence_starts, table.begin)
        assert sentences.max() <= 3


def test_first_and_second_segments_are_equally_long():
    for max_tokens, sentences in ((61, 40), (125, 5), (125, 40), (509, 100)):
        table = packed(random_documents(40_000 // sentences, sentences), max_tokens)
        two = table.split < table.end
        difference = (2 * table.split - table.begin - table.end)[two]
        error = difference.std() / np.sqrt(len(difference))
        assert abs(difference.mean()) < 3.5 * error
        longer, shorter = int((difference > 0).sum()), int((difference < 0).sum())
        assert abs(longer - shorter) < 3.5 * np.sqrt(longer + shorter)
