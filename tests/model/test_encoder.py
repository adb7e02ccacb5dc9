"""Shared weights are prepared once a forward pass; activation checkpointing changes memory and not one bit."""

import pytest
import torch

from albert.model import encoder
from albert.model.albert import AlbertForPreTraining
from albert.model.attention import AttentionBlock
from albert.model.packing import pack
from albert.runtime.devices import dropout_generator, parallel_map


def autocast(precision):
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16")


def a_step(model, packed, precision):
    """Logits, gradients and bytes that autograd keeps, with the same draws of dropout."""
    torch.manual_seed(5)
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with autocast(precision), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logits = model(packed, torch.arange(packed.n_tokens))
        loss = sum(part.float().logsumexp(-1).sum() for part in logits)
    model.zero_grad()
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    return {"logits": logits.masked_tokens, **gradients}, sum(kept.values())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("sharing", ["all", "attention", "none"])
def test_checkpointing_changes_no_bit_and_keeps_less(config, sequences_of, precision, dropout, sharing):
    sizes = {
        **vars(config),
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
        "sharing": sharing,
    }
    model = AlbertForPreTraining(type(config)(**sizes)).train()
    packed = pack(*sequences_of((20, 11, 19, 4)))
    expected, more = a_step(model, packed, precision)
    model.albert.encoder.checkpointing = True
    found, less = a_step(model, packed, precision)
    assert less < 0.8 * more
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert torch.equal(tensor, expected[name]), name


@pytest.mark.parametrize("checkpointing", [False, True])
def test_dropout_of_a_worker_draws_from_its_own_generator(config, sequences_of, checkpointing, workers):
    """The same draws whatever another thread draws at the same time, also when a layer is computed a second time."""
    sizes = {**vars(config), "hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.3}
    model = AlbertForPreTraining(type(config)(**sizes)).train()
    packed = pack(*sequences_of((20, 11, 19, 4)))
    parameters = list(model.parameters())

    def gradients(seed):
        with dropout_generator(seed):
            logits = model(packed, torch.arange(packed.n_tokens))
            loss = sum(part.float().logsumexp(-1).sum() for part in logits)
            return torch.autograd.grad(loss, parameters, allow_unused=True)

    expected = [gradients(seed) for seed in (1, 2)]
    before = torch.get_rng_state()
    model.albert.encoder.checkpointing = checkpointing
    workers(2)
    for seed, found in zip((1, 2, 1, 2), parallel_map(gradients, (1, 2, 1, 2)), strict=True):
        for one, other in zip(found, expected[seed - 1], strict=True):
            assert one is other is None or torch.allclose(one, other, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(expected[0][0], expected[1][0], rtol=1e-4, atol=1e-5)
    assert torch.equal(torch.get_rng_state(), before)


def test_checkpointing_has_no_effect_without_gradients(config, sequences_of):
    model = AlbertForPreTraining(config).eval()
    packed = pack(*sequences_of((20, 11)))
    with torch.no_grad():
        expected = model.albert.hidden_states(packed)
        model.albert.encoder.checkpointing = True
        for found, other in zip(model.albert.hidden_states(packed), expected, strict=True):
            assert torch.equal(found, other)


def test_layers_are_applied_one_by_one_as_they_are_asked_for(config, sequences_of, monkeypatch):
    encoder, packed = AlbertForPreTraining(config).eval().albert, pack(*sequences_of((20, 11)))
    applied = []
    attend = AttentionBlock.forward
    monkeypatch.setattr(AttentionBlock, "forward", lambda *given: applied.append(1) or attend(*given))
    with torch.no_grad():
        first, *states = encoder.hidden_states(packed)
        applied.clear()
        layers = encoder.encoder.each_layer(first, packed)
        assert torch.equal(next(layers), states[0])
        assert torch.equal(next(layers), states[1])
        assert len(applied) == 2
        further = list(encoder.encoder.each_layer(states[1], packed, done=2))
        assert len(further) == len(states) - 2
        assert torch.equal(further[-1], encoder(packed))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_shared_block_is_prepared_once_a_forward_pass(config, sequences_of, monkeypatch, precision):
    calls = []
    prepare = AttentionBlock.matrices
    monkeypatch.setattr(AttentionBlock, "matrices", lambda block: calls.append(prepare(block)) or calls[-1])
    model = AlbertForPreTraining(config)
    with autocast(precision):
        model(pack(*sequences_of((7, 9))), torch.arange(3))
    (matrices,) = calls
    assert {matrix.dtype for matrix in matrices} == {torch.bfloat16 if precision == "bf16" else torch.float32}
    assert matrices.joined.shape == (3 * config.hidden_size, config.hidden_size)


@pytest.mark.parametrize("at_once", [7, 1 << 16])
def test_gelu_in_training_is_torchs(monkeypatch, at_once):
    monkeypatch.setattr(encoder, "ACTIVATED_AT_ONCE", at_once)
    inputs = torch.linspace(-12, 12, 4 * 25, dtype=torch.float64).view(4, 25).t().requires_grad_()  # not contiguous
    gelu = encoder.ACTIVATIONS["gelu_new"]
    for dtype, tolerance in ((torch.float64, 1e-13), (torch.float32, 1e-6), (torch.bfloat16, 8e-3)):
        found, expected = encoder.activate(inputs.to(dtype), gelu), gelu(inputs)
        assert found.dtype == dtype and "TanhGelu" in found.grad_fn.name()
        torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)
        slopes = [
            torch.autograd.grad(values.double().sum(), inputs, retain_graph=True)[0] for values in (found, expected)
        ]
        torch.testing.assert_close(*slopes, rtol=tolerance, atol=tolerance)
    assert torch.autograd.gradcheck(lambda x: encoder.activate(x, gelu), inputs)
