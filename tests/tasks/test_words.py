"""Every word is judged exactly once, at its first piece, in whatever window it lies."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.runtime.errors import InvalidConfiguration
from albert.tasks.examples import IGNORE_INDEX, Example, tag_features, word_sequences
from albert.text.wordpiece import WordPieceTokenizer

COMBINING = "\u0301"
WORDS = st.one_of(
    st.sampled_from(["ship", "Sailor,", "the", COMBINING, "New York", "1,000", "naïve", "\u200b", "[MASK]", "``"]),
    st.text(st.characters(exclude_categories=("Cs", "Zs", "Zl", "Zp", "Cc")), min_size=1, max_size=6),
)
SENTENCES = st.lists(st.lists(WORDS, max_size=14), max_size=5)


@given(SENTENCES, st.integers(3, 20))
def test_each_word_is_predicted_once_at_its_first_piece(tokenizer, sentences, max_length):
    found = word_sequences(sentences, tokenizer, max_length)
    words = [word for words in sentences for word in words]
    assert len(found.first_pieces) == len(np.unique(found.first_pieces)) == len(words) == found.counts["words"]
    firsts = [next(iter(tokenizer.encode(word)), tokenizer.unk_id) for word in words]
    assert found.sequences.tokens[found.first_pieces].tolist() == firsts
    assert found.sequences.lengths.max(initial=0) <= max_length
    assert [len(each) for each in found.split_by_sentence(np.arange(len(words)))] == [len(each) for each in sentences]
    assert found.counts["words_without_pieces"] == sum(not tokenizer.encode(word) for word in words)
    assert found.counts["sentences_without_words"] == sum(not each for each in sentences)


@given(SENTENCES, st.integers(3, 20))
def test_windows_contain_all_pieces_in_order(tokenizer, sentences, max_length):
    found = word_sequences(sentences, tokenizer, max_length)
    windows = iter(range(len(found.sequences)))
    for words in sentences:
        pieces = [piece for word in words for piece in tokenizer.encode(word) or [tokenizer.unk_id]]
        seen = 0
        while True:
            ids = found.sequences.token_ids(next(windows)).tolist()
            assert (ids[0], ids[-1]) == (tokenizer.cls_id, tokenizer.sep_id)
            room = max(1, (max_length - 2) // 2)
            assert ids[1:-1] == pieces[seen : seen + max_length - 2]
            if seen + max_length - 2 >= len(pieces):
                break
            seen += room
    assert next(windows, None) is None


def test_short_sentence_equals_the_joined_text(tokenizer):
    words = ["The", "old", "sailors'", "ship"]
    found = word_sequences([words], tokenizer, 64)
    whole = tokenizer.encode(" ".join(words))
    assert found.sequences.token_ids(0).tolist() == [tokenizer.cls_id, *whole, tokenizer.sep_id]
    assert found.sequences.token_type_ids(0).tolist() == [0] * (len(whole) + 2)


def test_word_pieces():
    tokenizer = WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "你", "好", "sh", "##ip", "s"])
    found = word_sequences([["你", "ship", "好", COMBINING]], tokenizer, 64)
    assert [tokenizer.piece(i) for i in found.sequences.token_ids(0).tolist()[1:-1]] == [
        "你",
        "sh",
        "##ip",
        "好",
        "[UNK]",
    ]
    assert found.first_pieces.tolist() == [1, 2, 4, 5]


@given(SENTENCES.filter(any), st.integers(3, 12))
def test_targets_are_at_first_pieces(tokenizer, sentences, max_length):
    tags = [tuple(range(len(words))) for words in sentences]
    examples = [Example(str(i), "x", tuple(words), tags[i]) for i, words in enumerate(sentences)]
    features = tag_features(examples, tokenizer, max_length)
    assert features.targets[features.words.first_pieces].tolist() == [tag for each in tags for tag in each]
    assert (features.targets != IGNORE_INDEX).sum() == features.words.counts["words"]
    learnt = features.learnable
    places = features.sequences.token_indices(learnt)
    assert (features.targets[places] != IGNORE_INDEX).sum() == features.words.counts["words"]
    assert features.sequences.select(learnt).tokens.tolist() == features.sequences.tokens[places].tolist()


def test_unlabelled_sentences_have_no_targets(tokenizer):
    features = tag_features([Example("0", "x", ("ship", "sang"))], tokenizer, 64)
    assert set(features.targets.tolist()) == {IGNORE_INDEX}
    assert len(features.learnable) == 0


def test_outputs_are_gathered_by_word(tokenizer):
    found = word_sequences([["ship"] * 9, ["sang"]], tokenizer, 6)
    rows, start = [], 0
    for length in found.sequences.lengths:
        rows.append(np.arange(start, start + length)[:, None])
        start += length
    assert found.word_outputs(rows)[:, 0].tolist() == found.first_pieces.tolist()


def test_too_small_max_length_is_refused(tokenizer):
    with pytest.raises(InvalidConfiguration, match="max_length: 2 leaves no room"):
        word_sequences([["a"]], tokenizer, 2)
