"""Which examples a step learns from is a pure function of seed and step; ranks and micro-batches only divide it."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from albert.finetuning.data import TaskBatch, TaskBatches, batch_members, split_by_tokens
from albert.finetuning.objective import task_loss
from albert.model.albert import SpanFromStart
from albert.model.packing import pack
from albert.tasks.features import join_sequences


@given(n=st.integers(1, 30), batch=st.integers(1, 12), seed=st.integers(0, 5))
def test_every_epoch_goes_through_every_example_once(n, batch, seed):
    steps = -(-2 * n // batch)
    members = np.concatenate([batch_members(n, batch, seed, step) for step in range(steps)])
    assert sorted(members[:n]) == list(range(n))
    assert sorted(members[n : 2 * n]) == list(range(n))


def test_orders_differ_between_epochs_and_seeds():
    first, second = batch_members(50, 50, 0, 0), batch_members(50, 50, 0, 1)
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, batch_members(50, 50, 1, 0))
    assert np.array_equal(first, batch_members(50, 50, 0, 0))


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    batch=st.integers(1, 16),
    world=st.integers(1, 4),
    tokens=st.integers(1, 40),
    step=st.integers(0, 5),
)
def test_ranks_and_micro_batches_share_out_one_batch(lengths, batch, world, tokens, step):
    sequences = join_sequences([([i] * length, 1) for i, length in enumerate(lengths)])
    source = TaskBatches(sequences, np.arange(len(lengths)), "choice", batch, 7, tokens)
    dealt = []
    for rank in range(world):
        for piece in source.micro_batches(step, rank, world):
            assert piece.n_tokens <= tokens or piece.packed.n_sequences == 1
            assert piece.counts == {"choice": piece.packed.n_sequences}
            dealt += piece.targets.tolist()
    assert sorted(dealt) == sorted(batch_members(len(lengths), batch, 7, step).tolist())


@given(lengths=st.lists(st.integers(1, 20), max_size=20), tokens=st.integers(1, 50))
def test_pieces_hold_every_member_and_not_too_many_tokens(lengths, tokens):
    lengths = np.array(lengths, np.int64)
    pieces = split_by_tokens(np.arange(len(lengths)), lengths, tokens)
    assert sorted(np.concatenate([*pieces, np.zeros(0, np.int64)]).tolist()) == list(range(len(lengths)))
    assert all(lengths[piece].sum() <= tokens or len(piece) == 1 for piece in pieces)


class Fixed(torch.nn.Module):
    """A model whose output is given."""

    def __init__(self, output):
        super().__init__()
        self.output = output

    def forward(self, packed):
        return self.output


LENGTHS = (3, 5, 2)


def batch_of(targets, term):
    ids = [np.zeros(length, np.int64) for length in LENGTHS]
    return TaskBatch(pack(ids, ids), targets, term)


def test_the_span_loss_is_the_mean_of_two_cross_entropies_over_each_window():
    starts, ends = torch.randn(10), torch.randn(10)
    targets = torch.tensor([[0, 2], [1, 4], [0, 0]])
    expected = torch.tensor(0.0)
    for piece, (start, end) in zip(range(3), targets, strict=True):
        one, two = starts.split(LENGTHS)[piece], ends.split(LENGTHS)[piece]
        expected += (functional.cross_entropy(one, start) + functional.cross_entropy(two, end)) / 2
    sums = task_loss(Fixed((starts, ends)), batch_of(targets, "span"))
    assert sums.losses["span"].item() == pytest.approx(expected.item(), rel=1e-6)


def test_the_other_losses_are_sums_too():
    logits, labels = torch.randn(3, 4), torch.tensor([0, 3, 1])
    choice = task_loss(Fixed(logits), batch_of(labels, "choice"))
    assert choice.losses["choice"].item() == pytest.approx(
        functional.cross_entropy(logits, labels).item() * 3, rel=1e-6
    )
    numbers, gold = torch.randn(3, 1), torch.tensor([0.5, 5.0, 2.0])
    score = task_loss(Fixed(numbers), batch_of(gold, "score"))
    assert score.losses["score"].item() == pytest.approx(((numbers[:, 0] - gold) ** 2).sum().item(), rel=1e-6)
    assert score.correct == {}


def test_the_joint_loss_adds_half_the_decision():
    starts, ends, unanswerable = torch.randn(10), torch.randn(10), torch.randn(3)
    targets = torch.tensor([[0, 0], [1, 4], [0, 0]])
    spans = task_loss(Fixed((starts, ends)), batch_of(targets, "span")).losses["span"]
    decision = functional.binary_cross_entropy_with_logits(unanswerable, torch.tensor([1.0, 0.0, 1.0]), reduction="sum")
    seen = []

    class Joint(torch.nn.Module):
        def forward(self, packed, given):
            seen.append(given.tolist())
            return SpanFromStart(starts, ends, unanswerable)

    sums = task_loss(Joint(), batch_of(targets, "joint_span"))
    assert sums.losses["joint_span"].item() == pytest.approx((spans + decision / 2).item(), rel=1e-6)
    assert seen == [[0, 3 + 1, 8]]  # the gold starts, counted over all tokens


def test_the_options_of_a_question_compete_with_each_other():
    scores, right = torch.randn(3), torch.tensor([2])
    expected = functional.cross_entropy(scores[None], right)
    sums = task_loss(Fixed(scores), batch_of(right, "option"))
    assert sums.losses["option"].item() == pytest.approx(expected.item(), rel=1e-6)


@given(n=st.integers(1, 7), options=st.integers(2, 4), world=st.integers(1, 3), tokens=st.integers(1, 60))
def test_options_stay_together_and_in_order(n, options, world, tokens):
    sequences = join_sequences(
        [([100 * question + option] * 3, 1) for question in range(n) for option in range(options)]
    )
    source = TaskBatches(sequences, np.arange(n), "option", n, 7, tokens, options)
    dealt = []
    for rank in range(world):
        for piece in source.micro_batches(0, rank, world):
            assert piece.counts == {"option": len(piece.targets)}
            first = piece.packed.token_ids[piece.packed.first_positions].reshape(len(piece.targets), options)
            assert (first == 100 * piece.targets[:, None] + torch.arange(options)).all()
            dealt += piece.targets.tolist()
    assert sorted(dealt) == list(range(n))
