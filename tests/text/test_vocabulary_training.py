"""Training a vocabulary: the same text gives the same bytes, nothing is dropped without a count."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.runtime.errors import InvalidConfiguration, MissingInput
from albert.text.sentencepiece import (
    TrainingReport,
    VocabularySettings,
    cut_to_bytes,
    sample_documents,
    train_tokenizer,
)


def test_training_does_not_depend_on_the_order_of_documents(documents, tokenizer):
    shuffled = documents.copy()
    random.Random(1).shuffle(shuffled)
    assert train_tokenizer(shuffled, vocab_size=300).fingerprint == tokenizer.fingerprint


def test_the_sample_of_a_large_corpus_does_not_depend_on_its_order(documents):
    settings = VocabularySettings(maximum_bytes=5_000)
    report = TrainingReport()
    sample = sample_documents(documents, settings, report)
    assert sample == sample_documents(documents[::-1], settings, TrainingReport())
    assert report.documents_read == len(documents) > report.documents_used == len(sample)
    assert report.bytes_used == sum(len(text.encode()) for text in sample) <= 5_000
    other = sample_documents(documents, VocabularySettings(maximum_bytes=5_000, seed=1), TrainingReport())
    assert set(other) != set(sample)


def test_a_vocabulary_larger_than_the_text_supports_names_the_largest(documents):
    with pytest.raises(InvalidConfiguration, match=r"vocabulary of 90,000 pieces: .* supports [\d,]+ at most"):
        train_tokenizer(documents, vocab_size=90_000)


def test_a_vocabulary_smaller_than_the_characters_names_the_least(documents):
    with pytest.raises(InvalidConfiguration, match=r"characters of this text alone need \d+"):
        train_tokenizer(documents, vocab_size=20)


@pytest.mark.parametrize("texts", [[], ["", " \n"], ["\u0301"]])
def test_no_text_is_no_vocabulary(texts):
    with pytest.raises(MissingInput, match="no sentence"):
        train_tokenizer(texts, vocab_size=300)


@pytest.mark.parametrize("values", [{"vocab_size": 0}, {"maximum_bytes": 0}, {"character_coverage": 1.5}])
def test_impossible_settings_are_refused(values):
    with pytest.raises(InvalidConfiguration):
        VocabularySettings(**values)


def test_long_sentences_are_cut_and_counted_not_dropped(documents):
    report = TrainingReport()
    rare = "zyzzyva" * 700 + " " + "quokka " * 1000
    settings = VocabularySettings(as_lines=True)  # sentences that are looked for are never so long
    trained = train_tokenizer([*documents, rare], vocab_size=300, settings=settings, report=report)
    assert report.sentences_cut == 1
    assert trained.piece_to_id("z") != trained.unk_id or "z" in "".join(map(trained.piece, range(300)))


def test_reserved_characters_cost_no_sentence(documents):
    report = TrainingReport()
    trained = train_tokenizer([*documents, "qqq\0qqq ▅ qqq" * 50], vocab_size=300, report=report)
    assert any("q" in trained.piece(number) for number in range(13, 300))


def test_training_says_nothing_on_its_own(documents, capfd):
    train_tokenizer(documents[:40], vocab_size=200)
    assert capfd.readouterr().out == ""


@given(st.text(alphabet="aé語😀 ", max_size=60), st.integers(4, 20))
def test_cutting_keeps_all_that_is_not_blank(text, limit):
    pieces = cut_to_bytes(text, limit)
    assert all(len(piece.encode()) <= limit for piece in pieces)
    assert "".join(pieces).replace(" ", "") == text.replace(" ", "")
