"""What bit-identity rests on beside recipe and data, and a word when it is not as it was."""

import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from albert.runtime.devices import processor_capabilities, processor_name
from albert.runtime.linear_product import fp32_library
from albert.runtime.precisions import Precision
from albert.runtime.sharding import is_sharded
from albert.runtime.world import World


def circumstances(here: World, device: torch.device, model: nn.Module, precision: Precision) -> dict[str, str | int]:
    """How this process computes: on what, and with which kernels."""
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        machine = {"gpu": torch.cuda.get_device_name(device), "compute_capability": f"{major}.{minor}"}
    else:
        machine = {
            "processor": processor_name(),
            "capabilities": processor_capabilities(),
            "fp32_products": fp32_library(),
        }
    return {
        "torch": torch.__version__,
        "device": device.type,
        **machine,
        "precision": precision,
        "threads": torch.get_num_threads(),
        "world_size": here.size,
        "parallelism": "sharded" if is_sharded(model) else "data",
    }


def note_changes(
    before: Mapping[str, str | int], now: Mapping[str, str | int], here: World
) -> dict[str, dict[str, Any]]:
    """Say so when a run goes on under circumstances that may change the last bits of its numbers.

    Args:
        before: those of the checkpoint; what an older version did not record is not compared.
        now: those of this process.
        here: this process; the first one prints.

    Returns:
        What changed, by name: {"before": …, "now": …}.
    """
    changes = {
        name: {"before": value, "now": now.get(name)} for name, value in before.items() if value != now.get(name)
    }
    if changes and here.is_first:
        told = ", ".join(f"{name} {one['before']} → {one['now'] or 'none'}" for name, one in changes.items())
        print(f"albert: note: the run goes on with {told}: not bit for bit as before", file=sys.stderr)
    return changes
