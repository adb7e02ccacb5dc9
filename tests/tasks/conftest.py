"""A small vocabulary over the embedded sample."""

import pytest

from albert.experiments.sample_corpus import load_chapters
from albert.text.tokenizer import Tokenizer
from albert.text.unigram.sentencepiece_tokenizer import train_tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return train_tokenizer([chapter.text[:20_000] for chapter in load_chapters()[:4]], vocab_size=400)
