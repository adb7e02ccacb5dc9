"""Second segments from other documents, for next-sentence prediction (paper §4.6)."""

import numpy as np

from albert.pretraining.draws import below, draw, high
from albert.pretraining.segments import SequenceTable
from albert.pretraining.sentence_order import Runs

CANDIDATES = 20


def foreign_segments(
    table: SequenceTable, document: np.ndarray, usual_length: np.ndarray, room: np.ndarray, keys: np.ndarray
) -> Runs:
    """Segments of whole sentences of other documents, that fit where ours were.

    Of several candidates the one closest in length to our own second segment is taken, so that length says little. One
    that would have to be cut is taken only where no other is found.

    Args:
        table: sequences to take second segments from, of two documents at least.
        document: int64 [segments], the document not to take each from.
        usual_length: int64 [segments], tokens of the segment in whose place it comes.
        room: int64 [segments], most tokens.
        keys: uint64 [segments], of the draws.
    """
    candidates = below(high(draw(keys[:, None], np.arange(CANDIDATES))), len(table))
    own = table.document[candidates] == document[:, None]
    again = np.flatnonzero(own.all(axis=1))
    place = CANDIDATES
    while len(again):
        one = below(high(draw(keys[again], place)), len(table))
        other = table.document[one] != document[again]
        candidates[again[other], 0], own[again[other], 0] = one[other], False
        again, place = again[~other], place + 1
    split, end = table.split[candidates], table.end[candidates]
    begins = np.where(split < end, split, table.begin[candidates])
    lengths = end - begins
    misfit = np.abs(lengths - usual_length[:, None])
    misfit += np.where(lengths > room[:, None], 1 << 40, 0)
    misfit += np.where(own, 1 << 41, 0)
    best = np.argmin(misfit, axis=1, keepdims=True)
    begin, length = (np.take_along_axis(column, best, axis=1)[:, 0] for column in (begins, lengths))
    return Runs(begin, np.minimum(length, room))
