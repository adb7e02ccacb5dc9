"""One tensor to be moved, as this process holds it: weight, gradient and moments."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

ROOM = 1 << 24
"""Numbers of updates in memory at a time: those of all of ALBERT-base and -large."""


@dataclass(frozen=True, eq=False)
class Slot:
    """What an update of one tensor reads and writes."""

    parameter: Tensor
    """As the model has it: whole, or cut up over processes."""
    weight: Tensor
    """This process's part of it, and so of the others."""
    gradient: Tensor
    """Contiguous."""
    mean: Tensor
    """First moment."""
    square: Tensor
    """Second moment."""
    step: Tensor
    """How many updates it has had with this one, on the CPU."""

    @property
    def is_flat(self) -> bool:
        """Whether it lies in the memory of the processor as one row of numbers."""
        parts = (self.weight, self.mean, self.square)
        return self.weight.device.type == "cpu" and all(part.is_contiguous() for part in parts)


def local_part(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor: the same memory, without history."""
    return tensor.to_local().detach() if isinstance(tensor, DTensor) else tensor.detach()


def batches(slots: Sequence[Slot]) -> Iterator[list[Slot]]:
    """Tensors of one precision together, as many as the memory for updates holds: `ROOM`, or the largest tensor.

    All processes batch alike, whatever their parts.
    """
    kinds: dict[tuple[torch.device, torch.dtype], list[Slot]] = {}
    for slot in slots:
        kinds.setdefault((slot.weight.device, slot.weight.dtype), []).append(slot)
    for alike in kinds.values():
        room = max(ROOM, *(slot.parameter.numel() for slot in alike))
        batch: list[Slot] = []
        left = room
        for slot in alike:
            left -= slot.parameter.numel()
            if left < 0:
                yield batch
                batch, left = [], room - slot.parameter.numel()
            batch.append(slot)
        yield batch
