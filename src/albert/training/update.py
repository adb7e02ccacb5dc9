"""One optimiser update: sums of losses over all micro-batches and ranks, divided once, clipped, judged, applied."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from albert.runtime.devices import autocast
from albert.runtime.distributed import sum_over_ranks
from albert.runtime.precisions import Precision
from albert.runtime.sharding import hold_gradients, is_sharded, whole
from albert.runtime.world import World
from albert.training.objective import Batch, Objective


@dataclass(frozen=True)
class Alarm:
    """Why an update is not to be taken."""

    subject: str
    why: str

    def __str__(self) -> str:
        return f"{self.subject} {self.why}"


@dataclass(frozen=True)
class UpdateFigures:
    """What one update was like, over all ranks."""

    losses: Mapping[str, float]
    """Sums of losses by term."""
    counts: Mapping[str, int]
    """Items by term."""
    correct: Mapping[str, float]
    """Items answered right by term."""
    tokens: int
    gradient_norm: float
    """Global norm before clipping."""
    flags: tuple[float, ...]
    """Sums over the ranks: of a decision, on how many of them it was true."""
    alarm: Alarm | None = None
    """Why the update was left out; None: it was taken."""

    @property
    def loss(self) -> float:
        """The training loss: the sum over terms of their means."""
        return sum(total / self.counts[name] for name, total in self.losses.items() if self.counts[name])


def non_finite(figures: UpdateFigures) -> Alarm | None:
    """Whether a loss or the gradient norm is not finite."""
    for name, value in (*figures.losses.items(), ("gradient norm", figures.gradient_norm)):
        if not math.isfinite(value):
            return Alarm(name, f"is {value}")
    return None


def update(
    model: nn.Module,
    optimizer: Optimizer,
    batches: Sequence[Batch],
    objective: Objective,
    *,
    learning_rate: float,
    clip_norm: float,
    precision: Precision,
    device: torch.device,
    here: World,
    flags: tuple[float, ...] = (),
    judge: Callable[[UpdateFigures], Alarm | None] = non_finite,
) -> UpdateFigures:
    """Take one step, or leave it out: then the weights and moments are as before, on all ranks.

    Args:
        model: called through data parallelism when there are several ranks.
        optimizer: its learning rate is set here.
        batches: this rank's micro-batches of the step.
        objective: gives loss sums.
        learning_rate: of this update.
        clip_norm: bound of the global gradient norm.
        precision: "bf16" for mixed precision.
        device: where the batches go.
        here: this process among all.
        flags: what all ranks decide together; summed on the way, at no cost of its own.
        judge: says why not to take the step, given figures that are the same on all ranks.
    """
    counts = _global_counts(batches, here, device)
    losses: dict[str, Tensor] = {}
    correct: dict[str, Tensor] = {}
    for index, batch in enumerate(batches):
        with _communication(model, last=index == len(batches) - 1):
            with autocast(device, precision):
                sums = objective(model, batch.to(device))
            # A term without items anywhere is 0, yet takes part: every tensor needs its gradient on every rank.
            terms = [loss / max(counts[name], 1) for name, loss in sums.losses.items()]
            # Data parallelism averages gradients over ranks, the sum is wanted.
            (torch.stack(terms).sum() * here.size).backward()
        for kept, new in ((losses, sums.losses), (correct, sums.correct)):
            for name, value in new.items():
                kept[name] = kept.get(name, torch.zeros_like(value)) + value.detach()
    norm = whole(nn.utils.clip_grad_norm_(model.parameters(), clip_norm))
    # The norm goes along, so that what is judged has the same bits on all ranks.
    summed = [*losses.values(), *correct.values(), norm.double() / here.size]
    totals = _totals(summed, flags, here, device)
    figures = UpdateFigures(
        losses=dict(zip(losses, totals, strict=False)),
        counts={name: counts[name] for name in losses},
        correct=dict(zip(correct, totals[len(losses) :], strict=False)),
        tokens=counts["tokens"],
        gradient_norm=totals[len(summed) - 1],
        flags=tuple(totals[len(summed) :]),
    )
    alarm = judge(figures)
    if alarm is None:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return replace(figures, alarm=alarm)


def _global_counts(batches: Sequence[Batch], here: World, device: torch.device) -> dict[str, int]:
    counts = {"tokens": sum(batch.n_tokens for batch in batches)}
    for batch in batches:
        for name, count in batch.counts.items():
            counts[name] = counts.get(name, 0) + count
    summed = sum_over_ranks(torch.tensor(list(counts.values()), dtype=torch.float64, device=device), here)
    return {name: int(value) for name, value in zip(counts, summed.tolist(), strict=True)}


def _totals(sums: list[Tensor], flags: tuple[float, ...], here: World, device: torch.device) -> list[float]:
    raised = [torch.tensor(float(flag), dtype=torch.float64, device=device) for flag in flags]
    return sum_over_ranks(torch.stack([value.double() for value in sums] + raised), here).tolist()


def _communication(model: nn.Module, last: bool) -> AbstractContextManager:
    """Gradients travel between ranks once a step, with the last micro-batch."""
    if isinstance(model, DistributedDataParallel) and not last:
        return model.no_sync()
    if is_sharded(model):
        hold_gradients(model, not last)
    return nullcontext()
