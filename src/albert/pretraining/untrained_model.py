"""The model that a run begins with, drawn by the recipe's seed."""

import math

import torch

from albert.model.albert import AlbertForPreTraining
from albert.model.attention import AttentionBlock
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
    if recipe.equal_queries_and_keys is not None:
        width, heads = recipe.model.hidden_size, recipe.model.num_attention_heads
        # A normalised input has a squared length of H; a head adds up H / heads products and divides by their root.
        deviation = math.sqrt(recipe.equal_queries_and_keys / (width * math.sqrt(width / heads)))
        with torch.no_grad():
            for block in model.albert.encoder.attentions:
                assert isinstance(block, AttentionBlock)
                block.query.weight.normal_(std=deviation)
                block.key.weight.copy_(block.query.weight)
    return model
