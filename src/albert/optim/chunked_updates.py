"""LAMB's update on a CPU, chunk by chunk, so that each number comes from memory as rarely as it can.

An operation on a whole tensor reads and writes memory, and plain LAMB has a dozen of them. Here all that the first pass
does to a chunk happens while it is in the cache: new moments, u and both norms (32 bytes a parameter in float32). The
second pass adds u, scaled, to the weights (12 bytes). u is kept meanwhile: computing it again would take longer than
reading it.

Every operation sees one whole chunk and runs in one thread, so that the bits of the result are the same for any number
of threads.
"""

# pyright: reportPrivateImportUsage=false
# torch's fused AdamW begins with an underscore outside of its class, which cannot go through a tensor in chunks.

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from albert.optim.slots import Slot
from albert.optim.threads import share_out

CHUNK = 1 << 18
"""Numbers in a chunk: five of them (w, g, m, v, u) share the cache, and Python's part of the time is small."""

_STEP_WITHOUT_BIAS = torch.tensor(2.0**62)
"""After so many steps 1 − βᵗ is 1 for every β below 1."""


class ChunkedUpdates:
    """Updates of flat tensors, in memory that is kept from step to step."""

    def __init__(self) -> None:
        self._kept: dict[torch.dtype, Tensor] = {}

    def advance(self, slots: Sequence[Slot], group: dict[str, Any]) -> tuple[list[Tensor], Tensor]:
        """Move the moments; return the updates u, and of each tensor ‖w‖² and ‖u‖² (float64 [tensors 2])."""
        updates = self._room(slots)
        # AdamW takes w to (1 − η λ') w − η m / (√v + ε), which is u for η = −1 and λ' = λ − 1.
        adamw = _fused_adamw(group, lr=-1.0, weight_decay=group["weight_decay"] - 1)

        def first_pass(chunk: tuple[Slot, Sequence[Tensor]]) -> tuple[float, float]:
            slot, (weight, gradient, mean, square, update) = chunk
            update.copy_(weight)
            adamw(update, gradient, mean, square, slot.step)
            return _squared_norm(weight), _squared_norm(update)

        chunks = [
            (slot, chunk)
            for slot, update in zip(slots, updates, strict=True)
            for chunk in _chunks(slot.weight, slot.gradient, slot.mean, slot.square, update)
        ]
        sums = {slot: (0.0, 0.0) for slot in slots}
        for (slot, _), (of_weight, of_update) in zip(chunks, share_out(first_pass, chunks), strict=True):
            sums[slot] = sums[slot][0] + of_weight, sums[slot][1] + of_update
        return updates, torch.tensor(list(sums.values()), dtype=torch.float64)

    def apply(self, slots: Sequence[Slot], updates: list[Tensor], scales: Tensor) -> None:
        """Subtract from each tensor its update times its scale."""

        def second_pass(chunk: tuple[float, Sequence[Tensor]]) -> None:
            scale, (weight, update) = chunk
            weight.add_(update, alpha=-scale)

        chunks = [
            (scale, chunk)
            for slot, update, scale in zip(slots, updates, scales.tolist(), strict=True)
            for chunk in _chunks(slot.weight, update)
        ]
        share_out(second_pass, chunks[::-1])  # what the first pass saw last is still in the cache

    def move(self, slots: Sequence[Slot], group: dict[str, Any]) -> None:
        """Move moments and weights in one pass, without a trust ratio: this is AdamW."""
        adamw = _fused_adamw(group, lr=group["lr"], weight_decay=group["weight_decay"])
        chunks = [
            (*chunk, slot.step)
            for slot in slots
            for chunk in _chunks(slot.weight, slot.gradient, slot.mean, slot.square)
        ]
        share_out(lambda chunk: adamw(*chunk), chunks)

    def _room(self, slots: Sequence[Slot]) -> list[Tensor]:
        sizes = [slot.weight.numel() for slot in slots]
        dtype = slots[0].weight.dtype
        kept = self._kept.get(dtype)
        if kept is None or kept.numel() < sum(sizes):
            kept = self._kept[dtype] = torch.empty(sum(sizes), dtype=dtype)
        rows = kept[: sum(sizes)].split(sizes)
        return [row.view(slot.weight.shape) for row, slot in zip(rows, slots, strict=True)]


def _chunks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Neighbouring numbers of tensors of one shape, side by side."""
    if tensors[0].numel() <= CHUNK:
        return iter([tensors])
    return zip(*(tensor.view(-1).split(CHUNK) for tensor in tensors), strict=True)


def _fused_adamw(group: dict[str, Any], lr: float, weight_decay: float) -> Callable[..., None]:
    """torch's own AdamW as one operation on a chunk: it moves `weight`, `mean` and `square`."""
    beta1, beta2 = group["betas"]

    def move(weight: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, step: Tensor) -> None:
        torch._fused_adamw_(
            [weight],
            [gradient.to(weight.dtype)],
            [mean],
            [square],
            [],
            [step if group["bias_correction"] else _STEP_WITHOUT_BIAS],
            lr=lr,
            beta1=beta1,
            beta2=beta2,
            weight_decay=weight_decay,
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
        )

    return move


def _squared_norm(chunk: Tensor) -> float:
    norm = float(torch.linalg.vector_norm(chunk, dtype=torch.promote_types(chunk.dtype, torch.float32)))
    if not 1e-12 < norm < math.inf:  # squares beyond the range of float32
        norm = float(torch.linalg.vector_norm(chunk, dtype=torch.float64))
    return norm**2
