"""Linear maps made once for many uses: cast, laid out as the processor's kernels read them, or as 8-bit integers.

What it costs to prepare a weight is paid when a model is opened, and every layer that shares the weight gains. oneDNN
reads weights in blocks that fit its registers; with them in that order a product is up to a third faster than one by
`functional.linear`, and what follows it element by element (activation, residual) is computed while its result is still
in the registers.
"""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn import functional

from albert.inference.int8_matrices import LARGEST, quantize_matrix
from albert.inference.precision import InferencePrecision

_FUSED: dict[tuple[type[nn.Module], str], tuple[str, str]] = {
    (nn.GELU, "tanh"): ("gelu", "tanh"),
    (nn.GELU, "none"): ("gelu", "none"),
    (nn.ReLU, ""): ("relu", ""),
    (nn.Tanh, ""): ("tanh", ""),
}
"""Activation, its approximation -> oneDNN's names of both."""
_ZERO = 128
"""What stands for 0 in unsigned bytes; oneDNN multiplies those by signed ones, and is slow for any other pair."""
_SMALLEST = 1e-30
"""Stands for the largest number of a row of zeros, which has no scale."""


@runtime_checkable
class LinearMap(Protocol):
    """A weight and a bias, applied to rows [tokens, inputs] of the type that the encoder's states have."""

    def __call__(self, rows: Float[Tensor, "tokens inputs"]) -> Float[Tensor, "tokens outputs"]:
        """The product and the bias."""
        ...

    def activated(self, rows: Float[Tensor, "tokens inputs"]) -> Float[Tensor, "tokens outputs"]:
        """Then the activation."""
        ...

    def added(
        self, rows: Float[Tensor, "tokens inputs"], residual: Float[Tensor, "tokens outputs"]
    ) -> Float[Tensor, "tokens outputs"]:
        """The product and the bias, and what went past them."""
        ...


class PlainMap:
    """`functional.linear` in one type: for GPUs, and for builds of torch without oneDNN."""

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype, activation: nn.Module | None) -> None:
        self._weight, self._bias, self._activation = weight.to(dtype), bias.to(dtype), activation

    def __call__(self, rows: Tensor) -> Tensor:
        """See `LinearMap`."""
        return functional.linear(rows, self._weight, self._bias)

    def activated(self, rows: Tensor) -> Tensor:
        """See `LinearMap`."""
        assert self._activation is not None, "a map without an activation"
        return self._activation(self(rows))

    def added(self, rows: Tensor, residual: Tensor) -> Tensor:
        """See `LinearMap`."""
        return self(rows) + residual


class PrepackedMap:
    """A product of oneDNN with its weight in blocks."""

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype, activation: nn.Module | None) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype).contiguous())
        self._bias = bias.to(dtype)
        self._attribute, self._algorithm = "none", ""
        if activation is not None:
            self._attribute, self._algorithm = _FUSED[type(activation), getattr(activation, "approximate", "")]

    def __call__(self, rows: Tensor) -> Tensor:
        """See `LinearMap`."""
        return torch.ops.mkldnn._linear_pointwise(rows, self._weight, self._bias, "none", [], "")

    def activated(self, rows: Tensor) -> Tensor:
        """See `LinearMap`."""
        return torch.ops.mkldnn._linear_pointwise(rows, self._weight, self._bias, self._attribute, [], self._algorithm)

    def added(self, rows: Tensor, residual: Tensor) -> Tensor:
        """See `LinearMap`."""
        return torch.ops.mkldnn._linear_pointwise.binary(rows, residual, self._weight, self._bias, "add")


class Int8Map:
    """Products of 8-bit integers: weights with a scale for each output, rows with one for each, taken from themselves.

    A row's scale is its own, so what a token becomes depends on nothing else in the batch. Rows come and go in float32
    (`dtype` is what `__call__` gives).
    """

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype, activation: nn.Module | None) -> None:
        values, self._scales = quantize_matrix(weight.float())
        self._weight = torch.ops.onednn.qlinear_prepack(values, None)
        self._zeros = torch.zeros(len(values), dtype=torch.int64)
        self._bias, self._rounded_bias, self._dtype = bias.float(), bias.to(dtype), dtype
        # The tanh form lies within 0.0005 of the exact one, a fraction of a step of what is made of it; torch takes
        # three times as long for it.
        is_gelu = isinstance(activation, nn.GELU)
        self._activation = nn.GELU() if is_gelu else activation

    def __call__(self, rows: Tensor) -> Tensor:
        """See `LinearMap`."""
        product, steps = self._product(rows, self._dtype)
        return torch.addcmul(self._rounded_bias, product, steps.to(self._dtype))

    def activated(self, rows: Tensor) -> Tensor:
        """See `LinearMap`."""
        assert self._activation is not None, "a map without an activation"
        product, steps = self._product(rows, torch.float32)
        return self._activation(torch.addcmul(self._bias, product, steps))

    def added(self, rows: Tensor, residual: Tensor) -> Tensor:
        """See `LinearMap`."""
        product, steps = self._product(rows, torch.float32)
        return torch.addcmul(self._bias, product, steps).add_(residual)

    def _product(self, rows: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        integers, steps = quantize_rows(rows)
        product = torch.ops.onednn.qlinear_pointwise(
            integers, 1.0, _ZERO, self._weight, self._scales, self._zeros, None, 1.0, 0, dtype, "none", [], ""
        )
        return product, steps


def quantize_rows(
    rows: Float[Tensor, "tokens inputs"],
) -> tuple[UInt8[Tensor, "tokens inputs"], Float[Tensor, "tokens 1"]]:
    """Each row as bytes around 128, and what a step of them is worth: `(bytes - 128) * steps` is the row, nearly."""
    rows = rows.float()
    steps = rows.abs().amax(dim=1, keepdim=True).clamp_min_(_SMALLEST).div_(LARGEST)
    signed = (rows * steps.reciprocal()).round_().to(torch.int8)
    return signed.view(torch.uint8).bitwise_xor_(_ZERO), steps


def make_map(
    weight: Float[Tensor, "outputs inputs"],
    bias: Float[Tensor, " outputs"],
    precision: InferencePrecision,
    dtype: torch.dtype,
    activation: nn.Module | None = None,
) -> LinearMap:
    """The fastest form of a linear map on the device that it is on.

    Args:
        weight, bias: copied, not kept.
        precision: of its products.
        dtype: of what `__call__` gives.
        activation: what `activated` applies.
    """
    if precision == "int8":
        return Int8Map(weight, bias, dtype, activation)
    if why_not_prepacked(weight.device, dtype) is None:
        return PrepackedMap(weight, bias, dtype, activation)
    return PlainMap(weight, bias, dtype, activation)


def why_not_prepacked(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why products do without oneDNN's prepared weights here; None: they have them."""
    if device.type != "cpu":
        return f"oneDNN is for CPUs, this is {device.type}"
    if not torch.backends.mkldnn.is_available():
        return "this build of torch has no oneDNN"
    if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return "oneDNN has no bfloat16 products for this processor"
    return None
