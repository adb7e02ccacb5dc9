"""One optimizer update, the interface of batches and objectives, and the detection of divergence.

The losses of all micro-batches and ranks are summed and divided once; then gradients are clipped, checked and applied.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from albert.runtime.devices import autocast, dropout_generator, share_out
from albert.runtime.distributed import gather_full, hold_gradients, is_sharded, sum_over_ranks
from albert.runtime.environment import Precision, Ranks
from albert.runtime.errors import Diverged
from albert.runtime.random_streams import stream_key

# --------------------------------------------------------------------------------------------------------------------
# The interface of the training loop: batches by step, and objectives that return sums of losses.
#
# Every loss term is a SUM over its items, with the number of items known before the forward pass. The loop divides
# once, by the count over all micro-batches and ranks, so neither accumulation nor world size changes the numbers.


@runtime_checkable
class Batch(Protocol):
    """A micro-batch."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Items of each loss term, for instance {"masked_tokens": 154, "sentence_order": 16}."""
        ...

    @property
    def n_tokens(self) -> int:
        """Tokens that pass through the model."""
        ...

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device."""
        ...


@runtime_checkable
class BatchSource(Protocol):
    """The data, as a pure function of the step."""

    def micro_batches(self, step: int, rank: int, world_size: int) -> Sequence[Batch]:
        """The share of one process in the batch of update number `step`, in micro-batches; at least one."""
        ...


@dataclass(frozen=True)
class Sums:
    """What one micro-batch gives: sums over its items, by term."""

    losses: Mapping[str, Tensor]
    """Differentiable sums of losses; the training loss is the sum over terms of sum / count."""
    correct: Mapping[str, Tensor] = field(default_factory=dict)
    """Items answered right, for the accuracies shown while training."""


@runtime_checkable
class Objective(Protocol):
    """A model's loss on a micro-batch."""

    def __call__(self, model: nn.Module, batch: Batch) -> Sums:
        """Run the model once and sum up. `model` may be wrapped for data parallelism: call it, do not look inside."""
        ...


@runtime_checkable
class TellsStatistics(Protocol):
    """An optimiser that has figures of its last step to tell."""

    def statistics(self) -> dict[str, float]:
        """Figures by name, trust ratios say; {} when there are none."""
        ...


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
    ranks: Ranks,
    flags: tuple[float, ...] = (),
    judge: Callable[[UpdateFigures], Alarm | None] = non_finite,
    workers: int = 1,
) -> UpdateFigures:
    """Take one step, or leave it out: then the weights and moments are as before, on all ranks.

    Args:
        batches: this rank's micro-batches of the step.
        clip_norm: bound of the global gradient norm.
        flags: what all ranks decide together; summed on the way, at no cost of its own.
        judge: says why not to take the step, given figures that are the same on all ranks.
        workers: threads that compute micro-batches at the same time; see `training_workers`.
    """
    own = _counts(batches)
    summed = sum_over_ranks(torch.tensor(list(own.values()), dtype=torch.float64, device=device), ranks)
    counts = {name: int(value) for name, value in zip(own, summed.tolist(), strict=True)}
    divisors = {name: max(count, 1) for name, count in counts.items()}
    found = _backward(model, batches, objective, divisors, clip_norm, precision, device, ranks, workers)
    sums = torch.cat((found.sums, torch.tensor(flags, dtype=torch.float64, device=device)))
    figures = found.figures(sum_over_ranks(sums, ranks).tolist(), counts)
    alarm = judge(figures)
    if alarm is None:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return replace(figures, alarm=alarm)


@dataclass(frozen=True)
class _Found:
    """What the micro-batches of a rank gave, on the device."""

    losses: dict[str, Tensor]
    correct: dict[str, Tensor]
    norm: Tensor
    """Of all gradients, over the number of ranks: it goes along in the sum, so that what is judged has the same bits on
    all ranks."""

    @property
    def n_sums(self) -> int:
        return len(self.losses) + len(self.correct) + 1

    @property
    def sums(self) -> Float64[Tensor, " n"]:
        """What is summed over all ranks."""
        return torch.stack([each.double() for each in (*self.losses.values(), *self.correct.values(), self.norm)])

    def figures(self, totals: Sequence[float], counts: Mapping[str, int]) -> UpdateFigures:
        """Of `sums` over all ranks, and flags behind them."""
        n_losses, n = len(self.losses), self.n_sums
        return UpdateFigures(
            losses=dict(zip(self.losses, totals, strict=False)),
            counts={name: counts[name] for name in self.losses},
            correct=dict(zip(self.correct, totals[n_losses:], strict=False)),
            tokens=counts["tokens"],
            gradient_norm=totals[n - 1],
            flags=tuple(totals[n:]),
        )


def _backward(
    model: nn.Module,
    batches: Sequence[Batch],
    objective: Objective,
    divisors: Mapping[str, int | Tensor],
    clip_norm: float,
    precision: Precision,
    device: torch.device,
    ranks: Ranks,
    workers: int,
) -> _Found:
    """Gradients of all micro-batches, clipped."""
    if workers > 1 and len(batches) > 1:
        return _backward_by_workers(model, deal(batches, workers), objective, divisors, clip_norm, precision, device)
    losses: dict[str, Tensor] = {}
    correct: dict[str, Tensor] = {}
    for index, batch in enumerate(batches):
        with _communication(model, last=index == len(batches) - 1):
            with autocast(device, precision):
                sums = objective(model, batch.to(device))
            # Data parallelism averages gradients over ranks, the sum is wanted.
            (_mean_loss(sums, divisors) * ranks.size).backward()
        _count(losses, sums.losses)
        _count(correct, sums.correct)
    norm = gather_full(nn.utils.clip_grad_norm_(model.parameters(), clip_norm))
    return _Found(losses, correct, norm.double() / ranks.size)


def _mean_loss(sums: Sums, divisors: Mapping[str, int | Tensor]) -> Tensor:
    """A term without items anywhere is 0, yet takes part: every tensor needs its gradient on every rank."""
    return torch.stack([loss / divisors[name] for name, loss in sums.losses.items()]).sum()


def _count(kept: dict[str, Tensor], more: Mapping[str, Tensor]) -> None:
    for name, value in more.items():
        kept[name] = kept[name] + value.detach() if name in kept else value.detach()


# --------------------------------------------------------------------------------------------------------------------
# The same by workers of one thread on a CPU, which meet at the end of an update and not in every operation of the
# model: a process that takes a core makes training slower by its share, not by a wait at each of these operations.
#
# Who computes what, and the order of every sum, follow from the batches and the number of workers alone. Dropout draws
# from a generator of each micro-batch, which is seeded from torch's global one.

CHUNK = 1 << 18
"""Elements of a gradient that are added up at a time."""


def training_workers(device: torch.device, ranks: Ranks) -> int:
    """How many workers train: one for each thread that torch has on a CPU, one process has all of them; else 1."""
    return torch.get_num_threads() if device.type == "cpu" and ranks.size == 1 else 1


def equal_parts(lengths: np.ndarray, parts: int) -> list[slice]:
    """Consecutive sequences cut into parts of about as many tokens each; fewer parts where there are fewer sequences.

    Args:
        lengths: int [sequences], tokens of each.
    """
    ends = np.concatenate(([0], np.cumsum(lengths)))
    wanted = ends[-1] * np.arange(1, parts) / parts
    behind = np.searchsorted(ends, wanted).clip(1)
    cuts = np.where(ends[behind] - wanted <= wanted - ends[behind - 1], behind, behind - 1)
    bounds = np.unique([0, *cuts, len(lengths)]).tolist()
    return [slice(*bound) for bound in pairwise(bounds)]


def deal(batches: Sequence[Batch], workers: int) -> list[list[tuple[int, Batch]]]:
    """Numbered micro-batches for each worker: the longest first, each to the one with the fewest tokens so far."""
    dealt: list[list[tuple[int, Batch]]] = [[] for _ in range(min(workers, len(batches)))]
    tokens = [0] * len(dealt)
    for number, batch in sorted(enumerate(batches), key=lambda each: (-each[1].n_tokens, each[0])):
        worker = tokens.index(min(tokens))
        dealt[worker].append((number, batch))
        tokens[worker] += batch.n_tokens
    return dealt


def _backward_by_workers(
    model: nn.Module,
    dealt: Sequence[Sequence[tuple[int, Batch]]],
    objective: Objective,
    divisors: Mapping[str, int | Tensor],
    clip_norm: float,
    precision: Precision,
    device: torch.device,
) -> _Found:
    """Gradients of all micro-batches, clipped."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    seed = int(torch.empty((), dtype=torch.int64).random_())

    def compute(batches: Sequence[tuple[int, Batch]]) -> tuple[dict[str, Tensor], dict[str, Tensor], list]:
        losses: dict[str, Tensor] = {}
        correct: dict[str, Tensor] = {}
        gradients: list[Tensor | None] = [None] * len(parameters)
        for number, batch in batches:
            with dropout_generator(stream_key("dropout", seed, number) >> 64):
                with autocast(device, precision):
                    sums = objective(model, batch)
                found = torch.autograd.grad(_mean_loss(sums, divisors), parameters, allow_unused=True)
            gradients = [_plus(mine, more) for mine, more in zip(gradients, _apart(found), strict=True)]
            _count(losses, sums.losses)
            _count(correct, sums.correct)
        return losses, correct, gradients

    losses: dict[str, Tensor] = {}
    correct: dict[str, Tensor] = {}
    computed = share_out(compute, dealt)
    for some_losses, some_correct, _ in computed:
        _count(losses, some_losses)
        _count(correct, some_correct)
    return _Found(losses, correct, _sum_and_clip(parameters, [each[-1] for each in computed], clip_norm))


def _plus(mine: Tensor | None, more: Tensor | None) -> Tensor | None:
    return more if mine is None else mine if more is None else mine.add_(more)


def _apart(gradients: Sequence[Tensor | None]) -> Iterator[Tensor | None]:
    """Each in memory of its own, to be written to: autograd may give two parameters one tensor, or views of one."""
    taken: set[int] = set()
    for gradient in gradients:
        if gradient is not None:
            place = gradient.untyped_storage().data_ptr()
            if place in taken or not gradient.is_contiguous():
                gradient = gradient.clone(memory_format=torch.contiguous_format)
            taken.add(place)
        yield gradient


def _sum_and_clip(
    parameters: Sequence[nn.Parameter], found: Sequence[Sequence[Tensor | None]], clip_norm: float
) -> Tensor:
    """Put the sums over workers in place as gradients and clip them; their norm before (float64)."""
    chunks: list[tuple[Tensor, ...]] = []
    for parameter, *each in zip(parameters, *found, strict=True):
        given = [gradient for gradient in each if gradient is not None]
        if given:
            parameter.grad = given[0]
            chunks += zip(*(gradient.view(-1).split(CHUNK) for gradient in given), strict=True)

    def add_up(chunk: tuple[Tensor, ...]) -> Tensor:
        total, *others = chunk
        for other in others:
            total += other
        return torch.linalg.vector_norm(total)

    norm = torch.linalg.vector_norm(torch.stack(share_out(add_up, chunks)))
    if not norm <= clip_norm:
        scale = float(clip_norm / (norm + 1e-6))  # as `nn.utils.clip_grad_norm_`
        share_out(lambda chunk: chunk[0].mul_(scale), chunks)
    return norm.double()


# --------------------------------------------------------------------------------------------------------------------
# The same without waiting for the device: its figures are read when the next update is on its way.


@dataclass(frozen=True)
class LateFigures:
    """The figures of an update that the device may still be computing."""

    found: _Found
    numbers: Tensor
    """On the host, once `copied` has happened: sums, then counts and flags where there are several ranks."""
    copied: torch.cuda.Event | None
    counts: Mapping[str, int]
    """Of this rank."""
    flags: tuple[float, ...]

    def read(self) -> UpdateFigures:
        """Wait for the update."""
        if self.copied is not None:
            self.copied.synchronize()
        totals, n = self.numbers.tolist(), self.found.n_sums
        known = totals[n:] or [*self.counts.values(), *self.flags]
        counts = {name: int(value) for name, value in zip(self.counts, known, strict=False)}
        figures = self.found.figures([*totals[:n], *known[len(counts) :]], counts)
        return replace(figures, alarm=non_finite(figures))


def update_without_waiting(
    model: nn.Module,
    optimizer: Optimizer,
    batches: Sequence[Batch],
    objective: Objective,
    *,
    learning_rate: float,
    clip_norm: float,
    precision: Precision,
    device: torch.device,
    ranks: Ranks,
    flags: tuple[float, ...] = (),
    workers: int = 1,
) -> LateFigures:
    """Take one step as `update` does with `non_finite` for a judge, without waiting for the device.

    Where a loss or the gradient norm is not finite, the device itself leaves the step out: the optimiser must take
    `found_inf`, as torch's fused ones and `Lamb` do.
    """
    counts = _counts(batches)
    divisors: dict[str, int | Tensor] = {name: max(count, 1) for name, count in counts.items()}
    known = None
    if ranks.size > 1:
        given = torch.tensor([*counts.values(), *flags], dtype=torch.float64, pin_memory=device.type == "cuda")
        known = sum_over_ranks(given.to(device, non_blocking=True), ranks)
        divisors = {name: known[place].clamp(min=1) for place, name in enumerate(counts)}
    found = _backward(model, batches, objective, divisors, clip_norm, precision, device, ranks, workers)
    totals = sum_over_ranks(found.sums, ranks)
    optimizer.found_inf = (~totals.isfinite().all()).float()  # type: ignore[attr-defined]
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    optimizer.step()
    optimizer.found_inf = None  # type: ignore[attr-defined]
    optimizer.zero_grad(set_to_none=True)
    numbers = totals if known is None else torch.cat((totals, known))
    if device.type != "cuda":
        return LateFigures(found, numbers, None, counts, flags)
    on_host = torch.empty(len(numbers), dtype=numbers.dtype, pin_memory=True).copy_(numbers, non_blocking=True)
    copied = torch.cuda.Event()
    copied.record()
    return LateFigures(found, on_host, copied, counts, flags)


def _counts(batches: Sequence[Batch]) -> dict[str, int]:
    counts = {"tokens": sum(batch.n_tokens for batch in batches)}
    for batch in batches:
        for name, count in batch.counts.items():
            counts[name] = counts.get(name, 0) + count
    return counts


def _communication(model: nn.Module, last: bool) -> AbstractContextManager:
    """Gradients travel between ranks once a step, with the last micro-batch."""
    if isinstance(model, DistributedDataParallel) and not last:
        return model.no_sync()
    if is_sharded(model):
        hold_gradients(model, not last)
    return nullcontext()


# --------------------------------------------------------------------------------------------------------------------
# Divergence: how it is detected, and what is kept of skipped updates and rollbacks.
#
# An update is judged before the optimiser's step, by sums over all ranks, so that all judge alike: a loss or a
# gradient norm that is not finite, or, where that is asked for, one far above those of the updates before. A run
# then stops, or leaves the update out, or goes back to its newest checkpoint and passes over the data it has seen
# since. Which steps were left out and which data passed over is part of the training state: it, the seed and the
# data make the weights.

Reaction = Literal["stop", "skip", "rollback"]
MOST_SKIPPED_IN_A_ROW = 10
REMEMBERED = 128
"""Updates that a new one is compared with; with fewer than half of them there is no comparison."""
NORMAL_DEVIATION = 1.4826
"""Times the median absolute deviation: the standard deviation, were they normally distributed."""


@dataclass(frozen=True)
class Rollback:
    """A return to a checkpoint."""

    step: int
    """Updates it had."""
    batches: int
    """Batches passed over from then on: those that led astray."""


@dataclass(kw_only=True)
class DivergenceHistory:
    """What went wrong in a run so far, and what is needed to notice the next time; part of the training state."""

    skipped: tuple[int, ...] = ()
    """Numbers of the updates that were left out, counted from 0."""
    rollbacks: tuple[Rollback, ...] = ()
    log_losses: tuple[float, ...] = ()
    """Of the last updates, the newest last; kept only where spikes are looked for."""
    log_norms: tuple[float, ...] = ()

    @property
    def batches_passed_over(self) -> int:
        """How far the number of a step's batch is ahead of the number of the step."""
        return sum(rollback.batches for rollback in self.rollbacks)

    def skip(self, step: int, alarm: Alarm) -> None:
        """Count update number `step` as left out.

        Raises:
            Diverged: it is one too many in a row.
        """
        self.skipped = (*self.skipped, step)
        if self.skipped[-MOST_SKIPPED_IN_A_ROW - 1 :] == tuple(range(step - MOST_SKIPPED_IN_A_ROW, step + 1)):
            raise diverged(alarm, f"{MOST_SKIPPED_IN_A_ROW} updates before it were left out already")

    def with_rollback(self, step: int, back_to: int, alarm: Alarm, most: int) -> tuple[Rollback, ...]:
        """The rollbacks with one from an alarm in the last of `step` updates to the checkpoint of `back_to`.

        Raises:
            Diverged: it is one too many.
        """
        if len(self.rollbacks) >= most:
            raise diverged(alarm, f"{most} rollbacks did not help")
        return (*self.rollbacks, Rollback(back_to, step - back_to))


@dataclass(frozen=True)
class Guard:
    """Judges updates. `deviations` None: only what is not finite is an alarm.

    A spike is judged by logarithms, whose spread stays the same while losses and gradients shrink.
    """

    incidents: DivergenceHistory
    deviations: float | None = None

    def __call__(self, figures: UpdateFigures) -> Alarm | None:
        """The reason not to take an update, None for a good one; good ones are remembered."""
        alarm = non_finite(figures)
        if alarm is not None or self.deviations is None:
            return alarm
        incidents = self.incidents
        for name, value, before in (
            ("loss", figures.loss, incidents.log_losses),
            ("gradient norm", figures.gradient_norm, incidents.log_norms),
        ):
            limit = spike_limit(before, self.deviations)
            if value > limit:
                why = f"is {value:.4g} where the last {len(before)} updates leave room up to {limit:.4g}"
                return Alarm(name, why)
        incidents.log_losses = _with(incidents.log_losses, figures.loss)
        incidents.log_norms = _with(incidents.log_norms, figures.gradient_norm)
        return None


def _with(logarithms: tuple[float, ...], value: float) -> tuple[float, ...]:
    return (*logarithms, math.log(max(value, 1e-30)))[-REMEMBERED:]


def spike_limit(logarithms: Sequence[float], deviations: float) -> float:
    """The value above which the next one is a spike: so many robust deviations over the median, in logarithms.

    Args:
        logarithms: natural ones, of the updates before.
        deviations: how many; the deviation is the median absolute one, scaled as for a normal distribution.
    """
    if 2 * len(logarithms) < REMEMBERED:
        return math.inf
    median = statistics.median(logarithms)
    deviation = NORMAL_DEVIATION * statistics.median(abs(value - median) for value in logarithms)
    return math.exp(min(700.0, median + deviations * deviation))


def diverged(alarm: Alarm, when: str = "nothing of this step entered the weights") -> Diverged:
    """The error that ends a run."""
    remedy = "lower the learning rate, lengthen the warm-up, or use --precision fp32; the last checkpoint is good"
    return Diverged(alarm.subject, f"{alarm.why}: training diverged, {when}", remedy)


def non_finite_state(model: nn.Module, optimizer: Optimizer) -> Alarm | None:
    """Whether a weight or a moment of this rank is not finite: a gradient may be finite, and its square not."""
    named = dict(model.named_parameters())
    kept = {
        f"{key} of {name}": value
        for name, parameter in named.items()
        for key, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, torch.Tensor)
    }
    tensors: dict[str, torch.Tensor] = {**named, **kept}
    for name, tensor in tensors.items():
        ranks = tensor.to_local() if isinstance(tensor, DTensor) else tensor.detach()
        if not bool(torch.isfinite(ranks).all()):
            return Alarm(name, "holds numbers that are not finite")
    return None
