"""With several labels per example: from which probability on a label is predicted, as it is saved with a model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from albert.runtime.errors import InvalidConfiguration
from albert.runtime.words import plain

LABEL_THRESHOLD_KEY = "label_threshold"
MAY_BE_EMPTY_KEY = "label_set_may_be_empty"
LABEL_THRESHOLD_FROM_KEY = "label_threshold_from"
CANDIDATES = tuple(number / 100 for number in range(2, 99))


@dataclass(frozen=True)
class LabelThreshold:
    """Labels are predicted from the probability `value` on.

    Attributes:
        may_be_empty: whether an example may have no label; otherwise it has its most probable one.
        chosen_on: describes how the threshold was chosen.
    """

    value: float = 0.5
    may_be_empty: bool = True
    chosen_on: str = "nothing: the default"

    def __post_init__(self) -> None:
        if not 0 < self.value < 1:
            why = f"is {plain(self.value)}, a share above 0 and below 1 is needed"
            raise InvalidConfiguration("threshold", why)

    @property
    def keys(self) -> dict[str, Any]:
        """Its keys in `config.json`."""
        return {
            LABEL_THRESHOLD_KEY: self.value,
            MAY_BE_EMPTY_KEY: self.may_be_empty,
            LABEL_THRESHOLD_FROM_KEY: self.chosen_on,
        }

    @property
    def note(self) -> str:
        empty = "a row may have none" if self.may_be_empty else "a row without one has its most probable label"
        chosen = f"chosen on {self.chosen_on}"
        if self.chosen_on.startswith("nothing"):
            chosen = f"not chosen{self.chosen_on.removeprefix('nothing')}"
        return f"a label is predicted from a probability of {self.value:g} on, {empty}; {chosen}"

    def predicted(self, probabilities: Float[np.ndarray, "examples labels"]) -> Bool[np.ndarray, "examples labels"]:
        """Which labels are predicted."""
        chosen = probabilities >= self.value
        if not self.may_be_empty and probabilities.shape[1]:
            empty = np.flatnonzero(~chosen.any(axis=1))
            chosen[empty, probabilities[empty].argmax(axis=1)] = True
        return chosen


def choose_label_threshold(
    gold: Bool[np.ndarray, "examples labels"], probabilities: Float[np.ndarray, "examples labels"], chosen_on: str
) -> LabelThreshold:
    """The threshold with the best micro F1; of equals the middle one.

    Empty sets are allowed if some rows have none of the labels and the score is better with them.
    """
    best_score = -1.0
    best = LabelThreshold(chosen_on=chosen_on)
    for may_be_empty in (False, True) if (~gold.any(axis=1)).any() else (False,):
        scores = []
        for value in CANDIDATES:
            chosen = LabelThreshold(value, may_be_empty).predicted(probabilities)
            right = int((chosen & gold).sum())
            total = int(chosen.sum() + gold.sum())
            scores.append(2 * right / total if total else 1.0)
        if max(scores) > best_score + 1e-9:
            best_score = max(scores)
            equals = [value for value, score in zip(CANDIDATES, scores, strict=True) if score >= best_score - 1e-9]
            best = LabelThreshold(equals[len(equals) // 2], may_be_empty, chosen_on)
    return best


def saved_label_threshold(extra: Mapping[str, Any], model: str, value: float | None = None) -> LabelThreshold:
    """The threshold in the `config.json` of a model directory, 0.5 if it has none; `value` replaces its probability."""
    saved = extra.get(LABEL_THRESHOLD_KEY, 0.5)
    may_be_empty = extra.get(MAY_BE_EMPTY_KEY, True)
    if isinstance(saved, bool) or not isinstance(saved, int | float) or not 0 < saved < 1:
        why = f"is {saved!r}, a number above 0 and below 1 is needed"
        raise InvalidConfiguration(f"{model}: {LABEL_THRESHOLD_KEY}", why)
    if not isinstance(may_be_empty, bool):
        raise InvalidConfiguration(f"{model}: {MAY_BE_EMPTY_KEY}", f"is {may_be_empty!r}, true or false is needed")
    if value is not None:
        return LabelThreshold(value, may_be_empty, "nothing: it was given")
    return LabelThreshold(float(saved), may_be_empty, str(extra.get(LABEL_THRESHOLD_FROM_KEY, "nothing: the default")))
