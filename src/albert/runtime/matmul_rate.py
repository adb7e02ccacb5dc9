"""How fast a device multiplies matrices: what the speed of training is compared with, on the machine it runs on.

Peak figures of data sheets count instructions that no product of these shapes reaches; this one is measured.
"""

import time
from functools import cache

import torch
from torch import Tensor

from albert.runtime.linear_product import product
from albert.runtime.precisions import Precision

_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_WEIGHTS = {"cpu": ((768, 3072), (1024, 4096)), "cuda": ((1024, 4096), (4096, 16384))}
"""Feed-forward weights of ALBERT-base and -large, of -large and -xxlarge; a processor gains nothing by wider ones."""
_ROWS = (64, 512, 4096, 16384)
_LONG_ENOUGH = 0.02
"""Seconds: a product that takes as long is not followed by one of more rows, so that slow devices are done soon."""
_REPEATS = 12
_SECONDS = 0.1
"""After which a product is not repeated any more; the first one, which warms up, never stands alone."""


@cache
def measured_matmul_rate(device: torch.device, precision: Precision) -> float:
    """FLOP/s of the fastest of a few matrix products, by the library that multiplies in the model.

    A multiplication with its addition counts 2. Measured once a process, in less than a second. Others that compute at
    the same time make it smaller.

    Args:
        device: where to multiply.
        precision: "fp32", or "bf16" for operands and results in bfloat16.
    """
    rates = []
    for inner, outer in _WEIGHTS["cuda" if device.type == "cuda" else "cpu"]:
        weight = torch.randn(outer, inner, device=device).to(_TYPES[precision])
        for height in _ROWS:
            rows = torch.randn(height, inner, device=device).to(weight.dtype)
            seconds = _fewest_seconds(rows, weight)
            rates.append(2 * height * inner * outer / seconds)
            if seconds > _LONG_ENOUGH:
                break
    return max(rates)


def _fewest_seconds(rows: Tensor, weight: Tensor) -> float:
    seconds: list[float] = []
    while len(seconds) < 2 or (len(seconds) < _REPEATS and sum(seconds) < _SECONDS):
        started = time.perf_counter()
        float(product(rows, weight)[0, 0])  # reading a number waits for the device
        seconds.append(time.perf_counter() - started)
    return min(seconds)
