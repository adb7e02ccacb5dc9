"""Settings of the optimizer, and its learning rate by step: warm-up, then linear decay (paper §4.1, A.4)."""

from dataclasses import dataclass, field

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
# The learning rate as a function of the step (paper §4.1; appendix A.4). Who decides its peak: `recipes/pretraining.py`
# and `finetuning/fill_in.py`.


def warmup_then_linear(step: int, peak: float, warmup_steps: int, total_steps: int) -> float:
    """Learning rate of update number `step`, counted from 0.

    It rises linearly to `peak` over `warmup_steps` updates, starting above 0, and falls linearly to 0 just after the
    last update. In the reference, the rate drops by warmup_steps / total_steps at the peak, because the decay starts
    at step 0.
    """
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    return peak * (total_steps - step) / max(1, total_steps - warmup_steps)
