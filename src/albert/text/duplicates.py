"""Deduplication of documents: of equal texts, with runs of white space as one blank, the first one is kept.

The workers that later encode the text read it once more to hash it. One process then compares all hashes; the result
depends only on the text and its order. A million documents take 0.07 GB of memory, and 0.02 GB on disk until the corpus
is complete. Merged corpora are not compared. `examples/near_duplicates.py` drops documents that are nearly the same."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Bool, UInt64

from albert.runtime.manifest import FileSum
from albert.text.executors import KEPT_NAME, DocumentBatch, ExecutorOptions, Stage, UnitJob, run_stage
from albert.text.readers import CorpusReport, utf8_length
from albert.text.shards import save_arrays

# --------------------------------------------------------------------------------------------------------------------
# Fingerprints of documents.
#
# WORK/fingerprints/UNIT-BATCH.keys.npy  [documents, 3] uint64: a 128-bit hash of the text, and its bytes

FINGERPRINTS = "fingerprints"
KEYS_NAME = "fingerprints/{}.keys.npy"


@dataclass(frozen=True)
class Fingerprints:
    """The file with the fingerprints of a batch of documents."""

    name: str
    digest: str
    documents: int
    files: dict[str, FileSum]


def text_hash(text: str) -> bytes:
    """Return a 128-bit hash of a text with white space collapsed."""
    collapsed = " ".join(text.split())
    return hashlib.blake2b(collapsed.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def fingerprint_batch(batch: DocumentBatch) -> Fingerprints:
    """Write the fingerprints of a batch of documents."""
    texts = [text.decode("utf-8") for text in batch.texts]
    hashes = np.frombuffer(b"".join(map(text_hash, texts)), dtype="<u8").reshape(-1, 2)
    sizes = np.array([utf8_length(text) for text in texts], dtype="<u8")
    files = save_arrays(batch.directory, {KEYS_NAME.format(batch.name): np.column_stack((hashes, sizes))})
    return Fingerprints(batch.name, batch.digest, len(texts), files)


FINGERPRINTING = Stage(FINGERPRINTS, Fingerprints, fingerprint_batch)


# ---- The search: the first document with each hash is kept ---------------------------------------------------------


def find_duplicates(
    batches: Sequence[Fingerprints], directory: Path
) -> tuple[Bool[np.ndarray, " documents"], UInt64[np.ndarray, " documents"]]:
    """Find the documents with the hash of an earlier one.

    Returns:
        for every document of the corpus, in its order: whether it is kept; the bytes of its text.
    """
    arrays = [np.load(directory / KEYS_NAME.format(batch.name)) for batch in batches]
    keys = np.concatenate([np.zeros((0, 3), np.uint64), *arrays])
    order = np.lexsort((keys[:, 1], keys[:, 0]))  # stable: equal hashes stay in the order of the corpus
    is_new = np.ones(len(keys), dtype=bool)
    is_new[1:] = (keys[order[1:], 0] != keys[order[:-1], 0]) | (keys[order[1:], 1] != keys[order[:-1], 1])
    kept = np.empty(len(keys), dtype=bool)
    kept[order] = is_new
    return kept, keys[:, 2].copy()


DUPLICATE = "duplicate of an earlier document"


def drop_duplicates(jobs: Sequence[UnitJob], options: ExecutorOptions) -> tuple[list[UnitJob], list[CorpusReport]]:
    """Search for duplicates; return the jobs without them, and the counts to add to those of reading."""
    if not jobs or jobs[0].settings.duplicates == "keep":
        return list(jobs), []
    units = run_stage(FINGERPRINTING, jobs, options, "Looking for duplicates")
    batches = [batch for unit in units for batch in unit.shards]
    kept, sizes = find_duplicates(batches, jobs[0].directory)
    counts = CorpusReport.dropped_later(DUPLICATE, int((~kept).sum()), int(sizes[~kept].sum()))
    ends = np.cumsum([sum(batch.documents for batch in unit.shards) for unit in units])
    remaining = []
    for job, kept_of_job in zip(jobs, np.split(kept, ends[:-1]), strict=True):
        if not kept_of_job.all():
            save_arrays(job.directory, {KEPT_NAME.format(job.name): kept_of_job})
            job = replace(job, dropped=hashlib.blake2b(kept_of_job.tobytes(), digest_size=16).hexdigest())
        remaining.append(job)
    return remaining, [counts]
