"""Counter-based random numbers: every draw is a pure function of a name, a seed and a position.

There is no global generator, so no draw depends on the number of workers, ranks or restarts.
`stream` returns a numpy generator; `item_keys` and `draw` return random numbers for whole arrays at once."""

import hashlib
from functools import lru_cache

import numpy as np


def stream(name: str, seed: int, *position: int) -> np.random.Generator:
    """A generator that depends only on a name ("order", "masking", …), a seed and a position (epoch, sample, step)."""
    return np.random.Generator(np.random.Philox(key=stream_key(name, seed, *position)))


def stream_key(name: str, seed: int, *position: int) -> int:
    """The 128-bit key under `stream`, for generators of other libraries."""
    text = "/".join((name, str(seed), *map(str, position)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


# --------------------------------------------------------------------------------------------------------------------
# Random numbers for whole arrays at once.
#
# SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014) is a counter
# followed by a mixing function: number i of the sequence of `key` is mix(key + (i + 1)·γ). So any indices can be
# drawn, in any order, in one call. A key is itself such a number, of a purpose, a seed, an epoch and an item.

GAMMA = np.uint64(0x9E3779B97F4A7C15)
"""2^64 / the golden ratio, odd: the step of the counter."""
_SECOND_GAMMA = np.uint64(0xD1342543DE82EF95)
"""Another odd step, for draws with two indices."""


def item_keys(purpose: str, seed: int, epoch: int, items: np.ndarray) -> np.ndarray:
    """A key for each item of an epoch: uint64, shaped as `items`. Different purposes give independent draws."""
    return draw(_epoch_key(purpose, seed, epoch), items)


def draw(keys: np.ndarray | np.uint64, indices: np.ndarray | int, second: np.ndarray | None = None) -> np.ndarray:
    """64 random bits for each key (uint64) and index (int64), which are broadcast; `second` is another index."""
    counters = np.atleast_1d(np.asarray(indices)).astype(np.uint64)
    counters += np.uint64(1)
    counters *= GAMMA
    bits = keys + counters
    if second is not None:
        bits += second.astype(np.uint64) * _SECOND_GAMMA
    return mix(bits)


def mix(bits: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser (Stafford's variant 13 of MurmurHash3's), in place."""
    bits ^= bits >> np.uint64(30)
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(27)
    bits *= np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return bits


def high_bits(bits: np.ndarray) -> np.ndarray:
    """The upper 32 bits, as uint64."""
    return bits >> np.uint64(32)


def low_bits(bits: np.ndarray) -> np.ndarray:
    """The lower 32 bits, as uint64: independent of the upper ones."""
    return bits & np.uint64(0xFFFFFFFF)


def uniform(bits32: np.ndarray) -> np.ndarray:
    """float64 in [0, 1) from 32 bits."""
    return bits32 * 2.0**-32


def bounded(bits32: np.ndarray, bound: np.ndarray | int) -> np.ndarray:
    """int64 in [0, bound) from 32 bits; probabilities differ by a factor of 1 + bound / 2^32 at most."""
    return ((bits32 * np.asarray(bound).astype(np.uint64)) >> np.uint64(32)).astype(np.int64)


@lru_cache(maxsize=256)
def _epoch_key(purpose: str, seed: int, epoch: int) -> np.uint64:
    return np.uint64(stream_key(purpose, seed, epoch) & 0xFFFFFFFFFFFFFFFF)
