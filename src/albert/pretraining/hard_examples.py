"""Masked tokens that the model finds hard count more: loss-weighted mining of hard examples (paper §5).

A token to which the model gives probability p has weight (1 − p)^focus, the modulating factor of the focal loss (Lin et
al., "Focal Loss for Dense Object Detection", ICCV 2017, equation 4), held constant for the gradient. The weight depends
on the token's own loss alone, and the sum is divided by the number of all masked tokens as before, so neither
accumulation nor world size changes the numbers. The top share of a batch would depend on both.

Hard questions of order are made where sequences are cut: see `SequenceRecipe.neighbours_probability`.
"""

from dataclasses import dataclass

from albert.runtime.errors import InvalidConfiguration


@dataclass(frozen=True, kw_only=True)
class HardExamplesRecipe:
    """How much more a hard masked token counts than an easy one.

    Raises:
        InvalidConfiguration: a number out of range.
    """

    focus: float = 0.0
    """A token to which the model gives probability p counts (1 - p)^focus; 0: all count alike."""
    warmup_steps: int = 0
    """Updates before which all count alike."""

    def __post_init__(self) -> None:
        if not 0 <= self.focus <= 10:
            raise InvalidConfiguration("hard_examples.focus", f"is {self.focus}, a number from 0 to 10 is needed")
        if self.warmup_steps < 0:
            raise InvalidConfiguration("hard_examples.warmup_steps", f"is {self.warmup_steps}, at least 0 is needed")

    def focus_of(self, step: int) -> float:
        """The focus of update number `step`, counted from 0."""
        return self.focus if step >= self.warmup_steps else 0.0


ALL_ALIKE = HardExamplesRecipe()
