"""Token shards of a prepared corpus: their files, `corpus.json`, and memory-mapped reading.

`OUT/corpus.json` describes the corpus. `OUT/train` and `OUT/held_out` hold, for each shard, the token ids, the length
of every sentence in tokens, and the length of every document in sentences."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tokenize import TokenError
from typing import Any, Literal

import numpy as np
from jaxtyping import Int64

from albert.runtime.errors import DamagedData, MissingInput
from albert.runtime.files import new_file
from albert.runtime.json_files import load_versioned
from albert.runtime.manifest import MANIFEST_NAME, FileSum, file_hash, open_input, verify_directory
from albert.runtime.words import counted
from albert.text.readers import SourceCounts
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_loading import load_tokenizer
from albert.text.wrapping import LineCounts

SPLITS = ("train", "held_out")
TOKENS_NAME = "{}.tokens.bin"
SENTENCES_NAME = "{}.sentences.npy"
DOCUMENTS_NAME = "{}.documents.npy"


@dataclass
class SplitCounts:
    """Counts of one split; `bytes` are bytes of UTF-8 text."""

    documents: int = 0
    sentences: int = 0
    tokens: int = 0
    unknown_tokens: int = 0
    bytes: int = 0


def token_type(vocab_size: int) -> np.dtype:
    """Return the type of token ids on disk: uint16 up to 65,536 pieces, else uint32."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


def save_arrays(directory: Path, arrays: Mapping[str, np.ndarray]) -> dict[str, FileSum]:
    """Write arrays to files, flushed to the disk: `.bin` without a header, `.npy` with one."""
    sums = {}
    for name, array in arrays.items():
        with new_file(directory / name) as temporary:
            if name.endswith(".bin"):
                array.tofile(temporary)
            else:
                with open(temporary, "wb") as opened:
                    np.save(opened, array, allow_pickle=False)
            sums[name] = FileSum(temporary.stat().st_size, file_hash(temporary))
    return sums


FEW_TOKENS = 100_000


def few_tokens(tokens: int) -> str:
    """A line about a corpus of fewer than `FEW_TOKENS` training tokens."""
    return f"{tokens:,} training tokens are few, a model learns a language from many millions"


# ---- The description of a prepared corpus --------------------------------------------------------------------------

DESCRIPTION_NAME = "corpus.json"


@dataclass(frozen=True)
class ShardDescription:
    """The size of one shard of one split."""

    name: str
    documents: int
    sentences: int
    tokens: int


@dataclass(frozen=True)
class CorpusDescription:
    """`corpus.json`: how a prepared corpus was made, and what its shards hold.

    `noted` counts repairs while reading; `also_held_out` is that of `albert.text.executors.PreparationSettings`."""

    tokenizer_fingerprint: str
    vocab_size: int
    token_type: str
    language: str
    held_out_share: float
    seed: int
    documents_in: int
    bytes_in: int
    documents_dropped: dict[str, int]
    bytes_dropped: dict[str, int]
    sentences_dropped: int
    counts: dict[str, SplitCounts]
    shards: dict[str, tuple[ShardDescription, ...]]
    sources: tuple[SourceCounts, ...]
    versions: dict[str, str]
    noted: dict[str, int] = field(default_factory=dict)
    also_held_out: tuple[int, ...] = ()
    lines: LineCounts = field(default_factory=LineCounts)


def read_description(directory: Path) -> CorpusDescription:
    """Read `corpus.json`."""
    if not (directory / DESCRIPTION_NAME).is_file():
        raise MissingInput(directory, f"holds no {DESCRIPTION_NAME}", "`albert prepare` makes such a directory")
    return load_versioned(CorpusDescription, directory / DESCRIPTION_NAME)


OPEN_SHARDS = 128
"""Token files that are mapped at a time: each takes a file descriptor, and many systems allow 1,024."""
Split = Literal["train", "held_out"]
_NPY = b"\x93NUMPY\x01\x00"  # the first bytes that `numpy.save` writes


@dataclass(frozen=True)
class ShardLengths:
    """Lengths in a shard: uint32 [sentences] in tokens, and uint32 [documents] in sentences."""

    sentences: np.ndarray
    documents: np.ndarray


class TokenCorpus:
    """One split of a prepared corpus as one memory-mapped run of tokens.

    Attributes:
        shard_starts: [n_shards + 1] the position of the first token of each shard; the last entry is the end.
    """

    shard_starts: Int64[np.ndarray, " shards_and_end"]

    def __init__(self, directory: Path, split: Split, description: CorpusDescription) -> None:
        self.directory = directory
        self.split = split
        self.description = description
        self._shards = description.shards[split]
        self._mapped: dict[int, np.ndarray] = {}
        for number, shard in enumerate(self._shards):
            path = self._path(shard, TOKENS_NAME)
            expected = shard.tokens * token_type(self.vocab_size).itemsize
            try:
                size = path.stat().st_size
            except OSError as error:
                raise DamagedData(path, error.strerror or "cannot be read") from error
            if size != expected:
                raise DamagedData(path, f"has {size:,} bytes, {DESCRIPTION_NAME} says {expected:,}")
            lengths = self.lengths(number)
            for name, array, count, total in (
                (SENTENCES_NAME, lengths.sentences, shard.sentences, shard.tokens),
                (DOCUMENTS_NAME, lengths.documents, shard.documents, shard.sentences),
            ):
                if array.shape != (count,) or int(array.sum(dtype=np.int64)) != total:
                    why = f"does not hold {count:,} lengths with the sum {total:,}"
                    raise DamagedData(self._path(shard, name), why)
        self.shard_starts = np.cumsum([0, *(shard.tokens for shard in self._shards)], dtype=np.int64)

    @classmethod
    def open(cls, directory: Path, split: Split = "train", verify: bool = True) -> "TokenCorpus":
        """Open one split of what `albert prepare` wrote.

        Args:
            verify: check every file against its SHA-256 first, which reads the whole corpus.

        Raises:
            MissingInput: no such corpus, or nothing in this split.
            DamagedData: a file is damaged, or the tokenizer is not the one the corpus was made with.
        """
        if verify and (directory / DESCRIPTION_NAME).is_file():
            verify_directory(directory)
        description = read_description(directory)
        if load_tokenizer(directory).fingerprint != description.tokenizer_fingerprint:
            raise DamagedData(directory, "its tokenizer files are not those it was made with", "prepare it again")
        if not description.shards.get(split):
            raise MissingInput(directory, f"holds no {split} documents", "prepare it with another --held-out share")
        return cls(directory, split, description)

    @property
    def n_tokens(self) -> int:
        return int(self.shard_starts[-1])

    @property
    def n_sentences(self) -> int:
        return sum(shard.sentences for shard in self._shards)

    @property
    def n_documents(self) -> int:
        return sum(shard.documents for shard in self._shards)

    @property
    def n_shards(self) -> int:
        return len(self._shards)

    @property
    def sentence_starts(self) -> Int64[np.ndarray, " sentences_and_end"]:
        """[n_sentences + 1] the first token of each sentence; the last entry is the end. Not cached."""
        return _starts([self.lengths(number).sentences for number in range(self.n_shards)])

    @property
    def document_starts(self) -> Int64[np.ndarray, " documents_and_end"]:
        """[n_documents + 1] the first sentence of each document; the last entry is the end. Not cached."""
        return _starts([self.lengths(number).documents for number in range(self.n_shards)])

    @property
    def tokenizer_fingerprint(self) -> str:
        """The fingerprint of the tokenizer."""
        return self.tokenizer().fingerprint

    @property
    def vocab_size(self) -> int:
        """The number of pieces of the tokenizer; every token id is smaller."""
        return self.description.vocab_size

    def tokenizer(self) -> Tokenizer:
        return self._tokenizer

    def read(self, start: int, stop: int) -> Int64[np.ndarray, " tokens"]:
        """Return the tokens from start to stop, across shards."""
        if not 0 <= start <= stop <= self.n_tokens:
            raise IndexError(f"tokens {start}..{stop} of {self.n_tokens}")
        tokens = np.empty(stop - start, dtype=np.int64)
        self.copy_runs(tokens, np.array([0]), np.array([start]), np.array([stop - start]))
        return tokens

    def copy_runs(
        self,
        out: Int64[np.ndarray, " places"],
        places: Int64[np.ndarray, " runs"],
        starts: Int64[np.ndarray, " runs"],
        lengths: Int64[np.ndarray, " runs"],
    ) -> None:
        """Copy many runs of tokens at once, across shards. Bounds are not checked.

        Args:
            places: the position in `out` of each run.
            starts, lengths: of each run in the corpus.
        """
        while len(lengths):
            shards = np.searchsorted(self.shard_starts, starts, side="right") - 1
            available = self.shard_starts[np.minimum(shards + 1, self.n_shards)] - starts
            copied = np.minimum(lengths, available)
            tokens = {shard: self.tokens(shard) for shard in np.unique(shards[lengths > 0]).tolist()}
            first = starts - self.shard_starts[shards]
            bounds = (places.tolist(), (places + copied).tolist(), first.tolist(), (first + copied).tolist())
            for shard, place, place_end, begin, end in zip(shards.tolist(), *bounds, strict=True):
                if begin < end:
                    out[place:place_end] = tokens[shard][begin:end]
            rest = lengths > available  # these runs continue in the next shard
            places, starts, lengths = (column[rest] for column in (places + copied, starts + copied, lengths - copied))

    def tokens(self, shard: int) -> np.ndarray:
        """Return the memory-mapped tokens of a shard, in their type on disk."""
        mapped = self._mapped.get(shard)
        if mapped is None:
            path = self._path(self._shards[shard], TOKENS_NAME)
            mapped = np.memmap(path, dtype=token_type(self.vocab_size), mode="r").view(np.ndarray)
            if len(self._mapped) >= OPEN_SHARDS:
                self._mapped.pop(next(iter(self._mapped)))  # the oldest
            self._mapped[shard] = mapped
        return mapped

    def lengths(self, shard: int) -> ShardLengths:
        sentences, documents = (self._path(self._shards[shard], name) for name in (SENTENCES_NAME, DOCUMENTS_NAME))
        return ShardLengths(_map_lengths(sentences), _map_lengths(documents))

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the mapped files; another process maps them itself."""
        return self.__dict__ | {"_mapped": {}}

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return load_tokenizer(self.directory)

    def _path(self, shard: ShardDescription, name: str) -> Path:
        return self.directory / self.split / name.format(shard.name)


def _map_lengths(path: Path) -> np.ndarray:
    try:
        with open_input(path) as file:
            if file.read(len(_NPY)) != _NPY:  # other versions allow a header of gigabytes
                raise DamagedData(path, "is not an array of lengths")
        lengths = np.lib.format.open_memmap(path, mode="r").view(np.ndarray)
    except (OSError, ValueError, EOFError, SyntaxError, TokenError, TypeError, OverflowError) as error:
        # numpy parses the header as Python
        raise DamagedData(path, "is not an array of lengths") from error
    if lengths.dtype != np.uint32 or lengths.ndim != 1:
        raise DamagedData(path, f"holds {lengths.dtype} of shape {lengths.shape}, a row of uint32 is expected")
    return lengths


def _starts(lengths: list[np.ndarray]) -> np.ndarray:
    starts = np.zeros(sum(map(len, lengths)) + 1, dtype=np.int64)
    np.cumsum(np.concatenate(lengths), dtype=np.int64, out=starts[1:])
    return starts


# --------------------------------------------------------------------------------------------------------------------
# A corpus in the record of a run.


@dataclass(frozen=True, kw_only=True)
class CorpusRecord:
    """A prepared corpus that a run reads."""

    name: str
    """The last part of its path when the run was started."""
    documents: int
    tokens: int
    tokenizer: str
    """The fingerprint of its tokenizer."""
    manifest: str
    """SHA-256 of its manifest, which has those of its files."""

    def __str__(self) -> str:
        size = f"{counted(self.documents, 'documents')}, {counted(self.tokens, 'tokens')}"
        return f"{self.name} ({size}, tokenizer {self.tokenizer[:8]})"


def corpus_record(corpus: TokenCorpus) -> CorpusRecord:
    """The record of an opened corpus."""
    return CorpusRecord(
        name=corpus.directory.resolve().name,
        documents=corpus.n_documents,
        tokens=corpus.n_tokens,
        tokenizer=corpus.tokenizer_fingerprint,
        manifest=file_hash(corpus.directory / MANIFEST_NAME),
    )
