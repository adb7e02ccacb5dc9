"""Presets have the published sizes and names; every preset and every recipe can be built."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from albert.model.albert import AlbertForPreTraining
from albert.model.packing import pack
from albert.recipes.architecture import (
    PRESET_ALIASES,
    PRESET_GROUPS,
    PRESETS,
    EncoderConfig,
    preset_name,
)
from albert.recipes.pretraining import RECIPES

ARCHITECTURES = PRESETS | {f"recipe {name}": recipe.model for name, recipe in RECIPES.items()}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_presets_and_recipes_build_on_the_meta_device(name):
    """The outputs are those of two layers, because depth changes no shape."""
    config, meta = ARCHITECTURES[name], torch.device("meta")
    with meta:
        assert all(parameter.is_meta for parameter in AlbertForPreTraining(config).parameters())
        model = AlbertForPreTraining(replace(config, num_hidden_layers=2))
    ids = [np.arange(9), np.arange(5)]
    logits = model(pack(ids, [np.zeros_like(each) for each in ids]).to(meta), torch.tensor([1, 2, 11], device="meta"))
    assert logits.masked_tokens.shape == (3, config.vocab_size)
    assert logits.sentence_order.shape == (2, 2)


def test_presets_are_distinct_and_in_one_group_each():
    assert EncoderConfig() == PRESETS["albert-base"]
    assert len(set(PRESETS.values())) == len(PRESETS)
    assert sum(map(len, PRESET_GROUPS.values())) == len(PRESETS)
    assert not set(PRESET_ALIASES) & set(PRESETS) and set(PRESET_ALIASES.values()) <= set(PRESETS)


def test_presets_have_the_published_heads_dropout_and_activations():
    other_heads = {n: c.num_attention_heads for n, c in PRESETS.items() if c.hidden_size != 64 * c.num_attention_heads}
    assert other_heads == {"albert-xlarge-v1": 16, "albert-xlarge-zh": 16, "albert-xxlarge-zh": 16}
    with_dropout = {name for name, config in PRESETS.items() if config.hidden_dropout_prob}
    releases = ("albert-base-v1", "albert-large-v1", "albert-xlarge-v1", "bert-base-uncased", "bert-large-uncased")
    assert with_dropout == set(releases)
    assert all(PRESETS[name].attention_probs_dropout_prob == 0.1 for name in with_dropout)
    alberts = {name: config for name, config in PRESETS.items() if not name.endswith("-uncased")}
    assert all(c.hidden_act == ("relu" if n.endswith("-zh") else "gelu_new") for n, c in alberts.items())
    chinese = {n: (c.vocab_size, c.initializer_range) for n, c in PRESETS.items() if n.endswith("-zh")}
    assert chinese == {
        "albert-base-zh": (21128, 0.02),
        "albert-large-zh": (21128, 0.02),
        "albert-xlarge-zh": (21128, 0.014),
        "albert-xxlarge-zh": (21128, 0.01),
    }


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("albert-base", "albert-base"),
        ("albert-base-v2", "albert-base"),
        ("albert-xxlarge-v1", "albert-xxlarge"),
        ("albert-xxlarge-v2", "albert-xxlarge"),
        ("ALBERT_xxlarge_zh", "albert-xxlarge-zh"),
        ("albert-large-l3-h6144", "albert-large-L3-H6144"),
        ("albert-base-e768-not-shared", "bert-base"),
        ("albert-large-L24", "albert-large"),
        ("bert_large_uncased", "bert-large-uncased"),
        ("albert-bse", None),
        ("albert/albert-base-v2", None),
    ],
)
def test_preset_name_accepts_any_spelling(name, preset):
    assert preset_name(name) == preset
