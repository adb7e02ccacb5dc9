"""The learning rate as a pure function of the step (paper §4.1; appendix A.4)."""

from dataclasses import dataclass

from albert.runtime.errors import InvalidConfiguration


@dataclass(frozen=True, kw_only=True)
class ScheduleRecipe:
    """How long to train and how the learning rate moves.

    Raises:
        InvalidConfiguration: a warm-up longer than the training.
    """

    total_steps: int = 125_000
    warmup_steps: int = 3_125

    def __post_init__(self) -> None:
        if self.total_steps < 1:
            raise InvalidConfiguration("total_steps", f"is {self.total_steps}, at least 1 is needed")
        if not 0 <= self.warmup_steps <= self.total_steps:
            why = f"is {self.warmup_steps}, a number from 0 to total_steps {self.total_steps} is needed"
            raise InvalidConfiguration("warmup_steps", why)


def warmup_then_linear(step: int, peak: float, warmup_steps: int, total_steps: int) -> float:
    """The learning rate of update number `step`, counted from 0.

    It rises linearly to `peak` over `warmup_steps` updates, the first of which already moves, and falls linearly to
    reach 0 just after the last. The two lines meet at the peak: the reference lets the rate drop there by
    warmup_steps / total_steps, because it counts the decay from step 0.
    """
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    return peak * (total_steps - step) / max(1, total_steps - warmup_steps)
