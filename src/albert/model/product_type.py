"""Weights in the type that matrix products are computed in: bfloat16 within autocast, else their own."""

import torch
from torch import Tensor


def in_product_type(weight: Tensor) -> Tensor:
    """The weight as products take it.

    Autocast does the same by itself, and remembers the result for parameters, yet not for what is computed from them,
    nor when activation checkpointing comes back to a layer in the backward pass.
    """
    kind = weight.device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return weight
    return weight.to(torch.get_autocast_dtype(kind))
