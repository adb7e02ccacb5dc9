"""The initial weights of a run: drawn by its seed, with sinusoidal positions if the recipe has them."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tiny import tiny_config

from albert.model.encoder import sinusoids
from albert.pretraining.run import untrained_model
from albert.recipes.pretraining import PretrainingRecipe, SequenceRecipe

RECIPE = PretrainingRecipe(
    model=tiny_config(50, embedding_size=16, hidden_size=32, intermediate_size=64, max_position_embeddings=40),
    sequences=SequenceRecipe(max_length=32),
)


@given(st.integers(1, 60), st.integers(2, 33), st.floats(0.01, 2.0))
def test_sinusoids_have_the_given_root_mean_square(positions, width, size):
    waves = sinusoids(positions, width, size)
    assert waves.shape == (positions, width)
    assert float(waves.square().mean().sqrt()) == pytest.approx(size, rel=1e-4)


def test_a_seed_gives_the_same_weights_and_sinusoids_change_only_positions():
    plain, again = (untrained_model(RECIPE).state_dict() for _ in range(2))
    waves = untrained_model(replace(RECIPE, sinusoidal_positions=0.08)).state_dict()
    name = "albert.embeddings.position_embeddings.weight"
    torch.testing.assert_close(again, plain, rtol=0, atol=0)
    torch.testing.assert_close(waves.pop(name), sinusoids(40, 16, 0.08))
    torch.testing.assert_close(waves, {key: value for key, value in plain.items() if key != name}, rtol=0, atol=0)
    assert not torch.equal(untrained_model(replace(RECIPE, seed=1)).state_dict()[name], plain[name])
