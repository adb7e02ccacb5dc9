"""One model cut up over all processes: each keeps its share of weights, gradients and moments (FSDP2).

The whole model is one unit. Its shared blocks are applied in every layer and so are never out of use: gathered layer by
layer they would travel twice L times a step, and fill no less memory meanwhile. As one unit the weights are gathered
once a step and the gradients reduced once, after the last micro-batch; what is saved is the share of the gradients,
the masters and the moments that the other processes hold, and of the time the optimiser takes (ZeRO, Rajbhandari et
al., 2020, §5, stages 1 and 2).

Everything stays in float32: autocast computes in bfloat16 as it does without sharding, so the numbers are the same.
"""

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from albert.runtime.world import World

Module = TypeVar("Module", bound=nn.Module)


def sharded_copy(model: Module, here: World, device: torch.device) -> Module:
    """A model to train whose every tensor is cut up over the processes; the given one stays as it is.

    Args:
        model: the same on all ranks, on the CPU.
        here: one of several processes in a process group.
        device: where this process computes.
    """
    mesh = init_device_mesh(device.type, (here.size,))
    cut = copy.deepcopy(model)
    fully_shard(cut, mesh=mesh, reshard_after_forward=False, mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.float32))
    return cut


def is_sharded(model: nn.Module) -> bool:
    """Whether `sharded_copy` made it."""
    return isinstance(model, FSDPModule)


def hold_gradients(model: nn.Module, hold: bool) -> None:
    """Keep gradients of a sharded model, and the gathered weights, where they are until the last micro-batch."""
    assert isinstance(model, FSDPModule)
    model.set_requires_gradient_sync(not hold)
    model.set_reshard_after_backward(not hold)


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor, on its device. Of one that is cut up every rank gives its share: all must call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def share_of(tensor: Tensor, like: Tensor) -> Tensor:
    """The part of a whole tensor that this rank keeps, in the form and on the device of `like`."""
    tensor = tensor.to(like.device)
    if not isinstance(like, DTensor):
        return tensor
    return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)


@torch.no_grad()
def gather_weights(model: nn.Module, into: nn.Module, here: World) -> None:
    """Bring the weights of a sharded model together in a whole one on the first rank. All ranks must call this."""
    for cut, complete in zip(model.parameters(), into.parameters(), strict=True):
        weights = whole(cut)
        if here.is_first:
            complete.copy_(weights)
