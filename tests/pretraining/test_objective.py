"""The loss by hand, and that a tiny model learns each objective by heart."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from albert.model.albert import AlbertForPreTraining
from albert.optim.optimizer import OptimizerRecipe, build_optimizer
from albert.pretraining.batches import PretrainingBatch, collate
from albert.pretraining.ngram_masking import MaskingRecipe
from albert.pretraining.objective import pretraining_objective
from albert.pretraining.samples import PretrainingSamples, SequenceRecipe
from albert.pretraining.sentence_order import NO_LABEL
from albert.runtime.distributed import world
from albert.text.preparation.shards import TokenCorpus
from albert.training.update import update


@pytest.fixture
def batch(tiny_corpus) -> PretrainingBatch:
    samples = PretrainingSamples(TokenCorpus.open(tiny_corpus), SequenceRecipe(max_length=32), MaskingRecipe(), 0)
    return collate([samples.numbered(n) for n in range(12)])


@pytest.fixture
def model(tiny_recipe) -> AlbertForPreTraining:
    return AlbertForPreTraining(replace(tiny_recipe.model, initializer_range=0.2)).double().eval()


def test_the_losses_equal_a_computation_by_hand(model, batch):
    with torch.inference_mode():
        sums = pretraining_objective(model, batch)
        logits = model(batch.packed, batch.masked_positions)
    for name, scores, labels in (
        ("masked_tokens", logits.masked_tokens, batch.masked_labels),
        ("sentence_order", logits.sentence_order, batch.order_labels),
    ):
        loss, right = 0.0, 0
        for row, label in zip(scores.float().double().numpy(), labels.tolist(), strict=True):
            if label == NO_LABEL:
                continue
            loss += float(np.log(np.exp(row - row.max()).sum()) + row.max() - row[label])
            right += int(row.argmax() == label)
        assert float(sums.losses[name]) == pytest.approx(loss, rel=1e-5)
        assert int(sums.correct[name]) == right


def test_losses_are_float32_sums_over_a_micro_batch(model, batch):
    sums = pretraining_objective(model.float(), batch)
    assert set(sums.losses) == set(sums.correct) == set(batch.counts)
    assert all(loss.dtype == torch.float32 and loss.ndim == 0 for loss in sums.losses.values())


def test_a_sequence_without_an_order_adds_nothing_to_the_loss(model, batch):
    unlabelled = replace(batch, order_labels=torch.full_like(batch.order_labels, NO_LABEL))
    assert int((batch.order_labels >= 0).sum()) > 0
    sums = pretraining_objective(model, unlabelled)
    assert float(sums.losses["sentence_order"].detach()) == 0.0 and int(sums.correct["sentence_order"]) == 0
    sums.losses["sentence_order"].backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert all((gradient == 0).all() for gradient in gradients)


def test_the_order_loss_is_that_of_the_labelled_sequences_alone(model, batch):
    with torch.inference_mode():
        order = model(batch.packed, batch.masked_positions).sentence_order.float()
        sums = pretraining_objective(model, batch)
    labelled = batch.order_labels >= 0
    assert 0 < int(labelled.sum()) < len(labelled)
    expected = functional.cross_entropy(order[labelled], batch.order_labels[labelled], reduction="sum")
    torch.testing.assert_close(sums.losses["sentence_order"], expected)


@pytest.mark.parametrize("objective", ["sop", "nsp", "none"])
def test_a_tiny_model_learns_a_few_sequences_by_heart(objective, tiny_corpus, tiny_recipe):
    sequences = SequenceRecipe(max_length=32, objective=objective)
    samples = PretrainingSamples(TokenCorpus.open(tiny_corpus), sequences, MaskingRecipe(), 0)
    batches = [collate([samples.numbered(n) for n in range(first, first + 6)]) for first in (0, 6)]
    model = AlbertForPreTraining(replace(tiny_recipe.model, embedding_size=32, hidden_size=64))
    optimizer = build_optimizer(OptimizerRecipe(kind="adamw", learning_rate=5e-3, weight_decay=0.0), model)
    losses = []
    for step in range(150):
        figures = update(
            model,
            optimizer,
            batches,
            pretraining_objective,
            learning_rate=5e-3 * (1 - step / 150),
            clip_norm=1.0,
            precision="fp32",
            device=torch.device("cpu"),
            here=world(),
        )
        losses.append({name: figures.losses[name] / max(1, count) for name, count in figures.counts.items()})
    assert losses[0]["masked_tokens"] == pytest.approx(np.log(300), abs=0.3)
    assert losses[-1]["masked_tokens"] < 0.3
    if objective == "none":
        assert all(loss["sentence_order"] == 0 for loss in losses)
    else:
        assert losses[0]["sentence_order"] == pytest.approx(np.log(2), abs=0.1)
        assert losses[-1]["sentence_order"] < 0.02
