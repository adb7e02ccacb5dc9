"""How much the logit of `O` is lowered, so that a tagger finds more entities: chosen on held-out sentences."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from albert.tasks.metrics import OUTSIDE, entity_scores

MAX_SHIFT = 3.0
SHIFT_STEP = 0.25


@dataclass(frozen=True)
class OutsideShift:
    """How much the logit of `O` is lowered, so that entities are predicted more readily.

    With few entities a trained model predicts too few of them, because most words are `O` (Menon et al. 2021,
    "Long-tail learning via logit adjustment", arXiv 2007.07314; there the shift is the logarithm of a class's share,
    times a constant). It becomes part of the head's bias when the model is written.
    """

    value: float
    chosen_on: str

    @property
    def note(self) -> str:
        change = f"is lowered by {self.value:g}" if self.value else "stays as it was trained"
        return f"the logit of {OUTSIDE} {change}: the best F1 of entities on {self.chosen_on}"

    def applied_to(self, probabilities: Float[np.ndarray, "words tags"], outside: int) -> np.ndarray:
        """The probabilities after the shift."""
        if not probabilities.size:
            return probabilities
        weights = probabilities.copy()
        weights[:, outside] *= np.exp(-self.value)
        return weights / weights.sum(axis=1, keepdims=True)


def best_shift(
    gold: Sequence[Sequence[str]],
    decoded: Sequence[np.ndarray],
    tags: Sequence[str],
    entities: Callable[[Sequence[str]], list[Any]],
) -> OutsideShift:
    """The shift with the best F1 of entities; that of each shift is its mean with two on either side.

    Args:
        gold: the tags of each sentence.
        decoded: probabilities [words, tags] of each sentence.
        entities: those that the tags of a sentence form.
    """
    about = f"{len(gold):,} sentences held out of training"
    shifts = np.arange(0.0, MAX_SHIFT + SHIFT_STEP / 2, SHIFT_STEP)
    scores = []
    for value in shifts:
        shift = OutsideShift(float(value), about)
        found = []
        for rows in decoded:
            best = shift.applied_to(rows, tags.index(OUTSIDE)).argmax(axis=1) if len(rows) else ()
            found.append([tags[tag] for tag in best])
        scores.append(entity_scores(gold, found, entities)["entity_f1"])
    padded = np.pad(np.array(scores), 2, mode="edge")
    smooth = np.convolve(padded, np.full(5, 0.2), mode="valid")
    return OutsideShift(float(shifts[int(smooth.argmax())]), about)
