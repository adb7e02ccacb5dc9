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
KEYS = 2**64
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
    also_held_out: int | None = None
    """The key of a document that is held out though the share does not reach it (see `held_out_key`)."""
    divided: bool = False
    """Whether the last sentences of the document are held out, rather than whole documents."""

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
    lowest_key: int = KEYS
    highest_key: int = -1
    """Of the keys of the documents for training: which one a larger share would hold out first, and last."""


@dataclass
class _Arrays:
    counts: SplitCounts = field(default_factory=SplitCounts)
    tokens: list[np.ndarray] = field(default_factory=list)
    sentence_lengths: list[np.ndarray] = field(default_factory=list)
    document_lengths: list[int] = field(default_factory=list)


def held_out_key(text: str, seed: int) -> int:
    """A hash of a document's text and the seed, below 2^64: documents of small keys are held out first.

    Equal texts land on one side, whatever their place in the corpus.
    """
    key = stream_key("held out", seed).to_bytes(16, "little")
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), key=key, digest_size=8).digest()
    return int.from_bytes(digest, "big")


def is_held_out(key: int, share: float) -> bool:
    """Whether a document of this key belongs to the held-out split."""
    return key < share * float(KEYS)


def last_sentences(n_sentences: int, share: float) -> int:
    """How many sentences of a single document are held out: the share, two at least, and never more than half."""
    return max(min(2, n_sentences // 2), min(round(share * n_sentences), n_sentences // 2))


def token_type(vocab_size: int) -> np.dtype:
    """The smallest type on disk that holds every id: uint16 up to 65,536 pieces, else uint32."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


def encode_shard(job: ShardJob) -> ShardResult:
    """Split, encode and write the documents of one shard below `job.directory`."""
    arrays = {split: _Arrays() for split in SPLITS}
    type_on_disk = token_type(job.tokenizer.vocab_size)
    dropped = bytes_dropped = sentences_dropped = bytes_in = 0
    lowest, highest = KEYS, -1

    def add(split: str, tokens: np.ndarray, lengths: np.ndarray, size: int) -> None:
        part = arrays[split]
        part.tokens.append(tokens.astype(type_on_disk))
        part.sentence_lengths.append(lengths.astype("<u4"))
        part.document_lengths.append(len(lengths))
        unknown = int(np.count_nonzero(tokens == job.tokenizer.unk_id))
        part.counts.add(SplitCounts(1, len(lengths), len(tokens), unknown, size))

    for encoded in job.texts:
        text, size = encoded.decode("utf-8", "surrogatepass"), len(encoded)
        bytes_in += size
        sentences = split_sentences(text, job.language, job.as_lines)
        tokens, lengths = job.tokenizer.encode_joined(sentences)
        filled = lengths[lengths > 0]
        sentences_dropped += len(lengths) - len(filled)
        if len(filled) == 0:
            dropped += 1
            bytes_dropped += size
            continue
        key = held_out_key(text, job.seed)
        last = last_sentences(len(filled), job.held_out) if job.divided else 0
        if is_held_out(key, job.held_out) or key == job.also_held_out:
            add("held_out", tokens, filled, size)
        elif last:
            tokens_before = int(filled[:-last].sum())
            first = int(np.flatnonzero(lengths > 0)[-last])
            size_behind = sum(len(sentence.encode("utf-8", "surrogatepass")) for sentence in sentences[first:])
            add("train", tokens[:tokens_before], filled[:-last], size - size_behind)
            add("held_out", tokens[tokens_before:], filled[-last:], size_behind)
        else:
            lowest, highest = min(lowest, key), max(highest, key)
            add("train", tokens, filled, size)
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
        lowest_key=lowest,
        highest_key=highest,
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
