"""Batches of a step and their loss: the same samples for any micro-batches, ranks and workers."""

import os
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch

from albert.model.albert import AlbertForPreTraining
from albert.pretraining.batches import collate, pretraining_objective
from albert.pretraining.sampling import PretrainingBatches
from albert.pretraining.segments import NO_LABEL
from albert.runtime.environment import world
from albert.training.loading import load_batches


def rows(*batches):
    """The sequences of batches as plain values: tokens, types, masked tokens, order label."""
    result = []
    for batch in batches:
        masked = dict(zip(batch.masked_positions.tolist(), batch.masked_labels.tolist(), strict=True))
        start = 0
        for length, order in zip(batch.packed.lengths, batch.order_labels.tolist(), strict=True):
            span = range(start, start + length)
            ids, types = batch.packed.token_ids[start:][:length], batch.packed.token_type_ids[start:][:length]
            masks = tuple((position - start, masked[position]) for position in span if position in masked)
            result.append((tuple(ids.tolist()), tuple(types.tolist()), masks, order))
            start += length
    return result


def test_a_batch_has_the_tokens_masks_and_counts_of_its_samples(tiny_samples):
    samples = [tiny_samples.sample(n) for n in range(40)]
    batch = collate(samples)
    expected = [
        (
            tuple(sample.token_ids.tolist()),
            tuple(sample.token_type_ids.tolist()),
            tuple(zip(sample.masked_positions.tolist(), sample.masked_labels.tolist(), strict=True)),
            sample.order_label,
        )
        for sample in samples
    ]
    assert rows(batch) == expected
    assert batch.n_tokens == sum(batch.packed.lengths) == sum(len(sample.token_ids) for sample in samples)
    labelled = sum(sample.order_label != NO_LABEL for sample in samples)
    assert batch.counts == {"masked_tokens": len(batch.masked_labels), "sentence_order": labelled}
    assert 0 < labelled < 40


def test_step_t_has_the_samples_from_t_times_the_batch_size(tiny_samples):
    source = PretrainingBatches(tiny_samples, batch_size=8, micro_batch_size=3)
    for step in (0, 1, tiny_samples.per_epoch // 8 + 2):
        batches = source.micro_batches(step, 0, 1)
        assert [batch.packed.n_sequences for batch in batches] == [3, 3, 2]
        assert rows(*batches) == rows(collate([tiny_samples.sample(8 * step + i) for i in range(8)]))


@pytest.mark.parametrize("micro_batch_size", [1, 3, 8])
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_the_ranks_share_the_same_samples_in_the_same_order(tiny_samples, world_size, micro_batch_size):
    source = PretrainingBatches(tiny_samples, batch_size=8, micro_batch_size=micro_batch_size)
    for step in (0, tiny_samples.per_epoch // 8):  # the second batch reaches into the next epoch
        shares = []
        for rank in range(world_size):
            batches = source.micro_batches(step, rank, world_size)
            assert max(batch.packed.n_sequences for batch in batches) <= micro_batch_size
            shares.append(rows(*batches))
        interleaved = [shares[i % world_size][i // world_size] for i in range(8)]
        assert interleaved == rows(collate([tiny_samples.sample(step * 8 + i) for i in range(8)]))


def test_every_worker_gets_a_part_of_each_micro_batch(tiny_samples):
    (whole,) = PretrainingBatches(tiny_samples, 8, 8).micro_batches(1, 0, 1)
    parts = PretrainingBatches(tiny_samples, 8, 8, workers=2).micro_batches(1, 0, 1)
    assert len(parts) == 2 and rows(*parts) == rows(whole)
    assert abs(parts[0].n_tokens - parts[1].n_tokens) <= max(whole.packed.lengths)
    single = PretrainingBatches(tiny_samples, 8, 1, workers=2).micro_batches(1, 0, 1)
    assert [batch.packed.n_sequences for batch in single] == [1] * 8


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("workers", [1, 4])
def test_worker_processes_make_the_same_batches(tiny_samples, workers):
    source = PretrainingBatches(tiny_samples, 8, 4)
    expected = [rows(*source.micro_batches(step, 0, 1)) for step in range(3, 13)]
    assert [rows(*batches) for batches in load_batches(source, world(), range(3, 13), workers)] == expected


def test_a_starting_worker_leaves_signals_to_its_parent(tiny_samples, monkeypatch):
    """Torch lets SIGTERM end a worker; the parent would see a crash and could not save."""
    signal_handling = torch.utils.data._utils.signal_handling
    set_handlers = signal_handling._set_worker_signal_handlers

    def set_handlers_then_signal() -> None:
        set_handlers()
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(signal_handling, "_set_worker_signal_handlers", set_handlers_then_signal)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert len(list(load_batches(PretrainingBatches(tiny_samples, 8, 4), world(), range(3), workers=1))) == 3
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_the_tensors_of_a_step_share_one_storage(tiny_samples):
    """Each storage from a worker takes a file descriptor: the paper's batch has 128 micro-batches of many tensors."""
    source = PretrainingBatches(tiny_samples, 64, 1)
    for step, batches in enumerate(load_batches(source, world(), range(2), workers=1)):
        tensors = [
            tensor
            for batch in batches
            for tensor in (batch.masked_positions, batch.masked_labels, batch.order_labels, batch.packed.token_ids,
                           batch.packed.gather_index, *(group.positions for group in batch.packed.groups))
        ]  # fmt: skip
        assert len(tensors) >= 64 * 6 and len({tensor.untyped_storage().data_ptr() for tensor in tensors}) == 1
        assert rows(*batches) == rows(*source.micro_batches(step, 0, 1))


# ---- the loss --------------------------------------------------------------------------------------------------------


@pytest.fixture
def batch(tiny_samples):
    return collate([tiny_samples.sample(n) for n in range(12)])


@pytest.fixture
def model(tiny_recipe):
    return AlbertForPreTraining(replace(tiny_recipe.model, initializer_range=0.2)).double().eval()


def test_losses_equal_a_computation_by_hand(model, batch):
    with torch.inference_mode():
        sums = pretraining_objective(model, batch)
        logits = model(batch.packed, batch.masked_positions)
    for name, scores, labels in (
        ("masked_tokens", logits.masked_tokens, batch.masked_labels),
        ("sentence_order", logits.sentence_order, batch.order_labels),
    ):
        loss, correct = 0.0, 0
        for row, label in zip(scores.float().double().numpy(), labels.tolist(), strict=True):
            if label != NO_LABEL:
                loss += float(np.log(np.exp(row - row.max()).sum()) + row.max() - row[label])
                correct += int(row.argmax() == label)
        assert float(sums.losses[name]) == pytest.approx(loss, rel=1e-5)
        assert int(sums.correct[name]) == correct


def test_a_sequence_without_order_label_does_not_change_the_loss(model, batch):
    unlabelled = replace(batch, order_labels=torch.full_like(batch.order_labels, NO_LABEL))
    assert int((batch.order_labels >= 0).sum()) > 0
    sums = pretraining_objective(model, unlabelled)
    assert float(sums.losses["sentence_order"].detach()) == 0.0 and int(sums.correct["sentence_order"]) == 0
    sums.losses["sentence_order"].backward()
    assert all((p.grad == 0).all() for p in model.parameters() if p.grad is not None)
