"""How much there is to attend to, by formula: pairs of tokens that see each other, and scores that are computed.

Without a window every token sees every other. With one it sees [CLS] and the tokens at most `window` places away, and
[CLS] sees all; those scores are computed in blocks (`albert.model.window_attention`), which are a little more.
"""

SMALLEST_BLOCK = 32
"""Tokens; products of smaller blocks would take more time than they leave out."""


def covers(window: int, length: int) -> bool:
    """Whether every token sees every other, as it does without a window: the first behind [CLS] sees the last."""
    return window >= length - 2


def seen_pairs(length: int, window: int | None) -> int:
    """Pairs of a token and one that it sees, itself among them, in one sequence.

    Args:
        length: tokens of the sequence.
        window: tokens to either side; None: all of them.
    """
    if window is None or covers(window, length):
        return length * length
    band = length * (2 * window + 1) - window * (window + 1)  # at each end, the triangle that lies outside
    return band + 2 * (length - 1 - window)  # [CLS] and those too far for the window see each other all the same


def computed_scores(length: int, window: int | None) -> int:
    """Scores that one head computes for one sequence.

    Args:
        length: tokens of the sequence.
        window: tokens to either side; None: all of them.
    """
    blocks, rows, columns = score_matrices(length, window)
    return blocks * rows * columns + (length if blocks > 1 else 0)


def copied_vectors(length: int, window: int | None) -> int:
    """Queries, keys and values of one sequence that are copied to lie beside each other in blocks, in all heads.

    Args:
        length: tokens of the sequence.
        window: tokens to either side; None: all of them.
    """
    if window is None or attends_at_once(length, window):
        return 0
    blocks, rows, columns = score_matrices(length, window)
    return blocks * (rows + 2 * columns)


def score_matrices(length: int, window: int | None) -> tuple[int, int, int]:
    """How many matrices of scores a head has for one sequence, their rows and their columns, without the row of [CLS].

    Args:
        length: tokens of the sequence.
        window: tokens to either side; None: all of them.
    """
    if window is None or attends_at_once(length, window):
        return 1, length, length
    block = block_size(window)
    return n_blocks(length, window), block, 1 + 3 * block


def attends_at_once(length: int, window: int) -> bool:
    """Whether dense attention under a mask is faster: blocks copy what they see, and spare less than a third."""
    return covers(window, length) or 2 * length * length <= 3 * _scores_in_blocks(length, window)


def block_size(window: int) -> int:
    """Tokens of a block; it sees one block to either side, and a window reaches no further."""
    return max(window, SMALLEST_BLOCK)


def n_blocks(length: int, window: int) -> int:
    """Blocks that the tokens behind [CLS] are cut into; the last one is filled up."""
    return -(-(length - 1) // block_size(window))


def _scores_in_blocks(length: int, window: int) -> int:
    block = block_size(window)
    return length + n_blocks(length, window) * block * (1 + 3 * block)
