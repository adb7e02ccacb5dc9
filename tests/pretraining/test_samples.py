"""Sample n of epoch e is a pure function of seed, e, n and corpus; what it asks cannot be read off its surface."""

import numpy as np
import pytest

from albert.pretraining import sampling as epoch_order
from albert.pretraining.masking import MaskingRecipe
from albert.pretraining.sampling import PretrainingSamples, Samples, SequenceRecipe
from albert.pretraining.segments import (
    IN_ORDER,
    NO_LABEL,
    SWAPPED,
    Runs,
    Segments,
    cut_to_length,
    order_segments,
)
from albert.text.shards import TokenCorpus

CLS, SEP = 2, 3
BEGIN, END = 10, 11


@pytest.fixture(scope="module")
def corpus(tiny_corpus):
    return TokenCorpus.open(tiny_corpus, "train")


def samples_of(corpus, seed=0, masking=None, **sequences):
    return PretrainingSamples(
        corpus, SequenceRecipe(**{"max_length": 32, **sequences}), masking or MaskingRecipe(), seed
    )


def original(sample):
    """The token ids before masking."""
    ids = sample.token_ids.copy()
    ids[sample.masked_positions] = sample.masked_labels
    return ids


def segments(sample):
    """The tokens of both segments, without special ones."""
    ids = original(sample)
    first_separator = ids.tolist().index(SEP)
    return ids[1:first_separator], ids[first_separator + 1 : -1]


def equal(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def random_documents(count, sentences, seed=0):
    """Sentences of random pieces between a first and a last one: nothing to learn, much to recognise."""
    draws = np.random.default_rng(seed)
    return [
        [
            np.concatenate([[BEGIN], draws.integers(20, 300, length), [END]])
            for length in np.clip(draws.lognormal(1.6, 0.6, sentences), 1, 40).astype(int)
        ]
        for _ in range(count)
    ]


def test_a_sample_is_cls_first_sep_second_sep(corpus):
    samples = samples_of(corpus)
    for n in range(samples.per_epoch):
        sample = samples.sample(0, n)
        ids, types = original(sample), sample.token_type_ids
        assert len(ids) == len(types) <= 32
        assert ids[0] == CLS and ids[-1] == SEP
        separators = np.flatnonzero(ids == SEP).tolist()
        assert len(separators) == (1 if sample.order_label == NO_LABEL else 2)
        assert (np.flatnonzero(types) == np.arange(separators[0] + 1, len(ids))).all()
        assert ids.dtype == types.dtype == np.int64


def test_an_epoch_shows_every_token_of_the_corpus_once(corpus):
    samples = samples_of(corpus)
    seen = np.zeros(corpus.vocab_size, dtype=int)
    for n in range(samples.per_epoch):
        for segment in segments(samples.sample(0, n)):
            seen += np.bincount(segment, minlength=corpus.vocab_size)
    assert (seen == np.bincount(corpus.read(0, corpus.n_tokens), minlength=corpus.vocab_size)).all()


@pytest.mark.parametrize("objective", ["sop", "nsp", "none", "sop-reference"])
def test_any_batch_gives_what_each_sample_is_alone(corpus, objective, monkeypatch):
    """Whatever is asked for together, in any order, over the edges of epochs and windows."""
    monkeypatch.setattr(epoch_order, "BLOCK_TOKENS", 300)
    monkeypatch.setattr(epoch_order, "WINDOW_BLOCKS", 3)
    samples = samples_of(corpus, objective=objective)
    count = 2 * samples.per_epoch + 20
    alone = [samples_of(corpus, objective=objective).numbered(n) for n in range(0, count, 27)]
    draws = np.random.default_rng(0)
    for size in (2, 7, count):
        numbers = draws.permutation(count)[:size]
        for number, sample in zip(numbers.tolist(), samples.batch(numbers).unbatch(), strict=True):
            if number % 27 == 0:
                assert equal(sample, alone[number // 27])


def test_parts_of_a_batch_are_its_samples(corpus):
    samples = samples_of(corpus)
    batch = samples.batch(np.arange(20))
    for begin, end in ((0, 20), (3, 3), (5, 11), (19, 20)):
        one_by_one = batch.unbatch()[begin:end]
        if begin < end:
            joined = Samples.joined(one_by_one)
            assert all(np.array_equal(a, b) for a, b in zip(batch.part(begin, end), joined, strict=True))
        part, before = batch.part(begin, end), batch.lengths[:begin].sum()
        within = (batch.masked_positions >= before) & (batch.masked_positions < before + part.lengths.sum())
        assert part.masked_positions.tolist() == (batch.masked_positions[within] - before).tolist()
        assert len(part.lengths) == end - begin


def test_epochs_and_seeds_differ_in_order_masks_and_swaps(corpus):
    samples, of_another_seed = samples_of(corpus), samples_of(corpus, 1)
    first = [samples.sample(0, n) for n in range(samples.per_epoch)]
    for source, epoch in ((samples, 1), (of_another_seed, 0)):
        assert not any(equal(sample, source.sample(epoch, n)) for n, sample in enumerate(first))


def test_sequences_that_are_always_cut_alike_come_in_another_order_in_every_epoch(corpus_of):
    samples = samples_of(corpus_of([[np.arange(20, 25)] for _ in range(60)]))
    first, second = (samples.segments(np.arange(60) + 60 * epoch).first.begin for epoch in (0, 1))
    assert sorted(first) == sorted(second) and (first == second).mean() < 0.2


def test_the_same_text_is_masked_differently_in_every_epoch(corpus_of):
    corpus = corpus_of([[np.arange(20, 45)]])
    samples = samples_of(corpus)
    masks = {tuple(samples.sample(epoch, 0).masked_positions.tolist()) for epoch in range(12)}
    assert samples.per_epoch == 1 and len(masks) > 8


def test_segments_are_adjacent_in_the_document_whichever_comes_first(corpus_of):
    """Documents of tokens that count upwards: the one that follows is known by its first token."""
    numbers = iter(range(20, 300))
    documents = [[[next(numbers) for _ in range(size)] for size in (3, 4, 2, 5, 3)] for _ in range(12)]
    samples = samples_of(corpus_of(documents), max_length=20)
    labels = []
    for sample in samples.batch(np.arange(40 * samples.per_epoch)).unbatch():
        first, second = segments(sample)
        if sample.order_label == NO_LABEL:
            assert len(second) == 0
            continue
        labels.append(sample.order_label)
        earlier, later = (second, first) if sample.order_label == SWAPPED else (first, second)
        assert earlier[-1] + 1 == later[0]
    share = np.mean(np.array(labels) == SWAPPED)
    assert abs(share - 0.5) < 4 * 0.5 / np.sqrt(len(labels))


@pytest.mark.parametrize("objective", ["sop", "nsp"])
def test_a_single_sentence_has_no_order_to_predict_and_never_a_foreign_segment(corpus_of, objective):
    corpus = corpus_of([[np.full(12, 20 + document)] for document in range(30)])
    samples = samples_of(corpus, objective=objective)
    for n in range(samples.per_epoch):
        sample = samples.sample(0, n)
        first, second = segments(sample)
        assert sample.order_label == NO_LABEL and len(second) == 0
        assert len(first) == 12 and len(set(first.tolist())) == 1
        assert (sample.token_type_ids == 0).all()


def test_half_of_the_next_sentences_are_foreign_and_come_from_another_document(corpus_of):
    draws = np.random.default_rng(0)
    corpus = corpus_of([[np.full(draws.integers(2, 9), 20 + document) for _ in range(12)] for document in range(60)])
    samples = samples_of(corpus, objective="nsp")
    labels = []
    for sample in samples.batch(np.arange(10 * samples.per_epoch)).unbatch():
        first, second = segments(sample)
        assert len(sample.token_ids) <= 32
        if sample.order_label == NO_LABEL:
            continue
        labels.append(sample.order_label)
        assert len(set(first.tolist())) == len(set(second.tolist())) == 1
        assert (first[0] != second[0]) == (sample.order_label == SWAPPED)
    assert abs(np.mean(labels) - 0.5) < 4 * 0.5 / np.sqrt(len(labels))


def test_a_foreign_segment_that_fits_goes_before_one_that_would_be_cut(corpus_of):
    """The second segment of 12 could be replaced by 1 token, or by 12 of the 13 of a sentence."""
    corpus = corpus_of([[[20], [21] * 12], [[30], [31]], [[40] * 13]])
    samples = samples_of(corpus, objective="nsp", max_length=16, short_probability=0.0)
    seen = set()
    for n in range(60):
        sample = samples.numbered(n)
        first, second = segments(sample)
        if first[0] == 20 and sample.order_label == SWAPPED:
            seen.add(tuple(second.tolist()))
    assert seen == {(31,)}


def test_without_an_objective_there_is_never_a_label_and_text_stays_in_order(corpus_of):
    numbers = iter(range(20, 300))
    corpus = corpus_of([[[next(numbers) for _ in range(4)] for _ in range(5)] for _ in range(12)])
    samples = samples_of(corpus, objective="none")
    for n in range(samples.per_epoch):
        sample = samples.numbered(n)
        assert sample.order_label == NO_LABEL
        text = np.concatenate(segments(sample))
        assert (np.diff(text) == 1).all()


@pytest.mark.parametrize("objective", ["sop", "nsp", "none"])
def test_order_segments_does_what_the_coin_says(objective):
    first, second = Runs(np.array([0, 10, 20]), np.array([5, 5, 5])), Runs(np.array([5, 15, 25]), np.array([4, 4, 0]))
    coins = np.array([False, True, True])
    found = order_segments(objective, first, second, lambda which: Runs(which + 90, which + 2), coins)
    assert found.labels.tolist() == ([NO_LABEL] * 3 if objective == "none" else [IN_ORDER, SWAPPED, NO_LABEL])
    changed = {"sop": ([15, 4], [10, 5]), "nsp": ([10, 5], [91, 3]), "none": ([10, 5], [15, 4])}[objective]
    assert np.stack(found.first, axis=1).tolist() == [[0, 5], changed[0], [20, 5]]
    assert np.stack(found.second, axis=1).tolist() == [[5, 4], changed[1], [25, 0]]


def test_what_is_too_long_is_cut_where_the_model_begins_and_ends_to_read():
    runs = [Runs(np.array([100, 100, 100, 100]), np.array(some)) for some in ([6, 9, 3, 5], [4, 3, 9, 6])]
    found = cut_to_length(10, Segments(*runs, np.array([IN_ORDER, SWAPPED, SWAPPED, NO_LABEL])))
    assert found.first.length.tolist() == [6, 7, 3, 5] and found.second.length.tolist() == [4, 3, 7, 5]
    assert found.first.begin.tolist() == [100, 102, 100, 100] and found.second.begin.tolist() == [100] * 4


@pytest.mark.parametrize("objective", ["sop", "nsp", "none"])
def test_kept_pairs_fill_sequences_and_all_are_asked(corpus_of, objective):
    samples = samples_of(corpus_of(random_documents(40, 30)), max_length=24, keep_pairs=True, objective=objective)
    made = samples.batch(np.arange(samples.per_epoch))
    assert made.lengths.max() == 24
    asked = made.order_labels != NO_LABEL
    assert asked.all() if objective != "none" else not asked.any()
