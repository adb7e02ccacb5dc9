"""A prepared corpus on disk: token shards with sentence and document boundaries, memory-mapped.

`OUT/corpus.json` describes it; `OUT/train` and `OUT/held_out` hold, for each shard, the token ids one after
the other, the length of every sentence in tokens, and the length of every document in sentences.
"""

import bisect
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Int64

from albert.runtime.durable_files import verify_directory
from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput
from albert.runtime.strict_json import load_json
from albert.text.shard_encoding import DOCUMENTS_NAME, SENTENCES_NAME, TOKENS_NAME, SplitCounts, token_type
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_directory import load_tokenizer

DESCRIPTION_NAME = "corpus.json"
FORMAT = 1
Split = Literal["train", "held_out"]


@dataclass(frozen=True)
class ShardDescription:
    """The size of one shard of one split."""

    name: str
    documents: int
    sentences: int
    tokens: int


@dataclass(frozen=True)
class SourceDescription:
    """A file the corpus was made from."""

    name: str
    bytes: int


@dataclass(frozen=True)
class CorpusDescription:
    """`corpus.json`: what a prepared corpus is and how it was made."""

    format: int
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
    sources: tuple[SourceDescription, ...]
    versions: dict[str, str]


def read_description(directory: Path) -> CorpusDescription:
    """What `corpus.json` says.

    Raises:
        MissingInput: no such corpus.
        DamagedData: no JSON.
        InvalidConfiguration: written by a version that this one does not understand.
    """
    if not (directory / DESCRIPTION_NAME).is_file():
        raise MissingInput(directory, f"holds no {DESCRIPTION_NAME}", "`albert prepare` makes such a directory")
    description = load_json(CorpusDescription, directory / DESCRIPTION_NAME)
    if description.format != FORMAT:
        why = f"has format {description.format}, this version reads {FORMAT}"
        raise InvalidConfiguration(directory, why, "prepare the corpus again")
    return description


class TokenCorpus:
    """One split of a prepared corpus as one long run of tokens.

    Attributes:
        directory: where the prepared corpus is.
        split: "train" or "held_out".
        description: what `corpus.json` says.
        sentence_starts: [n_sentences + 1] where in the run each sentence begins; the last entry is the end.
        document_starts: [n_documents + 1] the first sentence of each document; the last entry is the end.
    """

    sentence_starts: Int64[np.ndarray, " sentences_and_end"]
    document_starts: Int64[np.ndarray, " documents_and_end"]

    def __init__(self, directory: Path, split: Split, description: CorpusDescription) -> None:
        self.directory, self.split, self.description = directory, split, description
        shards = description.shards[split]
        self._tokens = [self._map_tokens(shard) for shard in shards]
        self._shard_ends = np.cumsum([shard.tokens for shard in shards]).tolist()
        self.sentence_starts = self._starts([self._lengths(s, SENTENCES_NAME, s.sentences, s.tokens) for s in shards])
        self.document_starts = self._starts(
            [self._lengths(s, DOCUMENTS_NAME, s.documents, s.sentences) for s in shards]
        )

    @classmethod
    def open(cls, directory: Path, split: Split = "train", verify: bool = True) -> "TokenCorpus":
        """Open one split of what `albert prepare` wrote.

        Args:
            directory: the prepared corpus.
            split: "train" or "held_out".
            verify: whether every file is checked against its SHA-256 first (a pass over the whole corpus).

        Raises:
            MissingInput: no such corpus, or nothing in this split.
            DamagedData: a file is damaged, or the tokenizer is not the one the corpus was made with.
            InvalidConfiguration: written by a version that this one does not understand.
        """
        description = read_description(directory)
        if verify:
            verify_directory(directory)
        if not load_tokenizer(directory).answers_to(description.tokenizer_fingerprint):
            raise DamagedData(directory, "its tokenizer files are not those it was made with", "prepare it again")
        if not description.shards.get(split):
            raise MissingInput(directory, f"holds no {split} documents", "prepare it with another --held-out share")
        return cls(directory, split, description)

    @property
    def n_tokens(self) -> int:
        """Tokens of this split."""
        return self._shard_ends[-1]

    @property
    def n_sentences(self) -> int:
        """Sentences of this split."""
        return len(self.sentence_starts) - 1

    @property
    def n_documents(self) -> int:
        """Documents of this split."""
        return len(self.document_starts) - 1

    @property
    def tokenizer_fingerprint(self) -> str:
        """The fingerprint of the tokenizer that made the tokens; of the present kind, whichever is recorded."""
        return self.tokenizer().fingerprint

    @property
    def vocab_size(self) -> int:
        """The number of pieces of that tokenizer; every token is smaller."""
        return self.description.vocab_size

    def tokenizer(self) -> Tokenizer:
        """The tokenizer that made the tokens."""
        return self._tokenizer

    def read(self, start: int, stop: int) -> Int64[np.ndarray, " tokens"]:
        """The tokens of places start..stop of the run, wherever shards end.

        Raises:
            IndexError: the places are not within the run.
        """
        if not 0 <= start <= stop <= self.n_tokens:
            raise IndexError(f"tokens {start}..{stop} of {self.n_tokens}")
        parts = []
        shard = bisect.bisect_right(self._shard_ends, start)
        while start < stop:
            end = self._shard_ends[shard]
            first = end - len(self._tokens[shard])
            parts.append(self._tokens[shard][start - first : min(stop, end) - first])
            start, shard = min(stop, end), shard + 1
        if len(parts) == 1:
            return parts[0].astype(np.int64)
        return np.concatenate([np.empty(0, np.int64), *parts], dtype=np.int64)

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return load_tokenizer(self.directory)

    def _map_tokens(self, shard: ShardDescription) -> np.ndarray:
        path = self.directory / self.split / TOKENS_NAME.format(shard.name)
        type_on_disk = token_type(self.vocab_size)
        self._check_size(path, shard.tokens * type_on_disk.itemsize)
        return np.memmap(path, dtype=type_on_disk, mode="r").view(np.ndarray)

    def _lengths(self, shard: ShardDescription, name: str, count: int, total: int) -> np.ndarray:
        path = self.directory / self.split / name.format(shard.name)
        try:
            lengths = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise DamagedData(path, "is not an array of lengths") from error
        if lengths.shape != (count,) or int(lengths.sum(dtype=np.int64)) != total:
            raise DamagedData(path, f"does not hold {count:,} lengths with the sum {total:,}")
        return lengths

    @staticmethod
    def _starts(lengths: list[np.ndarray]) -> np.ndarray:
        starts = np.zeros(sum(map(len, lengths)) + 1, dtype=np.int64)
        np.cumsum(np.concatenate(lengths), dtype=np.int64, out=starts[1:])
        return starts

    @staticmethod
    def _check_size(path: Path, expected: int) -> None:
        try:
            size = path.stat().st_size
        except OSError as error:
            raise DamagedData(path, error.strerror or "cannot be read") from error
        if size != expected:
            raise DamagedData(path, f"has {size:,} bytes, {DESCRIPTION_NAME} says {expected:,}")
