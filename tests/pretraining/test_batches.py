"""A step's batch: counts, positions, and the same samples for any number of micro-batches, ranks and workers."""

import os
import signal

import numpy as np
import pytest
import torch

from albert.pretraining.batches import PretrainingBatches, collate
from albert.pretraining.masking import MaskingRecipe
from albert.pretraining.sampling import PretrainingSamples, SequenceRecipe
from albert.pretraining.segments import NO_LABEL
from albert.runtime.environment import world
from albert.text.shards import TokenCorpus
from albert.training.loop import load_batches


@pytest.fixture(scope="module")
def samples(tiny_corpus):
    return PretrainingSamples(TokenCorpus.open(tiny_corpus), SequenceRecipe(max_length=32), MaskingRecipe(), seed=0)


def rows(batch):
    """Each sequence of a batch as plain values: tokens, types, what is masked, the order asked for."""
    masked = dict(zip(batch.masked_positions.tolist(), batch.masked_labels.tolist(), strict=True))
    found, start = [], 0
    for length, order in zip(batch.packed.lengths, batch.order_labels.tolist(), strict=True):
        span = slice(start, start + length)
        holes = tuple((place - start, label) for place, label in masked.items() if start <= place < start + length)
        ids, types = batch.packed.token_ids[span], batch.packed.token_type_ids[span]
        found.append((tuple(ids.tolist()), tuple(types.tolist()), holes, order))
        start += length
    return found


def all_rows(batches):
    return [row for batch in batches for row in rows(batch)]


def test_positions_point_at_the_masked_tokens(samples):
    chosen = [samples.sample(n) for n in range(20)]
    batch = collate(chosen)
    assert batch.packed.lengths == tuple(len(sample.token_ids) for sample in chosen)
    assert batch.n_tokens == sum(batch.packed.lengths)
    whole = np.concatenate([sample.token_ids for sample in chosen])
    assert (batch.packed.token_ids.numpy() == whole).all()
    restored = batch.packed.token_ids.clone()
    restored[batch.masked_positions] = batch.masked_labels
    expected = []
    for sample in chosen:
        ids = sample.token_ids.copy()
        ids[sample.masked_positions] = sample.masked_labels
        expected += ids.tolist()
    assert restored.tolist() == expected


def test_counts_are_what_the_losses_are_divided_by(samples):
    chosen = [samples.sample(n) for n in range(40)]
    batch = collate(chosen)
    assert batch.counts["masked_tokens"] == len(batch.masked_labels) == sum(len(s.masked_labels) for s in chosen)
    labelled = sum(sample.order_label != NO_LABEL for sample in chosen)
    assert batch.counts["sentence_order"] == labelled == int((batch.order_labels >= 0).sum())
    assert 0 < labelled < 40


def test_a_batch_moves_to_a_device_whole(samples):
    moved = collate([samples.sample(n) for n in range(4)]).to(torch.device("meta"))
    for tensor in (moved.packed.token_ids, moved.masked_positions, moved.masked_labels, moved.order_labels):
        assert tensor.is_meta


def test_step_t_holds_the_samples_from_t_times_the_batch_size(samples):
    source = PretrainingBatches(samples, batch_size=8, micro_batch_size=3)
    per_epoch_steps = samples.per_epoch // 8 + 2  # over the edge of the epoch
    for step in (0, 1, per_epoch_steps):
        batches = source.micro_batches(step, 0, 1)
        assert [batch.packed.n_sequences for batch in batches] == [3, 3, 2]
        assert all_rows(batches) == rows(collate([samples.sample(8 * step + i) for i in range(8)]))


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("workers", [1, 4])
def test_worker_processes_make_the_same_batches(samples, workers):
    source = PretrainingBatches(samples, 8, 4)
    expected = [all_rows(source.micro_batches(step, 0, 1)) for step in range(3, 13)]
    made = [all_rows(batches) for batches in load_batches(source, world(), range(3, 13), workers)]
    assert made == expected


def test_a_worker_that_is_still_starting_leaves_signals_to_its_parent(samples, monkeypatch):
    """Torch lets SIGTERM end a worker; the parent is then told of a crash and cannot save."""
    signal_handling = torch.utils.data._utils.signal_handling
    set_handlers = signal_handling._set_worker_signal_handlers

    def signalled_then() -> None:
        set_handlers()
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(signal_handling, "_set_worker_signal_handlers", signalled_then)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert len(list(load_batches(PretrainingBatches(samples, 8, 4), world(), range(3), workers=1))) == 3
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_a_step_of_many_micro_batches_takes_few_file_descriptors(samples):
    """Each tensor that comes from a worker is one: the paper's batch has 128 micro-batches of a dozen tensors."""
    source = PretrainingBatches(samples, 64, 1)
    for step, batches in enumerate(load_batches(source, world(), range(2), workers=1)):
        tensors = [
            tensor
            for batch in batches
            for tensor in (batch.masked_positions, batch.masked_labels, batch.order_labels, batch.packed.token_ids,
                           batch.packed.cells, *(group.positions for group in batch.packed.groups))
        ]  # fmt: skip
        assert len(tensors) >= 64 * 6 and len({tensor.untyped_storage().data_ptr() for tensor in tensors}) == 1
        assert all_rows(batches) == all_rows(source.micro_batches(step, 0, 1))
