"""Attention written out is attention: results and gradients of the formula, under masks, in parts, with dropout."""

import pytest
import torch

from albert.model import attention as kernel
from albert.model.attention import heads_at_once, plain_attention

MASKS = {
    "none": None,
    "padding": torch.arange(7)[None, None, None, :] < torch.tensor([7, 4, 1])[:, None, None, None],
    "the same for all": torch.ones(5, 7, dtype=torch.bool).tril(2)[None, None],
    "each its own": torch.rand(3, 1, 5, 7, generator=torch.Generator().manual_seed(1)) < 0.6,
}
MASKS["each its own"][..., 0] = True


def operands(dtype=torch.float64, rows=5, heads=4, size=6):
    """Views of one tensor, as a projection gives them: 3 sequences, heads, rows, 7 columns."""
    joined = torch.randn(3, 7, 3, heads, size, dtype=dtype, generator=torch.Generator().manual_seed(0))
    query, key, value = joined.permute(2, 0, 3, 1, 4)
    return tuple(part.detach().requires_grad_() for part in (query[:, :, :rows], key, value))


def formula(query, key, value, mask):
    scores = query @ key.transpose(2, 3) / query.shape[-1] ** 0.5
    return (scores if mask is None else scores.masked_fill(~mask, float("-inf"))).softmax(-1) @ value


@pytest.mark.parametrize("at_once", [1, 70, 150, 300, 1 << 20])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_results_and_gradients_are_those_of_the_formula(monkeypatch, mask, at_once):
    monkeypatch.setattr(kernel, "SCORES_AT_ONCE", at_once)
    weights = torch.randn(3, 4, 5, 6, dtype=torch.float64)
    found, expected = [], []
    for attend, kept in ((plain_attention, found), (formula, expected)):
        parts = operands()
        mixed = attend(*parts, mask)
        kept += [mixed, *torch.autograd.grad((mixed * weights).sum(), parts)]
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("at_once", [20, 1 << 20])
def test_gradients_under_dropout_are_those_of_what_was_dropped(monkeypatch, at_once):
    monkeypatch.setattr(kernel, "SCORES_AT_ONCE", at_once)

    def drawn_alike(*parts):
        torch.manual_seed(3)
        return plain_attention(*parts, MASKS["padding"], 0.4)

    assert torch.autograd.gradcheck(drawn_alike, operands(rows=2, heads=2, size=2))
    assert not torch.equal(drawn_alike(*operands()), plain_attention(*operands(), MASKS["padding"]))


def test_dropout_keeps_the_expected_result():
    query, key, _ = operands()
    ones = torch.ones_like(key)  # mixed without dropout, each place is 1
    torch.manual_seed(0)
    means = torch.stack([plain_attention(query, key, ones, None, 0.3).detach() for _ in range(400)]).mean()
    assert abs(float(means) - 1) < 0.02


def test_softmax_is_exact_between_products_in_bfloat16():
    parts = [part.detach() for part in operands(torch.bfloat16)]
    scores = (parts[0] * parts[0].shape[-1] ** -0.5) @ parts[1].transpose(2, 3)
    expected = scores.float().softmax(-1).bfloat16() @ parts[2]
    assert torch.equal(plain_attention(*parts, None), expected)


def test_without_gradients_nothing_is_kept():
    parts = [part.detach() for part in operands()]
    assert plain_attention(*parts, None).grad_fn is None
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda tensor: tensor):
        plain_attention(*operands(), None)
    assert [tuple(tensor.shape) for tensor in kept[3:]] == [(3, 4, 5, 7)]  # behind the operands, probabilities once


def test_a_part_is_some_heads_of_one_sequence_or_all_of_several(monkeypatch):
    monkeypatch.setattr(kernel, "SCORES_AT_ONCE", 1000)
    assert [heads_at_once(4, 10, columns) for columns in (101, 50, 40, 25, 24, 10, 1)] == [1, 2, 2, 4, 4, 8, 100]
