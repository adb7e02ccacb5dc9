"""The dials of the model: what fits together is built, what does not is refused in one line."""

from dataclasses import replace

import pytest
import torch

from albert.model.albert import AlbertForPreTraining
from albert.model.config import ALBERT_BASE, PRESETS, AlbertConfig
from albert.model.packing import pack
from albert.pretraining.recipe import RECIPES
from albert.runtime.errors import InvalidConfiguration

ARCHITECTURES = PRESETS | {f"recipe {name}": recipe.model for name, recipe in RECIPES.items()}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_preset_and_every_recipe_builds_on_the_meta_device(name, sequences_of):
    config = ARCHITECTURES[name]
    with torch.device("meta"):
        model = AlbertForPreTraining(config)
    assert all(parameter.is_meta for parameter in model.parameters())
    packed = pack(*sequences_of([9, 5])).to(torch.device("meta"))
    logits = model(packed, torch.tensor([1, 2, 11], device="meta"))
    assert logits.masked_tokens.shape == (3, config.vocab_size)
    assert logits.sentence_order.shape == (2, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_attention_heads": 5}, "num_attention_heads: 5 heads do not divide hidden_size 768"),
        ({"hidden_size": 0}, "hidden_size: is 0, at least 1 is needed"),
        ({"vocab_size": -3}, "vocab_size: is -3, at least 1 is needed"),
        ({"num_hidden_layers": 0}, "num_hidden_layers: is 0, at least 1 is needed"),
        ({"num_hidden_groups": 13}, "num_hidden_groups: 13 groups for 12 layers"),
        ({"num_hidden_groups": 5}, "num_hidden_groups: 5 groups do not divide 12 layers"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob: is 1.0, a share from 0 to below 1 is needed"),
        ({"attention_probs_dropout_prob": -0.1}, "attention_probs_dropout_prob: is -0.1, a share"),
        ({"classifier_dropout_prob": float("nan")}, "classifier_dropout_prob: is nan, a share"),
        ({"initializer_range": 0.0}, "initializer_range: is 0.0, a number above 0 is needed"),
        ({"layer_norm_eps": -1e-12}, "layer_norm_eps: is -1e-12, a number above 0 is needed"),
        ({"sharing": "none", "num_hidden_groups": 2}, "sharing: 'none' with groups; groups go with sharing \"all\""),
        ({"sharing": "ffn", "inner_group_num": 2}, "sharing: 'ffn' with groups; groups go with sharing \"all\""),
        ({"embedding_projection": False}, "embedding_projection: cannot be off: E 128 is not H 768"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_in_one_line(changes, message):
    with pytest.raises(InvalidConfiguration) as refusal:
        replace(ALBERT_BASE, **changes)
    assert str(refusal.value).startswith(message)
    assert "\n" not in str(refusal.value)


def test_the_defaults_are_albert_base():
    assert AlbertConfig() == PRESETS["albert-base"]
