"""The optimiser as a value."""

import math
from dataclasses import dataclass
from typing import Literal

from albert.runtime.errors import InvalidConfiguration


@dataclass(frozen=True, kw_only=True)
class OptimizerRecipe:
    """Which optimiser, with which constants (paper §4.1: LAMB, peak learning rate 0.00176 at batch 4096).

    Raises:
        InvalidConfiguration: a value outside its range.
    """

    kind: Literal["lamb", "adamw"] = "lamb"
    learning_rate: float = 0.00176
    """Peak learning rate, reached at the end of the warm-up."""
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6
    bias_correction: bool = False
    """LAMB only: correct the moments' bias, which the reference does not. AdamW always does."""
    clamp: tuple[float, float] | None = None
    """LAMB only: bounds of the weight norm in the trust ratio; the reference has none."""

    def __post_init__(self) -> None:
        for name in ("learning_rate", "eps"):
            if not 0 < getattr(self, name) < math.inf:
                raise InvalidConfiguration(name, f"is {getattr(self, name)}, a number above 0 is needed")
        if not self.weight_decay >= 0:
            raise InvalidConfiguration("weight_decay", f"is {self.weight_decay}, at least 0 is needed")
        if self.clamp is not None and not 0 <= self.clamp[0] <= self.clamp[1]:
            low, high = self.clamp
            raise InvalidConfiguration("clamp", f"is {low} to {high}, two bounds from 0 upwards are needed")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise InvalidConfiguration(name, f"is {getattr(self, name)}, a value from 0 to below 1 is needed")
