"""A recipe with activation checkpointing computes layers twice and ends with the same bytes."""

from dataclasses import replace

import pytest

from albert.model.encoder import Encoder
from albert.pretraining.run import pretrain


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_run_with_activation_checkpointing_ends_with_the_same_bytes(
    tiny_recipe, tiny_corpus, tmp_path, monkeypatch, precision
):
    model = replace(tiny_recipe.model, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.2)
    schedule = replace(tiny_recipe.schedule, total_steps=2, warmup_steps=1)
    recipe = replace(tiny_recipe, model=model, schedule=schedule, precision=precision, evaluate_every=2)
    calls, layer = [], Encoder._layer
    monkeypatch.setattr(Encoder, "_layer", lambda *arguments: calls.append(1) or layer(*arguments))
    bytes_of, layers = {}, {}
    for checkpointing in (False, True):
        run = tmp_path / str(checkpointing)
        pretrain(replace(recipe, activation_checkpointing=checkpointing), tiny_corpus, run, "cpu")
        bytes_of[checkpointing] = (run / "model" / "model.safetensors").read_bytes()
        layers[checkpointing] = len(calls)
        calls.clear()
    assert bytes_of[True] == bytes_of[False]
    assert layers[True] > layers[False]
