"""Linear maps, in float32 through oneDNN where torch's own library leaves half of the processor unused.

torch multiplies float32 matrices on x86 with Intel's MKL, whose kernels for AMD's processors know no AVX-512: the same
product takes oneDNN less than half of the time there. Both count in float32. Which one it is depends on the machine
alone, so a run that goes on multiplies as it did before.
"""

from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from albert.runtime.devices import processor_name


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
    """Whether products in float32 are oneDNN's here: on AMD's processors with AVX-512, under a torch that has MKL."""
    both = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    return both and torch.backends.cpu.get_cpu_capability() == "AVX512" and "AMD" in processor_name()


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
