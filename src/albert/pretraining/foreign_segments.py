"""Second segments from other documents, for next-sentence prediction (paper §4.6)."""

import numpy as np

from albert.pretraining.draws import below, draw, high
from albert.pretraining.segments import SequenceTable
from albert.pretraining.sentence_order import Runs

EQUAL_TRIES, TRIES = 8, 40
"""Draws among segments of equal length, and all draws, each from twice as far around as the one before."""


class SecondSegments:
    """The second segments of a table, by length: each may stand behind any first segment.

    A true second segment and a foreign one are taken from the same segments and are equally long, so that neither
    lengths nor the second segment alone tell which it is.

    Args:
        table: sequences of two documents at least. Where only one of these has a second segment, the sequences of a
            single sentence count as such.
    """

    def __init__(self, table: SequenceTable) -> None:
        two = table.split < table.end
        if len(np.unique(table.document[two])) < 2:
            two |= True
        begin = np.where(table.split < table.end, table.split, table.begin)[two]
        length = table.end[two] - begin
        by_length = np.argsort(length, kind="stable")
        self._begin, self._length = begin[by_length], length[by_length]
        self._document = table.document[two][by_length]

    def foreign(self, document: np.ndarray, length: np.ndarray, room: np.ndarray, keys: np.ndarray) -> Runs:
        """Segments of other documents, of equal length where there is one, else of a length nearby.

        Args:
            document: int64 [segments], the document not to take each from.
            length: int64 [segments], tokens of the segment in whose place it comes.
            room: int64 [segments], most tokens; one that is longer is cut, and taken only where no other is found.
            keys: uint64 [segments], of the draws.
        """
        first = np.searchsorted(self._length, length)
        last = np.searchsorted(self._length, length, side="right")
        fitting = np.searchsorted(self._length, room, side="right")
        chosen = np.zeros(len(keys), dtype=np.int64)
        waiting = np.arange(len(keys))
        for place in range(TRIES):
            wider = 0 if place < EQUAL_TRIES else 1 << (place - EQUAL_TRIES)
            begin = np.maximum(first[waiting] - wider, 0)
            end = np.minimum(last[waiting] + wider, fitting[waiting])
            drawn = begin + below(high(draw(keys[waiting], place)), np.maximum(end - begin, 1))
            drawn = np.minimum(drawn, len(self._length) - 1)
            found = (self._document[drawn] != document[waiting]) & (begin < end)
            chosen[waiting[found]] = drawn[found]
            waiting = waiting[~found]
            if len(waiting) == 0:
                break
        else:
            chosen[waiting] = self._next_of_another(first[waiting] % len(self._length), document[waiting])
        return Runs(self._begin[chosen], np.minimum(self._length[chosen], room))

    def _next_of_another(self, places: np.ndarray, document: np.ndarray) -> np.ndarray:
        """From each place on, the first segment that is of another document; behind the last the first one follows."""
        ends = np.flatnonzero(self._document != np.roll(self._document, -1))
        next_run = (ends[np.searchsorted(ends, places) % len(ends)] + 1) % len(self._document)
        return np.where(self._document[places] != document, places, next_run)
