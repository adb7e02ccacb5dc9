"""The learning rate as a pure function of the step (paper §4.1; appendix A.4)."""

from dataclasses import dataclass
from typing import Literal

from albert.runtime.errors import InvalidConfiguration


@dataclass(frozen=True, kw_only=True)
class ScheduleRecipe:
    """How long to train and how the learning rate moves.

    Raises:
        InvalidConfiguration: a warm-up longer than the training; a share outside its range.
    """

    total_steps: int = 125_000
    warmup_steps: int = 3_125
    anneal: Literal["steps", "budget"] = "steps"
    """What the rate falls with: the steps taken, or whatever part of max_tokens, max_minutes or total_steps is used up
    the most, so that a run that ends by its budget ends at a rate of zero."""
    decay_share: float = 1.0
    """The last share of the run in which the rate falls, linearly to zero; before, it stays at its peak. 1: it falls
    from the end of the warm-up on, as in the paper."""

    def __post_init__(self) -> None:
        if self.total_steps < 1:
            raise InvalidConfiguration("total_steps", f"is {self.total_steps}, at least 1 is needed")
        if not 0 <= self.warmup_steps <= self.total_steps:
            why = f"is {self.warmup_steps}, a number from 0 to total_steps {self.total_steps} is needed"
            raise InvalidConfiguration("warmup_steps", why)
        if not 0 < self.decay_share <= 1:
            raise InvalidConfiguration("decay_share", f"is {self.decay_share}, a share above 0 and up to 1 is needed")

    def learning_rate(self, step: int, peak: float, budget_used: float = 0.0) -> float:
        """The rate of update number `step`, counted from 0.

        Args:
            step: updates taken before it.
            peak: the highest rate.
            budget_used: the share of the run's tokens or minutes that is used up, 0 where neither is limited.
        """
        if self.anneal == "budget" and budget_used > step / self.total_steps:
            warm = min(1.0, (step + 1) / max(1, self.warmup_steps))
            return peak * min(warm, max(0.0, 1 - budget_used) / self.decay_share)
        start = max(self.warmup_steps, round(self.total_steps * (1 - self.decay_share)))
        if self.warmup_steps <= step < start:
            return peak
        if step < self.warmup_steps:
            return warmup_then_linear(step, peak, self.warmup_steps, self.total_steps)
        return warmup_then_linear(step, peak, start, self.total_steps)


def warmup_then_linear(step: int, peak: float, warmup_steps: int, total_steps: int) -> float:
    """The learning rate of update number `step`, counted from 0.

    It rises linearly to `peak` over `warmup_steps` updates, the first of which already moves, and falls linearly to
    reach 0 just after the last. The two lines meet at the peak: the reference lets the rate drop there by
    warmup_steps / total_steps, because it counts the decay from step 0.
    """
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    return peak * (total_steps - step) / max(1, total_steps - warmup_steps)
