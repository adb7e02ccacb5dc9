"""LAMB's update as its formula reads, for a batch of tensors at once: on a GPU, and where tensors are not flat."""

# pyright: reportPrivateImportUsage=false
# torch's operations on lists of tensors, on which its own optimisers stand, begin with an underscore.

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from albert.optim.slots import Slot


class PlainUpdates:
    """Updates of any tensors by torch's operations on lists; nothing waits for the device."""

    def advance(self, slots: Sequence[Slot], group: dict[str, Any]) -> tuple[list[Tensor], Tensor]:
        """Move the moments; return the updates u, and of each tensor ‖w‖² and ‖u‖² (float64 [tensors 2])."""
        updates = _updates(slots, group)
        norms = [
            torch.stack(torch._foreach_norm(tensors, 2, dtype=torch.float64))
            for tensors in ([slot.weight for slot in slots], updates)
        ]
        return updates, torch.stack(norms, dim=1).square()

    def apply(self, slots: Sequence[Slot], updates: list[Tensor], scales: Tensor) -> None:
        """Subtract from each tensor its update times its scale."""
        torch._foreach_mul_(updates, scales.unbind())
        torch._foreach_sub_([slot.weight for slot in slots], updates)

    def move(self, slots: Sequence[Slot], group: dict[str, Any]) -> None:
        """Move moments and weights, without a trust ratio."""
        torch._foreach_add_([slot.weight for slot in slots], _updates(slots, group), alpha=-group["lr"])


def _updates(slots: Sequence[Slot], group: dict[str, Any]) -> list[Tensor]:
    beta1, beta2 = group["betas"]
    gradients = [slot.gradient.to(slot.weight.dtype) for slot in slots]
    means, squares = [slot.mean for slot in slots], [slot.square for slot in slots]
    torch._foreach_lerp_(means, gradients, 1 - beta1)
    torch._foreach_mul_(squares, beta2)
    torch._foreach_addcmul_(squares, gradients, gradients, value=1 - beta2)
    denominators = torch._foreach_sqrt(squares)
    if group["bias_correction"]:
        torch._foreach_div_(denominators, [(1 - beta2 ** float(slot.step)) ** 0.5 for slot in slots])
    torch._foreach_add_(denominators, group["eps"])
    updates = torch._foreach_div(means, denominators)
    if group["bias_correction"]:
        torch._foreach_div_(updates, [1 - beta1 ** float(slot.step) for slot in slots])
    if group["weight_decay"]:
        torch._foreach_add_(updates, [slot.weight for slot in slots], alpha=group["weight_decay"])
    return list(updates)
