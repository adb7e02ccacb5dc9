"""What bit-identity rests on beside recipe and data, and a word when it is not as it was."""

import sys
from collections.abc import Mapping

import torch
from torch import nn

from albert.runtime.distributed import World
from albert.runtime.sharding import is_sharded


def circumstances(here: World, device: torch.device, model: nn.Module) -> dict[str, str | int]:
    """How this process computes."""
    return {
        "torch": torch.__version__,
        "device": device.type,
        "threads": torch.get_num_threads(),
        "world_size": here.size,
        "parallelism": "sharded" if is_sharded(model) else "data",
    }


def note_changes(before: Mapping[str, str | int], now: Mapping[str, str | int], here: World) -> None:
    """Say so when a run goes on under circumstances that may change the last bits of its numbers."""
    changes = [f"{name} {before[name]} → {now[name]}" for name in before if before[name] != now.get(name)]
    if changes and here.is_first:
        print(f"albert: note: the run goes on with {', '.join(changes)}: not bit for bit as before", file=sys.stderr)
