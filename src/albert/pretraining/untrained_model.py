"""The model that a run begins with, drawn by the recipe's seed."""

import torch

from albert.model.albert import AlbertForPreTraining
from albert.model.initialization import sinusoids
from albert.pretraining.recipes import PretrainingRecipe
from albert.runtime.devices import seed_torch


def untrained_model(recipe: PretrainingRecipe) -> AlbertForPreTraining:
    """Random weights, and positions as the recipe has them; the same for the same recipe and torch build."""
    seed_torch("initialization", recipe.seed)
    model = AlbertForPreTraining(recipe.model)
    if recipe.sinusoidal_positions is not None:
        positions = model.albert.embeddings.position_embeddings.weight
        waves = sinusoids(len(positions), positions.shape[1], recipe.sinusoidal_positions)
        with torch.no_grad():
            positions.copy_(waves)
    return model
