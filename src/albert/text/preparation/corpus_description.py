"""`corpus.json`: what a prepared corpus is, how it was made, and what its shards hold."""

from dataclasses import dataclass, field
from pathlib import Path

from albert.runtime.errors import InvalidConfiguration, MissingInput
from albert.runtime.strict_json import load_json
from albert.text.preparation.shard_encoding import SplitCounts
from albert.text.readers.reading import SourceCounts

DESCRIPTION_NAME = "corpus.json"
FORMAT = 1


@dataclass(frozen=True)
class ShardDescription:
    """The size of one shard of one split."""

    name: str
    documents: int
    sentences: int
    tokens: int


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
    sources: tuple[SourceCounts, ...]
    versions: dict[str, str]
    noted: dict[str, int] = field(default_factory=dict)
    """What was mended while reading, and how often."""


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
