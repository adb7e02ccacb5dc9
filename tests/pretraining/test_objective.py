"""The loss by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from albert.model.albert import AlbertForPreTraining
from albert.pretraining.batches import PretrainingBatch, collate, pretraining_objective
from albert.pretraining.masking import MaskingRecipe
from albert.pretraining.sampling import PretrainingSamples, SequenceRecipe
from albert.pretraining.segments import NO_LABEL
from albert.text.shards import TokenCorpus


@pytest.fixture
def batch(tiny_corpus) -> PretrainingBatch:
    samples = PretrainingSamples(TokenCorpus.open(tiny_corpus), SequenceRecipe(max_length=32), MaskingRecipe(), 0)
    return collate([samples.sample(n) for n in range(12)])


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
