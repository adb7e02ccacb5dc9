"""Which pieces begin a word."""

import pytest

from albert.text.tokenizer import begins_word


@pytest.mark.parametrize(
    "piece", ["▁the", "▁", "▁'", ".", ",", "(", "€", "£", "–", "—", "7", "2010", "語", "か", "가", "<x>"]
)
def test_these_begin_a_word(piece):
    assert begins_word(piece)


@pytest.mark.parametrize("piece", ["ing", "s", "'s", "n't", "é", "ство", "ος", "ά", "\u0301"])
def test_these_continue_a_word(piece):
    assert not begins_word(piece)


def test_every_piece_has_an_answer_and_specials_begin(tokenizer):
    starts = tokenizer.word_starts()
    assert starts.shape == (tokenizer.vocab_size,)
    assert starts[:5].all()
    assert 0 < starts.sum() < tokenizer.vocab_size
