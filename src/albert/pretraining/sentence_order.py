"""The inter-sentence objective: sentence order, next sentence, or none (paper §3.1, §4.6)."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from albert.pretraining.segments import SequenceTable

SentenceObjective = Literal["sop", "nsp", "none", "sop-reference"]
IN_ORDER, SWAPPED = 0, 1
NO_LABEL = -100
"""Of sequences that have no order to predict; the loss leaves them out."""


def head_task(objective: SentenceObjective) -> Literal["sop", "nsp", "none"]:
    """What a model's sentence head learns, as its `config.json` says: the reference's pairs ask for the order, too."""
    return "sop" if objective == "sop-reference" else objective


class Runs(NamedTuple):
    """Runs of tokens of the corpus."""

    begin: np.ndarray
    """int64, global token positions."""
    length: np.ndarray
    """int64, 0 where there is none."""


class Segments(NamedTuple):
    """The two segments of each sequence as the model sees them, and what is to be predicted of them."""

    first: Runs
    second: Runs
    labels: np.ndarray
    """int64."""


def segments_of(sequences: SequenceTable) -> tuple[Runs, Runs]:
    """The adjacent segments of sequences, in the order of the text."""
    begin, split, end = sequences.begin, sequences.split, sequences.end
    return Runs(begin, split - begin), Runs(split, end - split)


def order_segments(
    objective: SentenceObjective,
    first: Runs,
    second: Runs,
    foreign: Callable[[np.ndarray], Runs],
    coins: np.ndarray,
) -> Segments:
    """Turn adjacent segments of documents into examples.

    Args:
        objective: "sop" swaps them where the coin says so; "nsp" puts a segment of another document in the place of
            the second there; "none" leaves them and asks nothing.
        first, second: the adjacent segments; the second is empty in a sequence of one sentence, which never gets a
            label, and never a foreign segment (the reference makes 3 to 14 % of its "SOP" pairs that way).
        foreign: gives segments of other documents for the sequences with these numbers; called only for "nsp".
        coins: bool, one a sequence.
    """
    asked = np.zeros(len(coins), dtype=bool) if objective == "none" else second.length > 0
    labels = np.where(asked, np.where(coins, SWAPPED, IN_ORDER), NO_LABEL)
    changed = asked & coins
    if objective == "nsp":
        others, which = foreign(np.flatnonzero(changed)), changed
        begin, length = second.begin.copy(), second.length.copy()
        begin[which], length[which] = others
        return Segments(first, Runs(begin, length), labels)
    return Segments(chosen(changed, second, first), chosen(changed, first, second), labels)


def cut_to_length(max_tokens: int, segments: Segments) -> Segments:
    """Segments after tokens were taken from the longer one until both fit, from both alike when they are equally long.

    What the model sees first loses its front and what it sees second its end, whichever came first in the text, so
    what is left has stood as far from the place between them as what is left of a pair in the other order.

    Args:
        max_tokens: most tokens of both.
        segments: as the model is to see them.
    """
    first, second, labels = segments
    from_first, from_second = tokens_to_take(max_tokens, first.length, second.length)
    cut_first = Runs(first.begin + from_first, first.length - from_first)
    return Segments(cut_first, Runs(second.begin, second.length - from_second), labels)


def tokens_to_take(max_tokens: int, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many tokens each of two segments loses when they are taken one by one from the longer one.

    Args:
        max_tokens: most tokens of both.
        first, second: int64, lengths; of equally long ones the second loses the next token.
    """
    excess = np.maximum(first + second - max_tokens, 0)
    difference = np.clip(first - second, -excess, excess)
    rest = excess - np.abs(difference)
    return np.maximum(difference, 0) + rest // 2, np.maximum(-difference, 0) + rest - rest // 2


def chosen(condition: np.ndarray, these: Runs, others: Runs) -> Runs:
    """These runs where the condition holds, elsewhere the others."""
    return Runs(np.where(condition, these.begin, others.begin), np.where(condition, these.length, others.length))
