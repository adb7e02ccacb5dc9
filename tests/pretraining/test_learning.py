"""Pre-training learns: a tiny model memorises a few documents; windows and activation checkpointing work in a run.

Whatever separates gradients, labels or masks from each other would keep the accuracy low here.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.pretraining.conftest import model_bytes

from albert.model.albert import AlbertForPreTraining
from albert.model.attention import AttentionBlock
from albert.optim.optimizer import OptimizerRecipe, build_optimizer
from albert.pretraining.batches import pretraining_objective
from albert.pretraining.run import pretrain
from albert.pretraining.sampling import PretrainingBatches, PretrainingSamples
from albert.recipes.pretraining import MaskingRecipe, SequenceRecipe
from albert.runtime.environment import world
from albert.training.update import update

DOCUMENTS, SENTENCES, TOKENS = 3, 3, 4
STEPS, LAST_STEPS, RATE = 140, 20, 5e-3


@pytest.mark.parametrize("objective", ["sop", "nsp"])
def test_a_tiny_model_memorises_a_few_documents(objective, corpus_of, tiny_recipe):
    """No two documents share a token, so each token predicts its neighbours."""
    tokens = np.random.default_rng(0).permutation(np.arange(10, 10 + DOCUMENTS * SENTENCES * TOKENS))
    corpus = corpus_of([list(np.split(document, SENTENCES)) for document in np.split(tokens, DOCUMENTS)])
    sequences = SequenceRecipe(max_length=16, objective=objective)
    samples = PretrainingSamples(corpus, sequences, MaskingRecipe(max_ngram=1), 0)
    # An initializer range of 0.02, for thousands of dimensions, would keep so narrow a network on a plateau for long.
    model = AlbertForPreTraining(replace(tiny_recipe.model, embedding_size=32, hidden_size=64, initializer_range=0.1))
    optimizer = build_optimizer(OptimizerRecipe(kind="adamw", learning_rate=RATE, beta2=0.98), model)
    batches = PretrainingBatches(samples, 24, 24)
    correct = {"masked_tokens": 0.0, "sentence_order": 0.0}
    counts = {"masked_tokens": 0, "sentence_order": 0}
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
        if step >= STEPS - LAST_STEPS:
            for name, count in figures.counts.items():
                correct[name] += figures.correct[name]
                counts[name] += count
    assert correct["masked_tokens"] > 0.9 * counts["masked_tokens"] > 400
    assert correct["sentence_order"] > 0.9 * counts["sentence_order"] > 200


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_activation_checkpointing_gives_the_same_bytes(tiny_recipe, tiny_corpus, tmp_path, monkeypatch, precision):
    model = replace(tiny_recipe.model, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.2)
    schedule = replace(tiny_recipe.schedule, total_steps=2, warmup_steps=1)
    recipe = replace(tiny_recipe, model=model, schedule=schedule, precision=precision, evaluate_every=2)
    calls, forward = [], AttentionBlock.forward
    monkeypatch.setattr(AttentionBlock, "forward", lambda *args: calls.append(1) or forward(*args))
    pretrain(recipe, tiny_corpus, tmp_path / "plain", "cpu")
    plain_calls = len(calls)
    pretrain(replace(recipe, activation_checkpointing=True), tiny_corpus, tmp_path / "recomputed", "cpu")
    assert len(calls) > 2 * plain_calls
    assert model_bytes(tmp_path / "plain") == model_bytes(tmp_path / "recomputed")
