"""Which documents of a corpus come again: by equal keys, or by signatures that agree; the first one stays.

Everything is sorted, nothing is compared with everything; fingerprints are read from memory-mapped files.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32, Int64, UInt64

from albert.runtime.errors import OutOfResources
from albert.runtime.progress import progress
from albert.text.preparation.duplicate_fingerprints import BANDS_NAME, KEYS_NAME, SIGNATURES_NAME, Fingerprints

LEAST_SIMILARITY = 0.8
"""Share of equal hashes of two signatures from which on documents are nearly duplicates."""
MOST_DOCUMENTS = 1 << 32
_PAIRS_AT_ONCE, _OPEN_FILES = 1 << 15, 256
_LOW = np.uint64(MOST_DOCUMENTS - 1)


@dataclass(frozen=True)
class Recurrences:
    """Documents of a corpus, numbered in its order, and which of them come again.

    Attributes:
        stands_for: for every document the one that stays in its place, itself where it stays.
        equal: whether a document has the key of an earlier one.
        bytes: of every document.
    """

    stands_for: Int64[np.ndarray, " documents"]
    equal: Bool[np.ndarray, " documents"]
    bytes: UInt64[np.ndarray, " documents"]

    @property
    def left_out(self) -> Bool[np.ndarray, " documents"]:
        """Which documents do not stay."""
        return self.stands_for != np.arange(len(self.stands_for))


class Signatures:
    """The signatures of all documents, read where they are needed."""

    def __init__(self, batches: Sequence[Fingerprints], directory: Path) -> None:
        self._paths = [directory / SIGNATURES_NAME.format(batch.name) for batch in batches]
        self._starts = np.cumsum([0, *(batch.documents for batch in batches)])
        self._mapped: dict[int, np.ndarray] = {}

    def similarity(
        self, ones: Int64[np.ndarray, " pairs"], others: Int64[np.ndarray, " pairs"]
    ) -> Float32[np.ndarray, " pairs"]:
        """Which share of the hashes is equal, for pairs of documents."""
        found = np.empty(len(ones), dtype=np.float32)
        for start in range(0, len(ones), _PAIRS_AT_ONCE):
            part = slice(start, start + _PAIRS_AT_ONCE)
            found[part] = (self._rows(ones[part]) == self._rows(others[part])).mean(axis=1, dtype=np.float32)
        return found

    def _rows(self, numbers: Int64[np.ndarray, " some"]) -> np.ndarray:
        files = np.searchsorted(self._starts, numbers, side="right") - 1
        order = np.argsort(files, kind="stable")
        rows: np.ndarray | None = None
        for places in np.split(order, np.flatnonzero(np.diff(files[order])) + 1):
            file = int(files[places[0]])
            taken = self._map(file)[numbers[places] - self._starts[file]]
            rows = np.empty((len(numbers), taken.shape[1]), dtype=taken.dtype) if rows is None else rows
            rows[places] = taken
        assert rows is not None
        return rows

    def _map(self, file: int) -> np.ndarray:
        if file not in self._mapped:
            if len(self._mapped) >= _OPEN_FILES:
                self._mapped.pop(next(iter(self._mapped)))  # the one that was opened first
            self._mapped[file] = np.load(self._paths[file], mmap_mode="r").view(np.ndarray)
        return self._mapped[file]


def find_recurrences(batches: Sequence[Fingerprints], directory: Path, near: bool) -> Recurrences:
    """Look for documents that come again.

    A document is left out if an earlier one that stays has the same key or, with `near`, a signature that is alike by
    `LEAST_SIMILARITY`; so whatever is left out is like a document that stays.

    Args:
        batches: what was kept of the documents, in the order of the corpus.
        directory: below which it lies.
        near: whether there are signatures, to be compared.

    Raises:
        OutOfResources: there are too many documents.
    """
    keys = np.concatenate([np.zeros((0, 3), np.uint64), *(_load(directory, KEYS_NAME, batch) for batch in batches)])
    if len(keys) >= MOST_DOCUMENTS:
        why = f"cannot be sought among {len(keys):,} documents"
        raise OutOfResources("duplicates", why, "prepare parts, and merge them")
    stands_for = _first_of_equals(keys)
    equal = stands_for != np.arange(len(keys))
    if near:
        signatures = Signatures(batches, directory)
        _settle(_alike_pairs(batches, directory, np.flatnonzero(~equal), signatures), stands_for, signatures)
        stands_for = stands_for[stands_for]  # an equal one of a document that is left out
    return Recurrences(stands_for, equal, keys[:, 2].copy())


def _first_of_equals(keys: UInt64[np.ndarray, "documents 3"]) -> Int64[np.ndarray, " documents"]:
    order = np.lexsort((keys[:, 1], keys[:, 0]))  # stable: equal ones stay in their order
    new = np.ones(len(keys), dtype=bool)
    new[1:] = (keys[order[1:], 0] != keys[order[:-1], 0]) | (keys[order[1:], 1] != keys[order[:-1], 1])
    first = np.empty(len(keys), dtype=np.int64)
    first[order] = order[np.flatnonzero(new)][np.cumsum(new) - 1]
    return first


def _alike_pairs(
    batches: Sequence[Fingerprints], directory: Path, numbers: Int64[np.ndarray, " some"], signatures: Signatures
) -> UInt64[np.ndarray, " pairs"]:
    """Pairs of documents that are alike, the later one in the high half of a number, sorted.

    Of documents that agree in a band, each is compared with the one before it, and with the first.
    """
    maps = [np.load(directory / BANDS_NAME.format(batch.name), mmap_mode="r") for batch in batches]
    pairs = np.zeros(0, dtype=np.uint64)
    bands = len(maps[0]) if maps else 0
    with progress("Comparing", bands, "bands") as bar:
        for band in range(bands):
            column = np.concatenate([found[band] for found in maps])[numbers]
            order = np.argsort(column, kind="stable")
            again = np.flatnonzero(column[order[1:]] == column[order[:-1]]) + 1  # places where the one before agrees
            if len(again):
                begins = np.flatnonzero(np.diff(again, prepend=-1) != 1)  # of runs of documents that agree
                first = np.repeat(again[begins] - 1, np.diff(begins, append=len(again)))
                earlier = numbers[order[np.concatenate((again - 1, first))]]
                later = numbers[order[np.concatenate((again, again))]]
                pairs = np.union1d(pairs, (later.astype(np.uint64) << np.uint64(32)) | earlier.astype(np.uint64))
            bar.advance()
    later, earlier = _halves(pairs)
    return pairs[signatures.similarity(earlier, later) >= LEAST_SIMILARITY]


def _settle(
    pairs: UInt64[np.ndarray, " pairs"], stands_for: Int64[np.ndarray, " documents"], signatures: Signatures
) -> None:
    """Decide, in the order of the corpus, which documents of the pairs stay."""
    later, earlier = _halves(pairs)
    bounds = np.flatnonzero(np.diff(later, prepend=-1, append=-1))
    for start, stop in itertools.pairwise(bounds.tolist()):
        others, number = earlier[start:stop], int(later[start])
        staying = others[stands_for[others] == others]
        if len(staying) == 0:  # all are left out themselves: is it like one that stays in their place?
            instead = np.unique(stands_for[others])
            staying = instead[signatures.similarity(instead, np.full_like(instead, number)) >= LEAST_SIMILARITY]
        if len(staying):
            stands_for[number] = staying[0]


def _halves(pairs: UInt64[np.ndarray, " pairs"]) -> tuple[Int64[np.ndarray, " pairs"], Int64[np.ndarray, " pairs"]]:
    return (pairs >> np.uint64(32)).astype(np.int64), (pairs & _LOW).astype(np.int64)


def _load(directory: Path, pattern: str, batch: Fingerprints) -> np.ndarray:
    return np.load(directory / pattern.format(batch.name), allow_pickle=False)
