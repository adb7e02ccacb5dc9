"""Long texts as overlapping windows, in which every token is read and one of which has most context for it."""

from collections.abc import Sequence

import numpy as np


def cut_windows(n_tokens: int, room: int, stride: int) -> list[tuple[int, int]]:
    """`(start, stop)` of pieces of at most `room` tokens, `stride` apart, that cover all tokens; at least one piece."""
    pieces = []
    start = 0
    while True:
        stop = min(start + room, n_tokens)
        pieces.append((start, stop))
        if stop == n_tokens:
            return pieces
        start += min(stride, room)


def best_windows(pieces: Sequence[tuple[int, int]], n_tokens: int) -> list[np.ndarray]:
    """For each piece, a bool mask of its tokens that have the most context there; each token is in exactly one mask.

    Context is the smaller number of tokens to the left or right, plus 0.01 x the length of the piece, as in the
    reference; the first piece wins a tie.
    """
    most = np.full(n_tokens, -1.0)
    winner = np.zeros(n_tokens, np.int64)
    for row, (start, stop) in enumerate(pieces):
        left = np.arange(stop - start)
        context = np.minimum(left, left[::-1]) + 0.01 * (stop - start)
        more = np.flatnonzero(context > most[start:stop])
        most[start + more] = context[more]
        winner[start + more] = row
    return [winner[start:stop] == row for row, (start, stop) in enumerate(pieces)]
