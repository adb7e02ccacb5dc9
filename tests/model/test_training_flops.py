"""Useful work of a pre-training step by formula is what its matrix products add up to."""

import numpy as np
import pytest
from torch.utils.flop_counter import FlopCounterMode

from albert.model import packing as packed_sequences
from albert.model.albert import AlbertForPreTraining
from albert.model.cost import pretraining_flops
from albert.pretraining.batches import PretrainingBatch, collate, pretraining_objective
from albert.pretraining.sampling import Sample

pytestmark = pytest.mark.usefixtures("counted_products")


def a_batch(lengths: list[int], masked: int) -> PretrainingBatch:
    samples = []
    for length in lengths:
        ids = np.arange(length) % 60
        samples.append(Sample(ids, np.zeros(length, np.int64), np.arange(1, 1 + masked), np.arange(masked), 1))
    return collate(samples)


@pytest.mark.parametrize("lengths", [[24, 24], [12, 24, 36]])
@pytest.mark.parametrize("masked", [1, 4])
def test_a_step_without_padding_does_the_products_that_are_counted(config, lengths, masked, monkeypatch) -> None:
    monkeypatch.setattr(packed_sequences, "FREE_PADDING", 0)
    model, batch = AlbertForPreTraining(config).train(), a_batch(lengths, masked)
    assert all(group.padded is None for group in batch.packed.groups)
    with FlopCounterMode(display=False) as counter:
        losses = pretraining_objective(model, batch).losses
        sum(losses.values()).backward()
    again = 2 * masked * len(lengths) * config.embedding_size * config.vocab_size  # logits, in the backward pass
    assert counter.get_total_flops() - again == pretraining_flops(config, lengths, masked * len(lengths))


def test_padding_is_no_work(config) -> None:
    lengths = [30, 28]
    batch = a_batch(lengths, 2)
    assert batch.packed.groups[0].padded is not None
    with FlopCounterMode(display=False) as counter:
        losses = pretraining_objective(AlbertForPreTraining(config).train(), batch).losses
        sum(losses.values()).backward()
    assert counter.get_total_flops() > pretraining_flops(config, lengths, 4)


def test_attention_is_counted_by_the_length_of_each_sequence(config) -> None:
    together, apart = (pretraining_flops(config, lengths, 0) for lengths in ([40], [20, 20]))
    scores = 3 * 2 * config.num_hidden_layers * 2 * config.hidden_size
    pooled = 3 * 2 * (config.hidden_size**2 + 2 * config.hidden_size)
    assert together - apart == scores * (40 * 40 - 2 * 20 * 20) - pooled
