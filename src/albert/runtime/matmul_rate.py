"""How fast a device multiplies matrices: what the speed of training is compared with, on the machine it runs on.

Peak figures of data sheets count instructions that no product of these shapes reaches; this one is measured.
"""

import time
from functools import cache

import torch
from torch import Tensor

from albert.runtime.devices import Precision

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
    """FLOP/s of the fastest of a few matrix products; a multiplication with its addition counts 2.

    Measured once a process, in less than a second. Others that compute at the same time make it smaller.

    Args:
        device: where to multiply.
        precision: "fp32", or "bf16" for operands and results in bfloat16.
    """
    rates = []
    for inner, outer in _WEIGHTS["cuda" if device.type == "cuda" else "cpu"]:
        right = torch.randn(inner, outer, device=device).to(_TYPES[precision])
        for rows in _ROWS:
            left = torch.randn(rows, inner, device=device).to(right.dtype)
            seconds = _fewest_seconds(left, right)
            rates.append(2 * rows * inner * outer / seconds)
            if seconds > _LONG_ENOUGH:
                break
    return max(rates)


def _fewest_seconds(left: Tensor, right: Tensor) -> float:
    product = torch.empty(left.shape[0], right.shape[1], dtype=left.dtype, device=left.device)  # no page faults inside
    seconds: list[float] = []
    while len(seconds) < 2 or (len(seconds) < _REPEATS and sum(seconds) < _SECONDS):
        started = time.perf_counter()
        torch.mm(left, right, out=product)
        float(product[0, 0])  # reading a number waits for the device
        seconds.append(time.perf_counter() - started)
    return min(seconds)
