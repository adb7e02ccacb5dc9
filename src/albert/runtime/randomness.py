"""Named random streams: every draw is a pure function of a name, a seed and a position.

Nothing draws from a global generator, so no draw depends on how many workers, ranks or restarts came before it.
"""

import hashlib

import numpy as np


def stream(name: str, seed: int, *position: int) -> np.random.Generator:
    """A generator that depends on its arguments alone.

    Args:
        name: what the draws are for ("order", "masking", …); different names give independent streams.
        seed: the seed of the run.
        position: where in the run: epoch, sample, step.
    """
    return np.random.Generator(np.random.Philox(key=stream_key(name, seed, *position)))


def stream_key(name: str, seed: int, *position: int) -> int:
    """The 128-bit key under `stream`, for generators of other libraries."""
    text = "/".join((name, str(seed), *map(str, position)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")
