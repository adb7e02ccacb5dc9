"""When training goes wrong: what is noticed, and what a run remembers of it.

An update is judged before the optimiser's step, by sums over all ranks, so that all judge alike: a loss or a gradient
norm that is not finite, or, where that is asked for, one far above those of the updates before. A run then stops, or
leaves the update out, or goes back to its newest checkpoint and passes over the data it has seen since. Which steps
were left out and which data passed over is part of the training state: it, the seed and the data make the weights.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from albert.runtime.errors import Diverged
from albert.training.update import Alarm, UpdateFigures, non_finite

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
class Incidents:
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

    incidents: Incidents
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
        here = tensor.to_local() if isinstance(tensor, DTensor) else tensor.detach()
        if not bool(torch.isfinite(here).all()):
            return Alarm(name, "holds numbers that are not finite")
    return None
