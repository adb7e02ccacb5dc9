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
    def kind(self) -> tuple[torch.device, torch.dtype, bool]:
        """Where it lies, as what numbers, and whether as one row of them."""
        parts = (self.weight, self.mean, self.square)
        return self.weight.device, self.weight.dtype, all(part.is_contiguous() for part in parts)


def local_part(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor: the same memory, without history."""
    return tensor.to_local().detach() if isinstance(tensor, DTensor) else tensor.detach()


def batches(slots: Sequence[Slot]) -> Iterator[list[Slot]]:
    """Tensors of one kind together, as many as the memory for their updates holds: `ROOM`, or the largest tensor.

    All processes batch alike, whatever their parts.
    """
    kinds: dict[object, list[Slot]] = {}
    for slot in slots:
        kinds.setdefault(slot.kind, []).append(slot)
    for alike in kinds.values():
        room = max(ROOM, *(slot.parameter.numel() for slot in alike))
        batch: list[Slot] = []
        for slot in alike:
            if batch and sum(other.parameter.numel() for other in [*batch, slot]) > room:
                yield batch
                batch = []
            batch.append(slot)
        yield batch
