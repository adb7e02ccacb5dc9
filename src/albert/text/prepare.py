"""Text and a tokenizer to token shards, in parallel; the same bytes for any number of processes."""

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from albert import __version__
from albert.runtime.durable_files import new_directory
from albert.runtime.errors import InvalidConfiguration, MissingInput
from albert.runtime.progress import progress
from albert.runtime.strict_json import save_json
from albert.text.corpus import CorpusReport, DocumentBoundary, read_corpus
from albert.text.corpus_files import find_corpus_files
from albert.text.shard_encoding import (
    SPLITS,
    ShardJob,
    ShardResult,
    SplitCounts,
    encode_shard,
    shard_name,
    token_type,
)
from albert.text.shards import (
    DESCRIPTION_NAME,
    FORMAT,
    CorpusDescription,
    ShardDescription,
    SourceDescription,
)
from albert.text.tokenizer import Tokenizer
from albert.text.worker_processes import in_order

SHARD_BYTES = 16_000_000
NO_TOKENS = "no tokens"


@dataclass
class PreparationReport:
    """What became of the text. Documents and bytes in equal those of the splits plus the dropped ones."""

    documents_in: int = 0
    bytes_in: int = 0
    documents_dropped: Counter[str] = field(default_factory=Counter)
    bytes_dropped: Counter[str] = field(default_factory=Counter)
    sentences_dropped: int = 0
    surrogates_repaired: int = 0
    files: int = 0
    files_ignored: int = 0
    splits: dict[str, SplitCounts] = field(default_factory=lambda: {split: SplitCounts() for split in SPLITS})
    seconds: float = 0.0
    workers: int = 1


def prepare(
    corpus_paths: Sequence[Path],
    tokenizer: Tokenizer,
    output: Path,
    held_out: int | float = 0.01,
    workers: int | None = None,
    seed: int = 0,
    *,
    text_field: str = "text",
    documents: DocumentBoundary = "file",
    language: str = "en",
    shard_bytes: int = SHARD_BYTES,
    replace: bool = False,
) -> PreparationReport:
    """Write a prepared corpus (see `albert.text.shards`), whole or not at all.

    Args:
        corpus_paths: files, folders and patterns (see `albert.text.corpus.read_corpus`).
        tokenizer: encodes the text, and is kept beside the tokens.
        output: the directory to make.
        held_out: share of documents kept for evaluation, 0 to below 1, selected by a hash of seed and text.
        workers: processes; None is one per processor. The result does not depend on it.
        seed: of the selection.
        text_field: the key of the text in a JSON line.
        documents: what a document is in a `.txt` file.
        language: of the sentence splitter.
        shard_bytes: text of one shard, in bytes; a document is never divided.
        replace: whether an existing output may be replaced.

    Raises:
        CannotCreate: the output exists and `replace` is false.
        InvalidConfiguration: a share, worker or shard size out of range.
        MissingInput, UsageError, DamagedData: the corpus cannot be read.
        WriteFailed: the disk is full; nothing is left behind.
        OutOfResources: a worker process was killed.
    """
    workers = workers if workers is not None else (os.cpu_count() or 1)
    for name, value, fine in (
        ("held-out share", held_out, 0 <= held_out < 1),
        ("workers", workers, workers >= 1),
        ("shard bytes", shard_bytes, shard_bytes >= 1),
    ):
        if not fine:
            raise InvalidConfiguration(name, f"{value} is out of range")
    begin = time.monotonic()
    report, read = PreparationReport(workers=workers), CorpusReport()
    size_on_disk = sum(file.size for file in find_corpus_files(corpus_paths)[0])
    with new_directory(output, replace=replace) as directory:
        with progress("Preparing", total=size_on_disk / 1e6, unit="MB on disk") as bar:

            def advance(amount: int) -> None:
                bar.advance(amount / 1e6)
                bar.note(f"{read.documents:,} documents")

            texts = (
                document.text
                for document in read_corpus(
                    corpus_paths, text_field=text_field, documents=documents, report=read, advance=advance
                )
            )
            jobs = (
                ShardJob(number, batch, tokenizer, float(held_out), seed, language, directory)
                for number, batch in enumerate(_batches(texts, shard_bytes))
            )
            shards = _collect(in_order(encode_shard, jobs, workers), report)
        _take_over(read, report)
        if not any(shards.values()):
            raise MissingInput("corpus", f"not one token is left of {read.documents_in:,} documents")
        tokenizer.save(directory)
        save_json(
            directory / DESCRIPTION_NAME,
            CorpusDescription(
                format=FORMAT,
                tokenizer_fingerprint=tokenizer.fingerprint,
                vocab_size=tokenizer.vocab_size,
                token_type=token_type(tokenizer.vocab_size).name,
                language=language,
                held_out_share=float(held_out),
                seed=seed,
                documents_in=report.documents_in,
                bytes_in=report.bytes_in,
                documents_dropped=dict(report.documents_dropped),
                bytes_dropped=dict(report.bytes_dropped),
                sentences_dropped=report.sentences_dropped,
                counts=report.splits,
                shards={split: tuple(found) for split, found in shards.items()},
                sources=tuple(SourceDescription(file.name, file.size) for file in read.sources),
                versions={name: version(name) for name in ("sentencepiece", "sentencex")} | {"albert": __version__},
            ),
        )
    report.seconds = time.monotonic() - begin
    return report


def _batches(texts: Iterable[str], shard_bytes: int) -> Iterator[tuple[str, ...]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text) if text.isascii() else len(text.encode("utf-8"))
        if size >= shard_bytes:
            yield tuple(batch)
            batch, size = [], 0
    if batch:
        yield tuple(batch)


def _collect(results: Iterable[ShardResult], report: PreparationReport) -> dict[str, list[ShardDescription]]:
    shards: dict[str, list[ShardDescription]] = {split: [] for split in SPLITS}
    for result in results:
        for split, counts in result.splits.items():
            report.splits[split].add(counts)
            if counts.documents:
                shards[split].append(
                    ShardDescription(shard_name(result.number), counts.documents, counts.sentences, counts.tokens)
                )
        if result.documents_dropped:
            report.documents_dropped[NO_TOKENS] += result.documents_dropped
            report.bytes_dropped[NO_TOKENS] += result.bytes_dropped
        report.sentences_dropped += result.sentences_dropped
    return shards


def _take_over(read: CorpusReport, report: PreparationReport) -> None:
    report.documents_in, report.bytes_in = read.documents_in, read.bytes_in
    report.documents_dropped.update(read.dropped)
    report.bytes_dropped.update(read.dropped_bytes)
    report.surrogates_repaired = read.surrogates_repaired
    report.files, report.files_ignored = read.files, read.files_ignored
