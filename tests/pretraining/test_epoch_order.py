"""An epoch shows every sequence once, of many blocks at a time, and any sample can be asked for at any time."""

from functools import partial

import numpy as np
import pytest

from albert.pretraining import sampling as epoch_order
from albert.pretraining.sampling import CorpusBlocks, EpochOrder
from albert.pretraining.segments import pack_sentences


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(epoch_order, "BLOCK_TOKENS", 100)
    monkeypatch.setattr(epoch_order, "WINDOW_BLOCKS", 4)


@pytest.fixture(params=[1, 3], ids=["one shard", "three shards"])
def corpus(request, corpus_of):
    draws = np.random.default_rng(0)
    documents = [
        [draws.integers(20, 300, draws.integers(1, 12)) for _ in range(draws.integers(1, 12))] for _ in range(80)
    ]
    documents[30] = [draws.integers(20, 300, 9) for _ in range(60)]  # longer than a block
    return corpus_of(documents, shards=request.param)


def pack(documents, epoch, seed=0):
    return pack_sentences(documents, 25, 0.1, seed, epoch)


def order_of(corpus, seed=0):
    return EpochOrder(corpus, partial(pack, seed=seed), seed)


def sequences(order, epochs, samples):
    """(begin, split, end, document) of each sample."""
    rows = np.empty((len(samples), 4), dtype=np.int64)
    for group in order.find(epochs, samples):
        table = group.window.sequences.take(group.rows)
        rows[group.samples] = np.stack((table.begin, table.split, table.end, table.document), axis=1)
    return rows


def whole(order, epoch):
    return sequences(order, np.full(order.per_epoch, epoch), np.arange(order.per_epoch))


def test_blocks_are_runs_of_whole_documents_that_cover_the_corpus(corpus):
    blocks = CorpusBlocks(corpus)
    assert 20 < len(blocks) < 60
    sentences, starts = corpus.sentence_starts, corpus.document_starts
    document = 0
    for number in range(len(blocks)):
        own = blocks.documents(number)
        assert own.first_document == document and own.first_sentence == starts[document]
        count = len(own.starts) - 1
        assert (own.starts == starts[document : document + count + 1] - starts[document]).all()
        begin, end = starts[document], starts[document + count]
        assert (own.sentence_starts == sentences[begin : end + 1]).all()
        tokens = own.sentence_starts[-1] - own.sentence_starts[0]
        assert tokens <= 100 + max(np.diff(sentences[starts])) and (count == 1 or tokens < 300)
        document += count
    assert document == corpus.n_documents


def test_later_epochs_miss_and_repeat_a_few(corpus):
    order = order_of(corpus)
    for epoch in (1, 7):
        rows = whole(order, epoch)
        covered = np.zeros(corpus.n_tokens, dtype=int)
        for begin, _, end, _ in rows:
            covered[begin:end] += 1
        assert (covered == 1).mean() > 0.8 and covered.max() == 2


def test_sequences_are_those_of_packing_the_whole_corpus(corpus):
    order = order_of(corpus)
    every = pack(epoch_order.Documents(corpus.sentence_starts, corpus.document_starts), 0)
    rows = whole(order, 0)
    expected = np.stack((every.begin, every.split, every.end, every.document), axis=1)
    assert (rows[np.argsort(rows[:, 0])] == expected).all()


def test_a_sample_does_not_depend_on_what_else_was_asked_for(corpus):
    order = order_of(corpus)
    n = 3 * order.per_epoch
    epochs, samples = np.divmod(np.arange(n), order.per_epoch)
    expected = sequences(order, epochs, samples)
    shuffled = np.random.default_rng(0).permutation(n)
    assert (sequences(order, epochs[shuffled], samples[shuffled]) == expected[shuffled]).all()
    fresh = order_of(corpus)
    for number in (n - 1, 0, n // 2, n - 1):
        assert (sequences(fresh, epochs[[number]], samples[[number]]) == expected[number]).all()


def test_epochs_seeds_and_windows_are_shuffled_differently(corpus):
    order = order_of(corpus)
    one, two, other = whole(order, 0), whole(order, 1), whole(order_of(corpus, seed=1), 0)
    for changed in (two, other):
        count = min(len(one), len(changed))
        assert (one[:count, 0] == changed[:count, 0]).mean() < 0.2
    assert abs(np.corrcoef(np.arange(len(one)), one[:, 0])[0, 1]) < 0.5


def test_a_window_is_drawn_from_anywhere_and_only_a_few_are_kept(corpus):
    order = order_of(corpus)
    whole(order, 0)
    assert len(order._windows) == epoch_order.CACHED_WINDOWS
    places = list(order.find(np.zeros(order.per_epoch, dtype=np.int64), np.arange(order.per_epoch)))
    assert len(places) == round(len(order._blocks) / 4)
    reach = [np.ptp(group.window.sequences.document) for group in places]
    assert np.mean(reach) > 30  # of 80 documents
