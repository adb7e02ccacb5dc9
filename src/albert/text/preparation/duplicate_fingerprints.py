"""What is kept of documents to know them again: a key of the text and, for near duplicates, a signature.

WORK/fingerprints/UNIT-BATCH.keys.npy        [documents, 3] uint64: a 128-bit hash of the text, and its bytes
                  UNIT-BATCH.bands.npy       [bands, documents] uint32, and
                  UNIT-BATCH.signatures.npy  [documents, hashes] uint16: see `duplicate_sketches.py`
                  UNIT-BATCH.places.jsonl    where each document comes from, and how it begins
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from albert.runtime.durable_files import new_file
from albert.runtime.late_modules import load_by_name
from albert.runtime.manifests import FileSum, file_hash
from albert.text.preparation.unit_preparation import Stage, UnitJob, UnitNotes, batches, documents_of
from albert.text.readers.reading import CorpusReport, size_in_bytes

FINGERPRINTS = "fingerprints"
KEYS_NAME, BANDS_NAME, SIGNATURES_NAME, PLACES_NAME = (
    f"fingerprints/{{}}.{end}" for end in ("keys.npy", "bands.npy", "signatures.npy", "places.jsonl")
)
BEGINNING = 120
"""Characters of a document that are kept to show it."""


@dataclass(frozen=True)
class FingerprintJob:
    """Some documents to remember; with `near`, by signatures too."""

    name: str
    sources: tuple[str, ...]
    texts: tuple[bytes, ...]
    near: bool
    directory: Path

    @property
    def digest(self) -> str:
        """A hash of the documents, and of where they are."""
        digest = hashlib.blake2b(digest_size=16)
        for source, text in zip(self.sources, self.texts, strict=True):
            for part in (source.encode("utf-8", "surrogatepass"), text):
                digest.update(len(part).to_bytes(8, "little"))
                digest.update(part)
        return digest.hexdigest()


@dataclass(frozen=True)
class Fingerprints:
    """What was kept of some documents.

    Attributes:
        name: of the batch of documents.
        digest: of the job.
        documents: how many.
        files: what was written, by names below the work folder.
    """

    name: str
    digest: str
    documents: int
    files: dict[str, FileSum]


@dataclass
class UnitFingerprints(UnitNotes):
    """What was kept of a unit."""

    shards: tuple[Fingerprints, ...] = ()


def text_key(text: str) -> bytes:
    """A 128-bit hash of a text; runs of white space are one blank, and those at its ends nothing."""
    collapsed = " ".join(text.split())
    return hashlib.blake2b(collapsed.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def fingerprint_jobs(
    job: UnitJob, read: CorpusReport, advance: Callable[[int], None] | None = None
) -> Iterator[FingerprintJob]:
    """The documents of a unit in batches; `read` counts them."""
    near = job.settings.duplicates == "near"
    for number, (sources, texts) in enumerate(batches(documents_of(job, read, advance), job.settings.shard_bytes)):
        yield FingerprintJob(f"{job.name}-{number:05d}", sources, texts, near, job.directory)


def fingerprint_arrays(texts: Sequence[str], near: bool) -> dict[str, np.ndarray]:
    """What is kept of some documents, by the pattern of a file's name.

    Raises:
        Unavailable: near duplicates are asked for, and the library is not installed.
    """
    keys = np.frombuffer(b"".join(map(text_key, texts)), dtype="<u8").reshape(-1, 2)
    sizes = np.array([size_in_bytes(text) for text in texts], dtype="<u8")
    arrays = {KEYS_NAME: np.column_stack((keys, sizes))}
    if near:
        sketches = load_by_name("albert.text.preparation.duplicate_sketches", "duplicates")
        signatures = sketches.signatures_of(texts)
        arrays |= {BANDS_NAME: sketches.bands_of(signatures), SIGNATURES_NAME: sketches.shortened(signatures)}
    return arrays


def fingerprint(job: FingerprintJob) -> Fingerprints:
    """Write down what is kept of some documents.

    Raises:
        Unavailable: as `fingerprint_arrays`.
    """
    texts = [text.decode("utf-8", "surrogatepass") for text in job.texts]
    files: dict[str, FileSum] = {}
    for pattern, array in fingerprint_arrays(texts, job.near).items():
        with new_file(job.directory / (name := pattern.format(job.name))) as temporary:
            with open(temporary, "wb") as opened:
                np.save(opened, array, allow_pickle=False)
            files[name] = _sum(temporary)
    with new_file(job.directory / (name := PLACES_NAME.format(job.name))) as temporary:
        places = zip(job.sources, (" ".join(text[:BEGINNING].split()) for text in texts), strict=True)
        temporary.write_text("".join(json.dumps(place) + "\n" for place in places))
        files[name] = _sum(temporary)
    return Fingerprints(job.name, job.digest, len(texts), files)


def _sum(path: Path) -> FileSum:
    return FileSum(path.stat().st_size, file_hash(path))


FINGERPRINTING = Stage(FINGERPRINTS, UnitFingerprints, Fingerprints, fingerprint_jobs, fingerprint)
