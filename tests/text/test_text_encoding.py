"""Encoding with the word cache equals encoding word by word without it: ids and offsets."""

import re
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.text.helpers import texts

from albert.text import normalization, sentencepiece, word_cache
from albert.text.sentencepiece import SentencePieceTokenizer
from albert.text.word_cache import MAX_WORD_LENGTH, MIN_BATCH

UNCHECKED = word_cache.encode_texts_with_offsets.__wrapped__  # a check would iterate over a cache that threads change
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
    """The definition: each word with the alignments of both normalisations, moved to its position."""
    offsets, table = [], normalization.character_table(*tokenizer._normalization)
    for word in WORD.finditer(text):
        normalized, starts, ends = normalization.normalize_aligned(word.group(), table)
        starts, last_end = [*starts.tolist(), len(word.group())], 0
        for part in WORD.finditer(normalized):
            for _, (start, end) in tokenizer._word_spans._spans(part.group()):
                begin = starts[part.start() + start]
                last_end = int(ends[part.start() + end - 1]) if end > start else max(begin, last_end)
                offsets.append((word.start() + begin, word.start() + last_end))
    return offsets


def plain_encodings(tokenizer, texts):
    return [(plain_ids(tokenizer, text), plain_offsets(tokenizer, text)) for text in texts]


@flags
@given(batch=st.lists(texts, max_size=4))
@example(batch=["½ﷺ a½b", "it's ``so'' — ''", "a▁b ▁c d▁", "x\u200by ﬄ", ""])
@example(batch=[" ".join(f"w{number}´x´" for number in range(2 * MIN_BATCH)), "ẞ" * 2 * MAX_WORD_LENGTH])
def test_cached_words_are_encoded_by_the_definition(tokenizer, lower_case, keep_accents, batch):
    ours = variant(tokenizer.model, lower_case, keep_accents)
    ours._word_ids.clear()
    ours._word_spans.clear()
    for _ in range(2):  # new words, cached words
        ids, encoded = ours.encode_batch(batch), ours.encode_batch_with_offsets(batch)
        assert ids == [plain_ids(ours, text) for text in batch]
        assert encoded == plain_encodings(ours, batch)
    assert ids == [ours.encode(text) for text in batch]
    assert encoded == [ours.encode_with_offsets(text) for text in batch]


def test_long_word_that_grows_is_encoded_in_bounded_memory(tokenizer):
    word = "\ufdfa" * 10_000  # becomes 180,000 characters
    tokenizer = SentencePieceTokenizer(tokenizer.model)  # the cache of words of the shared one may be large, and grow
    tracemalloc.start()
    try:
        ids, offsets = tokenizer.encode_with_offsets(word)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 40_000_000
    assert ids == tokenizer.encode(word) == plain_ids(tokenizer, word)
    assert offsets == plain_offsets(tokenizer, word)


@given(batch=st.lists(texts, max_size=4))
@example(batch=["", "one two", " ", "", "three" * MAX_WORD_LENGTH, "\n"])
def test_joined_ids_are_those_of_the_texts(tokenizer, wordpiece, batch):
    for each in (tokenizer, wordpiece):
        ids, counts = each.encode_joined(batch)
        parts = np.split(ids, np.cumsum(counts))[: len(batch)]
        assert [part.tolist() for part in parts] == [each.encode(text) for text in batch]
        assert len(counts) == len(batch) and counts.sum() == len(ids)


def test_ordinary_words_take_the_fast_path(tokenizer, monkeypatch):
    monkeypatch.setattr(word_cache.WordSpans, "_encode_by_alignment", lambda *_: pytest.fail("the slow path"))
    text = "The  Café, bating 2010."
    ids, offsets = SentencePieceTokenizer(tokenizer.model).encode_with_offsets(text)
    slices = [text[start:end].lower().replace("é", "e") for start, end in offsets]
    assert [tokenizer.piece(number).strip("▁") for number in ids] == slices


def test_batch_of_several_groups_keeps_its_order(tokenizer, documents):
    batch = [*documents[:20], " \n".join(documents[:40]), "", *documents[20:30], "  "]
    assert tokenizer.encode_batch(batch) == [plain_ids(tokenizer, text) for text in batch]
    assert tokenizer.encode_batch_with_offsets(batch) == plain_encodings(tokenizer, batch)
    assert tokenizer.encode_batch([]) == tokenizer.encode_batch_with_offsets([]) == []


def test_cache_is_bounded(tokenizer, documents, monkeypatch):
    monkeypatch.setattr(word_cache, "MAX_WORDS", 40)
    small = SentencePieceTokenizer(tokenizer.model)
    for text in documents[:20]:
        assert small.encode(text) == plain_ids(small, text)
        assert [small.encode_with_offsets(text)] == plain_encodings(small, [text])
        assert 0 < len(small._word_ids) <= 40
        assert 0 < len(small._word_spans) <= 40
    small.encode("x" * (MAX_WORD_LENGTH + 1))
    assert "x" * (MAX_WORD_LENGTH + 1) not in small._word_ids


def test_threads_share_a_cache(tokenizer, documents, monkeypatch):
    monkeypatch.setattr(word_cache, "MAX_WORDS", 50)
    shared, batch, interval = SentencePieceTokenizer(tokenizer.model), documents[:12], sys.getswitchinterval()
    monkeypatch.setattr(sentencepiece, "encode_texts_with_offsets", UNCHECKED)
    sys.setswitchinterval(1e-5)
    try:
        results = list(ThreadPoolExecutor(4).map(lambda _: shared.encode_batch_with_offsets(batch), range(8)))
    finally:
        sys.setswitchinterval(interval)
    assert results == [plain_encodings(tokenizer, batch)] * 8
