"""Corpora for runs at a toy scale."""

from pathlib import Path

import pytest
from tests.cli.conftest import make_documents


@pytest.fixture(scope="session")
def corpora(tmp_path_factory) -> tuple[Path, Path]:
    """The same text as two prepared corpora, in the pieces of two tokenizers."""
    from albert.text.executors import PreparationSettings
    from albert.text.prepare import prepare
    from albert.text.sentencepiece import train_tokenizer

    root = tmp_path_factory.mktemp("corpora")
    documents = make_documents(40)
    text = root / "text"
    text.mkdir()
    for number, document in enumerate(documents):
        (text / f"{number:02d}.txt").write_text(document, encoding="utf-8")
    for size in (180, 160):
        tokenizer = train_tokenizer(documents, vocab_size=size)
        prepare([text], tokenizer, root / f"corpus-{size}", PreparationSettings(held_out=0.2), workers=1)
    return root / "corpus-180", root / "corpus-160"
