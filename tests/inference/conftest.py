"""A tiny vocabulary and directories of models with random weights."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.tiny import tiny_config

from albert.checkpoints.model_directory import save_model_directory
from albert.model.albert import AlbertForSequenceClassification
from albert.model.config import AlbertConfig
from albert.text.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def config(tokenizer: Tokenizer) -> AlbertConfig:
    return tiny_config(
        tokenizer.vocab_size,
        embedding_size=16,
        hidden_size=32,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.3,
    )


@pytest.fixture
def saved(tmp_path: Path, tokenizer_directory: Path) -> Callable[..., Path]:
    """Save a model with the tiny tokenizer and return its directory."""

    def save(model: torch.nn.Module, **extra: object) -> Path:
        path = tmp_path / f"model-{len(list(tmp_path.iterdir()))}"
        save_model_directory(path, model, tokenizer_directory, extra=extra)
        return path

    return save


@pytest.fixture
def classifier(saved: Callable[..., Path], config: AlbertConfig) -> str:
    return str(saved(AlbertForSequenceClassification(config, 2), id2label={0: "dull", 1: "[bold]"}))
