"""A packed batch gives the results of its sequences one by one; padding and padding rows have no effect."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from albert.inference.engine import PackedModel
from albert.model import packing
from albert.model.albert import (
    AlbertForMultipleChoice,
    AlbertForPreTraining,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
    AlbertModel,
)
from albert.model.packing import (
    FREE_PADDING,
    LENGTH_STEP,
    MAX_PADDING_SHARE,
    SMALL_BATCH,
    SMALL_STEP,
    STEP,
    PackedSequences,
    pack,
    pad_rows,
    padded_rows,
)

CPU = torch.device("cpu")

LENGTHS = [(7,), (5, 5, 5), (1, 40, 2, 39, 17, 16, 15, 1), (3, 20, 4, 19, 4), (12, 11, 10, 9)]
MIXED = LENGTHS[2]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def pack_zeros(lengths):
    return pack([np.zeros(n, np.int64) for n in lengths], [np.zeros(n, np.int64) for n in lengths])


def single_batches(ids, types):
    return [pack([row], [row_types]) for row, row_types in zip(ids, types, strict=True)]


def assert_close(tensor, expected, tolerance):
    scale = max(1.0, float(expected.abs().max()))
    assert float((tensor - expected).abs().max()) <= tolerance * scale


# ---- groups ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_every_token_has_one_cell(lengths):
    packed = pack([np.arange(length) for length in lengths], [np.zeros(length, np.int64) for length in lengths])
    assert packed.lengths == tuple(lengths)
    assert packed.n_tokens == sum(lengths) == len(packed.token_ids) == len(packed.gather_index)
    assert packed.n_sequences == len(lengths)
    assert packed.position_ids.tolist() == [position for length in lengths for position in range(length)]
    assert packed.token_ids[packed.first_positions].tolist() == [0] * len(lengths)
    positions = torch.cat([group.positions.reshape(-1) for group in packed.groups])
    assert positions[packed.gather_index].tolist() == list(range(packed.n_tokens))
    no_padding = torch.zeros(max(lengths) * len(lengths), dtype=torch.bool)
    padded = torch.cat(
        [no_padding[: g.positions.numel()] if g.padded is None else g.padded.reshape(-1) for g in packed.groups]
    )
    assert not padded[packed.gather_index].any()
    assert int((~padded).sum()) == packed.n_tokens


@given(st.lists(st.integers(1, 512), min_size=1, max_size=60))
def test_padding_of_a_group_is_limited(lengths):
    for group in pack_zeros(lengths).groups:
        if group.padded is not None:
            limit = max(FREE_PADDING / group.padded.shape[1], MAX_PADDING_SHARE * group.padded.numel())
            assert 0 < int(group.padded.sum()) <= limit
            assert group.padded.shape[1] % LENGTH_STEP == 0
            assert not group.padded[:, 0].any()


def test_short_sentences_have_few_groups_and_equal_lengths_no_padding():
    assert len(pack_zeros(range(5, 37)).groups) <= 3
    assert [group.positions.shape[0] for group in pack_zeros([500, 300, 200, 100]).groups] == [1, 1, 1, 1]
    (group,) = pack_zeros([13] * 40).groups
    assert group.padded is None and group.positions.shape == (40, 13)


def test_the_result_does_not_depend_on_the_grouping(config, packed_of, monkeypatch):
    model = AlbertModel(config).double().eval()
    results, n_groups = [], []
    monkeypatch.setattr(packing, "LENGTH_STEP", 1)
    for share, free in ((0.0, 0), (0.15, 0), (0.15, 40), (1.0, 0)):
        monkeypatch.setattr(packing, "MAX_PADDING_SHARE", share)
        monkeypatch.setattr(packing, "FREE_PADDING", 20 * free)
        packed = packed_of((3, 20, 4, 19, 4, 11, 1))
        n_groups.append(len(packed.groups))
        with torch.inference_mode():
            results.append(model(packed))
    assert n_groups == [6, 4, 2, 1]
    for result in results[1:]:
        assert_close(result, results[0], 1e-12)


# ---- a batch and its sequences ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_a_packed_batch_equals_single_sequences(config, sequences_of, lengths, dtype):
    model = AlbertForPreTraining(config).to(dtype).eval()
    ids, types = sequences_of(lengths)
    packed = pack(ids, types)
    with torch.inference_mode():
        hidden = model.albert(packed).split(list(lengths))
        logits = model(packed, torch.arange(packed.n_tokens))
        masked = logits.masked_tokens.split(list(lengths))
        for i, single in enumerate(single_batches(ids, types)):
            expected = model(single, torch.arange(single.n_tokens))
            assert_close(hidden[i], model.albert(single), TOLERANCE[dtype])
            assert_close(masked[i], expected.masked_tokens, TOLERANCE[dtype] * 5)
            assert_close(logits.sentence_order[i], expected.sentence_order[0], TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_the_gradients_of_a_packed_batch_are_those_of_single_sequences(config, sequences_of, dtype):
    model = AlbertForSequenceClassification(config, num_labels=3).to(dtype).eval()
    ids, types = sequences_of(MIXED)
    weights = torch.randn(len(ids), 3, dtype=dtype)
    (model(pack(ids, types)) * weights).sum().backward()
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    for single, weight in zip(single_batches(ids, types), weights, strict=True):
        (model(single) * weight).sum().backward()
    for name, parameter in model.named_parameters():
        assert_close(gradients[name], parameter.grad, TOLERANCE[dtype] * 10)


# ---- attention by cu_seqlens, as on a GPU ----------------------------------------------------------------------------


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU, where attention is torch's kernel")
def test_a_gpu_gives_the_results_of_the_cpu(config, packed_of):
    model, packed = AlbertForSequenceClassification(config, num_labels=3).double().eval(), packed_of(MIXED)
    expected = model(packed)
    expected.square().sum().backward()
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    model.cuda()
    output = model(packed.to(torch.device("cuda")))
    output.square().sum().backward()
    assert_close(output.detach().cpu(), expected.detach(), 1e-10)
    for name, parameter in model.named_parameters():
        assert_close(parameter.grad.cpu(), gradients[name], 1e-9)


TASK_MODELS = {
    "pretraining": AlbertForPreTraining,
    "token_classification": lambda config: AlbertForTokenClassification(config, 3),
    "classification": lambda config: AlbertForSequenceClassification(config, 3),
    "multiple_choice": AlbertForMultipleChoice,
    "question_answering": AlbertForQuestionAnswering,
}


@pytest.mark.parametrize("name", TASK_MODELS)
def test_training_by_boundaries_equals_training_by_groups(config, packed_of, name):
    model, packed = TASK_MODELS[name](config).eval(), packed_of(MIXED)
    results = []
    for batch in (packed, packed.without_groups(CPU)):
        model.zero_grad()
        outputs = model(batch, *((torch.tensor([3, 41, 50]),) if name == "pretraining" else ()))
        output = torch.cat([x.flatten() for x in (outputs if isinstance(outputs, tuple) else [outputs])])
        (output * torch.linspace(-1, 1, len(output))).sum().backward()
        gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
        results.append((output.detach(), torch.cat(gradients)))
    for expected, tensor in zip(*results, strict=True):
        assert_close(tensor, expected, 1e-5)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_inference_by_boundaries_equals_inference_by_groups(monkeypatch, config, sequences_of, precision):
    model, batch = AlbertForSequenceClassification(config, 3), sequences_of(MIXED)
    packed_model = PackedModel(model, CPU, precision=precision)
    by_groups = torch.from_numpy(np.stack(packed_model.rows(*batch)))
    monkeypatch.setattr(PackedSequences, "to", PackedSequences.without_groups)
    by_boundaries = torch.from_numpy(np.stack(packed_model.rows(*batch)))
    assert_close(by_boundaries, by_groups, 1e-5 if precision == "fp32" else 2e-2)


# ---- padding rows ----------------------------------------------------------------------------------------------------


def test_padded_rows_are_few_numbers_close_to_the_number_of_tokens():
    assert len({padded_rows(tokens) for tokens in range(1, 4097)}) <= 100
    assert all(0 <= padded_rows(tokens) - tokens < SMALL_STEP for tokens in range(SMALL_BATCH + 1))
    assert all(0 <= padded_rows(tokens) - tokens < max(STEP, tokens / 16) for tokens in range(1, 5000))


def test_padding_rows_are_zeros_after_the_tokens():
    states = torch.randn(SMALL_BATCH + 1, 3)
    padded = pad_rows(states)
    assert torch.equal(padded[: len(states)], states) and not padded[len(states) :].any()
    assert pad_rows(padded) is padded


@pytest.mark.parametrize("lengths", [(40, 31, 7), tuple(range(5, 30))])
def test_padding_rows_do_not_change_losses_and_gradients(config, monkeypatch, lengths):
    model, results = AlbertForPreTraining(config), []
    packed = pack([np.arange(n) % 37 + 5 for n in lengths], [np.zeros(n, np.int64) for n in lengths])
    masked = torch.cat([first + torch.tensor([1, 3, 4]) for first in packed.first_positions])
    for pads in (True, False):
        if not pads:
            monkeypatch.setattr(packing, "pads_rows", lambda device: False)
        losses = model(packed, masked, torch.arange(len(masked)) % 11)
        order = functional.cross_entropy(losses.sentence_order, torch.zeros(len(lengths), dtype=torch.long))
        model.zero_grad()
        (losses.masked_tokens.sum() + order).backward()
        results.append([losses.masked_tokens.detach(), *(p.grad.clone() for p in model.parameters())])
    for tensor, expected in zip(*results, strict=True):
        torch.testing.assert_close(tensor, expected, atol=1e-5, rtol=1e-4)
