"""Sequences have the reference's form, and what does not fit is cut from the longer text and counted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.runtime.errors import InvalidConfiguration
from albert.tasks.examples import Example, join_sequences, keep_longest_first, text_features


def by_removing_one_token_at_a_time(lengths, room):
    lengths = list(lengths)
    while sum(lengths) > room:
        lengths[0 if len(lengths) == 1 or lengths[0] > lengths[1] else 1] -= 1
    return lengths


@given(lengths=st.lists(st.integers(0, 40), min_size=1, max_size=2), room=st.integers(2, 60))
def test_truncation_is_longest_first(lengths, room):
    assert keep_longest_first(lengths, room) == by_removing_one_token_at_a_time(lengths, room)


def test_sequences_of_one_and_two_texts(tokenizer):
    a, b = tokenizer.encode("the old ship"), tokenizer.encode("sang")
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    single = text_features([Example("0", "x:1", ("the old ship",), 1)], tokenizer, 64)
    assert single.sequences.token_ids(0).tolist() == [cls, *a, sep]
    assert single.sequences.token_type_ids(0).tolist() == [0] * (len(a) + 2)
    pair = text_features([Example("0", "x:1", ("the old ship", "sang"), 0.5)], tokenizer, 64)
    assert pair.sequences.token_ids(0).tolist() == [cls, *a, sep, *b, sep]
    assert pair.sequences.token_type_ids(0).tolist() == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    assert (single.targets.dtype, pair.targets.dtype) == (np.int64, np.float32)
    assert single.counts["truncated"] == pair.counts["truncated"] == 0


def test_truncation_is_counted_and_keeps_special_tokens(tokenizer):
    long = "the old ship sailed over deep water " * 5
    features = text_features([Example("0", "x", (long, "sang"), 0), Example("1", "x", ("a", "b"), 0)], tokenizer, 12)
    ids = features.sequences.token_ids(0)
    assert len(ids) == 12
    assert (ids[0], ids[-1], np.count_nonzero(ids == tokenizer.sep_id)) == (tokenizer.cls_id, tokenizer.sep_id, 2)
    total = len(tokenizer.encode(long)) + len(tokenizer.encode("sang"))
    assert features.counts == {"truncated": 1, "tokens_cut": total - 9}


def test_empty_text(tokenizer):
    features = text_features([Example("0", "x", ("",), 0)], tokenizer, 8)
    assert features.sequences.token_ids(0).tolist() == [tokenizer.cls_id, tokenizer.sep_id]


def test_special_tokens_in_a_text_are_text(tokenizer):
    features = text_features([Example("0", "x", ("[SEP] a [CLS] [MASK]",), 0)], tokenizer, 64)
    ids = features.sequences.token_ids(0)
    assert np.isin(ids, tokenizer.special_ids[2:]).sum() == 2


def test_too_small_max_length_is_refused(tokenizer):
    with pytest.raises(InvalidConfiguration, match="max_length: 4 leaves no room"):
        text_features([Example("0", "x", ("a", "b"), 0)], tokenizer, 4)


@given(st.lists(st.lists(st.integers(0, 99), max_size=5), min_size=1, max_size=8), st.randoms())
def test_select(parts, random):
    sequences = join_sequences([(ids, len(ids)) for ids in parts])
    members = np.array([random.randrange(len(parts)) for _ in range(5)])
    chosen = sequences.select(members)
    assert [chosen.token_ids(i).tolist() for i in range(5)] == [parts[m] for m in members]
