"""Layer sharing (paper §3.1, Table 4), activation checkpointing, preparation of weights, and GELU."""

from dataclasses import replace

import pytest
import torch
from tests.model.conftest import CPU, saved_by_autograd

from albert.model import encoder
from albert.model.albert import AlbertForPreTraining, AlbertModel
from albert.model.attention import AttentionBlock
from albert.model.sharing import n_attention_blocks, n_feed_forward_blocks, sharing_plan
from albert.runtime.devices import autocast, dropout_generator, parallel_map

SHARED, SEPARATE = [0] * 6, list(range(6))


# ---- sharing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "attentions", "feed_forwards"),
    [
        ({}, SHARED, SHARED),
        ({"sharing": "attention"}, SHARED, SEPARATE),
        ({"sharing": "ffn"}, SEPARATE, SHARED),
        ({"sharing": "none"}, SEPARATE, SEPARATE),
        ({"num_hidden_groups": 3}, [0, 0, 1, 1, 2, 2], [0, 0, 1, 1, 2, 2]),
        ({"num_hidden_groups": 2, "inner_group_num": 2, "num_hidden_layers": 4}, *[[0, 1, 0, 1, 2, 3, 2, 3]] * 2),
    ],
)
def test_layers_use_the_blocks_of_their_sharing_strategy(config, packed_of, changes, attentions, feed_forwards):
    model = AlbertModel(replace(config, **{"num_hidden_layers": 6, **changes}))
    used = [], []
    for blocks, calls in zip((model.encoder.attentions, model.encoder.feed_forwards), used, strict=True):
        for number, block in enumerate(blocks):
            block.register_forward_hook(lambda *_, number=number, calls=calls: calls.append(number))
    model(packed_of([5, 3]))
    assert used == (attentions, feed_forwards)


@pytest.mark.parametrize("layers", [*range(1, 13), 22, 23, 24, 26, 39, 43, 44, 45, 48])
def test_groups_are_computed_in_integers(config, layers):
    """In floating point, as in the reference, some groups would be empty for 22, 23, 26, … layers."""
    for groups in (g for g in range(1, layers + 1) if layers % g == 0):
        grouped = replace(config, num_hidden_layers=layers, num_hidden_groups=groups)
        expected = [group for group in range(groups) for _ in range(layers // groups)]
        assert [application.attention for application in sharing_plan(grouped)] == expected
        assert [application.feed_forward for application in sharing_plan(grouped)] == expected
        assert n_attention_blocks(grouped) == n_feed_forward_blocks(grouped) == groups


@pytest.mark.parametrize("sharing", ["all", "attention", "ffn", "none"])
def test_a_shared_parameter_exists_once(config, sharing):
    model = AlbertForPreTraining(replace(config, sharing=sharing))
    names, parameters = zip(*model.named_parameters(), strict=True)
    assert len({parameter.data_ptr() for parameter in parameters}) == len(parameters)
    assert sum(name.endswith("query.weight") for name in names) == (1 if sharing in ("all", "attention") else 3)
    assert sum(name.endswith("intermediate.weight") for name in names) == (1 if sharing in ("all", "ffn") else 3)


def test_the_gradient_of_a_shared_layer_is_the_sum_over_its_applications(config, packed_of):
    shared, separate = (AlbertModel(replace(config, sharing=sharing)).double() for sharing in ("all", "none"))
    separate.embeddings.load_state_dict(shared.embeddings.state_dict())
    pairs = [
        (separate.encoder.attentions, shared.encoder.attentions[0]),
        (separate.encoder.feed_forwards, shared.encoder.feed_forwards[0]),
    ]
    for blocks, shared_block in pairs:
        for block in blocks:
            block.load_state_dict(shared_block.state_dict())
    packed = packed_of([5, 3])
    weights = torch.randn(packed.n_tokens, config.hidden_size, dtype=torch.float64)
    for model in (shared, separate):
        (model(packed) * weights).sum().backward()
    for blocks, shared_block in pairs:
        for name, parameter in shared_block.named_parameters():
            summed = sum(block.get_parameter(name).grad for block in blocks)
            torch.testing.assert_close(parameter.grad, summed, rtol=1e-10, atol=1e-12)


# ---- checkpointing ---------------------------------------------------------------------------------------------------


def loss_of(model, packed):
    logits = model(packed, torch.arange(packed.n_tokens))
    return sum(part.float().logsumexp(-1).sum() for part in logits), logits.masked_tokens


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("sharing", ["all", "attention", "none"])
def test_checkpointing_changes_no_bit_and_saves_less(config, packed_of, precision, dropout, sharing):
    dropouts = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    model = AlbertForPreTraining(replace(config, **dropouts, sharing=sharing)).train()
    packed, results, sizes = packed_of((20, 11, 19, 4)), [], []
    for checkpointing in (False, True):
        model.albert.encoder.checkpointing = checkpointing
        torch.manual_seed(5)
        with autocast(CPU, precision), saved_by_autograd(model) as saved:
            loss, logits = loss_of(model, packed)
        model.zero_grad()
        loss.backward()
        results.append([logits, *(parameter.grad for parameter in model.parameters())])
        sizes.append(sum(saved.values()))
    assert sizes[1] < 0.8 * sizes[0]
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize("checkpointing", [False, True])
def test_dropout_of_a_worker_uses_its_own_generator(config, packed_of, checkpointing, workers):
    """The draws do not depend on other threads, also when a layer is recomputed."""
    model = AlbertForPreTraining(replace(config, hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.3)).train()
    packed, parameters = packed_of((20, 11, 19, 4)), list(model.parameters())

    def gradients(seed):
        with dropout_generator(seed):
            return torch.autograd.grad(loss_of(model, packed)[0], parameters)

    expected = {seed: gradients(seed) for seed in (1, 2)}
    before = torch.get_rng_state()
    model.albert.encoder.checkpointing = checkpointing
    workers(2)
    for seed, result in zip((1, 2, 1, 2), parallel_map(gradients, (1, 2, 1, 2)), strict=True):
        for tensor, expected_tensor in zip(result, expected[seed], strict=True):
            torch.testing.assert_close(tensor, expected_tensor, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(expected[1][0], expected[2][0], rtol=1e-4, atol=1e-5)
    assert torch.equal(torch.get_rng_state(), before)


# ---- layers, weights and activation ----------------------------------------------------------------------------------


def test_each_layer_computes_a_layer_when_it_is_requested(config, packed_of, monkeypatch):
    model, packed, calls = AlbertModel(config).eval(), packed_of((20, 11)), []
    forward = AttentionBlock.forward
    monkeypatch.setattr(AttentionBlock, "forward", lambda *args: calls.append(1) or forward(*args))
    with torch.no_grad():
        first, *states = model.hidden_states(packed)
        calls.clear()
        layers = model.encoder.each_layer(first, packed)
        assert torch.equal(next(layers), states[0])
        assert torch.equal(next(layers), states[1])
        assert len(calls) == 2
        assert torch.equal(list(layers)[-1], model(packed))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_shared_weights_are_prepared_once_per_forward_pass(config, packed_of, monkeypatch, precision):
    calls = []
    matrices_of = AttentionBlock.matrices
    monkeypatch.setattr(AttentionBlock, "matrices", lambda block: calls.append(matrices_of(block)) or calls[-1])
    with autocast(CPU, precision):
        AlbertModel(config)(packed_of((7, 9)))
    (matrices,) = calls
    assert {matrix.dtype for matrix in matrices} == {torch.bfloat16 if precision == "bf16" else torch.float32}
    assert matrices.qkv.shape == (3 * config.hidden_size, config.hidden_size)


@pytest.mark.parametrize("at_once", [7, 1 << 16])
def test_gelu_in_training_equals_torchs(monkeypatch, at_once):
    monkeypatch.setattr(encoder, "ACTIVATED_AT_ONCE", at_once)
    inputs = torch.linspace(-12, 12, 4 * 25, dtype=torch.float64).view(4, 25).t().requires_grad_()  # not contiguous
    gelu = encoder.ACTIVATIONS["gelu_new"]
    for dtype, tolerance in ((torch.float64, 1e-13), (torch.float32, 1e-6), (torch.bfloat16, 8e-3)):
        values, expected = encoder.activate(inputs.to(dtype), gelu), gelu(inputs)
        assert values.dtype == dtype and "TanhGelu" in values.grad_fn.name()
        torch.testing.assert_close(values.double(), expected, rtol=tolerance, atol=tolerance)
        slopes = [torch.autograd.grad(x.double().sum(), inputs, retain_graph=True)[0] for x in (values, expected)]
        torch.testing.assert_close(*slopes, rtol=tolerance, atol=tolerance)
    assert torch.autograd.gradcheck(lambda x: encoder.activate(x, gelu), inputs)
