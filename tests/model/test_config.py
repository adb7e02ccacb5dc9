"""The dials of the model: what fits together is built, what does not is refused in one line."""

import pytest
import torch

from albert.model.albert import AlbertForPreTraining
from albert.model.config import PRESETS, AlbertConfig
from albert.model.packing import pack
from albert.pretraining.recipe import RECIPES

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


def test_the_defaults_are_albert_base():
    assert AlbertConfig() == PRESETS["albert-base"]
