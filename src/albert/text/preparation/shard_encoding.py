"""A run of documents to the files of one shard, whoever does it."""

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from albert.runtime.durable_files import new_file
from albert.runtime.manifests import FileSum
from albert.runtime.randomness import stream_key
from albert.text.sentences import split_sentences
from albert.text.tokenizer import Tokenizer

SPLITS = ("train", "held_out")
TOKENS_NAME, SENTENCES_NAME, DOCUMENTS_NAME = "{}.tokens.bin", "{}.sentences.npy", "{}.documents.npy"


@dataclass
class SplitCounts:
    """What one split holds; `bytes` are bytes of UTF-8 text."""

    documents: int = 0
    sentences: int = 0
    tokens: int = 0
    unknown_tokens: int = 0
    bytes: int = 0

    def add(self, other: "SplitCounts") -> None:
        """Add the counts of another part of the same split."""
        for name in ("documents", "sentences", "tokens", "unknown_tokens", "bytes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(frozen=True)
class ShardJob:
    """The documents of one shard and all that encoding them depends on."""

    name: str
    texts: tuple[bytes, ...]
    """In UTF-8: it takes a half or a quarter of the memory, in every process that has them."""
    tokenizer: Tokenizer
    held_out: float
    seed: int
    language: str
    as_lines: bool
    directory: Path

    @property
    def digest(self) -> str:
        """A hash of the documents."""
        digest = hashlib.blake2b(digest_size=16)
        for text in self.texts:
            digest.update(len(text).to_bytes(8, "little"))
            digest.update(text)
        return digest.hexdigest()


@dataclass(frozen=True)
class ShardResult:
    """What was written for one job, and what was dropped because no token was left of it."""

    name: str
    digest: str
    documents_in: int
    bytes_in: int
    splits: dict[str, SplitCounts]
    documents_dropped: int
    bytes_dropped: int
    sentences_dropped: int
    files: dict[str, FileSum]
    """The files by their names below the directory, all flushed to the disk."""


@dataclass
class _Arrays:
    counts: SplitCounts = field(default_factory=SplitCounts)
    tokens: list[np.ndarray] = field(default_factory=list)
    sentence_lengths: list[np.ndarray] = field(default_factory=list)
    document_lengths: list[int] = field(default_factory=list)


def is_held_out(text: str, share: float, seed: int) -> bool:
    """Whether a document belongs to the held-out split: a hash of its text and the seed decides.

    Equal texts land on one side, whatever their place in the corpus.
    """
    key = stream_key("held out", seed).to_bytes(16, "little")
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), key=key, digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2.0**64


def token_type(vocab_size: int) -> np.dtype:
    """The smallest type on disk that holds every id: uint16 up to 65,536 pieces, else uint32."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


def encode_shard(job: ShardJob) -> ShardResult:
    """Split, encode and write the documents of one shard below `job.directory`."""
    arrays = {split: _Arrays() for split in SPLITS}
    type_on_disk = token_type(job.tokenizer.vocab_size)
    dropped = bytes_dropped = sentences_dropped = bytes_in = 0
    for encoded in job.texts:
        text, size = encoded.decode("utf-8", "surrogatepass"), len(encoded)
        bytes_in += size
        tokens, lengths = job.tokenizer.encode_joined(split_sentences(text, job.language, job.as_lines))
        filled = lengths[lengths > 0]
        sentences_dropped += len(lengths) - len(filled)
        if len(filled) == 0:
            dropped += 1
            bytes_dropped += size
            continue
        part = arrays["held_out" if is_held_out(text, job.held_out, job.seed) else "train"]
        part.tokens.append(tokens.astype(type_on_disk))
        part.sentence_lengths.append(filled.astype("<u4"))
        part.document_lengths.append(len(filled))
        unknown = int(np.count_nonzero(tokens == job.tokenizer.unk_id))
        part.counts.add(SplitCounts(1, len(filled), len(tokens), unknown, size))
    files: dict[str, FileSum] = {}
    for split, part in arrays.items():
        if part.document_lengths:
            files |= _write(job.directory, split, job.name, part)
    return ShardResult(
        name=job.name,
        digest=job.digest,
        documents_in=len(job.texts),
        bytes_in=bytes_in,
        splits={split: part.counts for split, part in arrays.items()},
        documents_dropped=dropped,
        bytes_dropped=bytes_dropped,
        sentences_dropped=sentences_dropped,
        files=files,
    )


def _write(directory: Path, split: str, name: str, part: _Arrays) -> dict[str, FileSum]:
    arrays = {
        TOKENS_NAME: np.concatenate(part.tokens),
        SENTENCES_NAME: np.concatenate(part.sentence_lengths),
        DOCUMENTS_NAME: np.array(part.document_lengths, dtype="<u4"),
    }
    sums = {}
    for pattern, array in arrays.items():
        file = f"{split}/{pattern.format(name)}"
        with new_file(directory / file) as temporary:
            if pattern == TOKENS_NAME:
                array.tofile(temporary)
            else:
                with open(temporary, "wb") as opened:
                    np.save(opened, array, allow_pickle=False)
            with open(temporary, "rb") as opened:
                sums[file] = FileSum(os.path.getsize(temporary), hashlib.file_digest(opened, "sha256").hexdigest())
    return sums
