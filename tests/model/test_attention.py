"""Plain attention and window attention equal the formula: results, gradients, masks, dropout and memory."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch.nn import functional

from albert.model import attention
from albert.model.albert import AlbertForPreTraining, AlbertModel
from albert.model.attention import plain_attention, window_attention
from albert.model.config import computed_scores, dense_is_faster, seen_pairs
from albert.model.packing import pack

CPU = torch.device("cpu")

MASKS = {
    "none": None,
    "padding": torch.arange(7)[None, None, None, :] < torch.tensor([7, 4, 1])[:, None, None, None],
    "same for all sequences": torch.ones(5, 7, dtype=torch.bool).tril(2)[None, None],
    "one per sequence": torch.rand(3, 1, 5, 7, generator=torch.Generator().manual_seed(1)) < 0.6,
}
MASKS["one per sequence"][..., 0] = True


def formula(query, key, value, mask):
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    return (scores if mask is None else scores.masked_fill(~mask, float("-inf"))).softmax(-1) @ value


def fused(query, key, value, mask):
    """Attention on a GPU."""
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def operands(dtype=torch.float64, rows=5, heads=4, size=6):
    """Query, key and value as views of one tensor: 3 sequences, 7 columns."""
    joined = torch.randn(3, 7, 3, heads, size, dtype=dtype, generator=torch.Generator().manual_seed(0))
    query, key, value = joined.permute(2, 0, 3, 1, 4)
    return tuple(part.detach().requires_grad_() for part in (query[:, :, :rows], key, value))


# ---- plain attention -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [1, 70, 150, 300, 1 << 20])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_results_and_gradients_equal_the_formula(monkeypatch, mask, at_once):
    monkeypatch.setattr(attention, "SCORES_AT_ONCE", at_once)
    weights = torch.randn(3, 4, 5, 6, dtype=torch.float64)
    results = []
    for attend in (plain_attention, formula):
        inputs = operands()
        output = attend(*inputs, mask)
        results.append([output, *torch.autograd.grad((output * weights).sum(), inputs)])
    for tensor, expected in zip(*results, strict=True):
        torch.testing.assert_close(tensor, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("at_once", [20, 1 << 20])
def test_gradients_with_dropout_are_exact(monkeypatch, at_once):
    monkeypatch.setattr(attention, "SCORES_AT_ONCE", at_once)

    def attend(*inputs):
        torch.manual_seed(3)
        return plain_attention(*inputs, MASKS["padding"], 0.4)

    assert torch.autograd.gradcheck(attend, operands(rows=2, heads=2, size=2))
    assert not torch.equal(attend(*operands()), plain_attention(*operands(), MASKS["padding"]))


def test_dropout_keeps_the_expected_value():
    query, key, _ = operands()
    ones = torch.ones_like(key)  # without dropout, every output is 1
    means = torch.stack([plain_attention(query, key, ones, None, 0.3).detach() for _ in range(400)]).mean()
    assert abs(float(means) - 1) < 0.02


def test_softmax_of_bfloat16_scores_is_computed_in_float32():
    query, key, value = (part.detach() for part in operands(torch.bfloat16))
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(2, 3)
    assert torch.equal(plain_attention(query, key, value, None), scores.float().softmax(-1).bfloat16() @ value)


# ---- window attention ------------------------------------------------------------------------------------------------


def pattern(length, window):
    """Which token attends to which."""
    return torch.tensor([[i == 0 or j == 0 or abs(i - j) <= window for j in range(length)] for i in range(length)])


def window_operands(sequences, length, seed):
    """A tensor, and query, key and value as views of it."""
    generator = torch.Generator().manual_seed(seed)
    joined = torch.randn(sequences, length, 3, 2, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    return joined, joined.permute(2, 0, 3, 1, 4)


@given(
    length=st.integers(1, 200),
    window=st.integers(1, 220),
    shorter=st.lists(st.integers(0, 30), max_size=3),
    attend=st.sampled_from([formula, fused, plain_attention]),
    seed=st.integers(0, 99),
)
@example(length=161, window=32, shorter=[], attend=formula, seed=0)  # the last block is full
@example(length=162, window=32, shorter=[1], attend=fused, seed=0)  # the last block has one token, or none
@example(length=200, window=3, shorter=[30, 0], attend=plain_attention, seed=0)
def test_window_attention_equals_dense_attention_under_a_mask(length, window, shorter, attend, seed):
    lengths = [length, *(max(1, length - less) for less in shorter)]
    padded = torch.arange(length) >= torch.tensor(lengths)[:, None]
    mask = (pattern(length, window) & ~padded[:, None, :])[:, None]
    weights = torch.randn(len(lengths), 2, length, 4, dtype=torch.float64) * ~padded[:, None, :, None]
    results = []
    for windowed in (True, False):
        joined, (query, key, value) = window_operands(len(lengths), length, seed)
        if windowed:
            output = window_attention(query, key, value, padded if shorter else None, window, attend)
        else:
            output = formula(query, key, value, mask)
        (output * weights).sum().backward()
        results.append((output.transpose(1, 2)[~padded].detach(), joined.grad))
    for tensor, expected in zip(*results, strict=True):
        assert float((tensor - expected).abs().max()) <= 1e-12 * max(1.0, float(expected.abs().max()))


@given(length=st.integers(1, 300), window=st.integers(1, 320))
def test_seen_pairs_counts_the_pattern(length, window):
    position = np.arange(length)
    seen = (np.abs(position[:, None] - position) <= window) | (position == 0) | (position == 0)[:, None]
    assert seen_pairs(length, window) == int(seen.sum())
    assert seen_pairs(length, None) == length**2


@given(length=st.integers(1, 400), window=st.integers(1, 60))
def test_computed_scores_counts_all_products(length, window):
    scores = []

    def attend(query, key, value, mask):
        scores.append(query.shape[0] * query.shape[2] * key.shape[2])
        return formula(query, key, value, mask)

    _, (query, key, value) = window_operands(1, length, 0)
    window_attention(query, key, value, None, window, attend)
    assert sum(scores) == computed_scores(length, window) <= length**2
    assert dense_is_faster(length, window) == (scores == [length**2])
    assert computed_scores(length, window) >= seen_pairs(length, window)


def test_scores_grow_linearly_with_the_length():
    assert computed_scores(4096, 128) < 0.1 * 4096**2
    assert computed_scores(8192, 128) < 2.01 * computed_scores(4096, 128)


@pytest.mark.parametrize("window", [38, 40, 1000])
def test_a_window_that_covers_all_sequences_changes_no_bit(config, packed_of, window):
    packed = packed_of((40, 7, 39, 1))
    dense, windowed = (AlbertForPreTraining(replace(config, attention_window=size)).double() for size in (None, window))
    windowed.load_state_dict(dense.state_dict())
    for output, expected in zip(windowed(packed, torch.arange(5)), dense(packed, torch.arange(5)), strict=True):
        assert torch.equal(output, expected)


def test_the_effective_window_is_none_if_it_covers_all_positions(config):
    assert replace(config, attention_window=37).effective_window == 37
    assert replace(config, attention_window=38).effective_window is None
    assert config.effective_window is None


@pytest.mark.parametrize("window", [1, 5, 16])
def test_windowed_sequences_of_several_lengths_equal_single_ones(config, sequences_of, window):
    longer = replace(config, max_position_embeddings=300, attention_window=window)
    model = AlbertModel(longer).double()
    dense = AlbertModel(replace(longer, attention_window=None)).double()
    dense.load_state_dict(model.state_dict())
    lengths = (300, 2, 290, 120, window + 2, 115, 1, window + 3)
    ids, types = sequences_of(lengths)
    states = model.hidden_states(pack(ids, types))
    assert torch.equal(states[-1], model(pack(ids, types)))
    for i, state in enumerate(states[-1].split(list(lengths))):
        single = pack([ids[i]], [types[i]])
        assert torch.allclose(state, model(single), rtol=0, atol=1e-11)
        assert torch.allclose(state, dense(single), rtol=0, atol=1e-11) == (lengths[i] <= window + 2)


def test_window_attention_has_dropout_in_training_only(config, packed_of):
    windowed = replace(config, max_position_embeddings=200, attention_window=4, attention_probs_dropout_prob=0.5)
    model, packed = AlbertModel(windowed), packed_of((200, 190))
    assert (model.train()(packed) - model(packed)).abs().mean() > 1e-3
    assert torch.equal(model.eval()(packed), model(packed))


def test_window_attention_runs_with_checkpointing_and_on_other_devices(config, packed_of):
    model = AlbertModel(replace(config, max_position_embeddings=200, attention_window=4)).train()
    packed, gradients = packed_of((200, 190)), []
    for checkpointing in (False, True):
        model.encoder.checkpointing = checkpointing
        model.zero_grad()
        model(packed).square().sum().backward()
        gradients.append([parameter.grad for parameter in model.encoder.parameters()])
    assert all(map(torch.equal, *gradients))
    meta = torch.device("meta")
    assert model.to(meta)(packed.to(meta)).shape == (390, config.hidden_size)
