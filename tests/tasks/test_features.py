"""Token sequences of one text, two texts, and words with tags."""

from itertools import chain

import numpy as np
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st
from tests.refusals import refusal

from albert.runtime.errors import InvalidConfiguration
from albert.tasks.examples import IGNORE_INDEX, Example, join_sequences, keep_longest_first, text_features
from albert.tasks.word_windows import tag_features
from albert.text.wordpiece import wordpiece_tokenizer

LETTERS = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
LETTERS.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()


@given(lengths=st.lists(st.integers(0, 40), min_size=1, max_size=2), room=st.integers(2, 60))
@example(lengths=[9, 9], room=7)
@example(lengths=[9, 8], room=7)
@example(lengths=[8, 9], room=7)
@example(lengths=[4, 9], room=7)
@example(lengths=[4, 4], room=7)
def test_texts_are_cut_as_by_the_library_tokenizers(lengths, room):
    LETTERS.enable_truncation(room, strategy="longest_first")
    ids = LETTERS.encode(*(letter * length for letter, length in zip(("a ", "b "), lengths, strict=False))).ids
    assert keep_longest_first(lengths, room) == [ids.count(number) for number in range(len(lengths))]


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


def test_special_tokens_in_texts(tokenizer):
    sequences = text_features([Example("0", "x", ("[SEP] a [CLS] [MASK]",), 0)], tokenizer, 64).sequences
    assert np.isin(sequences.token_ids(0), tokenizer.special_ids[2:]).sum() == 2


def test_too_small_max_length_is_refused(tokenizer):
    with refusal(InvalidConfiguration, "max_length", 4):
        text_features([Example("0", "x", ("a", "b"), 0)], tokenizer, 4)
    with refusal(InvalidConfiguration, "max_length", 2):
        tag_features([["a"]], tokenizer, 2)


@given(st.lists(st.lists(st.integers(0, 99), max_size=5), min_size=1, max_size=8), st.randoms())
def test_select(parts, random):
    sequences = join_sequences([(ids, len(ids)) for ids in parts])
    members = np.array([random.randrange(len(parts)) for _ in range(5)])
    chosen = sequences.select(members)
    assert [chosen.token_ids(i).tolist() for i in range(5)] == [parts[m] for m in members]


# --------------------------------------------------------------------------------------------------------------------
# Words: every word is predicted once, at its first piece.

COMBINING = "\u0301"
WORDS = st.one_of(
    st.sampled_from(["ship", "Sailor,", "the", COMBINING, "New York", "1,000", "naïve", "\u200b", "[MASK]", "``"]),
    st.text(st.characters(exclude_categories=("Cs", "Zs", "Zl", "Zp", "Cc")), min_size=1, max_size=6),
)
SENTENCES = st.lists(st.lists(WORDS, max_size=14), max_size=5)


@given(SENTENCES, st.integers(3, 20))
def test_each_word_is_predicted_once_at_its_first_piece(tokenizer, sentences, max_length):
    found = tag_features(sentences, tokenizer, max_length)
    words = [*chain(*sentences)]
    assert len(found.first_pieces) == len(np.unique(found.first_pieces)) == len(words) == found.counts["words"]
    firsts = [next(iter(tokenizer.encode(word)), tokenizer.unk_id) for word in words]
    assert found.sequences.tokens[found.first_pieces].tolist() == firsts
    assert found.sequences.lengths.max(initial=0) <= max_length
    assert list(map(len, found.split_by_sentence(np.arange(len(words))))) == list(map(len, sentences))
    assert found.counts["words_without_pieces"] == sum(not tokenizer.encode(word) for word in words)
    assert found.counts["sentences_without_words"] == sentences.count([])


@given(SENTENCES, st.integers(3, 20))
def test_windows_contain_all_pieces_in_order(tokenizer, sentences, max_length):
    found = tag_features(sentences, tokenizer, max_length)
    windows = iter(range(len(found.sequences)))
    for words in sentences:
        pieces = [piece for word in words for piece in tokenizer.encode(word) or [tokenizer.unk_id]]
        start = 0
        while True:
            ids = found.sequences.token_ids(next(windows)).tolist()
            assert (ids[0], ids[-1]) == (tokenizer.cls_id, tokenizer.sep_id)
            assert ids[1:-1] == pieces[start : start + max_length - 2]
            if start + max_length - 2 >= len(pieces):
                break
            start += max(1, (max_length - 2) // 2)
    assert next(windows, None) is None


def test_word_pieces():
    tokenizer = wordpiece_tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "你", "好", "sh", "##ip", "s"])
    found = tag_features([["你", "ship", "好", COMBINING]], tokenizer, 64)
    pieces = [tokenizer.piece(i) for i in found.sequences.token_ids(0).tolist()[1:-1]]
    assert pieces == ["你", "sh", "##ip", "好", "[UNK]"]
    assert found.first_pieces.tolist() == [1, 2, 4, 5]


@given(SENTENCES.filter(any), st.integers(3, 12))
def test_targets_are_at_first_pieces(tokenizer, sentences, max_length):
    tags = [tuple(range(len(words))) for words in sentences]
    features = tag_features(sentences, tokenizer, max_length, tags)
    assert features.targets[features.first_pieces].tolist() == [*chain(*tags)]
    tokens = features.sequences.token_indices(features.learnable)
    for targets in (features.targets, features.targets[tokens]):
        assert (targets != IGNORE_INDEX).sum() == features.counts["words"]
    selected = features.sequences.select(features.learnable)
    assert selected.tokens.tolist() == features.sequences.tokens[tokens].tolist()


def test_outputs_are_gathered_by_word(tokenizer):
    found = tag_features([["ship"] * 9, ["sang"]], tokenizer, 6, [None, None])
    assert set(found.targets.tolist()) == {IGNORE_INDEX} and len(found.learnable) == 0
    rows = np.split(np.arange(len(found.sequences.tokens))[:, None], found.sequences.starts[1:-1])
    assert found.word_outputs(rows)[:, 0].tolist() == found.first_pieces.tolist()
