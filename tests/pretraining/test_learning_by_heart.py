"""A tiny model learns a few documents by heart, whatever its objective, under ever new masks, splits and swaps.

Reports of pre-training that stays on a plateau, or of a model that answers all with the most frequent token, would show
here within seconds: whatever keeps gradients, labels or masks from meeting each other keeps these figures down.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from albert.model.albert import AlbertForPreTraining
from albert.optim.optimizer import OptimizerRecipe, build_optimizer
from albert.pretraining.batches import PretrainingBatches, pretraining_objective
from albert.pretraining.masking import MaskingRecipe
from albert.pretraining.sampling import PretrainingSamples, SequenceRecipe
from albert.runtime.environment import world
from albert.training.update import update

DOCUMENTS, SENTENCES, TOKENS = 3, 3, 4
STEPS, LAST, RATE = 140, 20, 5e-3
"""Updates, the last ones, whose answers count, and the highest rate."""


@pytest.fixture(scope="module")
def documents():
    """Of tokens that no two of them share, so that a neighbour tells a token."""
    tokens = np.random.default_rng(0).permutation(np.arange(10, 10 + DOCUMENTS * SENTENCES * TOKENS))
    return [list(np.split(own, SENTENCES)) for own in np.split(tokens, DOCUMENTS)]


@pytest.mark.parametrize("objective", ["sop", "nsp", "none"])  # sop-reference is sop to the model
def test_a_few_documents_are_learnt_by_heart(objective, documents, corpus_of, tiny_recipe):
    sequences = SequenceRecipe(max_length=16, objective=objective)
    samples = PretrainingSamples(corpus_of(documents), sequences, MaskingRecipe(max_ngram=1), 0)
    # Weights of 0.02, right for 2,500 dimensions, would hold so narrow a network on a plateau for most of the time.
    model = AlbertForPreTraining(replace(tiny_recipe.model, embedding_size=32, hidden_size=64, initializer_range=0.1))
    optimizer = build_optimizer(OptimizerRecipe(kind="adamw", learning_rate=RATE, beta2=0.98), model)
    batches = PretrainingBatches(samples, 24, 24)
    right: dict[str, float] = {}
    asked: dict[str, int] = {}
    for step in range(STEPS):
        figures = update(
            model,
            optimizer,
            batches.micro_batches(step, 0, 1),
            pretraining_objective,
            learning_rate=RATE * min(1, (step + 1) / 20) * min(1, 2 * (1 - step / STEPS)),
            clip_norm=1.0,
            precision="fp32",
            device=torch.device("cpu"),
            ranks=world(),
        )
        if step >= STEPS - LAST:
            for name, count in figures.counts.items():
                right[name] = right.get(name, 0.0) + figures.correct[name]
                asked[name] = asked.get(name, 0) + count
    assert right["masked_tokens"] > 0.9 * asked["masked_tokens"] > 400
    if objective == "none":
        assert asked["sentence_order"] == 0
    else:
        assert right["sentence_order"] > 0.9 * asked["sentence_order"] > 200
