"""A tiny vocabulary and directories of models with random weights."""

import pytest
from tests.tiny import tiny_config

from albert.checkpoints.huggingface import build_model
from albert.checkpoints.model_directory import save_model_directory
from albert.inference.predictor import Predictor


@pytest.fixture(scope="session")
def config(tokenizer):
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
def saved(tmp_path, tokenizer_directory, config):
    """Save a model, or a new one of some kind, with the tiny tokenizer and return its directory."""

    def save(model, labels=None, config=config, **extra):
        if isinstance(model, str):
            model = build_model(model, config, labels)
        path = tmp_path / f"model-{len(list(tmp_path.iterdir()))}"
        save_model_directory(path, model, tokenizer_directory, extra=extra)
        return path

    return save


@pytest.fixture
def opened(saved):
    """Save a model as `saved` does and open it in fp32."""
    return lambda *model, **extra: Predictor.open(saved(*model, **extra), precision="fp32")


@pytest.fixture
def classifier(saved, config) -> str:
    return str(saved("classification", 2, id2label={0: "dull", 1: "[bold]"}))
