"""Preparation of a corpus: text files and a tokenizer to token shards, for pre-training.

1. All files, each once, in a fixed order: `find_corpus_files`.
2. Consecutive files of 64 MB are a unit of work. Units know nothing of each other: `run_stage` makes a pass over all of
   them in processes of this machine or on a cluster, and the corpus does not depend on how many there are.
3. With duplicates="exact" a first pass finds documents that repeat an earlier one: `drop_duplicates`.
4. The main pass reads each unit as documents (a file, the text between blank lines, a line, a row of a table) and takes
   these in batches of 8 MB: `document_batches`, over `albert.text.corpus.read_files`.
5. `encode_shard`, below, makes the shard of a batch: documents to sentences, sentences to token ids, a document to its
   split by a hash of its text, and the three files of each split.
6. If the share of held-out documents selects none, one is held out: `_hold_out_at_least_one`.
7. The finished shards become the directory of the corpus, with tokenizer, `corpus.json` and manifest: `_assemble`.

A stopped preparation resumes: finished shards and units are in OUTPUT.unfinished until the corpus is complete.
From shards to batches: `albert.pretraining.sampling`."""

import dataclasses
import errno
import hashlib
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from albert import __version__
from albert.runtime.errors import CannotCreate, InvalidConfiguration, WriteFailed, require_range
from albert.runtime.files import locked, new_directory, remove_directory, remove_leftovers
from albert.runtime.json_files import common_fields, flatten, read_versioned, save_json, save_versioned, to_json
from albert.runtime.manifest import FileSum
from albert.runtime.random_streams import stream_key
from albert.text.corpus import find_corpus_files
from albert.text.duplicates import drop_duplicates
from albert.text.executors import (
    ENGINE_LOGS,
    RESULTS,
    DocumentBatch,
    Engine,
    ExecutorOptions,
    PreparationSettings,
    SlurmSettings,
    Stage,
    UnitJob,
    UnitResult,
    document_batches,
    grouped,
    run_stage,
)
from albert.text.readers import CorpusReport, utf8_length
from albert.text.sentences import check_language, split_sentences
from albert.text.shards import (
    DESCRIPTION_NAME,
    DOCUMENTS_NAME,
    FEW_TOKENS,
    SENTENCES_NAME,
    SPLITS,
    TOKENS_NAME,
    CorpusDescription,
    ShardDescription,
    SplitCounts,
    few_tokens,
    save_arrays,
    token_type,
)
from albert.text.tokenizer import Tokenizer
from albert.text.wrapping import LineCounts

NO_TOKENS = "no tokens"
Fallback = Literal["", "document", "sentences"]


@dataclass
class PreparationReport(CorpusReport):
    """Counts of the text that was read, dropped, and written.

    A single document that is divided counts once in each split.

    Attributes:
        shards_found: shards that an earlier, stopped preparation had finished.
        held_out_fallback: what is held out where the share selects no document.
    """

    sentences_dropped: int = 0
    splits: dict[str, SplitCounts] = field(default_factory=dict)
    seconds: float = 0.0
    workers: int = 1
    shards_found: int = 0
    held_out_fallback: Fallback = ""

    def remarks(self) -> list[str]:
        tokens = self.splits["train"].tokens
        return [*super().remarks(), *([few_tokens(tokens)] if tokens < FEW_TOKENS else [])]


def prepare(
    corpus_paths: Sequence[Path],
    tokenizer: Tokenizer,
    output: Path,
    settings: PreparationSettings | None = None,
    *,
    workers: int | None = None,
    replace: bool = False,
    engine: Engine = "processes",
    slurm: SlurmSettings | None = None,
) -> PreparationReport:
    """Write a prepared corpus (see `shards.py`) atomically; after a stop the same call resumes.

    Args:
        workers: number of processes; None is one per processor. The result does not depend on it.

    Raises:
        CannotCreate: the output exists and `replace` is false, or unfinished work has other settings.
        InvalidConfiguration: a share, worker or shard size out of range.
        MissingInput, UsageError, DamagedData: the corpus cannot be read.
        WriteFailed: the disk is full; finished shards are kept.
        OutOfResources: a worker process was killed.
        Unavailable: the engine is not installed.
        TryAgain: the work was submitted to Slurm, or a part of it failed; the same call resumes.
    """
    settings = settings or PreparationSettings()
    workers = workers if workers is not None else (os.cpu_count() or 1)
    _check_settings(settings, workers)
    begin = time.monotonic()
    if output.parent.is_dir():
        remove_leftovers(output.parent)
    if os.path.lexists(output) and not replace:
        raise CannotCreate(output, "exists already", "choose another name, or add --replace")
    files, ignored, repeated = find_corpus_files(corpus_paths)
    units = grouped(files, lambda file: file.size, settings.unit_bytes)
    libraries = {name: version(name) for name in ("sentencepiece", "sentencex")}
    work = output.parent / f"{output.name}.unfinished"
    with locked(work, "this preparation") as release:
        try:
            _write_plan(work, settings, tokenizer, libraries)
            jobs = [UnitJob(number, tuple(unit), settings, tokenizer, work) for number, unit in enumerate(units)]
            shards_found = len(list((work / RESULTS).glob("*-*.json")))
            options = ExecutorOptions(workers, engine, slurm or SlurmSettings())
            jobs, duplicates = drop_duplicates(jobs, options)
            results = run_stage(ENCODING, jobs, options, "Preparing")
            fallback, settings = _hold_out_at_least_one(jobs, results, settings)
            report = _report(results, duplicates)
            report.refuse_empty(corpus_paths[0] if len(corpus_paths) == 1 else "corpus")
            if not report.splits["train"].documents:
                remove_directory(work, release)
                count = report.splits["held_out"].documents
                why = f"{settings.held_out:g} leaves none of {count} documents for training"
                raise InvalidConfiguration("held_out", why, "take a smaller share, or another seed")
            report.files_ignored = ignored
            report.files_repeated = repeated
            report.workers = workers
            report.shards_found = shards_found
            report.held_out_fallback = fallback
            sums = {name: file for result in results for shard in result.shards for name, file in shard.files.items()}
            description = _describe(settings, libraries, tokenizer, results, report)
            _assemble(work, description, sums, tokenizer, output, replace)
        except BaseException as error:
            if not any(work.glob("*/*-*.json")) and not (work / ENGINE_LOGS).exists():
                shutil.rmtree(work, ignore_errors=True)  # it holds no finished work
            elif isinstance(error, WriteFailed):
                remedy = f"free space and run the same command, which resumes from {work}"
                raise WriteFailed(error.subject, error.why, remedy) from error
            raise
        remove_directory(work, release)
    report.seconds = time.monotonic() - begin
    return report


# --------------------------------------------------------------------------------------------------------------------
# A batch of documents becomes the files of one shard.

KEY_RANGE = 2**64


@dataclass
class ShardResult:
    """The contents of a shard, and the counts of documents without a token, which are dropped.

    Attributes:
        name, digest: of the batch of documents.
        files: by their names in the directory, all flushed to the disk.
        documents, within_share: all with a token, and those that the share holds out.
        lowest_key, highest_key: of the documents beyond the share (see `held_out_key`).
    """

    name: str
    digest: str
    splits: dict[str, SplitCounts] = field(default_factory=lambda: {split: SplitCounts() for split in SPLITS})
    documents_dropped: int = 0
    bytes_dropped: int = 0
    sentences_dropped: int = 0
    files: dict[str, FileSum] = field(default_factory=dict)
    documents: int = 0
    within_share: int = 0
    lowest_key: int = KEY_RANGE
    highest_key: int = -1
    lines: LineCounts = field(default_factory=LineCounts)


class EncodedDocument(NamedTuple):
    """A document, or the sentences of it that are in one split."""

    tokens: np.ndarray
    """int32 [tokens], one sentence after the other; [CLS] and [SEP] are added in pre-training."""
    lengths: np.ndarray
    """int64 [sentences]: tokens of each, at least 1."""
    bytes: int
    """Of its text in UTF-8."""


def held_out_key(text: str, seed: int) -> int:
    """Return a hash of a text and the seed, below 2^64; the documents with the smallest keys are held out.

    Equal texts are in the same split, wherever they are in the corpus.
    """
    key = stream_key("held out", seed).to_bytes(16, "little")
    digest = hashlib.blake2b(text.encode("utf-8"), key=key, digest_size=8).digest()
    return int.from_bytes(digest, "big")


def is_held_out(key: int, share: float) -> bool:
    """Return whether a document with this key belongs to the held-out split."""
    return key < share * float(KEY_RANGE)


def encode_shard(batch: DocumentBatch, divided: bool = False) -> ShardResult:
    """Divide a batch of documents into sentences, encode them, and write the files of its shard.

    Args:
        divided: hold out the last sentences of every document: the share, at least two, at most half.
    """
    settings = batch.settings
    result = ShardResult(batch.name, batch.digest)
    documents: dict[str, list[EncodedDocument]] = {split: [] for split in SPLITS}
    for encoded in batch.texts:
        text = encoded.decode("utf-8")
        sentences = split_sentences(text, settings.language, settings.as_lines, settings.wrapped, result.lines)
        tokens, lengths = batch.tokenizer.encode_sentences(sentences)
        filled = np.flatnonzero(lengths > 0)
        result.sentences_dropped += len(lengths) - len(filled)
        if len(filled) == 0:
            result.documents_dropped += 1
            result.bytes_dropped += len(encoded)
            continue
        result.documents += 1
        document = EncodedDocument(tokens, lengths[filled], len(encoded))
        key = held_out_key(text, settings.seed)
        within = is_held_out(key, settings.held_out)
        if within:
            result.within_share += 1
        else:
            result.lowest_key = min(result.lowest_key, key)
            result.highest_key = max(result.highest_key, key)
        half = len(filled) // 2 if divided else 0
        n_last = max(min(2, half), min(round(settings.held_out * len(filled)), half))
        if n_last:
            last_bytes = sum(map(utf8_length, sentences[filled[-n_last] :]))
            first, last = _divide(document, n_last, last_bytes)
            documents["train"].append(first)
            documents["held_out"].append(last)
        else:
            held_out = not divided and (within or key in settings.also_held_out)
            documents["held_out" if held_out else "train"].append(document)
    for split in filter(documents.get, SPLITS):
        _write_shard(batch, split, documents[split], result)
    return result


def _divide(document: EncodedDocument, n_last: int, last_bytes: int) -> tuple[EncodedDocument, EncodedDocument]:
    """A document without its last sentences, and these."""
    before = int(document.lengths[:-n_last].sum())
    first = EncodedDocument(document.tokens[:before], document.lengths[:-n_last], document.bytes - last_bytes)
    return first, EncodedDocument(document.tokens[before:], document.lengths[-n_last:], last_bytes)


def _write_shard(batch: DocumentBatch, split: str, documents: Sequence[EncodedDocument], result: ShardResult) -> None:
    """Write the documents of a split, and add their counts and files to the result.

    Two documents, one of sentences of 3 and 2 tokens and one of a sentence of 4, become 9 token ids, the lengths
    [3, 2, 4] of sentences in tokens, and the lengths [2, 1] of documents in sentences.
    """
    vocabulary = batch.tokenizer.vocab_size
    token_ids = np.concatenate([document.tokens for document in documents]).astype(token_type(vocabulary))
    sentences = np.concatenate([document.lengths for document in documents]).astype("<u4")
    sentences_of_documents = np.array([len(document.lengths) for document in documents], dtype="<u4")
    result.splits[split] = SplitCounts(
        documents=len(documents),
        sentences=len(sentences),
        tokens=len(token_ids),
        unknown_tokens=int(np.count_nonzero(token_ids == batch.tokenizer.unk_id)),
        bytes=sum(document.bytes for document in documents),
    )
    arrays = {TOKENS_NAME: token_ids, SENTENCES_NAME: sentences, DOCUMENTS_NAME: sentences_of_documents}
    named = {f"{split}/{pattern.format(batch.name)}": array for pattern, array in arrays.items()}
    result.files |= save_arrays(batch.directory, named)


ENCODING = Stage(RESULTS, ShardResult, encode_shard)


# --------------------------------------------------------------------------------------------------------------------
# What is checked and decided around the passes.


def _check_settings(settings: PreparationSettings, workers: int) -> None:
    check_language(settings.language)
    require_range(settings, "a share from 0 to below 1", "held_out")
    require_range(settings, "at least 1", "unit_bytes")
    if settings.shard_bytes < 1:
        raise InvalidConfiguration("shard_megabytes", f"is {settings.shard_bytes / 1e6:g}, a number above 0 is needed")
    if workers < 1:
        raise InvalidConfiguration("workers", f"is {workers}, at least 1 is needed")


def _write_plan(work: Path, settings: PreparationSettings, tokenizer: Tokenizer, libraries: Mapping[str, str]) -> None:
    """Write what decides the bytes of a corpus; raise CannotCreate if the unfinished work has something else."""
    path = work / "plan.json"
    plan = {"settings": to_json(settings), "tokenizer_fingerprint": tokenizer.fingerprint, "libraries": libraries}
    if path.is_file():
        old = flatten(read_versioned(path))
        new = flatten(plan)
        changes = [
            f"{name.split('.')[-1]} {old[name]} (now {value})"
            for name, value in new.items()
            if old.get(name, value) != value
        ]
        if changes:
            why = f"holds an unfinished preparation with {', '.join(changes)}"
            raise CannotCreate(work, why, "use the same settings to resume, or remove it to start anew")
    save_versioned(path, plan)


def _hold_out_at_least_one(
    jobs: Sequence[UnitJob], results: Sequence[UnitResult], settings: PreparationSettings
) -> tuple[Fallback, PreparationSettings]:
    """If the share holds out nothing, hold out the document with the lowest key; return what is held out.

    Of a single document, hold out the last sentences, if it has two; of equal documents, nothing. The shards with the
    document are encoded again, also if an earlier call was stopped while it did so.
    """
    shards = [shard for result in results for shard in result.shards]
    documents = sum(shard.documents for shard in shards)
    within = sum(shard.within_share for shard in shards)
    divided = documents == 1
    if not settings.held_out or not documents or (within and not divided):
        return "", settings
    lowest = min(shard.lowest_key for shard in shards)
    highest = max(shard.highest_key for shard in shards)
    if lowest == highest and not divided:
        return "", settings
    if not divided:
        settings = dataclasses.replace(settings, also_held_out=(lowest,))
    replaced = {}
    for job, result in zip(jobs, results, strict=True):
        affected = {shard.name for shard in result.shards if divided or shard.lowest_key == lowest}
        for batch in document_batches(job, CorpusReport()) if affected else ():
            if batch.name in affected:
                replaced[batch.name] = encode_shard(dataclasses.replace(batch, settings=settings), divided)
                save_json(ENCODING.path(batch), replaced[batch.name])
        if affected:
            result.shards = tuple(replaced.get(shard.name, shard) for shard in result.shards)
            save_json(ENCODING.path(job), result)
    if not any(shard.splits["held_out"].documents for shard in replaced.values()):
        return "", settings
    return ("sentences" if divided else "document"), settings


def _report(results: Sequence[UnitResult], duplicates: Sequence[CorpusReport]) -> PreparationReport:
    shards = [shard for result in results for shard in result.shards]
    documents = sum(shard.documents_dropped for shard in shards)
    size = sum(shard.bytes_dropped for shard in shards)
    empty = CorpusReport.dropped_later(NO_TOKENS, documents, size)
    lines = CorpusReport(lines=_sum_counts([LineCounts(), *(shard.lines for shard in shards)]))
    return PreparationReport(
        **vars(_sum_counts([empty, *(result.read for result in results), *duplicates, lines])),
        sentences_dropped=sum(shard.sentences_dropped for shard in shards),
        splits=_sum_counts([{split: SplitCounts() for split in SPLITS}, *(shard.splits for shard in shards)]),
    )


def _sum_counts(counts: Sequence[Any]) -> Any:
    """Add numbers, concatenate tuples, and do the same by name in dicts and dataclasses."""
    first = counts[0]
    if is_dataclass(first):
        sums = {
            entry.name: _sum_counts([getattr(count, entry.name) for count in counts])
            for entry in dataclasses.fields(first)
        }
        return type(first)(**sums)  # pyright: ignore[reportCallIssue]
    if isinstance(first, dict):
        names = dict.fromkeys(chain.from_iterable(counts))
        return type(first)({name: _sum_counts([count[name] for count in counts if name in count]) for name in names})
    return tuple(chain.from_iterable(counts)) if isinstance(first, tuple) else sum(counts)


def _describe(
    settings: PreparationSettings,
    libraries: Mapping[str, str],
    tokenizer: Tokenizer,
    results: Sequence[UnitResult],
    report: PreparationReport,
) -> CorpusDescription:
    shards = [shard for result in results for shard in result.shards]
    return CorpusDescription(
        **common_fields(CorpusDescription, settings),
        **common_fields(CorpusDescription, report),
        tokenizer_fingerprint=tokenizer.fingerprint,
        vocab_size=tokenizer.vocab_size,
        token_type=token_type(tokenizer.vocab_size).name,
        held_out_share=float(settings.held_out),
        documents_dropped=report.dropped,
        bytes_dropped=report.dropped_bytes,
        counts=report.splits,
        shards={
            split: tuple(
                ShardDescription(shard.name, counts.documents, counts.sentences, counts.tokens)
                for shard in shards
                if (counts := shard.splits[split]).documents
            )
            for split in SPLITS
        },
        versions={**libraries, "albert": __version__},
    )


# --------------------------------------------------------------------------------------------------------------------
# A corpus from its finished shards, which become hard links (copies if the file system has none): their checksums are
# known, so that a corpus of any size is complete in seconds.

_NO_LINKS = {errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS}


def _assemble(
    work: Path,
    description: CorpusDescription,
    sums: Mapping[str, FileSum],
    tokenizer: Tokenizer,
    output: Path,
    replace: bool,
) -> None:
    """Write the corpus whose shards are in `work`, with their checksums in `sums`."""
    checksums: dict[str, FileSum] = {}
    with new_directory(output, replace=replace, known=checksums) as directory:
        for split in SPLITS:
            if description.shards[split]:
                (directory / split).mkdir()
            for shard in description.shards[split]:
                for pattern in (TOKENS_NAME, SENTENCES_NAME, DOCUMENTS_NAME):
                    name = f"{split}/{pattern.format(shard.name)}"
                    _link(work / name, directory / name)
                    checksums[name] = sums[name]
        tokenizer.save(directory)
        save_versioned(directory / DESCRIPTION_NAME, description)


def _link(old: Path, new: Path) -> None:
    try:
        os.link(old, new)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        shutil.copyfile(old, new)
        with open(new, "rb+") as file:
            os.fsync(file.fileno())
