"""Weights as 8-bit integers, one scale for each output channel, symmetric around zero."""

import torch
from jaxtyping import Float32, Int8
from torch import Tensor

LARGEST = 127
"""−128 is left out, so that a weight and its negative are equally well told."""
_SCALE_BITS = 16
"""Significant bits of a scale: with the 7 of a value they fit a float32, so that a value times its scale is exact."""


def quantize_matrix(
    weight: Float32[Tensor, "outputs inputs"],
) -> tuple[Int8[Tensor, "outputs inputs"], Float32[Tensor, " outputs"]]:
    """Integers in −127…127 and the scale of each row: `values * scales[:, None]` is the weight, nearly.

    The largest of each row becomes ±127. What `values * scales[:, None]` gives has exactly these values and scales
    again, so a file of either form opens to the same model. A row of zeros has scale 1.
    """
    largest = weight.abs().amax(dim=1)
    mantissa, exponent = torch.frexp(largest / LARGEST)
    scales = torch.ldexp((mantissa * 2**_SCALE_BITS).ceil() / 2**_SCALE_BITS, exponent)
    scales = torch.where(largest > 0, scales, torch.ones_like(scales))
    return (weight / scales[:, None]).round().clamp(-LARGEST, LARGEST).to(torch.int8), scales


def restore_matrix(
    values: Int8[Tensor, "outputs inputs"], scales: Float32[Tensor, " outputs"]
) -> Float32[Tensor, "outputs inputs"]:
    """The weight that `quantize_matrix` told in integers."""
    return values * scales[:, None]
