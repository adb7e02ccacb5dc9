"""One optimizer update, the interface of batches and objectives, and the detection of divergence.

The losses of all micro-batches and ranks are summed and divided once; then gradients are clipped, checked and applied.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from albert.runtime.devices import autocast, dropout_generator, parallel_map
from albert.runtime.distributed import defer_gradient_sync, gather_full, is_sharded, sum_over_ranks
from albert.runtime.environment import Precision, Ranks
from albert.runtime.errors import Diverged
from albert.runtime.random_streams import stream_key

# --------------------------------------------------------------------------------------------------------------------
# Interfaces of the training loop: batches by step, and objectives that return sums of losses.
#
# Every loss term is a SUM over its items, with the number of items known before the forward pass. The loop divides
# once, by the count over all micro-batches and ranks, so neither accumulation nor world size changes the numbers.


@runtime_checkable
class Batch(Protocol):
    """A micro-batch."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of items of each loss term, for instance {"masked_tokens": 154, "sentence_order": 16}."""
        ...

    @property
    def n_tokens(self) -> int:
        """Number of tokens that pass through the model."""
        ...

    def to(self, device: torch.device) -> "Batch":
        """A copy of the batch on a device."""
        ...


@runtime_checkable
class BatchSource(Protocol):
    """Training data as a pure function of the step."""

    def micro_batches(self, step: int, rank: int, world_size: int) -> Sequence[Batch]:
        """Micro-batches (at least one) of a rank for update `step`."""
        ...


@dataclass(frozen=True)
class Sums:
    """Sums over the items of a micro-batch, by loss term."""

    losses: Mapping[str, Tensor]
    """Differentiable sums of losses; the training loss is the sum over terms of sum / count."""
    correct: Mapping[str, Tensor] = field(default_factory=dict)
    """Number of correct predictions, for the accuracies shown while training."""

    def plus(self, more: "Sums") -> "Sums":
        """Both together, without autograd history."""
        return Sums(_added(self.losses, more.losses), _added(self.correct, more.correct))


def _added(these: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> dict[str, Tensor]:
    added = dict(these)
    for name, other in others.items():
        added[name] = these[name] + other.detach() if name in these else other.detach()
    return added


@runtime_checkable
class Objective(Protocol):
    """A model's loss on a micro-batch."""

    def __call__(self, model: nn.Module, batch: Batch) -> Sums:
        """Run the model once and sum up. `model` may be wrapped for data parallelism: only call it."""
        ...


@dataclass(frozen=True)
class NonFinite:
    """A number that is not finite, which is the reason to reject an update."""

    subject: str
    why: str

    def __str__(self) -> str:
        return f"{self.subject} {self.why}"


@dataclass(frozen=True)
class UpdateMetrics:
    """Metrics of one update, summed over all ranks."""

    losses: Mapping[str, float]
    """Sum of losses by term."""
    counts: Mapping[str, int]
    """Number of items by term."""
    correct: Mapping[str, float]
    """Number of correct predictions by term."""
    tokens: int
    gradient_norm: float
    """Global norm before clipping."""
    flags: tuple[float, ...]
    """Sums over the ranks; for a decision, the number of ranks on which it was true."""
    non_finite: NonFinite | None = None
    """Why the update was skipped; None: it was taken."""

    @property
    def loss(self) -> float:
        """The training loss: the sum over terms of their means."""
        return sum(total / self.counts[name] for name, total in self.losses.items() if self.counts[name])


def find_non_finite(metrics: UpdateMetrics) -> NonFinite | None:
    """The loss or gradient norm that is not finite; None if all are."""
    for name, value in (*metrics.losses.items(), ("gradient norm", metrics.gradient_norm)):
        if not math.isfinite(value):
            return NonFinite(name, f"is {value}")
    return None


def update(
    model: nn.Module,
    optimizer: Optimizer,
    batches: Sequence[Batch],
    objective: Objective,
    *,
    learning_rate: float,
    **settings: Any,
) -> UpdateMetrics:
    """Take one optimiser step, or skip it on all ranks, which leaves weights and moments unchanged.

    Args:
        batches: this rank's micro-batches of the step.
        settings: as of `_gradients`.
    """
    metrics = _gradients(model, batches, objective, **settings, delayed=False).read()
    non_finite = find_non_finite(metrics)
    if non_finite is None:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return replace(metrics, non_finite=non_finite)


def update_without_waiting(
    model: nn.Module,
    optimizer: Optimizer,
    batches: Sequence[Batch],
    objective: Objective,
    *,
    learning_rate: float,
    **settings: Any,
) -> "PendingMetrics":
    """Take one step as `update` does without waiting for the device.

    If a loss or the gradient norm is not finite, the device itself skips the step: the optimiser must support
    `found_inf`, as torch's fused ones and `Lamb` do. The metrics are read after the next update is launched.
    """
    pending = _gradients(model, batches, objective, **settings, delayed=True)
    optimizer.found_inf = (~pending.totals.isfinite().all()).float()  # type: ignore[attr-defined]
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    optimizer.step()
    optimizer.found_inf = None  # type: ignore[attr-defined]
    optimizer.zero_grad(set_to_none=True)
    return pending.copied_to_host()


@dataclass(frozen=True)
class PendingMetrics:
    """Metrics of an update that the device may still be computing."""

    sums: Sums
    """Of this rank."""
    totals: Float64[Tensor, " sums"]
    """The sums of losses and correct predictions, and the gradient norm, over all ranks."""
    names: tuple[str, ...]
    counted: Float64[Tensor, " counts"]
    """The number of items by name, then flags, over all ranks."""
    copied: torch.cuda.Event | None = None
    """When the two tensors are on the host."""

    def copied_to_host(self) -> "PendingMetrics":
        """The same, with a copy to the host on its way; GPUs only."""
        if self.totals.device.type != "cuda":
            return self
        totals, counted = (
            torch.empty(len(t), dtype=t.dtype, pin_memory=True).copy_(t, non_blocking=True)
            for t in (self.totals, self.counted)
        )
        copied = torch.cuda.Event()
        copied.record()
        return replace(self, totals=totals, counted=counted, copied=copied)

    def read(self) -> UpdateMetrics:
        """Wait for the update and return its metrics."""
        if self.copied is not None:
            self.copied.synchronize()
        totals = iter(self.totals.tolist())
        counted = iter(self.counted.tolist())
        counts = {name: int(number) for name, number in zip(self.names, counted, strict=False)}
        metrics = UpdateMetrics(
            losses=dict(zip(self.sums.losses, totals, strict=False)),
            counts={name: counts[name] for name in self.sums.losses},
            correct=dict(zip(self.sums.correct, totals, strict=False)),
            tokens=counts["tokens"],
            gradient_norm=next(totals),
            flags=tuple(counted),
        )
        return replace(metrics, non_finite=find_non_finite(metrics))


def _gradients(
    model: nn.Module,
    batches: Sequence[Batch],
    objective: Objective,
    *,
    clip_norm: float,
    precision: Precision,
    device: torch.device,
    ranks: Ranks,
    flags: tuple[float, ...] = (),
    workers: int = 1,
    delayed: bool,
) -> PendingMetrics:
    """Compute and clip the gradients of all micro-batches of all ranks.

    Args:
        clip_norm: maximum global gradient norm.
        flags: numbers to sum over all ranks.
        workers: threads that compute micro-batches in parallel; see `training_workers`.
        delayed: whether not to wait for the counts of other ranks.
    """
    own = Counter(tokens=sum(batch.n_tokens for batch in batches))
    for batch in batches:
        own.update(batch.counts)
    on_gpu = device.type == "cuda" and ranks.size > 1
    counted = torch.tensor([*own.values(), *flags], dtype=torch.float64, pin_memory=on_gpu)
    divisors: dict[str, int | Tensor] = {name: max(count, 1) for name, count in own.items()}
    if ranks.size > 1:
        counted = sum_over_ranks(counted.to(device, non_blocking=True), ranks)
        over_ranks = {name: counted[index].clamp(min=1) for index, name in enumerate(own)}
        divisors = {name: count if delayed else int(count) for name, count in over_ranks.items()}

    def compute(batch: Batch) -> tuple[Sums, Tensor]:
        """The sums of a micro-batch, and its loss: terms without items are 0 but included, as every rank needs a
        gradient for every tensor."""
        with autocast(device, precision):
            sums = objective(model, batch)
        return sums, torch.stack([loss / divisors[name] for name, loss in sums.losses.items()]).sum()

    if workers > 1 and len(batches) > 1:
        sums, norm = _by_workers(model, batches, compute, clip_norm, workers)
    else:
        sums = Sums({})
        for index, batch in enumerate(batches):
            with _communication(model, last=index == len(batches) - 1):
                more, loss = compute(batch.to(device))
                (loss * ranks.size).backward()  # data parallelism averages gradients over ranks; this gives their sum
            sums = sums.plus(more)
        norm = gather_full(nn.utils.clip_grad_norm_(model.parameters(), clip_norm)).double()
    # The norm, too, is summed, so that it has the same bits on all ranks.
    values = (*sums.losses.values(), *sums.correct.values(), norm / ranks.size)
    totals = sum_over_ranks(torch.stack([value.double() for value in values]), ranks)
    return PendingMetrics(sums, totals, tuple(own), counted)


def _communication(model: nn.Module, last: bool) -> AbstractContextManager:
    """Context that exchanges gradients between ranks only with the last micro-batch of a step."""
    if isinstance(model, DistributedDataParallel) and not last:
        return model.no_sync()
    if is_sharded(model):
        defer_gradient_sync(model, not last)
    return nullcontext()


# --------------------------------------------------------------------------------------------------------------------
# Gradients on a CPU by single-threaded workers, which synchronise once per update and not in every operation of the
# model: another process that takes a core slows training by its share, not by a wait at each operation.
#
# The assignment of batches and the order of every sum depend on the batches and the number of workers alone. Dropout
# uses a generator per micro-batch, seeded from torch's global one.

CHUNK = 1 << 18
"""Elements of a gradient that are summed at a time."""


def training_workers(device: torch.device, ranks: Ranks) -> int:
    """Number of workers: torch's number of threads on a CPU with a single process, else 1."""
    return torch.get_num_threads() if device.type == "cpu" and ranks.size == 1 else 1


def equal_parts(lengths: np.ndarray, parts: int) -> list[slice]:
    """Split consecutive sequences into parts with about equal numbers of tokens; fewer if there are fewer sequences.

    Args:
        lengths: int [sequences], number of tokens of each.
    """
    ends = np.concatenate(([0], np.cumsum(lengths)))
    targets = ends[-1] * np.arange(1, parts) / parts
    after = np.searchsorted(ends, targets).clip(1)
    cuts = np.where(ends[after] - targets <= targets - ends[after - 1], after, after - 1)
    bounds = np.unique([0, *cuts, len(lengths)]).tolist()
    return [slice(*bound) for bound in pairwise(bounds)]


def assign_batches(batches: Sequence[Batch], workers: int) -> list[list[tuple[int, Batch]]]:
    """Assign numbered micro-batches to workers: the longest first, each to the worker with the fewest tokens so far."""
    assigned: list[list[tuple[int, Batch]]] = [[] for _ in range(min(workers, len(batches)))]
    tokens = [0] * len(assigned)
    for number, batch in sorted(enumerate(batches), key=lambda numbered: (-numbered[1].n_tokens, numbered[0])):
        worker = tokens.index(min(tokens))
        assigned[worker].append((number, batch))
        tokens[worker] += batch.n_tokens
    return assigned


def _by_workers(
    model: nn.Module,
    batches: Sequence[Batch],
    compute: Callable[[Batch], tuple[Sums, Tensor]],
    clip_norm: float,
    workers: int,
) -> tuple[Sums, Tensor]:
    """Set and clip the gradients of all micro-batches; returns the sums, and the gradient norm before clipping."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    seed = int(torch.empty((), dtype=torch.int64).random_())

    def work(assigned: Sequence[tuple[int, Batch]]) -> tuple[Sums, list[Tensor | None]]:
        sums = Sums({})
        gradients: list[Tensor | None] = [None] * len(parameters)
        for number, batch in assigned:
            with dropout_generator(stream_key("dropout", seed, number) >> 64):
                more, loss = compute(batch)
                gradients_of_batch = torch.autograd.grad(loss, parameters, allow_unused=True)
            for index, gradient in enumerate(_unshare(gradients_of_batch)):
                total = gradients[index]
                if total is None:
                    gradients[index] = gradient
                elif gradient is not None:
                    total.add_(gradient)
            sums = sums.plus(more)
        return sums, gradients

    sums = Sums({})
    gradients = []
    for more, gradients_of_worker in parallel_map(work, assign_batches(batches, workers)):
        sums = sums.plus(more)
        gradients.append(gradients_of_worker)
    return sums, _sum_and_clip(parameters, gradients, clip_norm)


def _unshare(gradients: Sequence[Tensor | None]) -> Iterator[Tensor | None]:
    """Gradients that can be written to: autograd may return the same tensor, or views of one, for two parameters."""
    seen: set[int] = set()
    for gradient in gradients:
        if gradient is not None:
            address = gradient.untyped_storage().data_ptr()
            if address in seen or not gradient.is_contiguous():
                gradient = gradient.clone(memory_format=torch.contiguous_format)
            seen.add(address)
        yield gradient


def _sum_and_clip(
    parameters: Sequence[nn.Parameter], gradients: Sequence[Sequence[Tensor | None]], clip_norm: float
) -> Tensor:
    """Set and clip the gradients, summed over workers; returns their norm before clipping (float64)."""
    chunks: list[tuple[Tensor, ...]] = []
    for parameter, *by_worker in zip(parameters, *gradients, strict=True):
        summands = [gradient for gradient in by_worker if gradient is not None]
        if summands:
            parameter.grad = summands[0]
            chunks += zip(*(gradient.view(-1).split(CHUNK) for gradient in summands), strict=True)

    def add_up(chunk: tuple[Tensor, ...]) -> Tensor:
        total, *others = chunk
        for other in others:
            total += other
        return torch.linalg.vector_norm(total)

    norm = torch.linalg.vector_norm(torch.stack(parallel_map(add_up, chunks)))
    if not norm <= clip_norm:
        scale = float(clip_norm / (norm + 1e-6))  # as `nn.utils.clip_grad_norm_`
        parallel_map(lambda chunk: chunk[0].mul_(scale), chunks)
    return norm.double()


# --------------------------------------------------------------------------------------------------------------------
# Divergence: detection, and the history of skipped updates and rollbacks.
#
# An update is judged before the optimiser's step, by sums over all ranks, so that all ranks decide alike: a loss or a
# gradient norm that is not finite. The run then stops, or skips the update, or returns to its newest checkpoint and
# skips the data seen since then. Skipped steps and data are part of the training state: together with the seed and the
# data they determine the weights.

Reaction = Literal["stop", "skip", "rollback"]
MAX_CONSECUTIVE_SKIPS = 10


@dataclass(frozen=True)
class Rollback:
    """A rollback to a checkpoint."""

    step: int
    """Step of the checkpoint."""
    batches: int
    """Number of batches skipped from then on."""


@dataclass(kw_only=True)
class DivergenceHistory:
    """Skipped updates and rollbacks so far; part of the training state."""

    skipped: tuple[int, ...] = ()
    """Numbers of the skipped updates, from 0."""
    rollbacks: tuple[Rollback, ...] = ()

    @property
    def skipped_batches(self) -> int:
        """Offset from the number of a step to the number of its batch."""
        return sum(rollback.batches for rollback in self.rollbacks)

    def skip(self, step: int, non_finite: NonFinite) -> None:
        """Record update `step` as skipped.

        Raises:
            Diverged: too many updates in a row were skipped.
        """
        self.skipped = (*self.skipped, step)
        if self.skipped[-MAX_CONSECUTIVE_SKIPS - 1 :] == tuple(range(step - MAX_CONSECUTIVE_SKIPS, step + 1)):
            raise diverged(non_finite, f"{MAX_CONSECUTIVE_SKIPS} updates before it were skipped")

    def with_rollback(self, step: int, back_to: int, non_finite: NonFinite, most: int) -> tuple[Rollback, ...]:
        """The rollbacks, with another one from step `step` to the checkpoint of step `back_to`.

        Raises:
            Diverged: there were `most` rollbacks already.
        """
        if len(self.rollbacks) >= most:
            raise diverged(non_finite, f"{most} rollbacks did not help")
        return (*self.rollbacks, Rollback(back_to, step - back_to))


def diverged(non_finite: NonFinite, when: str = "nothing of this step entered the weights") -> Diverged:
    """The error that ends a run."""
    remedy = "lower the learning rate, lengthen the warm-up, or use precision=fp32; the last checkpoint is good"
    return Diverged(non_finite.subject, f"{non_finite.why}: training diverged, {when}", remedy)


def non_finite_state(model: nn.Module, optimizer: Optimizer) -> NonFinite | None:
    """The weight or moment of this rank that is not finite (the square of a finite gradient may overflow), or None."""
    tensors: dict[str, Tensor] = dict(model.named_parameters())
    for name, parameter in model.named_parameters():
        moments = optimizer.state.get(parameter, {})
        tensors |= {f"{key} of {name}": value for key, value in moments.items() if isinstance(value, Tensor)}
    for name, tensor in tensors.items():
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor.detach()
        if not bool(torch.isfinite(local).all()):
            return NonFinite(name, "holds numbers that are not finite")
    return None
