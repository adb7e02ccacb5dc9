"""Linear maps, in float32 through oneDNN where torch's own library leaves half of the processor unused.

torch multiplies float32 matrices on x86 with MKL, which has AVX-512 kernels and does not use them on every processor
that has AVX-512: the same product takes oneDNN less than half of the time there. Where MKL does use them it is the
faster one, by up to a factor of two with gradients. Both count in float32. Which one it is follows from what processor
and MKL can do, so a run that goes on on the same machine multiplies as it did before; `fp32_library` names it.
"""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional


def linear(
    rows: Float[Tensor, "rows inputs"], weight: Float[Tensor, "outputs inputs"], bias: Float[Tensor, " outputs"]
) -> Float[Tensor, "rows outputs"]:
    """rows weightᵀ + bias, as `functional.linear`."""
    if _is_onednns(rows, weight):
        return _OneDnnLinear.apply(rows, weight, bias)
    return functional.linear(rows, weight, bias)


def product(
    rows: Float[Tensor, "rows inputs"], weight: Float[Tensor, "outputs inputs"], bias: Tensor | None = None
) -> Float[Tensor, "rows outputs"]:
    """The same where gradients are written out; each operand may be a transposed view."""
    if _is_onednns(rows, weight):
        return torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
    return functional.linear(rows, weight, bias)


@cache
def onednn_is_faster() -> bool:
    """Whether products in float32 are oneDNN's: where torch has MKL, the processor AVX-512, and MKL does not use it."""
    both = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    return both and torch.backends.cpu.get_cpu_capability() == "AVX512" and not mkl_uses_every_kernel()


@cache
def mkl_uses_every_kernel() -> bool:
    """Whether MKL takes its fastest kernels on this processor, as it says itself; True where it cannot be asked.

    `mkl_serv_intel_cpu_true` is the function by which MKL decides; torch's wheels hold MKL in libtorch_cpu.
    """
    for library in (Path(torch.__file__).parent / "lib" / "libtorch_cpu.so", None):
        try:
            return bool(ctypes.CDLL(None if library is None else str(library)).mkl_serv_intel_cpu_true())
        except (OSError, AttributeError):
            continue
    return True


def fp32_library() -> str:
    """Which library multiplies float32 matrices on the CPU in training: "oneDNN", "MKL", or torch's "BLAS"."""
    if onednn_is_faster():
        return "oneDNN"
    return "MKL" if torch.backends.mkl.is_available() else "BLAS"


def _is_onednns(rows: Tensor, weight: Tensor) -> bool:
    return (
        rows.device.type == "cpu"
        and len(rows) > 0  # oneDNN knows no product of nothing
        and rows.dtype is torch.float32 is weight.dtype
        and not torch.is_autocast_enabled("cpu")
        and onednn_is_faster()
    )


class _OneDnnLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(rows, weight)
        return product(rows, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        (of_result,) = gradients
        rows, weight = ctx.saved_tensors
        of_rows, of_weight, of_bias = ctx.needs_input_grad
        return (
            product(of_result, weight.t()) if of_rows else None,
            product(of_result.t(), rows.t()) if of_weight else None,
            of_result.sum(0) if of_bias else None,
        )
