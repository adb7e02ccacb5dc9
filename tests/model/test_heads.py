"""Streamed cross-entropy equals cross-entropy: losses, accuracy and all gradients, for any part size and weights."""

import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from albert.model import heads
from albert.model.heads import streamed_cross_entropy
from albert.runtime.devices import autocast

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}


def operands(items, vocabulary, dtype):
    generator = torch.Generator().manual_seed(items + vocabulary)
    shapes = ((items, 8), (vocabulary, 8), (vocabulary,))
    inputs = [torch.randn(shape, dtype=dtype, generator=generator).requires_grad_() for shape in shapes]
    return inputs, torch.randint(0, vocabulary, (items,), generator=generator)


def plain_cross_entropy(transformed, words, bias, labels):
    logits = functional.linear(transformed, words, bias)
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return functional.cross_entropy(exact, labels, reduction="none"), exact.argmax(1) == labels


@pytest.mark.parametrize("sizes", [(1, 1), (100, 50), (250, 250), (250, 1 << 19), (1 << 22, 60), (1 << 22, 1 << 19)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("items", "vocabulary"), [(1, 2), (17, 50), (5, 1000), (0, 30)])
def test_losses_accuracy_and_gradients_equal_plain_cross_entropy(
    monkeypatch, items, vocabulary, dtype, weighted, sizes
):
    for name, logits in zip(("LOGITS_AT_ONCE", "LOGITS_IN_CACHE"), sizes, strict=True):
        monkeypatch.setattr(heads, name, logits)
    inputs, labels = operands(items, vocabulary, dtype)
    weights = torch.linspace(-1, 2, items, dtype=dtype) if weighted else torch.ones(items, dtype=dtype)
    results = []
    for cross_entropy in (streamed_cross_entropy, plain_cross_entropy):
        losses, correct = cross_entropy(*inputs, labels)
        results.append([correct, losses, *torch.autograd.grad((losses * weights).sum(), inputs)])
    (correct, *tensors), (expected_correct, *expected) = results
    assert torch.equal(correct, expected_correct)
    for tensor, other in zip(tensors, expected, strict=True):
        assert tensor.dtype == dtype
        scale = float(other.detach().abs().max()) if other.numel() else 1.0
        torch.testing.assert_close(tensor, other, rtol=TOLERANCE[dtype], atol=4 * TOLERANCE[dtype] * max(1.0, scale))


def test_under_autocast_only_products_are_bfloat16():
    inputs, labels = operands(300, 200, torch.float32)
    with autocast(torch.device("cpu"), "bf16"):
        losses, correct = streamed_cross_entropy(*inputs, labels)
        expected, expected_correct = plain_cross_entropy(*inputs, labels)
    assert losses.dtype == torch.float32
    assert torch.equal(correct, expected_correct)
    torch.testing.assert_close(losses, expected, rtol=1e-6, atol=1e-6)
    exact = torch.autograd.grad(plain_cross_entropy(*inputs, labels)[0].mean(), inputs)
    for gradient, other in zip(torch.autograd.grad(losses.mean(), inputs), exact, strict=True):
        assert gradient.dtype == torch.float32
        assert float((gradient - other).norm()) < 0.01 * float(other.norm())


def test_of_equal_logits_the_first_counts_as_largest():
    words = torch.tensor([[1.0], [2.0], [2.0], [0.0]])
    _, correct = streamed_cross_entropy(torch.ones(4, 1), words, torch.zeros(4), torch.arange(4))
    assert correct.tolist() == [False, True, False, False]


def test_no_operation_mixes_devices():
    """An index on the CPU would make a GPU wait."""

    class Devices(TorchDispatchMode):
        mixed = ()

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            leaves = torch.utils._pytree.tree_leaves((args, kwargs))
            if len({leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dim()}) > 1:
                self.mixed = (*self.mixed, func)
            return func(*args, **(kwargs or {}))

    inputs, labels = operands(5, 30, torch.float32)
    on_meta = [tensor.detach().to("meta").requires_grad_() for tensor in inputs]
    with Devices() as devices:
        streamed_cross_entropy(*on_meta, labels.to("meta"))[0].sum().backward()
    assert devices.mixed == ()
