"""Distributed training under torchrun: process group, sums over ranks, checks that all ranks agree, FSDP2 sharding."""

import copy
import hashlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from typing import TypeVar

import torch
import torch.distributed as torch_distributed
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import albert
from albert.runtime.environment import PEER_TIMEOUT_MINUTES, Ranks, world
from albert.runtime.errors import InvalidConfiguration, TryAgain

_PEER_LOST = re.compile("by peer|broken pipe|socket closed|time(d )?out", re.IGNORECASE)


_GRACE_SECONDS = 5.0
"""A process whose neighbour has ended may be about to end for the same reason, and to say so itself."""


@contextmanager
def process_group(
    device: torch.device, timeout_minutes: float = PEER_TIMEOUT_MINUTES, watch: bool | None = None
) -> Iterator[Ranks]:
    """Join the process group for the length of the block (nothing to join for a single process).

    Args:
        timeout_minutes: how long to wait for another process before it counts as lost.
        watch: end this process, with the exit code of `TryAgain`, as soon as another one has died, whatever it waits
            for; None: on a GPU, where NCCL would notice after the timeout and abort. gloo raises by itself.

    Raises:
        TryAgain: another process ended or cannot be reached.
    """
    ranks = world()
    if ranks.size == 1:
        yield ranks
        return
    backend = "nccl" if device.type == "cuda" else "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)  # or collectives without a tensor guess one from the rank
    try:
        torch_distributed.init_process_group(backend, timeout=timedelta(minutes=timeout_minutes))
        try:
            with _watched(ranks) if watch or (watch is None and device.type == "cuda") else nullcontext():
                yield ranks
        finally:
            torch_distributed.destroy_process_group()
    except RuntimeError as error:
        if isinstance(error, torch_distributed.DistError) or _PEER_LOST.search(str(error)):
            raise TryAgain(
                f"process {ranks.rank}", "lost another one", "see its message; the same command goes on"
            ) from error
        raise


@contextmanager
def _watched(ranks: Ranks) -> Iterator[None]:
    """Each process waits in a thread for a message of the next one, sent at its end, or for its connection to break."""
    group = torch_distributed.new_group(backend="gloo", timeout=timedelta(days=365))
    assert isinstance(group, torch_distributed.ProcessGroup)
    following, before = (ranks.rank + 1) % ranks.size, (ranks.rank - 1) % ranks.size
    ending = Event()

    def wait_for_the_next() -> None:
        try:
            torch_distributed.recv(torch.zeros(1), src=following, group=group)
        except RuntimeError as error:
            if not ending.wait(_GRACE_SECONDS):
                what = TryAgain(f"process {ranks.rank}", f"lost process {following}", "the same command goes on")
                print(f"albert: error: {what} ({error})", file=sys.stderr, flush=True)
                os._exit(TryAgain.exit_code)  # the main thread may wait for NCCL, which nothing interrupts

    watcher = Thread(target=wait_for_the_next, name="watch", daemon=True)
    watcher.start()
    try:
        yield
        torch_distributed.send(torch.ones(1), dst=before, group=group)
        watcher.join()
    finally:
        ending.set()


def replicate(model: nn.Module, ranks: Ranks, device: torch.device) -> nn.Module:
    """Wrap for data parallelism when there is more than one process; gradients are then averaged over ranks.

    A sharded model averages them already.
    """
    if ranks.size == 1 or isinstance(model, FSDPModule):
        return model
    devices = [device.index] if device.type == "cuda" else None
    return DistributedDataParallel(model, device_ids=devices, gradient_as_bucket_view=True)


def sum_over_ranks(values: torch.Tensor, ranks: Ranks) -> torch.Tensor:
    """Element-wise sum over all processes; the argument itself for one."""
    if ranks.size > 1:
        torch_distributed.all_reduce(values)
    return values


def wait_for_all(ranks: Ranks) -> None:
    """Return once every process has come here."""
    if ranks.size > 1:
        torch_distributed.barrier()


# --------------------------------------------------------------------------------------------------------------------
# All ranks need identical arguments: compared once, before the first number is computed.


def require_same_on_ranks(facts: Mapping[str, str], ranks: Ranks, device: torch.device) -> None:
    """Compare what the ranks were given. Only hashes travel."""
    if ranks.size == 1:
        return
    digests = [list(hashlib.sha256(value.encode()).digest()) for value in facts.values()]
    mine = torch.tensor(digests, dtype=torch.uint8, device=device)
    of_all = [torch.empty_like(mine) for _ in range(ranks.size)]
    torch_distributed.all_gather(of_all, mine)
    for number, name in enumerate(facts):
        others = [str(rank) for rank, theirs in enumerate(of_all) if not torch.equal(theirs[number], of_all[0][number])]
        if others:
            remedy = "start all with the same command, and let all see the same files"
            raise InvalidConfiguration(f"rank {', '.join(others)}", f"has another {name} than rank 0", remedy)


def code_fingerprint() -> str:
    """A hash of this package's sources: machines of a cluster may hold different versions."""
    root = Path(albert.__file__).parent
    sums = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        sums.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return sums.hexdigest()


# --------------------------------------------------------------------------------------------------------------------
# One model cut up over all processes: each keeps its share of weights, gradients and moments (FSDP2).
#
# The whole model is one unit. Its shared blocks are applied in every layer and so are never out of use: gathered
# layer by layer they would travel twice L times a step, and fill no less memory meanwhile. As one unit the weights
# are gathered once a step and the gradients reduced once, after the last micro-batch; what is saved is the share of
# the gradients, the masters and the moments that the other processes hold, and of the time the optimiser takes
# (ZeRO, Rajbhandari et al., 2020, §5, stages 1 and 2).
#
# Everything stays in float32: autocast computes in bfloat16 as it does without sharding, so the numbers are the
# same.

Module = TypeVar("Module", bound=nn.Module)


def sharded_copy(model: Module, ranks: Ranks, device: torch.device) -> Module:
    """A model to train whose every tensor is cut up over the processes; the given one stays as it is."""
    mesh = init_device_mesh(device.type, (ranks.size,))
    cut = copy.deepcopy(model)
    fully_shard(cut, mesh=mesh, reshard_after_forward=False, mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.float32))
    return cut


def is_sharded(model: nn.Module) -> bool:
    """Whether `sharded_copy` made it."""
    return isinstance(model, FSDPModule)


def defer_gradient_sync(model: nn.Module, hold: bool) -> None:
    """Keep gradients of a sharded model, and the gathered weights, where they are until the last micro-batch."""
    assert isinstance(model, FSDPModule)
    model.set_requires_gradient_sync(not hold)
    model.set_reshard_after_backward(not hold)


def gather_full(tensor: Tensor) -> Tensor:
    """All of a tensor, on its device. Of one that is cut up every rank gives its share: all must call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shard_like(tensor: Tensor, like: Tensor) -> Tensor:
    """The part of a whole tensor that this rank keeps, in the form and on the device of `like`."""
    tensor = tensor.to(like.device)
    if not isinstance(like, DTensor):
        return tensor
    return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)


@torch.no_grad()
def gather_weights(model: nn.Module, into: nn.Module, ranks: Ranks) -> None:
    """Bring the weights of a sharded model together in a whole one on the first rank. All ranks must call this."""
    for cut, complete in zip(model.parameters(), into.parameters(), strict=True):
        weights = gather_full(cut)
        if ranks.is_first:
            complete.copy_(weights)
