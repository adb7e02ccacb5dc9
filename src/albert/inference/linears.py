"""Linear layers with weights prepared once: cast, prepacked for the processor's kernels, or as 8-bit integers.

oneDNN reads weights in blocks that fit its registers; with a prepacked weight a product is up to a third faster than
`functional.linear`, and operations that follow it (activation, residual) are fused."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from jaxtyping import Float, Float32, Int8, UInt8
from torch import Tensor, nn
from torch.nn import functional

from albert.model.encoder import InputScale
from albert.runtime.devices import multiplies_faster_by_mkl

InferencePrecision = Literal["fp32", "bf16", "int8"]

# --------------------------------------------------------------------------------------------------------------------
# Weights as 8-bit integers, one scale per output channel, symmetric around zero.

INT8_MAX = 127  # −128 is not used, so that a weight and its negative are represented equally well
_SCALE_BITS = 16
"""Significant bits of a scale: with the 7 of a value they fit a float32, so that a value times its scale is exact."""


MIN_DIMENSION = 16


def is_worth_quantizing(weight: Tensor) -> bool:
    """Return whether a tensor is a matrix of 16 rows and columns or more: small ones save nothing and matter most."""
    return weight.ndim == 2 and min(weight.shape) >= MIN_DIMENSION


def quantize_matrix(
    weight: Float32[Tensor, "outputs inputs"],
) -> tuple[Int8[Tensor, "outputs inputs"], Float32[Tensor, " outputs"]]:
    """Integers in −127…127 and the scale of each row: `values * scales[:, None]` is approximately the weight.

    The largest of each row becomes ±127. Quantising `values * scales[:, None]` gives exactly these values and scales
    again, so a file of either form opens to the same model. A row of zeros has scale 1, and so has one whose scale
    would not be a normal number.
    """
    largest = weight.abs().amax(dim=1)
    mantissa, exponent = torch.frexp(largest / INT8_MAX)
    scales = torch.ldexp((mantissa * 2**_SCALE_BITS).ceil() / 2**_SCALE_BITS, exponent)
    scales = torch.where(largest > 2 * INT8_MAX * torch.finfo(torch.float32).tiny, scales, torch.ones_like(scales))
    return (weight / scales[:, None]).round().clamp(-INT8_MAX, INT8_MAX).to(torch.int8), scales


# --------------------------------------------------------------------------------------------------------------------
# Linear layers.

ZERO_POINT = 128  # The unsigned byte of 0: oneDNN is fast only for unsigned bytes times signed ones
_MIN_ABSOLUTE = 1e-30  # Lower bound on a row's largest absolute value, so that a row of zeros has a scale


class PlainLinear:
    """A weight and a bias, applied to rows [tokens, inputs] of the encoder's dtype.

    This class uses `functional.linear`: for GPUs, and for builds of torch without oneDNN.
    """

    compiles_shapes = False
    """Whether a kernel is compiled, and kept, for each number of rows."""

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype, activation: nn.Module | None) -> None:
        self._weight = weight.to(dtype)
        self._bias = bias.to(dtype)
        self._activation = activation

    def __call__(self, rows: Float[Tensor, "tokens inputs"]) -> Float[Tensor, "tokens outputs"]:
        return functional.linear(rows, self._weight, self._bias)

    def with_activation(self, rows: Float[Tensor, "tokens inputs"]) -> Float[Tensor, "tokens outputs"]:
        assert self._activation is not None, "a map without an activation"
        return self._activation(self(rows))

    def with_residual(
        self, rows: Float[Tensor, "tokens inputs"], residual: Float[Tensor, "tokens outputs"]
    ) -> Float[Tensor, "tokens outputs"]:
        return self(rows) + residual


class MklLinear(PlainLinear):
    """MKL's product, and the activation in place after it; for few rows oneDNN's product with a prepacked weight.

    For processors with AVX2 but without AVX-512. oneDNN's product of few rows is faster there, that of many rows up to
    a tenth slower, and its GELU, which it computes with the product, takes six times as long as torch's. The times are
    in results/inference.md, "Few rows".
    """

    FEW_ROWS = 32

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype, activation: nn.Module | None) -> None:
        super().__init__(weight, bias, dtype, activation)
        self._prepacked = None
        if torch.backends.mkldnn.is_available():
            self._prepacked = torch.ops.mkldnn._reorder_linear_weight(self._weight.contiguous())
        self._approximation = getattr(activation, "approximate", "none")

    def __call__(self, rows: Tensor) -> Tensor:
        if len(rows) <= self.FEW_ROWS and self._prepacked is not None:
            return torch.ops.mkldnn._linear_pointwise(rows, self._prepacked, self._bias, "none", [], "")
        return functional.linear(rows, self._weight, self._bias)

    def with_activation(self, rows: Tensor) -> Tensor:
        assert self._activation is not None, "a map without an activation"
        product = self(rows)
        if isinstance(self._activation, nn.GELU):
            return torch.ops.aten.gelu_.default(product, approximate=self._approximation)
        return self._activation(product)

    def with_residual(self, rows: Tensor, residual: Tensor) -> Tensor:
        if len(rows) <= self.FEW_ROWS:
            return self(rows).add_(residual)
        return torch.add(residual, self._bias).addmm_(rows, self._weight.t())


class PrepackedLinear(PlainLinear):
    """oneDNN's linear layer with a prepacked weight."""

    compiles_shapes = True

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype, activation: nn.Module | None) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype).contiguous())
        self._bias = bias.to(dtype)
        self._attribute = "none"
        self._algorithm = ""
        if activation is not None:
            # oneDNN's names: gelu with "tanh" or "none", relu, tanh
            self._attribute = type(activation).__name__.lower()
            self._algorithm = getattr(activation, "approximate", "")

    def __call__(self, rows: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(rows, self._weight, self._bias, "none", [], "")

    def with_activation(self, rows: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(rows, self._weight, self._bias, self._attribute, [], self._algorithm)

    def with_residual(self, rows: Tensor, residual: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise.binary(rows, residual, self._weight, self._bias, "add")


class Int8Linear(PlainLinear):
    """8-bit products: weights with a scale per output, inputs with a scale for each row.

    Each row has its own scale, so a token's result does not depend on the rest of the batch. Inputs and outputs are
    float32, except for the output of `__call__`, which is `dtype`.
    """

    compiles_shapes = True

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype, activation: nn.Module | None) -> None:
        values, self._scales = quantize_matrix(weight.float())
        self._weight = torch.ops.onednn.qlinear_prepack(values, None)
        self._zeros = values.new_zeros(len(values), dtype=torch.int64)
        self._bias = bias.float()
        self._rounded_bias = bias.to(dtype)
        self._dtype = dtype
        self._activation = activation

    def __call__(self, rows: Tensor) -> Tensor:
        product, steps = self._product(rows, self._dtype)
        return torch.addcmul(self._rounded_bias, product, steps.to(self._dtype))

    def with_activation(self, rows: Tensor) -> Tensor:
        product, steps = self._product(rows, torch.float32)
        activated = torch.addcmul(self._bias, product, steps)
        if isinstance(self._activation, nn.GELU):
            # The tanh form is within 0.0005 of the exact one, below the resolution of int8, and takes torch three times
            # as long.
            return torch.ops.aten.gelu_.default(activated)
        assert self._activation is not None, "a product without an activation"
        return self._activation(activated)

    def with_residual(self, rows: Tensor, residual: Tensor) -> Tensor:
        product, steps = self._product(rows, torch.float32)
        return torch.addcmul(self._bias, product, steps).add_(residual)

    def _product(self, rows: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        integers, steps = quantize_rows(rows)
        product = torch.ops.onednn.qlinear_pointwise(
            integers, 1.0, ZERO_POINT, self._weight, self._scales, self._zeros, None, 1.0, 0, dtype, "none", [], ""
        )
        return product, steps


class FixedInt8Linear(Int8Linear):
    """8-bit products with one scale for all inputs: oneDNN adds the bias, the activation and the residual to them.

    The scale is known before the batch, so a token's result does not depend on the batch. Inputs are float32, bfloat16
    or bytes of this scale.

    Args:
        by_row: the same product with a scale for each row; its weight is used.
        inputs: the scale of the inputs.
        outputs: the scale of the activated outputs, which are bytes then; None: they are float32.
    """

    def __init__(self, by_row: Int8Linear, inputs: InputScale, outputs: InputScale | None = None) -> None:
        vars(self).update(vars(by_row))
        self._inputs = inputs
        self._inverse = 1 / inputs.scale
        self._half = torch.tensor(inputs.zero_point + 0.5)
        self._outputs = outputs
        self._fused = {nn.GELU: "gelu", nn.ReLU: "relu"}.get(type(self._activation), "none")
        self._algorithm = getattr(self._activation, "approximate", "")

    def __call__(self, rows: Tensor) -> Tensor:
        return torch.ops.onednn.qlinear_pointwise(
            *self._operands(rows), self._bias, 1.0, 0, self._dtype, "none", [], ""
        )

    def with_activation(self, rows: Tensor) -> Tensor:
        dtype = torch.float32
        scale = 1.0
        zero_point = 0
        if self._outputs is not None and self._fused != "none":
            dtype = torch.uint8
            scale, zero_point = self._outputs
        activated = torch.ops.onednn.qlinear_pointwise(
            *self._operands(rows), self._bias, scale, zero_point, dtype, self._fused, [], self._algorithm
        )
        if self._fused != "none":
            return activated
        assert self._activation is not None, "a product without an activation"
        return self._activation(activated)

    def with_residual(self, rows: Tensor, residual: Tensor) -> Tensor:
        return torch.ops.onednn.qlinear_pointwise.binary(
            *self._operands(rows), residual, self._bias, 1.0, 0, torch.float32, 1.0, 0, "add", 1.0, "none", [], ""
        )

    def _operands(self, rows: Tensor) -> tuple[Any, ...]:
        """The inputs as bytes, and the weight, each with its scale and zero point."""
        if rows.dtype != torch.uint8:
            rows = torch.add(self._half, rows.float(), alpha=self._inverse).clamp_(0, 255).to(torch.uint8)
        return rows, *self._inputs, self._weight, self._scales, self._zeros


class WatchedLinear(PlainLinear):
    """A product whose inputs pass through a function first."""

    def __init__(self, linear: PlainLinear, change: Callable[[Tensor], Tensor]) -> None:
        self._linear = linear
        self._change = change

    def __call__(self, rows: Tensor) -> Tensor:
        return self._linear(self._change(rows))

    def with_activation(self, rows: Tensor) -> Tensor:
        return self._linear.with_activation(self._change(rows))

    def with_residual(self, rows: Tensor, residual: Tensor) -> Tensor:
        return self._linear.with_residual(self._change(rows), residual)


def quantize_rows(
    rows: Float[Tensor, "tokens inputs"],
) -> tuple[UInt8[Tensor, "tokens inputs"], Float[Tensor, "tokens 1"]]:
    """Each row as bytes with zero point 128, and its scale: `(bytes - 128) * steps` is approximately the row."""
    rows = rows.float()
    steps = rows.abs().amax(dim=1, keepdim=True).clamp_min_(_MIN_ABSOLUTE).div_(INT8_MAX)
    signed = (rows * steps.reciprocal()).round_().to(torch.int8)
    return signed.view(torch.uint8).bitwise_xor_(ZERO_POINT), steps


def make_linear(
    weight: Float[Tensor, "outputs inputs"],
    bias: Float[Tensor, " outputs"],
    precision: InferencePrecision,
    dtype: torch.dtype,
    activation: nn.Module | None = None,
) -> PlainLinear:
    """The fastest linear map for the weight's device and this precision. It may share the weight and the bias."""
    if precision == "int8":
        return Int8Linear(weight, bias, dtype, activation)
    if weight.device.type == "cpu" and dtype == torch.float32 and multiplies_faster_by_mkl():
        return MklLinear(weight, bias, dtype, activation)
    has_prepacked = (
        weight.device.type == "cpu"
        and torch.backends.mkldnn.is_available()
        and (dtype != torch.bfloat16 or torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )
    if has_prepacked:
        return PrepackedLinear(weight, bias, dtype, activation)
    return PlainLinear(weight, bias, dtype, activation)
