"""The self-check finds the number of heads that a model was trained with, and claims no more than a text shows."""

import json
from dataclasses import replace
from importlib.resources import files
from itertools import product

import numpy as np
import pytest
import torch
from tests.tiny import tiny_config
from torch.nn import functional

from albert.cli.main import run
from albert.inference.inspection import plausible_settings
from albert.model.albert import AlbertForMaskedLM
from albert.model.packing import pack
from albert.recipes.architecture import PRESETS

TEXT = (files("albert.inference") / "self_check.txt").read_text("utf-8")
TRUE_HEADS = 16


@pytest.fixture(scope="module")
def trained(tokenizer):
    """A model that was trained on the fixed text, with 16 heads of 4."""
    config = tiny_config(
        tokenizer.vocab_size,
        embedding_size=32,
        hidden_size=64,
        num_attention_heads=TRUE_HEADS,
        intermediate_size=128,
        max_position_embeddings=128,
        initializer_range=0.1,
    )
    torch.manual_seed(0)
    model, rng = AlbertForMaskedLM(config), np.random.default_rng(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    paragraphs = [np.asarray([2, *tokenizer.encode(line)[:126], 3]) for line in TEXT.splitlines()]
    for _ in range(160):
        masks = [rng.random(len(ids)) < 0.15 for ids in paragraphs]
        inputs = [np.where(mask, tokenizer.mask_id, ids) for mask, ids in zip(masks, paragraphs, strict=True)]
        positions = np.flatnonzero(np.concatenate(masks))
        logits = model(pack(inputs, [np.zeros_like(ids) for ids in inputs]), torch.from_numpy(positions))
        loss = functional.cross_entropy(logits, torch.from_numpy(np.concatenate(paragraphs)[positions]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


@pytest.fixture
def checked(capsys):
    """What `albert info --self-check --json` says of a model."""

    def check(path):
        capsys.readouterr()
        assert run(["info", str(path), "--self-check", "--json", "--device", "cpu"]) == 0
        return json.loads(capsys.readouterr().out)["self_check"]

    return check


@pytest.mark.parametrize("stated", [TRUE_HEADS, 32])
def test_best_setting_is_the_trained_number_of_heads(trained, saved, checked, stated):
    model = AlbertForMaskedLM(replace(trained.config, num_attention_heads=stated))
    model.load_state_dict(trained.state_dict())
    path = saved(model)
    check = checked(path)
    assert check["masked_tokens"] > 100
    if stated == TRUE_HEADS:
        assert check == checked(path)
    settings = check["settings"]
    losses = [setting["loss"] for setting in settings]
    assert losses == sorted(losses)
    assert [setting["excess"] for setting in settings] == pytest.approx([loss - losses[0] for loss in losses])
    assert {setting["num_attention_heads"] for setting in settings} == {1, 16, 32}
    best = settings[0]
    assert best["num_attention_heads"] == TRUE_HEADS
    others = [setting["accuracy"] for setting in settings if setting["num_attention_heads"] != TRUE_HEADS]
    assert best["accuracy"] > max(others)
    (own,) = [setting for setting in settings if setting["stated"]]
    assert (own["hidden_act"], own["num_attention_heads"]) == ("gelu_new", stated)
    if stated == TRUE_HEADS:
        assert check["verdict"].startswith("no setting is better than the stated gelu_new with 16 heads")
    else:
        assert "with 16 heads is better than the stated gelu_new with 32 heads by" in check["verdict"]


def test_untrained_model_has_no_better_setting(saved, checked, config):
    check = checked(saved("pretraining", config=replace(config, initializer_range=1e-4)))
    assert "indistinguishable from it on this text" in check["verdict"]


def test_model_without_a_masked_token_head_is_refused(saved, refused):
    path = saved("classification", 2)
    refused(["info", path, "--self-check", "--device", "cpu"], 78, path)


@pytest.mark.parametrize(
    ("preset", "act", "expected"),
    [
        ("albert-base", "gelu", set(product(("gelu", "gelu_new"), (12, 16, 32)))),
        ("albert-xlarge", "relu", {("relu", 16), ("relu", 32)}),
    ],
)
def test_plausible_settings(preset, act, expected):
    stated = replace(PRESETS[preset], hidden_act=act)
    settings = plausible_settings(stated)
    assert settings[0] == stated
    assert {(config.hidden_act, config.num_attention_heads) for config in settings} == expected
