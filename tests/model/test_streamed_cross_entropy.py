"""Streamed cross-entropy is cross-entropy: losses, answers and all gradients, whatever the pieces and the weights."""

import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from albert.model import heads as kernel
from albert.model.heads import streamed_cross_entropy

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}


def operands(items, vocabulary, dtype):
    draw = torch.Generator().manual_seed(items + vocabulary)
    shapes = ((items, 8), (vocabulary, 8), (vocabulary,))
    parts = [torch.randn(shape, dtype=dtype, generator=draw).requires_grad_() for shape in shapes]
    return parts, torch.randint(0, vocabulary, (items,), generator=draw)


def at_once(transformed, words, bias, labels):
    logits = functional.linear(transformed, words, bias)
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return functional.cross_entropy(exact, labels, reduction="none"), exact.argmax(1) == labels


@pytest.mark.parametrize("pieces", [(1, 1), (100, 50), (250, 250), (250, 1 << 19), (1 << 22, 60), (1 << 22, 1 << 19)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("items", "vocabulary"), [(1, 2), (17, 50), (5, 1000), (0, 30)])
def test_losses_answers_and_gradients_are_those_of_all_logits(monkeypatch, items, vocabulary, dtype, weighted, pieces):
    for name, logits in zip(("LOGITS_AT_ONCE", "LOGITS_IN_CACHE"), pieces, strict=True):
        monkeypatch.setattr(kernel, name, logits)
    parts, labels = operands(items, vocabulary, dtype)
    weights = torch.linspace(-1, 2, items, dtype=dtype) if weighted else torch.ones(items, dtype=dtype)
    found, expected = [], []
    for loss, kept in ((streamed_cross_entropy, found), (at_once, expected)):
        losses, right = loss(*parts, labels)
        kept += [losses, right, *torch.autograd.grad((losses * weights).sum(), parts)]
    assert torch.equal(found.pop(1), expected.pop(1))
    for mine, other in zip(found, expected, strict=True):
        assert mine.dtype == dtype
        scale = float(other.detach().abs().max()) if other.numel() else 1.0
        torch.testing.assert_close(mine, other, rtol=TOLERANCE[dtype], atol=4 * TOLERANCE[dtype] * max(1.0, scale))


def test_under_autocast_products_alone_are_narrow():
    parts, labels = operands(300, 200, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses, right = streamed_cross_entropy(*parts, labels)
        expected, as_many = at_once(*parts, labels)
    assert losses.dtype == torch.float32
    assert torch.equal(right, as_many)
    torch.testing.assert_close(losses, expected, rtol=1e-6, atol=1e-6)
    exactly = torch.autograd.grad(at_once(*parts, labels)[0].mean(), parts)
    for mine, other in zip(torch.autograd.grad(losses.mean(), parts), exactly, strict=True):
        assert mine.dtype == torch.float32
        assert float((mine - other).norm()) < 0.01 * float(other.norm())


def test_of_equal_logits_the_first_is_the_answer():
    words = torch.tensor([[1.0], [2.0], [2.0], [0.0]])
    _, right = streamed_cross_entropy(torch.ones(4, 1), words, torch.zeros(4), torch.arange(4))
    assert right.tolist() == [False, True, False, False]


def test_no_more_logits_than_a_piece_are_kept():
    parts, labels = operands(64, 1000, torch.float32)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        streamed_cross_entropy(*parts, labels)
    assert max(tensor.numel() for tensor in kept) == parts[1].numel()


def test_nothing_lies_on_another_device():
    """An index on the CPU would make a GPU wait."""

    class Devices(TorchDispatchMode):
        mixed = ()

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            leaves = torch.utils._pytree.tree_leaves((args, kwargs))
            if len({leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dim()}) > 1:
                self.mixed = (*self.mixed, func)
            return func(*args, **(kwargs or {}))

    parts, labels = operands(5, 30, torch.float32)
    there = [part.detach().to("meta").requires_grad_() for part in parts]
    with Devices() as devices:
        streamed_cross_entropy(*there, labels.to("meta"))[0].sum().backward()
    assert devices.mixed == ()
