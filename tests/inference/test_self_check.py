"""The self-check finds the number of heads that a model was trained with, and claims no more than a text shows."""

from dataclasses import replace
from importlib.resources import files
from itertools import product

import numpy as np
import pytest
import torch
from tests.tiny import tiny_config
from torch.nn import functional

from albert.inference.inspection import check_settings, plausible_settings
from albert.model.albert import AlbertForMaskedLM
from albert.model.config import PRESETS
from albert.model.packing import pack
from albert.runtime.errors import InvalidConfiguration

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


@pytest.mark.parametrize("stated", [TRUE_HEADS, 32])
def test_best_setting_is_the_trained_number_of_heads(trained, saved, stated):
    model = AlbertForMaskedLM(replace(trained.config, num_attention_heads=stated))
    model.load_state_dict(trained.state_dict())
    path = saved(model)
    check = check_settings(path)
    assert check == check_settings(path) and check.masked_tokens > 100
    losses = [setting.loss for setting in check.settings]
    assert losses == sorted(losses)
    assert [setting.excess for setting in check.settings] == pytest.approx([loss - losses[0] for loss in losses])
    assert {setting.num_attention_heads for setting in check.settings} == {1, 16, 32}
    assert check.best.num_attention_heads == TRUE_HEADS
    assert check.best.accuracy > max(s.accuracy for s in check.settings if s.num_attention_heads != TRUE_HEADS)
    assert (check.stated.hidden_act, check.stated.num_attention_heads) == ("gelu_new", stated)
    assert check.stated.as_good_as_the_best == (stated == TRUE_HEADS)
    if stated == TRUE_HEADS:
        assert check.verdict.startswith("no setting is better than the stated gelu_new with 16 heads")
    else:
        assert "with 16 heads is better than the stated gelu_new with 32 heads by" in check.verdict


def test_untrained_model_has_no_better_setting(saved, config):
    check = check_settings(saved("pretraining", config=replace(config, initializer_range=1e-4)))
    assert check.stated.as_good_as_the_best
    assert "cannot be told apart from it by this text" in check.verdict


def test_model_without_a_masked_token_head_is_refused(saved):
    with pytest.raises(InvalidConfiguration, match="has no masked-token head"):
        check_settings(saved("classification", 2))


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
