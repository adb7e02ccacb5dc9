"""Sample n of epoch e is a pure function of seed, e, n and corpus."""

import numpy as np
import pytest

from albert.pretraining import sampling
from albert.pretraining.batches import Samples
from albert.pretraining.sampling import PretrainingSamples
from albert.pretraining.segments import NO_LABEL, SWAPPED
from albert.recipes.pretraining import MaskingRecipe, SequenceRecipe
from albert.text.shards import TokenCorpus

CLS, SEP = 2, 3


@pytest.fixture(scope="module")
def corpus(tiny_corpus):
    return TokenCorpus.open(tiny_corpus, "train")


def samples_of(corpus, seed=0, **sequences):
    return PretrainingSamples(corpus, SequenceRecipe(**{"max_length": 32, **sequences}), MaskingRecipe(), seed)


def some_samples(samples, epochs=1):
    return samples.batch(np.arange(epochs * samples.per_epoch)).unbatch()


def original(sample):
    """The token ids before masking."""
    ids = sample.token_ids.copy()
    ids[sample.masked_positions] = sample.masked_labels
    return ids


def segments(sample):
    """The tokens of both segments, without special ones."""
    ids = original(sample)
    separator = ids.tolist().index(SEP)
    return ids[1:separator], ids[separator + 1 : -1]


def equal(a, b):
    return all(map(np.array_equal, a, b))


def counting_documents(*sizes, count=12):
    """Documents of sentences of these sizes, whose token ids count upwards."""
    numbers = iter(range(20, 300))
    return [[[next(numbers) for _ in range(size)] for size in sizes] for _ in range(count)]


def test_a_sample_is_cls_first_sep_second_sep(corpus):
    for sample in some_samples(samples_of(corpus)):
        ids, types = original(sample), sample.token_type_ids
        assert len(ids) == len(types) <= 32
        assert ids[0] == CLS and ids[-1] == SEP
        separators = np.flatnonzero(ids == SEP).tolist()
        assert len(separators) == (1 if sample.order_label == NO_LABEL else 2)
        assert (np.flatnonzero(types) == np.arange(separators[0] + 1, len(ids))).all()
        assert ids.dtype == types.dtype == np.int64


def test_an_epoch_has_every_token_of_the_corpus_once(corpus):
    tokens = np.concatenate([part for sample in some_samples(samples_of(corpus)) for part in segments(sample)])
    assert (np.sort(tokens) == np.sort(corpus.read(0, corpus.n_tokens))).all()


@pytest.mark.parametrize("objective", ["sop", "nsp", "none"])
def test_a_sample_does_not_depend_on_its_batch(corpus, objective, monkeypatch):
    """In any order, across the ends of epochs and windows."""
    monkeypatch.setattr("albert.pretraining.segments.BLOCK_TOKENS", 300)
    monkeypatch.setattr(sampling, "WINDOW_BLOCKS", 3)
    samples = samples_of(corpus, objective=objective)
    count = 2 * samples.per_epoch + 20
    alone = [samples_of(corpus, objective=objective).sample(n) for n in range(0, count, 81)]
    rng = np.random.default_rng(0)
    for size in (2, 7, count):
        numbers = rng.permutation(count)[:size]
        for number, sample in zip(numbers.tolist(), samples.batch(numbers).unbatch(), strict=True):
            if number % 81 == 0:
                assert equal(sample, alone[number // 81])


def test_parts_of_a_batch_are_its_samples(corpus):
    batch = samples_of(corpus).batch(np.arange(20))
    single = batch.unbatch()
    for begin, end in ((0, 20), (5, 11), (19, 20)):
        assert equal(batch.part(begin, end), Samples.of(single[begin:end]))
        part, before = batch.part(begin, end), batch.lengths[:begin].sum()
        within = (batch.masked_positions >= before) & (batch.masked_positions < before + part.lengths.sum())
        assert part.masked_positions.tolist() == (batch.masked_positions[within] - before).tolist()
    rows = np.array([7, 3, 19, 0])
    assert equal(batch.take(rows), Samples.of([single[row] for row in rows]))
    assert len(batch.part(3, 3).lengths) == 0


def test_epochs_and_seeds_differ(corpus):
    samples = samples_of(corpus)
    first, second = (samples.batch(np.arange(60) + epoch * samples.per_epoch).unbatch() for epoch in (0, 1))
    other_seed = samples_of(corpus, 1).batch(np.arange(60)).unbatch()
    assert not any(map(equal, first, second)) and not any(map(equal, first, other_seed))


def test_equal_sequences_come_in_another_order_in_every_epoch(corpus_of):
    samples = samples_of(corpus_of([[np.arange(20, 25)] for _ in range(60)]))
    first, second = (samples.segments(np.arange(60) + 60 * epoch).first.begin for epoch in (0, 1))
    assert sorted(first) == sorted(second) and (first == second).mean() < 0.2


def test_the_same_text_is_masked_differently_in_every_epoch(corpus_of):
    samples = samples_of(corpus_of([[np.arange(20, 45)]]))
    masks = {tuple(samples.sample(epoch).masked_positions.tolist()) for epoch in range(12)}
    assert samples.per_epoch == 1 and len(masks) > 8


def test_sop_segments_are_adjacent_and_half_are_swapped(corpus_of):
    samples = samples_of(corpus_of(counting_documents(3, 4, 2, 5, 3)), max_length=20)
    labels = []
    for sample in some_samples(samples, 40):
        first, second = segments(sample)
        if sample.order_label == NO_LABEL:
            assert len(second) == 0
            continue
        labels.append(sample.order_label)
        earlier, later = (second, first) if sample.order_label == SWAPPED else (first, second)
        assert earlier[-1] + 1 == later[0]
    assert abs(np.mean(labels) - 0.5) < 4 * 0.5 / np.sqrt(len(labels))


@pytest.mark.parametrize("objective", ["sop", "nsp"])
def test_single_sentence_has_no_label_and_no_second_segment(corpus_of, objective):
    corpus = corpus_of([[np.full(12, 20 + document)] for document in range(30)])
    for sample in some_samples(samples_of(corpus, objective=objective)):
        first, second = segments(sample)
        assert sample.order_label == NO_LABEL and len(second) == 0
        assert len(first) == 12 and len(set(first.tolist())) == 1
        assert (sample.token_type_ids == 0).all()


def test_half_of_nsp_pairs_are_of_two_documents(corpus_of):
    rng = np.random.default_rng(0)
    corpus = corpus_of([[np.full(rng.integers(2, 9), 20 + document) for _ in range(12)] for document in range(60)])
    labels = []
    for sample in some_samples(samples_of(corpus, objective="nsp"), 10):
        first, second = segments(sample)
        assert len(sample.token_ids) <= 32
        if sample.order_label == NO_LABEL:
            continue
        labels.append(sample.order_label)
        assert len(set(first.tolist())) == len(set(second.tolist())) == 1
        assert (first[0] != second[0]) == (sample.order_label == SWAPPED)
    assert abs(np.mean(labels) - 0.5) < 4 * 0.5 / np.sqrt(len(labels))


@pytest.mark.parametrize("objective", ["sop", "nsp", "none"])
def test_keep_pairs_fills_sequences_and_labels_all(corpus_of, objective):
    rng = np.random.default_rng(0)
    corpus = corpus_of(
        [
            [rng.integers(20, 300, n) for n in np.clip(rng.lognormal(1.6, 0.6, 30), 1, 40).astype(int) + 2]
            for _ in range(40)
        ]
    )
    samples = samples_of(corpus, max_length=24, keep_pairs=True, objective=objective)
    batch = samples.batch(np.arange(samples.per_epoch))
    assert batch.lengths.max() == 24
    labelled = batch.order_labels != NO_LABEL
    assert labelled.all() if objective != "none" else not labelled.any()
