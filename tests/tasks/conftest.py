"""A small vocabulary over the embedded sample."""

import pytest

from albert.experiments.quickstart import load_chapters
from albert.text.sentencepiece import train_tokenizer
from albert.text.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return train_tokenizer([chapter.text[:20_000] for chapter in load_chapters()[:4]], vocab_size=400)
