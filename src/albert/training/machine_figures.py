"""How much of the machine a run uses: the share of the speed it was measured to have, and memory."""

import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch

from albert.training.objective import Batch


@dataclass(frozen=True)
class Meter:
    """What tells work from time."""

    flops: Callable[[Batch], float]
    """Floating-point operations of the matrix products that a micro-batch needs, forwards and backwards."""
    matmul_rate: Callable[[], float]
    """Operations a second of a large matrix product alone, on this device at this precision; asked when first told."""


def machine_figures(flops: float, seconds: float, meter: Meter | None, device: torch.device) -> dict[str, float]:
    """The share of the machine's rate at which `flops` were done in `seconds`, and the memory held at most."""
    share = {} if meter is None else {"matmul_share": flops / seconds / meter.matmul_rate()}
    return {**share, "peak_memory_bytes": peak_memory_bytes(device)}


def peak_memory_bytes(device: torch.device) -> int:
    """The most memory this process has held so far: of the GPU where it computes on one, else resident."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
