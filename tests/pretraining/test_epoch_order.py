"""Epochs have every sequence once, from many blocks at a time."""

import numpy as np
import pytest

from albert.pretraining import sampling, segments
from albert.pretraining.sampling import EpochOrder
from albert.pretraining.segments import CorpusBlocks, Documents, pack_sentences


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(segments, "BLOCK_TOKENS", 100)
    monkeypatch.setattr(sampling, "WINDOW_BLOCKS", 4)


@pytest.fixture(params=[1, 3], ids=["one shard", "three shards"])
def corpus(request, corpus_of):
    rng = np.random.default_rng(0)
    documents = [[rng.integers(20, 300, rng.integers(1, 12)) for _ in range(rng.integers(1, 12))] for _ in range(80)]
    documents[30] = [rng.integers(20, 300, 9) for _ in range(60)]  # longer than a block
    return corpus_of(documents, shards=request.param)


def pack(documents, epoch):
    return pack_sentences(documents, 25, 0.1, 0, epoch)


def order_of(corpus):
    return EpochOrder(corpus, pack, 0)


def columns(table):
    return np.stack((table.begin, table.split, table.end, table.document), axis=1)


def whole_epoch(order, epoch):
    """(begin, split, end, document) of each sample."""
    rows = np.empty((order.per_epoch, 4), dtype=np.int64)
    for group in order.find(np.full(order.per_epoch, epoch), np.arange(order.per_epoch)):
        rows[group.samples] = columns(group.window.sequences.take(group.rows))
    return rows


def test_blocks_are_consecutive_whole_documents_that_cover_the_corpus(corpus):
    blocks = CorpusBlocks(corpus)
    assert 20 < len(blocks) < 60
    sentences, starts = corpus.sentence_starts, corpus.document_starts
    document = 0
    for documents in map(blocks.documents, range(len(blocks))):
        assert documents.first_document == document and documents.first_sentence == starts[document]
        count = len(documents.starts) - 1
        assert (documents.starts == starts[document : document + count + 1] - starts[document]).all()
        begin, end = starts[document], starts[document + count]
        assert (documents.sentence_starts == sentences[begin : end + 1]).all()
        tokens = np.ptp(documents.sentence_starts)
        assert tokens <= 100 + max(np.diff(sentences[starts])) and (count == 1 or tokens < 300)
        document += count
    assert document == corpus.n_documents


def test_epoch_0_has_the_sequences_of_the_packed_corpus(corpus):
    rows = whole_epoch(order_of(corpus), 0)
    expected = columns(pack(Documents(corpus.sentence_starts, corpus.document_starts), 0))
    assert (rows[np.argsort(rows[:, 0])] == expected).all()


def test_later_epochs_skip_and_repeat_few_sequences(corpus):
    order = order_of(corpus)
    for epoch in (1, 7):
        covered = np.zeros(corpus.n_tokens, dtype=int)
        for begin, _, end, _ in whole_epoch(order, epoch):
            covered[begin:end] += 1
        assert (covered == 1).mean() > 0.8 and covered.max() == 2


def test_a_window_has_blocks_of_the_whole_corpus_and_few_windows_are_cached(corpus):
    order = order_of(corpus)
    groups = list(order.find(np.zeros(order.per_epoch, dtype=np.int64), np.arange(order.per_epoch)))
    assert len(order._windows) == sampling.CACHED_WINDOWS
    assert len(groups) == round(len(order._blocks) / 4)
    assert np.mean([np.ptp(group.window.sequences.document) for group in groups]) > 30  # of 80 documents
