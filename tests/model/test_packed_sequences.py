"""Packed sequences give what each gives alone; none sees another; padding inside attention has no effect."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from albert.inference.engine import PackedModel
from albert.model import packing as packed_sequences
from albert.model.albert import (
    AlbertForMultipleChoice,
    AlbertForPreTraining,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
    AlbertModel,
)
from albert.model.packing import FREE_PADDING, LENGTH_STEP, MAX_PADDING_SHARE, PackedSequences, pack

CPU = torch.device("cpu")

LENGTHS = [(7,), (5, 5, 5), (1, 40, 2, 39, 17, 16, 15, 1), (3, 20, 4, 19, 4), (12, 11, 10, 9)]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def alone(ids, types):
    return [pack([one], [kind]) for one, kind in zip(ids, types, strict=True)]


def assert_close(found, expected, tolerance):
    scale = max(1.0, float(expected.abs().max()))
    assert float((found - expected).abs().max()) <= tolerance * scale


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_every_token_has_one_cell_and_every_cell_its_token(lengths):
    ids = [np.arange(length) for length in lengths]
    packed = pack(ids, [np.zeros(length, dtype=np.int64) for length in lengths])
    assert packed.lengths == tuple(lengths)
    assert packed.n_tokens == sum(lengths) == len(packed.token_ids) == len(packed.cells)
    assert packed.n_sequences == len(lengths)
    assert packed.position_ids.tolist() == [position for length in lengths for position in range(length)]
    assert packed.token_ids[packed.first_positions].tolist() == [0] * len(lengths)
    positions = torch.cat([group.positions.reshape(-1) for group in packed.groups])
    assert positions[packed.cells].tolist() == list(range(packed.n_tokens))
    padded = torch.cat(
        [torch.zeros(g.positions.numel(), dtype=torch.bool) if g.padded is None else g.padded.reshape(-1)
         for g in packed.groups]
    )  # fmt: skip
    assert not padded[packed.cells].any()
    assert int((~padded).sum()) == packed.n_tokens


@given(st.lists(st.integers(1, 512), min_size=1, max_size=60))
def test_no_group_wastes_more_than_its_share_or_what_a_group_costs(lengths):
    packed = pack([np.zeros(length, dtype=np.int64) for length in lengths], [np.zeros(n, np.int64) for n in lengths])
    for group in packed.groups:
        if group.padded is not None:
            assert (
                0
                < int(group.padded.sum())
                <= max(FREE_PADDING / group.padded.shape[1], MAX_PADDING_SHARE * group.padded.numel())
            )
            assert group.padded.shape[1] % LENGTH_STEP == 0
            assert not group.padded[:, 0].any()


def test_short_sentences_of_all_lengths_are_few_groups_and_equal_lengths_are_never_padded():
    def groups(lengths):
        return pack([np.zeros(n, np.int64) for n in lengths], [np.zeros(n, np.int64) for n in lengths]).groups

    assert len(groups(range(5, 37))) <= 3
    assert [group.positions.shape[0] for group in groups([500, 300, 200, 100])] == [1, 1, 1, 1]
    (alike,) = groups([13] * 40)
    assert alike.padded is None and alike.positions.shape == (40, 13)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_a_packed_batch_equals_each_sequence_alone(config, sequences_of, lengths, dtype):
    model = AlbertForPreTraining(config).to(dtype).eval()
    ids, types = sequences_of(lengths)
    packed = pack(ids, types)
    with torch.inference_mode():
        hidden = model.albert(packed)
        together = model(packed, torch.arange(packed.n_tokens))
        for part, first, one in zip(
            hidden.split(list(lengths)), packed.first_positions.tolist(), alone(ids, types), strict=True
        ):
            assert_close(part, model.albert(one), TOLERANCE[dtype])
            apart = model(one, torch.arange(one.n_tokens))
            span = slice(first, first + one.n_tokens)
            assert_close(together.masked_tokens[span], apart.masked_tokens, TOLERANCE[dtype] * 5)
        orders = torch.cat([model(one, torch.arange(1)).sentence_order for one in alone(ids, types)])
        assert_close(together.sentence_order, orders, TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_the_gradients_of_a_packed_batch_are_those_of_the_sequences_alone(config, sequences_of, dtype):
    model = AlbertForSequenceClassification(config, num_labels=3).to(dtype).eval()
    ids, types = sequences_of((1, 40, 2, 39, 17, 16, 15, 1))
    weights = torch.randn(len(ids), 3, dtype=dtype)
    (model(pack(ids, types)) * weights).sum().backward()
    together = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    for one, weight in zip(alone(ids, types), weights, strict=True):
        (model(one) * weight).sum().backward()
    for name, parameter in model.named_parameters():
        assert_close(together[name], parameter.grad, TOLERANCE[dtype] * 10)


def test_the_result_does_not_depend_on_the_grouping(config, sequences_of, monkeypatch):
    model = AlbertModel(config).double().eval()
    sequences = sequences_of((3, 20, 4, 19, 4, 11, 1))
    found, groups = [], []
    monkeypatch.setattr(packed_sequences, "LENGTH_STEP", 1)
    for waste, free in ((0.0, 0), (0.15, 0), (0.15, 40), (1.0, 0)):
        monkeypatch.setattr(packed_sequences, "MAX_PADDING_SHARE", waste)
        monkeypatch.setattr(packed_sequences, "FREE_PADDING", 20 * free)
        packed = pack(*sequences)
        groups.append(len(packed.groups))
        with torch.inference_mode():
            found.append(model(packed))
    assert groups == [6, 4, 2, 1]
    for other in found[1:]:
        assert_close(other, found[0], 1e-12)


def test_a_sequence_never_sees_another(config, sequences_of):
    model = AlbertModel(config).eval()
    lengths = (9, 8, 20, 9, 3)
    ids, types = sequences_of(lengths)
    with torch.inference_mode():
        before = model(pack(ids, types)).split(list(lengths))
        for changed in range(len(lengths)):
            others = [(one + 1) % config.vocab_size if i == changed else one for i, one in enumerate(ids)]
            after = model(pack(others, types)).split(list(lengths))
            for i in range(len(lengths)):
                assert torch.equal(after[i], before[i]) == (i != changed)


def test_a_token_sees_all_of_its_own_sequence(config, sequences_of):
    model = AlbertModel(config).double()
    ids, types = sequences_of((6, 5))
    for changed in range(6):
        other = ids[0].copy()
        other[changed] = (other[changed] + 1) % config.vocab_size
        difference = model(pack([other, ids[1]], types)) - model(pack(ids, types))
        assert (difference[:6].abs().sum(1) > 0).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: there, attention is torch's own kernel")
def test_a_gpu_gives_what_the_cpu_gives(config, sequences_of):
    model = AlbertForSequenceClassification(config, num_labels=3).double().eval()
    packed = pack(*sequences_of((1, 40, 2, 39, 17, 16, 15, 1)))
    model(packed).square().sum().backward()
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    with torch.inference_mode():
        here = model(packed)
    model.zero_grad()
    model.cuda()
    there = model(packed.to(torch.device("cuda")))
    there.square().sum().backward()
    assert_close(there.detach().cpu(), here, 1e-10)
    for name, parameter in model.named_parameters():
        assert_close(parameter.grad.cpu(), gradients[name], 1e-9)


@pytest.fixture(params=[None, 4], ids=["dense", "window"])
def windowed(request, config):
    return replace(config, attention_window=request.param)


TASK_MODELS = {
    "order": AlbertForPreTraining,
    "words": lambda config: AlbertForTokenClassification(config, 3),
    "sentences": lambda config: AlbertForSequenceClassification(config, 3),
    "choices": AlbertForMultipleChoice,
    "answers": AlbertForQuestionAnswering,
}


def as_one(found):
    """All numbers of a head."""
    found = [part for part in found if part is not None] if isinstance(found, tuple) else [found]
    return torch.cat([part.flatten() for part in found])


@pytest.mark.parametrize("name", TASK_MODELS)
def test_fine_tuning_by_boundaries_is_that_by_groups(windowed, sequences_of, name):
    """What a GPU does: outputs and gradients of every head."""
    torch.manual_seed(0)
    model = TASK_MODELS[name](windowed).eval()
    packed = pack(*sequences_of((1, 40, 2, 39, 17, 16, 15, 1)))
    found = []
    for batch in (packed, packed.without_groups(CPU)):
        model.zero_grad()
        more = (torch.tensor([3, 41, 50]),) if name == "order" else ()
        out = as_one(model(batch, *more))
        (out * torch.linspace(-1, 1, len(out))).sum().backward()
        gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
        found.append((out.detach(), torch.cat(gradients)))
    for one, other in zip(*found, strict=True):
        assert_close(other, one, 1e-5)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_answers_by_boundaries_are_those_by_groups(monkeypatch, windowed, sequences_of, precision):
    """What a GPU does, with the fast encoder."""
    torch.manual_seed(0)
    model, batch = AlbertForSequenceClassification(windowed, 3), sequences_of((1, 40, 2, 39, 17, 16, 15, 1))
    packed_model = PackedModel(model, CPU, precision=precision)
    by_groups = torch.from_numpy(np.stack(packed_model.rows(*batch)))
    monkeypatch.setattr(PackedSequences, "to", PackedSequences.without_groups)
    by_boundaries = torch.from_numpy(np.stack(packed_model.rows(*batch)))
    assert_close(by_boundaries, by_groups, 1e-5 if precision == "fp32" else 2e-2)
