"""Sums over the parts of tensors that are cut up over processes: a norm is one of the whole tensor."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate


def sum_over_shards(sums: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Add up what each process found for its parts, for all tensors together.

    Args:
        sums: a row for each tensor, [tensors ...].
        parameters: the tensors; rows of those that are whole here stay as they are. All processes must call this.
    """
    kinds = [_cut(parameter) for parameter in parameters]
    total = sums.clone()
    for kind in dict.fromkeys(kinds):
        if kind is None:
            continue
        mesh, is_cut = kind
        rows = torch.tensor([number for number, other in enumerate(kinds) if other == kind], device=sums.device)
        placements = [Partial() if cut else Replicate() for cut in is_cut]
        total[rows] = DTensor.from_local(sums[rows], mesh, placements, run_check=False).full_tensor()
    return total


def _cut(parameter: Tensor) -> tuple[DeviceMesh, tuple[bool, ...]] | None:
    """The mesh of a tensor, and along which of its dimensions processes hold different parts."""
    if not isinstance(parameter, DTensor):
        return None
    return parameter.device_mesh, tuple(not placement.is_replicate() for placement in parameter.placements)
