"""Settings of the optimizer and its learning-rate schedule: warm-up, then linear decay (paper §4.1, A.4)."""

from dataclasses import dataclass, field
from typing import Literal

from albert.runtime.environment import OptimizerKind
from albert.runtime.errors import InvalidConfiguration, require_range

MAX_LEARNING_RATE = 1.0
"""No optimizer here learns at a higher rate: published ones are below 0.02 for Adam and LAMB, and 0.1 for Muon."""


def refuse_implausible_rate(learning_rate: float) -> None:
    """Raise InvalidConfiguration for a rate above MAX_LEARNING_RATE."""
    if learning_rate > MAX_LEARNING_RATE:
        why = f"is {learning_rate:g}, no model learns at a rate above {MAX_LEARNING_RATE:g}"
        remedy = "usual are 0.002 for LAMB, 0.002 to 0.02 for Muon, 1e-5 to 1e-3 for AdamW"
        raise InvalidConfiguration("learning_rate", why, remedy)


@dataclass(frozen=True, kw_only=True)
class OptimizerRecipe:
    """The optimizer and its constants (paper §4.1: LAMB, peak learning rate 0.00176 at batch size 4096).

    Raises:
        InvalidConfiguration: a value outside its range.
    """

    kind: OptimizerKind = "lamb"
    """LAMB as in the paper, AdamW as in the reference's fine-tuning, or Muon for matrices with AdamW for the rest."""
    learning_rate: float = field(default=0.00176, metadata={"key": "learning_rate"})
    """Peak learning rate, at the end of the warm-up."""
    weight_decay: float = 0.01
    """Weight decay, not applied to biases and layer norms."""
    beta1: float = 0.9
    """Decay rate of the mean gradient (Muon uses 0.95)."""
    beta2: float = 0.999
    """Decay rate of the mean squared gradient."""
    eps: float = 1e-6
    """Added to the square root of the mean squared gradient."""
    bias_correction: bool = False
    """LAMB only: correct the bias of the moments; the reference does not. AdamW always does."""
    clamp: tuple[float, float] | None = None
    """LAMB only: bounds of the weight norm in the trust ratio; none in the reference."""

    def __post_init__(self) -> None:
        require_range(self, "a finite number above 0", "learning_rate", "eps")
        refuse_implausible_rate(self.learning_rate)
        require_range(self, "at least 0", "weight_decay")
        require_range(self, "a share from 0 to below 1", "beta1", "beta2")
        if self.clamp is not None and not 0 <= self.clamp[0] <= self.clamp[1]:
            low, high = self.clamp
            raise InvalidConfiguration("clamp", f"is {low} to {high}, two bounds from 0 upwards are needed")


# --------------------------------------------------------------------------------------------------------------------
# The learning rate as a function of the step (paper §4.1; appendix A.4). A pre-training's peak is that of its recipe,
# `OptimizerRecipe.learning_rate` above; a fine-tuning's is decided in `finetuning/options.py`.


WARMUP_OF_BUDGET = 0.1
"""Where the rate decays with a budget of tokens or minutes, the warm-up ends with this share of it at the latest."""


@dataclass(frozen=True, kw_only=True)
class ScheduleRecipe:
    """Length of the training and learning rate by step.

    Raises:
        InvalidConfiguration: a warm-up longer than the training; a share outside its range.
    """

    total_steps: int = field(default=125_000, metadata={"key": "steps"})
    """Optimizer steps of the run."""
    warmup_steps: int = 3_125
    """Steps in which the learning rate rises to its peak; with anneal "budget" at most a tenth of the budget."""
    anneal: Literal["steps", "budget"] = "steps"
    """What the learning rate decays with: the share of steps, or the largest of the shares of steps, max_tokens and
    max_minutes, so that a run that ends by its budget ends at a rate of zero."""
    decay_share: float = 1.0
    """Last share of the run, in which the rate decays linearly to zero; until then it stays at its peak. 1: it decays
    from the end of the warm-up, as in the paper."""

    def __post_init__(self) -> None:
        if self.total_steps < 1:
            raise InvalidConfiguration("steps", f"is {self.total_steps}, at least 1 is needed")
        if not 0 <= self.warmup_steps <= self.total_steps:
            why = f"is {self.warmup_steps}, a number from 0 to the {self.total_steps} steps is needed"
            raise InvalidConfiguration("warmup_steps", why)
        if not 0 < self.decay_share <= 1:
            raise InvalidConfiguration("decay_share", f"is {self.decay_share}, a share above 0 and up to 1 is needed")

    def learning_rate(self, step: int, peak: float, budget_used: float = 0.0) -> float:
        """Learning rate of update number `step`, counted from 0.

        Args:
            budget_used: share of the token or time budget that is used; 0 without a budget.
        """
        if self.anneal == "budget" and budget_used > step / self.total_steps:
            warmup = max((step + 1) / max(1, self.warmup_steps), budget_used / WARMUP_OF_BUDGET)
            return peak * min(1.0, warmup, max(0.0, 1 - budget_used) / self.decay_share)
        start = max(self.warmup_steps, round(self.total_steps * (1 - self.decay_share)))
        if self.warmup_steps <= step < start:
            return peak
        return warmup_then_linear(
            step, peak, self.warmup_steps if step < self.warmup_steps else start, self.total_steps
        )

    def budget_ends_warmup(self, step: int, budget_used: float) -> bool:
        """Return whether the warm-up is over before its steps, because a tenth of the budget is used."""
        return self.anneal == "budget" and step + 1 < self.warmup_steps and budget_used >= WARMUP_OF_BUDGET


def warmup_then_linear(step: int, peak: float, warmup_steps: int, total_steps: int) -> float:
    """Learning rate of update number `step`, counted from 0.

    It rises linearly to `peak` over `warmup_steps` updates, starting above 0, and falls linearly to 0 just after the
    last update. In the reference, the rate drops by warmup_steps / total_steps at the peak, because the decay starts
    at step 0.
    """
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    return peak * (total_steps - step) / max(1, total_steps - warmup_steps)
