"""Small models and tasks that many tests share."""

from typing import Any

from albert.model.config import AlbertConfig


def tiny_config(vocab_size: int, **changes: Any) -> AlbertConfig:
    """Two layers of 16, embeddings of 8, no dropout; `changes` are other values of any field."""
    sizes = {"embedding_size": 8, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    return AlbertConfig(vocab_size=vocab_size, **{**sizes, "intermediate_size": 24, **changes})
