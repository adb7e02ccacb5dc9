"""Deduplication of documents, exact or near: fingerprints, the search, and what is left out. The first copy stays.

*exact*: the same text but for white space; case, punctuation and accents count.
*near*: also documents that are 80 % the same: the share of common runs of five words among all runs of both, as
MinHash signatures estimate it; needs the extra `duplicates`.

The text is read once more for that, before it is encoded, by the same workers. Then one process looks for duplicates
among all documents; the result depends on the text and its order alone. For a million documents it takes 0.07 GB of
memory and 3 s (measured), and 0.2 GB on disk until the corpus is whole, 0.5 GB for *near*. Corpora that are merged
afterwards are not compared with each other."""

import hashlib
import itertools
import json
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32, Int64, UInt32, UInt64

from albert.runtime.environment import load_by_name
from albert.runtime.errors import OutOfResources
from albert.runtime.files import new_file, write_bytes
from albert.runtime.manifest import FileSum, file_hash
from albert.runtime.progress import progress
from albert.text.executors import STAYING_NAME, Batch, Stage, UnitJob, Workforce, run_stage
from albert.text.readers import size_in_bytes
from albert.text.shards import DUPLICATES_NAME, save_arrays

# --------------------------------------------------------------------------------------------------------------------
# MinHash signatures of runs of words (Broder 1997): alike where the documents are alike.
#
# A word is a run of letters and digits, lower-cased, or one ideograph: punctuation, case and blanks make no difference.

RUN = 5
"""Words of a run; a shorter document is one run."""
HASHES = 128
"""Of a signature: the share of equal ones estimates |A ∩ B| / |A ∪ B| with a standard error of 0.035 at 0.8."""
BANDS, ROWS = 21, 6
"""Documents are compared whose signatures agree in one band of six: 99.8 % of the pairs that are alike by 0.8."""
SEED = 0
_WORDS_OF_ASCII = bytes(
    ord(chr(code).lower()) if re.match(r"\w", chr(code), re.ASCII) else ord(" ") for code in range(256)
)
_IDEOGRAPHS = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_IDEOGRAPHS}]|[^\W{_IDEOGRAPHS}]+")
_FACTOR, _MIXER, _HALF = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93), np.uint64(32)


def signatures_of(texts: Sequence[str]) -> UInt32[np.ndarray, "documents hashes"]:
    """The MinHash signatures of some documents."""
    runs = [runs_of_words(text) for text in texts]
    bounds = np.cumsum([0, *map(len, runs)], dtype=np.uint64)
    flat = np.concatenate([*runs, np.zeros(0, dtype=np.uint64)])
    library = load_by_name("rensa", "duplicates")
    rows = library.RMinHash.digest_matrix_from_flat_token_hashes(flat, bounds, HASHES, SEED).to_rows()
    return np.array(rows, dtype=np.uint32).reshape(len(texts), HASHES)


def bands_of(signatures: UInt32[np.ndarray, "documents hashes"]) -> UInt32[np.ndarray, "bands documents"]:
    """A hash of every band of a signature: equal for documents that agree in it."""
    hashes = signatures[:, : BANDS * ROWS].astype(np.uint64).reshape(-1, BANDS, ROWS)
    return (_combined(hashes) >> _HALF).astype(np.uint32).T


def runs_of_words(text: str) -> UInt64[np.ndarray, " runs"]:
    """A hash of every run of words; a document without words is alike to none but its equals."""
    hashes = [*map(zlib.crc32, words_of(text))] or [zlib.crc32(text.encode("utf-8", "surrogatepass")), len(text)]
    words = np.array(hashes, dtype=np.uint64)
    return _combined(np.lib.stride_tricks.sliding_window_view(words, min(RUN, len(words))))


def words_of(text: str) -> list[bytes]:
    """The words of a text, as UTF-8."""
    if text.isascii():
        return text.encode().translate(_WORDS_OF_ASCII).split()
    return [word.encode("utf-8", "surrogatepass") for word in _WORD.findall(text.lower())]


def _combined(hashes: UInt64[np.ndarray, "*many each"]) -> UInt64[np.ndarray, "*many"]:
    """One hash for several in a row, and for their number."""
    total = np.full(hashes.shape[:-1], hashes.shape[-1], dtype=np.uint64)
    for place in range(hashes.shape[-1]):
        total = total * _FACTOR + hashes[..., place]
    total = (total ^ (total >> _HALF)) * _MIXER
    return total ^ (total >> _HALF)


# --------------------------------------------------------------------------------------------------------------------
# Fingerprints of documents: a hash of the text and, for near duplicates, a MinHash signature.
#
# WORK/fingerprints/UNIT-BATCH.keys.npy        [documents, 3] uint64: a 128-bit hash of the text, and its bytes
#                   UNIT-BATCH.bands.npy       [bands, documents] uint32, and
#                   UNIT-BATCH.signatures.npy  [documents, hashes] uint16, MinHash
#                   UNIT-BATCH.places.jsonl    where each document comes from, and how it begins

FINGERPRINTS = "fingerprints"
KEYS_NAME, BANDS_NAME, SIGNATURES_NAME, PLACES_NAME = (
    f"fingerprints/{{}}.{end}" for end in ("keys.npy", "bands.npy", "signatures.npy", "places.jsonl")
)
BEGINNING = 120
"""Characters of a document that are kept to show it."""


@dataclass(frozen=True)
class Fingerprints:
    """What was kept of some documents."""

    name: str
    digest: str
    documents: int
    files: dict[str, FileSum]


def text_key(text: str) -> bytes:
    """A 128-bit hash of a text; runs of white space are one blank, and those at its ends nothing."""
    collapsed = " ".join(text.split())
    return hashlib.blake2b(collapsed.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def fingerprint_arrays(texts: Sequence[str], near: bool) -> dict[str, np.ndarray]:
    """What is kept of some documents, by the pattern of a file's name."""
    keys = np.frombuffer(b"".join(map(text_key, texts)), dtype="<u8").reshape(-1, 2)
    sizes = np.array([size_in_bytes(text) for text in texts], dtype="<u8")
    arrays = {KEYS_NAME: np.column_stack((keys, sizes))}
    if near:
        signatures = signatures_of(texts)
        # In half the bytes, one pair of hashes in 65,536 becomes equal by chance.
        arrays |= {BANDS_NAME: bands_of(signatures), SIGNATURES_NAME: signatures.astype(np.uint16)}
    return arrays


def fingerprint(batch: Batch) -> Fingerprints:
    """Write down what is kept of some documents."""
    texts = [text.decode("utf-8", "surrogatepass") for text in batch.texts]
    arrays = fingerprint_arrays(texts, batch.settings.duplicates == "near")
    files = save_arrays(batch.directory, {pattern.format(batch.name): array for pattern, array in arrays.items()})
    with new_file(batch.directory / (name := PLACES_NAME.format(batch.name))) as temporary:
        places = zip(batch.sources, (" ".join(text[:BEGINNING].split()) for text in texts), strict=True)
        temporary.write_text("".join(json.dumps(place) + "\n" for place in places))
        files[name] = FileSum(temporary.stat().st_size, file_hash(temporary))
    return Fingerprints(batch.name, batch.digest, len(texts), files)


FINGERPRINTING = Stage(FINGERPRINTS, Fingerprints, fingerprint)


# --------------------------------------------------------------------------------------------------------------------
# The search for duplicates: equal hashes, or similar signatures; the first document stays.
#
# Everything is sorted, nothing is compared with everything; fingerprints are read from memory-mapped files.

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
    """

    stands_for: Int64[np.ndarray, " documents"]
    equal: Bool[np.ndarray, " documents"]
    bytes: UInt64[np.ndarray, " documents"]

    @property
    def left_out(self) -> Bool[np.ndarray, " documents"]:
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
    """
    found = [np.load(directory / KEYS_NAME.format(batch.name)) for batch in batches]
    keys = np.concatenate([np.zeros((0, 3), np.uint64), *found])
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


EXACT_DUPLICATE, NEAR_DUPLICATE = "duplicate of an earlier document", "nearly a duplicate of an earlier document"
SHOWN = 1000
"""Documents that were left out and are named in a file, at most; spread evenly over the corpus."""


@dataclass
class Leftovers:
    """Documents and bytes of text that are left out, by reason; and how many of them a file shows."""

    documents: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    shown: int = 0


def leave_out_duplicates(jobs: Sequence[UnitJob], workforce: Workforce) -> tuple[list[UnitJob], Leftovers]:
    """The jobs, each with the documents that it is to leave out."""
    if not jobs or jobs[0].settings.duplicates == "keep":
        return list(jobs), Leftovers()
    settings, directory = jobs[0].settings, jobs[0].directory
    units = run_stage(FINGERPRINTING, jobs, workforce, "Looking for duplicates")
    batches = [batch for unit in units for batch in unit.shards]
    found = find_recurrences(batches, directory, settings.duplicates == "near")
    ends = np.cumsum([sum(batch.documents for batch in unit.shards) for unit in units])
    staying = np.split(~found.left_out, ends[:-1])
    leftovers = Leftovers(shown=_show(found, batches, jobs[0]))
    for reason, which in (
        (EXACT_DUPLICATE, found.left_out & found.equal),
        (NEAR_DUPLICATE, found.left_out & ~found.equal),
    ):
        if which.any():
            leftovers.documents[reason] = int(which.sum())
            leftovers.bytes[reason] = int(found.bytes[which].sum())
    return [_leave_out(job, stays) for job, stays in zip(jobs, staying, strict=True)], leftovers


def _leave_out(job: UnitJob, staying: np.ndarray) -> UnitJob:
    if staying.all():
        return job
    save_arrays(job.directory, {STAYING_NAME.format(job.name): staying})
    return replace(job, left_out=hashlib.blake2b(staying.tobytes(), digest_size=16).hexdigest())


def _show(found: Recurrences, batches: Sequence[Fingerprints], job: UnitJob) -> int:
    """Name some documents that were left out, and what stays in their place; the least similar come first."""
    numbers = np.flatnonzero(found.left_out)
    numbers = numbers[np.linspace(0, len(numbers) - 1, min(SHOWN, len(numbers))).round().astype(np.int64)]
    instead = found.stands_for[numbers]
    similarity = np.ones(len(numbers), dtype=np.float32)
    if job.settings.duplicates == "near":
        similarity = Signatures(batches, job.directory).similarity(numbers, instead)
    places = _places({*numbers.tolist(), *instead.tolist()}, batches, job.directory)
    lines = []
    for row in np.argsort(similarity, kind="stable").tolist():
        source, beginning = places[int(numbers[row])]
        other_source, other_beginning = places[int(instead[row])]
        shown = {"left_out": source, "stays": other_source, "similarity": round(float(similarity[row]), 2)}
        shown |= {"left_out_begins": beginning, "stays_begins": other_beginning}
        lines.append(json.dumps(shown, ensure_ascii=False) + "\n")
    # A file's name may be no text: its odd bytes are written as escapes of JSON.
    write_bytes(job.directory / DUPLICATES_NAME, "".join(lines).encode("utf-8", "backslashreplace"))
    return len(lines)


def _places(numbers: set[int], batches: Sequence[Fingerprints], directory: Path) -> dict[int, tuple[str, str]]:
    found: dict[int, tuple[str, str]] = {}
    starts = np.cumsum([0, *(batch.documents for batch in batches)])
    batch_of = np.searchsorted(starts, sorted(numbers), side="right") - 1
    for batch, group in itertools.groupby(zip(batch_of.tolist(), sorted(numbers), strict=True), lambda pair: pair[0]):
        lines = (directory / PLACES_NAME.format(batches[batch].name)).read_text(encoding="utf-8").splitlines()
        for _, number in group:
            source, beginning = json.loads(lines[number - starts[batch]])
            found[number] = source, beginning
    return found
