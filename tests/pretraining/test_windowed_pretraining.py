"""Pre-training with an attention window: it learns, resumes to the same bits, and opens as what it was."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from albert.checkpoints.model_directory import open_model
from albert.model.packing import pack
from albert.pretraining.run import pretrain
from albert.runtime.json_files import read_journal


@pytest.fixture(scope="module")
def windowed(tiny_recipe):
    """Sequences of up to 128 tokens, and three to either side."""
    model = replace(tiny_recipe.model, max_position_embeddings=128, attention_window=3)
    return replace(tiny_recipe, model=model, sequences=replace(tiny_recipe.sequences, max_length=128))


def logits(model):
    ids = np.arange(128) % 300
    with torch.inference_mode():
        return model(pack([ids, ids[:110]], [np.zeros(128, np.int64), np.zeros(110, np.int64)]), torch.arange(200))


def test_a_run_with_a_window_learns_and_its_model_opens_with_it(windowed, tiny_corpus, tmp_path):
    pretrain(windowed, tiny_corpus, tmp_path / "run", "cpu")
    losses = [
        record["masked_tokens_loss"]
        for record in read_journal(tmp_path / "run/journal.jsonl")
        if record["event"] == "evaluation"
    ]
    assert losses[-1] < losses[0]
    opened = open_model(tmp_path / "run/model", "pretraining")
    assert opened.config.attention_window == 3
    dense = open_model(tmp_path / "run/model", "pretraining", overrides={"attention_window": None}).model
    assert (logits(opened.model).masked_tokens - logits(dense).masked_tokens).abs().max() > 1e-4
