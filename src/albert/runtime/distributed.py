"""One process or many, started by torchrun: who am I, and sums over all of us."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as torch_distributed
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from albert.runtime.errors import TryAgain
from albert.runtime.world import PEER_TIMEOUT_MINUTES, World, world

_PEER_LOST = re.compile("by peer|time(d )?out", re.IGNORECASE)


@contextmanager
def process_group(device: torch.device, timeout_minutes: float = PEER_TIMEOUT_MINUTES) -> Iterator[World]:
    """Join the process group for the length of the block (nothing to join for a single process).

    Args:
        device: where this process computes.
        timeout_minutes: how long to wait for another process before it counts as lost.

    Raises:
        TryAgain: another process ended or cannot be reached.
    """
    here = world()
    if here.size == 1:
        yield here
        return
    backend = "nccl" if device.type == "cuda" else "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)  # or collectives without a tensor guess one from the rank
    try:
        torch_distributed.init_process_group(backend, timeout=timedelta(minutes=timeout_minutes))
        try:
            yield here
        finally:
            torch_distributed.destroy_process_group()
    except RuntimeError as error:
        if isinstance(error, torch_distributed.DistError) or _PEER_LOST.search(str(error)):
            raise TryAgain(
                f"process {here.rank}", "lost another one", "see its message; the same command goes on"
            ) from error
        raise


def replicate(model: nn.Module, here: World, device: torch.device) -> nn.Module:
    """Wrap for data parallelism when there is more than one process; gradients are then averaged over ranks.

    A sharded model averages them already.
    """
    if here.size == 1 or isinstance(model, FSDPModule):
        return model
    devices = [device.index] if device.type == "cuda" else None
    return DistributedDataParallel(model, device_ids=devices, gradient_as_bucket_view=True)


def sum_over_ranks(values: torch.Tensor, here: World) -> torch.Tensor:
    """Element-wise sum over all processes; the argument itself for one."""
    if here.size > 1:
        torch_distributed.all_reduce(values)
    return values


def wait_for_all(here: World) -> None:
    """Return once every process has come here."""
    if here.size > 1:
        torch_distributed.barrier()
