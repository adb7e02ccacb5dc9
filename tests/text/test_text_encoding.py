"""Encoding by way of remembered words gives what encoding word by word, from nothing, gives: ids and places."""

import re
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.text.helpers import normalize_with_alignment, texts

from albert.text import normalization, word_cache
from albert.text.sentencepiece import SentencePieceTokenizer
from albert.text.word_cache import FEW_WORDS, LONGEST_WORD

WORD = re.compile(r"\S+")
flags = pytest.mark.parametrize(
    ("lower_case", "keep_accents"), [(True, False), (True, True), (False, False), (False, True)]
)


@cache
def variant(model, lower_case, keep_accents):
    return SentencePieceTokenizer(model, lower_case, keep_accents)


def plain_ids(tokenizer, text):
    """The definition: normalise the text, encode each of its words."""
    return [number for word in tokenizer.normalize(text).split() for number in tokenizer._processor.encode(word)]


def plain_offsets(tokenizer, text):
    """The definition: each word with the alignments of both normalisations, moved to where it stands."""
    places = []
    for word in WORD.finditer(text):
        normalized = normalize_with_alignment(word.group(), *tokenizer._normalization)
        starts, ends = [*normalized.starts.tolist(), len(word.group())], normalized.ends.tolist()
        first = last_end = 0
        for part in normalized.text.split():
            for _, (start, end) in tokenizer._word_spans._spans(part):
                place = starts[first + start]
                last_end = ends[first + end - 1] if end > start else max(place, last_end)
                places.append((word.start() + place, word.start() + last_end))
            first += len(part) + 1
    return places


@flags
@given(batch=st.lists(texts, max_size=4))
@example(batch=["½ﷺ a½b", "it's ``so'' — ''", "a▁b ▁c d▁", "x\u200by ﬄ", ""])
@example(batch=[" ".join(f"w{number}´x´" for number in range(2 * FEW_WORDS)), "ẞ" * 2 * LONGEST_WORD])
@pytest.mark.parametrize("chunk", [None, 1, 3])
def test_remembered_words_give_what_the_definition_gives(tokenizer, lower_case, keep_accents, chunk, batch):
    ours = variant(tokenizer.model, lower_case, keep_accents)
    ours._word_ids.clear()
    ours._word_spans.clear()
    with pytest.MonkeyPatch.context() as patched:
        if chunk is not None:  # as if words were long, and longer than is normalised at a time
            patched.setattr(word_cache, "LONG_WORD", 2)
            patched.setattr(normalization, "CHUNK", chunk)
        for _ in range(2):  # words that are new, words that are known
            ids, encoded = ours.encode_batch(batch), ours.encode_batch_with_offsets(batch)
            assert ids == [plain_ids(ours, text) for text in batch]
            assert encoded == [(plain_ids(ours, text), plain_offsets(ours, text)) for text in batch]
        assert ids == [ours.encode(text) for text in batch]
        assert encoded == [ours.encode_with_offsets(text) for text in batch]


@pytest.mark.parametrize(("kind", "bound"), [("ids", 3_000_000), ("places", 16_000_000)])
def test_a_long_word_that_grows_takes_no_memory_for_all_that_it_becomes(tokenizer, kind, bound):
    ours = variant(tokenizer.model, True, False)
    known = ours._word_ids if kind == "ids" else ours._word_spans
    word = "\ufdfa" * 10_000  # of 18 characters each
    tracemalloc.start()
    try:
        (found,) = known.look_up([word])
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < bound
    pieces = np.frombuffer(found, np.int32).reshape(-1, 1 if kind == "ids" else 3)
    assert pieces[:, 0].tolist() == plain_ids(ours, word)
    if kind == "places":
        assert [tuple(place) for place in pieces[:, 1:].tolist()] == plain_offsets(ours, word)


@given(batch=st.lists(texts, max_size=4))
@example(batch=["", "one two", " ", "", "three" * LONGEST_WORD, "\n"])
def test_joined_ids_are_those_of_the_texts(tokenizer, wordpiece, batch):
    for each in (tokenizer, wordpiece):
        ids, counts = each.encode_joined(batch)
        assert [part.tolist() for part in np.split(ids, np.cumsum(counts))[: len(batch)]] == each.encode_batch(batch)
        assert len(counts) == len(batch) and counts.sum() == len(ids)


def test_text_of_everyday_takes_the_short_way(tokenizer, monkeypatch):
    def never(*_):
        pytest.fail("the long way")

    monkeypatch.setattr(word_cache.WordSpans, "_encode_long_word", never)
    ids, offsets = SentencePieceTokenizer(tokenizer.model).encode_with_offsets("The  Café, bating 2010.")
    assert [tokenizer.piece(number).strip("▁") for number in ids] == [
        "The  Café, bating 2010."[start:end].lower().replace("é", "e") for start, end in offsets
    ]


def test_text_beyond_one_group_is_put_together_in_order(tokenizer, documents):
    long = " \n".join(documents[:40])
    batch = [*documents[:20], long, "", *documents[20:30], "  "]
    assert tokenizer.encode_batch(batch) == [plain_ids(tokenizer, text) for text in batch]
    for text, (ids, offsets) in zip(batch, tokenizer.encode_batch_with_offsets(batch), strict=True):
        assert (ids, offsets) == (plain_ids(tokenizer, text), plain_offsets(tokenizer, text))
    assert tokenizer.encode_batch([]) == tokenizer.encode_batch_with_offsets([]) == []


def test_no_more_words_are_remembered_than_there_is_room_for(tokenizer, documents, monkeypatch):
    monkeypatch.setattr(word_cache, "MOST_WORDS", 40)
    small = SentencePieceTokenizer(tokenizer.model)
    for text in documents[:20]:
        assert small.encode(text) == plain_ids(small, text)
        assert small.encode_with_offsets(text) == (plain_ids(small, text), plain_offsets(small, text))
        assert 0 < len(small._word_ids) <= 40
        assert 0 < len(small._word_spans) <= 40
    small.encode("x" * (LONGEST_WORD + 1))
    assert "x" * (LONGEST_WORD + 1) not in small._word_ids


def test_threads_share_what_they_remember(tokenizer, documents, monkeypatch):
    monkeypatch.setattr(word_cache, "MOST_WORDS", 50)
    shared, batch = SentencePieceTokenizer(tokenizer.model), documents[:12]
    expected = [(plain_ids(tokenizer, text), plain_offsets(tokenizer, text)) for text in batch]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(lambda _: shared.encode_batch_with_offsets(batch), range(8)))
    finally:
        sys.setswitchinterval(interval)
    assert found == [expected] * 8
