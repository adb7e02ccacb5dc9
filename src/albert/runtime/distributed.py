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
"""A process whose peer has ended may be about to end for the same reason, with a message of its own."""


@contextmanager
def process_group(
    device: torch.device, timeout_minutes: float = PEER_TIMEOUT_MINUTES, watch: bool | None = None
) -> Iterator[Ranks]:
    """Join the process group for the length of the block; raises `TryAgain` if another process ended.

    With `watch` this process ends with the exit code of `TryAgain` as soon as another one has died. The default is to
    watch on a GPU only, where NCCL would notice after the timeout and abort; gloo raises by itself. A block inside
    another one is in the same group: joined a second time, processes may meet addresses of the first group.
    """
    ranks = world()
    if ranks.size == 1 or torch_distributed.is_initialized():
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
                f"process {ranks.rank}", "lost another process", "see its message; the same command resumes"
            ) from error
        raise


@contextmanager
def _watched(ranks: Ranks) -> Iterator[None]:
    """Wait in a thread until the next rank sends its end message; end this process if the connection breaks."""
    group = torch_distributed.new_group(backend="gloo", timeout=timedelta(days=365))
    assert isinstance(group, torch_distributed.ProcessGroup)
    next_rank = (ranks.rank + 1) % ranks.size
    previous_rank = (ranks.rank - 1) % ranks.size
    ending = Event()

    def wait_for_next_rank() -> None:
        try:
            torch_distributed.recv(torch.zeros(1), src=next_rank, group=group)
        except RuntimeError as error:
            if not ending.wait(_GRACE_SECONDS):
                failure = TryAgain(f"process {ranks.rank}", f"lost process {next_rank}", "the same command resumes")
                print(f"albert: error: {failure} ({error})", file=sys.stderr, flush=True)
                os._exit(TryAgain.exit_code)  # the main thread may wait for NCCL, which cannot be interrupted

    watcher = Thread(target=wait_for_next_rank, name="watch", daemon=True)
    watcher.start()
    try:
        yield
        torch_distributed.send(torch.ones(1), dst=previous_rank, group=group)
        watcher.join()
    finally:
        ending.set()


def replicate(model: nn.Module, ranks: Ranks, device: torch.device) -> nn.Module:
    """Wrap for data parallelism, which averages gradients over ranks; a sharded model does so already."""
    if ranks.size == 1 or isinstance(model, FSDPModule):
        return model
    devices = [device.index] if device.type == "cuda" else None
    return DistributedDataParallel(model, device_ids=devices, gradient_as_bucket_view=True)


def sum_over_ranks(values: torch.Tensor, ranks: Ranks) -> torch.Tensor:
    """Element-wise sum over all ranks, in place."""
    if ranks.size > 1:
        torch_distributed.all_reduce(values)
    return values


def wait_for_all(ranks: Ranks) -> None:
    """Return once every rank has called this."""
    if ranks.size > 1:
        torch_distributed.barrier()


# --------------------------------------------------------------------------------------------------------------------
# All ranks need identical arguments: compared once, before the first number is computed.


def require_same_on_ranks(facts: Mapping[str, str], ranks: Ranks, device: torch.device) -> None:
    """Refuse ranks whose values differ from those of rank 0. Only hashes are sent."""
    if ranks.size == 1:
        return
    digests = [list(hashlib.sha256(value.encode()).digest()) for value in facts.values()]
    own = torch.tensor(digests, dtype=torch.uint8, device=device)
    gathered = [torch.empty_like(own) for _ in range(ranks.size)]
    torch_distributed.all_gather(gathered, own)
    for row, name in enumerate(facts):
        differing = [str(rank) for rank, rows in enumerate(gathered) if not torch.equal(rows[row], gathered[0][row])]
        if differing:
            remedy = "start all with the same command and the same files"
            raise InvalidConfiguration(f"rank {', '.join(differing)}", f"has another {name} than rank 0", remedy)


def code_fingerprint() -> str:
    """A hash of this package's sources: machines of a cluster may have different versions."""
    root = Path(albert.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


# --------------------------------------------------------------------------------------------------------------------
# One model sharded over all ranks: weights, gradients and moments (FSDP2).
#
# The whole model is one FSDP unit. Its shared blocks are applied in every layer: gathered layer by layer they would be
# sent 2 L times a step and save no memory. As one unit the weights are gathered once a step and the gradients reduced
# once, after the last micro-batch. This saves memory for gradients, master weights and moments, and time of the
# optimizer (ZeRO, Rajbhandari et al., 2020, §5, stages 1 and 2).
#
# Everything stays in float32 and autocast computes in bfloat16, as without sharding, so the results are the same.

Module = TypeVar("Module", bound=nn.Module)


def sharded_copy(model: Module, ranks: Ranks, device: torch.device) -> Module:
    """A copy of a model to train, with every tensor sharded over the ranks."""
    mesh = init_device_mesh(device.type, (ranks.size,))
    sharded = copy.deepcopy(model)
    policy = MixedPrecisionPolicy(reduce_dtype=torch.float32)
    fully_shard(sharded, mesh=mesh, reshard_after_forward=False, mp_policy=policy)
    return sharded


def is_sharded(model: nn.Module) -> bool:
    """Return whether the model comes from `sharded_copy`."""
    return isinstance(model, FSDPModule)


def defer_gradient_sync(model: nn.Module, defer: bool) -> None:
    """Set whether to keep gradients and gathered weights of a sharded model local: True before the last micro-batch."""
    assert isinstance(model, FSDPModule)
    model.set_requires_gradient_sync(not defer)
    model.set_reshard_after_backward(not defer)


def gather_full(tensor: Tensor) -> Tensor:
    """The full tensor, on its device. For a sharded tensor all ranks must call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shard_like(tensor: Tensor, like: Tensor) -> Tensor:
    """This rank's shard of a full tensor, on the device of `like`; the full tensor if `like` is not sharded."""
    tensor = tensor.to(like.device)
    if not isinstance(like, DTensor):
        return tensor
    return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)


@torch.no_grad()
def gather_weights(model: nn.Module, into: nn.Module, ranks: Ranks) -> None:
    """Copy the weights of a sharded model into a full one on the first rank. All ranks must call this."""
    for sharded, full in zip(model.parameters(), into.parameters(), strict=True):
        weights = gather_full(sharded)
        if ranks.is_first:
            full.copy_(weights)
