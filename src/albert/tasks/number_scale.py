"""Numbers to predict as standard scores: the mean and spread of those that are learnt, and how a head bears them.

While a model learns, its head gives standard scores, whatever the unit of the data is. Whatever is evaluated or saved
has mean and deviation in the weight and bias of its head, so that its outputs are numbers in the unit of the data for
everyone who opens the model, transformers included.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from albert.runtime.errors import InvalidConfiguration
from albert.tasks.task import Score

TARGET_SCALE_KEY = "target_scale"
"""In `config.json` and `recipe.json`: the scale of the numbers that a model learnt to predict."""


@dataclass(frozen=True)
class NumberScale:
    """Mean and standard deviation of the numbers that are learnt, in their own unit."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, numbers: np.ndarray) -> "NumberScale":
        """The scale of the training numbers; the sums are exact, so that every machine finds the same."""
        values = [float(number) for number in numbers]
        mean = math.fsum(values) / len(values)
        return cls(mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values)))

    def standardised(self, numbers: np.ndarray) -> np.ndarray:
        """Standard scores, float32."""
        return ((numbers.astype(np.float64) - self.mean) / self.deviation).astype(np.float32)

    def fold_in(self, classifier: Any) -> None:
        """Let a linear head that gives standard scores give numbers in the unit of the data: w' = s w, b' = s b + m."""
        classifier.weight.data.mul_(self.deviation)
        classifier.bias.data.mul_(self.deviation).add_(self.mean)

    def take_out(self, classifier: Any) -> None:
        """The reverse of `fold_in`, for a head that has learnt such numbers before."""
        classifier.weight.data.div_(self.deviation)
        classifier.bias.data.sub_(self.mean).div_(self.deviation)

    @contextmanager
    def folded(self, classifier: Any) -> Iterator[None]:
        """`fold_in` for a while; afterwards the head is bit for bit what it was."""
        before = [parameter.detach().clone() for parameter in classifier.parameters()]
        self.fold_in(classifier)
        try:
            yield
        finally:
            for parameter, kept in zip(classifier.parameters(), before, strict=True):
                parameter.data.copy_(kept)


def check_numbers(target: Score, numbers: np.ndarray) -> None:
    """See to it that numbers can be learnt.

    Raises:
        InvalidConfiguration: they are all the same, or too large for the precision of a model.
    """
    column = f"column {target.column!r}"
    if not np.isfinite(numbers).all():
        raise InvalidConfiguration(column, "holds numbers beyond 3.4e38", "give them in a larger unit")
    if np.ptp(numbers) == 0:
        why = f"holds the number {numbers[0]:g} in all {len(numbers):,} training rows, there is nothing to learn"
        raise InvalidConfiguration(column, why, "name another column with --label")


def stated_deviation(extra: Mapping[str, Any], model: str) -> float:
    """The standard deviation of the numbers that a model learnt, as its `config.json` says; 1 where it says nothing.

    Args:
        extra: the keys of `config.json` beside the configuration.
        model: how to call it in an error.

    Raises:
        InvalidConfiguration: it is no positive number.
    """
    stated = extra.get(TARGET_SCALE_KEY, {"deviation": 1.0})
    deviation = stated.get("deviation") if isinstance(stated, dict) else None
    if not isinstance(deviation, int | float) or not 0 < deviation < math.inf:
        raise InvalidConfiguration(f"{model}: {TARGET_SCALE_KEY}", "holds no deviation above 0", "fine-tune it again")
    return deviation
