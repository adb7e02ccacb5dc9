"""Plain attention equals the formula: results, gradients, masks and dropout."""

import pytest
import torch

from albert.model import attention
from albert.model.attention import plain_attention

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
