"""The reference's segments, by name: against its rules, written out one token at a time."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.pretraining.masking import MaskingRecipe
from albert.pretraining.run import pretrain
from albert.pretraining.sampling import PretrainingSamples, SequenceRecipe
from albert.pretraining.segments import IN_ORDER, SWAPPED, Documents, Runs, _cut_to, pack_as_reference, target_lengths
from albert.runtime.errors import InvalidConfiguration

lengths_by_document = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=20), min_size=1, max_size=6)


def documents_of(lengths):
    sentences = [length for document in lengths for length in document]
    return Documents(np.cumsum([0, *sentences]), np.cumsum([0, *map(len, lengths)]))


@given(lengths_by_document, st.integers(2, 60), st.sampled_from([0.0, 0.1, 1.0]), st.integers(0, 3))
def test_chunks_grow_sentence_by_sentence_until_the_target_of_their_document(lengths, max_tokens, short, epoch):
    documents = documents_of(lengths)
    targets = target_lengths(np.arange(len(lengths)), max_tokens, short, 0, epoch).tolist()
    expected, begin = [], 0
    for number, document in enumerate(lengths):
        size = 0
        for place, sentence in enumerate(document):
            size += sentence
            if size >= targets[number] or place == len(document) - 1:
                expected.append((begin, begin + size, number))
                begin, size = begin + size, 0
    table = pack_as_reference(documents, max_tokens, short, 0, epoch)
    assert list(zip(table.begin.tolist(), table.end.tolist(), table.document.tolist(), strict=True)) == expected
    inside = [set(documents.sentence_starts.tolist()) & set(range(b + 1, e)) for b, e, _ in expected]
    for split, end, places in zip(table.split.tolist(), table.end.tolist(), inside, strict=True):
        assert split in places if places else split == end


def test_a_tenth_of_the_documents_has_a_shorter_target():
    targets = target_lengths(np.arange(20_000), 125, 0.1, 0, 0)
    short = targets[targets < 125]
    assert len(short) / 20_000 == pytest.approx(0.1, abs=0.01)
    assert short.min() == 2 and short.mean() == pytest.approx(63, abs=3)


def cut_token_by_token(first, second, most):
    """The lengths that are left."""
    while first + second > most:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), min_size=1, max_size=20), st.integers(2, 200))
def test_tokens_are_taken_from_the_longer_segment(lengths, most):
    first, second = (np.array(column) for column in zip(*lengths, strict=True))
    begins = np.arange(len(lengths)) * 1000
    keys = np.arange(len(lengths)).astype(np.uint64)
    cut = _cut_to(most, Runs(begins, first), Runs(begins + 500, second), keys)
    for i, pair in enumerate(lengths):
        assert (cut[0].length[i], cut[1].length[i]) == cut_token_by_token(*pair, most)
    for run, begin, length in ((cut[0], begins, first), (cut[1], begins + 500, second)):
        assert (run.begin >= begin).all() and (run.begin + run.length <= begin + length).all()


def test_as_many_tokens_go_in_front_as_coins_say():
    """200 coins: mean 100, variance 50."""
    count = 4000
    first, second = (
        Runs(np.zeros(count, np.int64), np.full(count, 300)),
        Runs(np.zeros(count, np.int64), np.ones(count)),
    )
    cut, _ = _cut_to(101, first, Runs(second.begin, second.length.astype(np.int64)), np.arange(count).astype(np.uint64))
    assert (cut.length == 100).all()
    assert cut.begin.mean() == pytest.approx(100, abs=4 * np.sqrt(50 / count))
    assert cut.begin.var() == pytest.approx(50, rel=0.1)


def samples_of(documents, corpus_of, **changes):
    recipe = SequenceRecipe(**{"max_length": 32, "objective": "sop-reference", **changes})
    return PretrainingSamples(corpus_of(documents), recipe, MaskingRecipe(), 0)


def test_one_sentence_gets_a_foreign_segment_and_the_label_of_a_swap(corpus_of):
    """Every document is of one token value, so that strangers are known."""
    draws = np.random.default_rng(0)
    documents = [[np.full(draws.integers(4, 40), 20 + d) for _ in range(draws.integers(1, 6))] for d in range(60)]
    samples = samples_of(documents, corpus_of)
    made = samples.explained(np.arange(8 * samples.per_epoch))
    corpus = corpus_of(documents)
    first = np.array([corpus.read(int(b), int(b) + 1)[0] for b in made.segments.first.begin])
    second = np.array([corpus.read(int(b), int(b) + 1)[0] for b in made.segments.second.begin])
    foreign, labels = first != second, made.segments.labels
    assert (labels[foreign] == SWAPPED).all()
    assert 0.1 < foreign.mean() < 0.9
    assert (made.segments.second.length > 0).all() and (made.samples.lengths <= 32).all()
    own = labels[~foreign]
    assert (own == SWAPPED).mean() == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(len(own)))
    gap = (made.segments.second.begin - made.segments.first.begin)[~foreign]
    assert ((gap > 0) == (own == IN_ORDER)).all()


def test_segments_are_cut_at_either_end_and_a_gap_may_open(corpus_of):
    numbers = iter(range(20, 300))
    documents = [[[next(numbers) for _ in range(9)] for _ in range(8)] for _ in range(3)]
    samples = samples_of(documents, corpus_of, short_probability=0.0)
    segments = samples.explained(np.arange(50 * samples.per_epoch)).segments
    earlier, later = segments.first, segments.second
    swapped = segments.labels == SWAPPED
    begin = np.where(swapped, later.begin, earlier.begin)
    length = np.where(swapped, later.length, earlier.length)
    gap = np.where(swapped, earlier.begin, later.begin) - begin - length
    assert gap.min() == 0 and gap.max() > 2
    assert set((begin % 9).tolist()) > {0, 1, 2}


def test_foreign_segments_of_a_single_document_are_refused(corpus_of):
    with pytest.raises(InvalidConfiguration, match='"sop-reference" needs a second train document'):
        samples_of([[[20, 21], [22]]], corpus_of)


def test_a_run_with_the_references_segments_ends_in_a_model_that_judges_orders(tiny_recipe, tiny_corpus, tmp_path):
    sequences = replace(tiny_recipe.sequences, objective="sop-reference")
    result = pretrain(replace(tiny_recipe, sequences=sequences), tiny_corpus, tmp_path / "run", "cpu")
    assert json.loads((result.model / "config.json").read_text())["sentence_objective"] == "sop"
