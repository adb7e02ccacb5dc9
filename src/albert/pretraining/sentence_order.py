"""The inter-sentence objective: sentence order, next sentence, or none (paper §3.1, §4.6)."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

SentenceObjective = Literal["sop", "nsp", "none"]
IN_ORDER, SWAPPED = 0, 1
NO_LABEL = -100
"""Of sequences that have no order to predict; the loss leaves them out."""


class Segments(NamedTuple):
    """Two segments as the model sees them, and what is to be predicted of them."""

    first: np.ndarray
    second: np.ndarray
    label: int


def order_segments(
    objective: SentenceObjective,
    first: np.ndarray,
    second: np.ndarray,
    foreign: Callable[[], np.ndarray],
    draws: np.random.Generator,
) -> Segments:
    """Turn two adjacent segments of a document into an example.

    Args:
        objective: "sop" swaps them half of the time; "nsp" puts a segment of another document in the place of the
            second half of the time; "none" leaves them and asks nothing.
        first, second: token ids of the adjacent segments; `second` is empty for a sequence of one sentence, which
            never gets a label, and never a foreign segment (the reference makes 3 to 14 % of its "SOP" pairs that way).
        foreign: gives a segment of another document; called only for "nsp".
        draws: the sample's random stream.
    """
    if objective == "none" or len(second) == 0:
        return Segments(first, second, NO_LABEL)
    if draws.random() < 0.5:
        return Segments(first, second, IN_ORDER)
    if objective == "sop":
        return Segments(second, first, SWAPPED)
    return Segments(first, foreign(), SWAPPED)
