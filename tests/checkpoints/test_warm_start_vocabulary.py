"""Warm start with another tokenizer."""

import pytest
import torch
from tests.tiny import tiny_config

from albert.checkpoints.warm_start import pieces_by_text, rows_of_pieces, same_pieces, warm_start
from albert.commands.sample import load_chapters
from albert.model.albert import AlbertForPreTraining
from albert.text.sentencepiece import train_tokenizer
from albert.text.wordpiece import wordpiece_tokenizer

WORDS = "albert.embeddings.word_embeddings.weight"


@pytest.fixture(scope="module")
def tokenizers():
    """One of 300 pieces, and one of 500 from other text."""
    texts = [chapter.text[:20_000] for chapter in load_chapters()]
    return train_tokenizer(texts[:4], vocab_size=300), train_tokenizer(texts[4:8], vocab_size=500)


def model_of(pieces, seed):
    torch.manual_seed(seed)
    config = tiny_config(pieces, num_hidden_layers=1, max_position_embeddings=20)
    model = AlbertForPreTraining(config)
    torch.nn.init.normal_(model.predictions.bias)
    return model


def test_old_pieces_keep_their_rows_and_new_ones_get_the_mean_of_their_parts(tokenizers):
    old, new = tokenizers
    trained, fresh = model_of(300, 1), model_of(500, 2)
    origins = pieces_by_text(old, 300, new)
    result = warm_start(trained.state_dict(), trained.config, fresh.state_dict(), fresh.config, origins=origins)
    before, after = trained.state_dict()[WORDS], result.tensors[WORDS]
    bias, new_bias = trained.predictions.bias, result.tensors["predictions.bias"]
    ids = {old.piece(number): number for number in range(300)}
    shared = [number for number in range(500) if new.piece(number) in ids]
    assert len(shared) == origins.reused > 100
    for number in shared:
        assert torch.equal(after[number], before[ids[new.piece(number)]])
        assert torch.equal(new_bias[number], bias[ids[new.piece(number)]])
    composed = [n for n in range(500) if n not in shared and origins.rows[n]]
    assert len(composed) == origins.averaged > 100
    word = next(n for n in composed if new.piece(n).startswith("▁") and len(new.piece(n)) > 4)
    parts = old.encode(new.piece(word).removeprefix("▁"))
    assert len(parts) > 1
    torch.testing.assert_close(after[word], before[parts].mean(0))
    torch.testing.assert_close(new_bias[word], bias[parts].mean())
    assert result.notes == (origins.note(300),)
    assert origins.dropped == 300 - origins.reused


def test_unknown_text_keeps_its_initial_value(tokenizers):
    old, _ = tokenizers
    foreign = train_tokenizer(["Ж Щ Ю ЖЩЮ ЖЩ ЩЮ. " * 40, "the ship and the sea. " * 40], vocab_size=30)
    origins = pieces_by_text(old, 300, foreign)
    unknown = [n for n in range(foreign.vocab_size) if foreign.piece(n).removeprefix("▁") in ("ж", "щ", "ю")]
    assert unknown and all(not origins.rows[number] for number in unknown)
    assert origins.random >= len(unknown)
    initial = torch.randn(foreign.vocab_size, 4)
    rows = rows_of_pieces(torch.randn(300, 4), initial, origins)
    assert torch.equal(rows[unknown], initial[unknown])


def test_pieces_inside_words_come_from_pieces_inside_words(tokenizers):
    old, new = tokenizers
    origins = pieces_by_text(old, 300, new)
    inside = [n for n in range(500) if not new.piece(n).startswith("▁") and len(origins.rows[n]) > 1]
    assert inside
    for number in inside:
        pieces = [old.piece(row) for row in origins.rows[number]]
        assert "▁" not in pieces and "".join(pieces).replace("▁", "") == new.piece(number)
        alternative = pieces[0].removeprefix("▁")
        assert pieces[0] == alternative or old.piece_to_id(alternative) == old.unk_id


def test_pieces_of_sentencepiece_and_wordpiece_are_matched(tokenizers):
    sentence_pieces, _ = tokenizers
    words = ["[UNK]", "[PAD]", "the", "##s", "##ing", "sea", "(", "theing", "日", "[CLS]", "[MASK]", "[SEP]"]
    word_pieces = wordpiece_tokenizer(words)
    origins = pieces_by_text(sentence_pieces, 300, word_pieces)
    sources = {
        word: [sentence_pieces.piece(row) for row in rows] for word, rows in zip(words, origins.rows, strict=True)
    }
    assert sources["the"] == ["▁the"] and sources["##s"] == ["s"] and sources["##ing"] == ["ing"]
    assert sources["("] == ["("] and sources["theing"] == ["▁the", "ing"] and sources["日"] == []
    roles = {"[PAD]": "<pad>", "[UNK]": "<unk>", "[CLS]": "[CLS]", "[SEP]": "[SEP]", "[MASK]": "[MASK]"}
    assert {word: sources[word] for word in roles} == {word: [piece] for word, piece in roles.items()}
    back = pieces_by_text(word_pieces, len(words), sentence_pieces)
    kept = {sentence_pieces.piece(n): words[rows[0]] for n, rows in enumerate(back.rows) if len(rows) == 1}
    assert kept["▁the"] == "the" and kept["ing"] == "##ing" and kept["<unk>"] == "[UNK]"


def test_same_tokenizer_keeps_every_row_with_a_piece():
    assert same_pieces(300, 300).note(300) is None
    origins = same_pieces(304, 300)
    assert (origins.reused, origins.dropped, origins.random) == (300, 4, 0)
    table = torch.randn(304, 4)
    assert torch.equal(rows_of_pieces(table, torch.zeros(300, 4), origins), table[:300])


def test_equal_vocabulary_is_the_identity(tokenizers):
    old, _ = tokenizers
    assert [list(rows) for rows in pieces_by_text(old, 300, old).rows] == [[number] for number in range(300)]


def test_larger_table_is_padded_with_initial_values():
    trained, fresh = model_of(300, 1), model_of(310, 2)
    result = warm_start(trained.state_dict(), trained.config, fresh.state_dict(), fresh.config)
    assert torch.equal(result.tensors[WORDS][:300], trained.state_dict()[WORDS])
    assert torch.equal(result.tensors[WORDS][300:], fresh.state_dict()[WORDS][300:])
