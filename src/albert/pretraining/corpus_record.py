"""What a run was trained on, kept in its `corpora.json`, so that another corpus is refused with what differs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from albert.runtime.errors import InvalidConfiguration
from albert.runtime.manifests import MANIFEST_NAME, file_hash
from albert.runtime.strict_json import load_json, save_json
from albert.text.preparation.shards import TokenCorpus
from albert.training.run_folder import RunFolder

RECORD_NAME = "corpora.json"


@dataclass(frozen=True, kw_only=True)
class CorpusRecord:
    """A prepared corpus."""

    name: str
    """The end of its path; it may lie elsewhere now."""
    documents: int
    tokens: int
    tokenizer: str
    """The fingerprint of its tokenizer."""
    manifest: str
    """SHA-256 of its manifest, and so of all its bytes."""

    def __str__(self) -> str:
        size = f"{self.documents:,} documents, {self.tokens:,} tokens"
        return f"{self.name} ({size}, tokenizer {self.tokenizer[:8]}, manifest {self.manifest[:8]})"


@dataclass(frozen=True, kw_only=True)
class CorpusRecords:
    """All corpora of a run, in their order."""

    corpora: tuple[CorpusRecord, ...]

    def __str__(self) -> str:
        return " and ".join(map(str, self.corpora))


def record_of(corpora: Sequence[TokenCorpus]) -> CorpusRecords:
    """The record of corpora as they are."""
    records = [
        CorpusRecord(
            name=corpus.directory.resolve().name,
            documents=corpus.n_documents,
            tokens=corpus.n_tokens,
            tokenizer=corpus.tokenizer_fingerprint,
            manifest=file_hash(corpus.directory / MANIFEST_NAME),
        )
        for corpus in corpora
    ]
    return CorpusRecords(corpora=tuple(records))


def keep_corpora(run: RunFolder, corpora: Sequence[TokenCorpus]) -> None:
    """Save what a new run is trained on; refuse to go on with a run of other corpora.

    A run that was begun before there were such records is left to the fingerprints of its checkpoints.

    Args:
        run: its folder, locked.
        corpora: as they were asked for.

    Raises:
        InvalidConfiguration: the run was trained on others, or on these in another order.
    """
    now, path = record_of(corpora), run.path / RECORD_NAME
    if path.exists():
        kept = load_json(CorpusRecords, path)
        if [each.manifest for each in kept.corpora] != [each.manifest for each in now.corpora]:
            why = f"this run was started with the corpus {kept}, now it is {now}"
            raise InvalidConfiguration(run.path, why, "give the run's own corpus, or choose another output")
    elif not run.checkpoints():
        save_json(Path(path), now)
