"""Attention in a window is dense attention under a band and [CLS], exactly, at the cost of the band."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch.nn import functional

from albert.model.albert import AlbertForPreTraining, AlbertModel
from albert.model.attention import plain_attention, window_attention
from albert.model.config import computed_scores, dense_is_faster, seen_pairs
from albert.model.cost import count_activation_memory, count_flops
from albert.model.packing import pack


def dense(query, key, value, mask):
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(dim=-1) @ value


def fused(query, key, value, mask):
    """What attends on a GPU."""
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def pattern(length, window):
    """Written out token by token: who sees whom."""
    return torch.tensor([[i == 0 or j == 0 or abs(i - j) <= window for j in range(length)] for i in range(length)])


def cells(sequences, length, seed):
    """Query, key and value as attention has them: views of one product, heads before places."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(sequences, length, 3, 2, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    return drawn, drawn.permute(2, 0, 3, 1, 4)


@given(
    length=st.integers(1, 200),
    window=st.integers(1, 220),
    shorter=st.lists(st.integers(0, 30), max_size=3),
    attend=st.sampled_from([dense, fused, plain_attention]),
    seed=st.integers(0, 99),
)
@example(length=161, window=32, shorter=[], attend=dense, seed=0)  # the last block is full
@example(length=162, window=32, shorter=[1], attend=fused, seed=0)  # the last block has one token, or none
@example(length=200, window=3, shorter=[30, 0], attend=plain_attention, seed=0)
def test_it_equals_dense_attention_under_the_explicit_pattern(length, window, shorter, attend, seed):
    lengths = [length, *(max(1, length - less) for less in shorter)]
    padded = torch.arange(length) >= torch.tensor(lengths)[:, None]
    mask = (pattern(length, window) & ~padded[:, None, :])[:, None]
    weights = torch.randn(len(lengths), 2, length, 4, dtype=torch.float64) * ~padded[:, None, :, None]
    found = []
    for windowed in (True, False):
        leaf, (query, key, value) = cells(len(lengths), length, seed)
        if windowed:
            mixed = window_attention(query, key, value, padded if shorter else None, window, attend)
        else:
            mixed = dense(query, key, value, mask)
        real = mixed.transpose(1, 2)[~padded]
        (mixed * weights).sum().backward()
        found.append((real.detach(), leaf.grad))
    for mine, expected in zip(*found, strict=True):
        assert float((mine - expected).abs().max()) <= 1e-12 * max(1.0, float(expected.abs().max()))


@given(length=st.integers(1, 300), window=st.integers(1, 320))
def test_pairs_are_counted_as_they_are_seen(length, window):
    place = np.arange(length)
    seen = (np.abs(place[:, None] - place) <= window) | (place == 0) | (place == 0)[:, None]
    assert seen_pairs(length, window) == int(seen.sum())
    assert seen_pairs(length, None) == length**2


@given(length=st.integers(1, 400), window=st.integers(1, 60))
def test_no_product_is_larger_than_the_blocks_and_all_are_counted(length, window):
    scores = []

    def attend(query, key, value, mask):
        scores.append(query.shape[0] * query.shape[2] * key.shape[2])
        return dense(query, key, value, mask)

    _, (query, key, value) = cells(1, length, 0)
    window_attention(query, key, value, None, window, attend)
    assert sum(scores) == computed_scores(length, window) <= length**2
    assert dense_is_faster(length, window) == (scores == [length**2])
    assert computed_scores(length, window) >= seen_pairs(length, window)


def test_the_cost_grows_with_the_length_and_not_with_its_square():
    assert computed_scores(4096, 128) < 0.1 * 4096**2
    assert computed_scores(8192, 128) < 2.01 * computed_scores(4096, 128)


@pytest.mark.parametrize("window", [38, 40, 1000])
def test_a_window_that_covers_the_sequences_changes_no_bit(config, sequences_of, window):
    packed = pack(*sequences_of((40, 7, 39, 1)))
    models = [AlbertForPreTraining(replace(config, attention_window=size)).double() for size in (None, window)]
    models[1].load_state_dict(models[0].state_dict())
    for one, other in zip(*(model(packed, torch.arange(5)) for model in models), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("window", [1, 5, 16])
def test_a_ragged_batch_equals_each_sequence_alone_and_dense_where_it_fits(config, sequences_of, window):
    longer = replace(config, max_position_embeddings=300, attention_window=window)
    model = AlbertModel(longer).double()
    full = AlbertModel(replace(longer, attention_window=None)).double()
    full.load_state_dict(model.state_dict())
    lengths = (300, 2, 290, 120, window + 2, 115, 1, window + 3)
    ids, types = sequences_of(lengths)
    together = model.hidden_states(pack(ids, types))
    assert torch.equal(together[-1], model(pack(ids, types)))
    for place, length in enumerate(lengths):
        one = pack([ids[place]], [types[place]])
        mine = together[-1].split(list(lengths))[place]
        assert torch.allclose(mine, model(one), rtol=0, atol=1e-11)
        assert torch.allclose(mine, full(one), rtol=0, atol=1e-11) == (length <= window + 2)


def test_a_token_is_heard_by_its_neighbours_and_by_cls_alone(config, sequences_of):
    window, place, length = 8, 150, 300
    model = AlbertModel(
        replace(config, num_hidden_layers=1, max_position_embeddings=length, attention_window=window)
    ).double()
    ids, types = sequences_of((length,))
    other = ids[0].copy()
    other[place] = (other[place] + 1) % config.vocab_size
    changed = (model(pack(ids, types)) != model(pack([other], types))).any(dim=1).nonzero()[:, 0].tolist()
    assert changed == [0, *range(place - window, place + window + 1)]


def test_dropout_of_the_probabilities_acts_in_training_alone(config, sequences_of):
    dropped = replace(config, max_position_embeddings=200, attention_window=4, attention_probs_dropout_prob=0.5)
    model, packed = AlbertModel(dropped), pack(*sequences_of((200, 190)))
    first, second = model.train()(packed), model(packed)
    assert (first - second).abs().mean() > 1e-3
    assert torch.equal(model.eval()(packed), model(packed))


def test_in_mixed_precision_it_is_as_near_as_dense_attention_is(config, sequences_of):
    packed = pack(*sequences_of((200, 180)))
    errors = {}
    for window in (None, 4):
        model = AlbertModel(replace(config, max_position_embeddings=200, attention_window=window))
        with torch.no_grad():
            exact = model(packed)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                mixed = model(packed)
        errors[window] = float((mixed - exact).abs().mean())
    assert 0 < errors[4] < 2 * errors[None]


@pytest.mark.parametrize("window", [10, 40, 64, 200])
def test_what_is_kept_for_the_backward_pass_is_counted_to_the_byte(config, sequences_of, window):
    length, layers, heads, fp32 = 500, config.num_hidden_layers, config.num_attention_heads, 4
    packed = pack(*sequences_of((length,)))
    kept = {}
    for size in (None, window):
        model, seen = AlbertModel(replace(config, max_position_embeddings=length, attention_window=size)), {}
        own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}

        def note(tensor, seen=seen, own=own):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                seen[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            output = model(packed)
        kept[size] = sum(seen.values())
        del output
    told = {size: count_activation_memory(replace(config, attention_window=size), length) for size in (None, window)}
    assert kept[window] - kept[None] == told[window].training - told[None].training
    assert told[window].attention_probabilities == layers * fp32 * heads * computed_scores(length, window)
    if dense_is_faster(length, window):
        assert told[window] == told[None]


def test_activation_checkpointing_and_other_devices_take_it_too(config, sequences_of):
    model = AlbertModel(replace(config, max_position_embeddings=200, attention_window=4)).train()
    packed, gradients = pack(*sequences_of((200, 190))), []
    for checkpointing in (False, True):
        model.encoder.checkpointing = checkpointing
        model.zero_grad()
        model(packed).square().sum().backward()
        gradients.append([parameter.grad for parameter in model.encoder.parameters()])
    assert all(map(torch.equal, *gradients))
    meta = torch.device("meta")
    assert model.to(meta)(packed.to(meta)).shape == (390, config.hidden_size)


def test_the_work_counts_what_is_seen(config):
    long = replace(config, max_position_embeddings=1000)
    windowed = replace(long, attention_window=10)
    dense_flops, flops = count_flops(long), count_flops(windowed)
    assert dense_flops.attention_scores == 3 * 4 * 16 * 1000
    assert flops.attention_scores == 3 * 4 * 16 * seen_pairs(1000, 10) // 1000 < 0.03 * dense_flops.attention_scores
    assert replace(flops, attention_scores=0) == replace(dense_flops, attention_scores=0)


def test_wide_windows_are_dense(config):
    assert replace(config, attention_window=37).effective_window == 37
    assert replace(config, attention_window=38).effective_window is None
    assert config.effective_window is None
