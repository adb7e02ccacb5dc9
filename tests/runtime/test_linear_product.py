"""Whichever library multiplies: the same numbers, the same gradients."""

import pytest
import torch
from torch.nn import functional

from albert.runtime import devices as linear_product
from albert.runtime.devices import linear, onednn_is_faster, product

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this build of torch has no oneDNN")


@pytest.fixture
def onednn(monkeypatch):
    """As on a processor where it is the faster library."""
    monkeypatch.setattr(linear_product, "onednn_is_faster", lambda: True)


def operands(rows: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    torch.manual_seed(rows)
    return [torch.randn(*shape, dtype=dtype, requires_grad=True) for shape in ((rows, 24), (40, 24), (40,))]


@needs_onednn
@pytest.mark.parametrize("rows", [0, 1, 7, 64, 333])
def test_values_and_gradients_are_torchs_own(onednn, rows):
    ours, theirs = operands(rows), operands(rows)
    found, expected = linear(*ours), functional.linear(*theirs)
    assert (type(found.grad_fn).__name__ == "_OneDnnLinearBackward") is (rows > 0)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    weights = torch.randn_like(expected)
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-4, rtol=1e-5)


@needs_onednn
def test_operands_may_be_transposed_views(onednn):
    left, right = torch.randn(30, 50), torch.randn(50, 20)
    torch.testing.assert_close(product(left, right.t()), left @ right, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(product(right.t(), left), right.t() @ left.t(), atol=1e-5, rtol=1e-5)


@needs_onednn
def test_only_what_is_asked_for_gets_a_gradient(onednn):
    rows, weight, bias = operands(5)
    linear(rows.detach(), weight, bias.detach()).sum().backward()
    assert weight.grad is not None and rows.grad is None and bias.grad is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_are_left_to_torch(onednn, dtype):
    assert torch.equal(linear(*operands(9, dtype)), functional.linear(*operands(9, dtype)))


def test_within_autocast_products_are_in_bfloat16(onednn):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert linear(*operands(9)).dtype is torch.bfloat16


@pytest.mark.parametrize(
    ("capability", "mkl", "uses", "library"),
    [("AVX512", True, False, "oneDNN"), ("AVX512", True, True, "MKL"), ("AVX2", True, False, "MKL"),
     ("AVX512", False, True, "BLAS")],
)  # fmt: skip
def test_the_library_follows_from_what_processor_and_mkl_can_do(monkeypatch, capability, mkl, uses, library):
    monkeypatch.setattr(linear_product, "mkl_uses_every_kernel", lambda: uses)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(linear_product, "onednn_is_faster", onednn_is_faster.__wrapped__)
    assert linear_product.fp32_library() == library


@pytest.mark.parametrize("answer", [0, 1])
def test_mkl_is_asked_whether_it_takes_its_fastest_kernels(monkeypatch, answer):
    class Library:
        mkl_serv_intel_cpu_true = staticmethod(lambda: answer)

    monkeypatch.setattr(linear_product.ctypes, "CDLL", lambda name: Library())
    assert linear_product.mkl_uses_every_kernel.__wrapped__() is bool(answer)
    monkeypatch.setattr(linear_product.ctypes, "CDLL", lambda name: object())
    assert linear_product.mkl_uses_every_kernel.__wrapped__() is True
