"""Preparing a corpus unit by unit in worker processes; finished units survive whatever happens to the process.

WORK/train/UNIT-SHARD.*       token shards, as they will be in the prepared corpus
     results/UNIT-SHARD.json  what a shard holds: written last, so a shard with one is whole
     results/UNIT.json        the same of a whole unit
     fingerprints/            the same of the stage before (see `albert.text.duplicates`)
     logs/                    of an engine beyond this process (see `albert.text.engines`)"""

import hashlib
import itertools
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from albert.runtime.environment import load_by_name
from albert.runtime.errors import AlbertError, DamagedData, OutOfResources
from albert.runtime.json_files import from_json, load_json, save_json
from albert.runtime.manifest import FileSum
from albert.runtime.progress import Bar, progress
from albert.runtime.random_streams import stream_key
from albert.text.corpus import read_files
from albert.text.readers import CorpusFile, CorpusReport, Document, Reading
from albert.text.sentences import split_sentences
from albert.text.shards import (
    DOCUMENTS_NAME,
    SENTENCES_NAME,
    SPLITS,
    TOKENS_NAME,
    SplitCounts,
    save_arrays,
    token_type,
)
from albert.text.tokenizer import Tokenizer

# --------------------------------------------------------------------------------------------------------------------
# A corpus cut into units of work: runs of whole files, decided by their names and sizes alone.
#
# Whoever prepares a unit, one process or a cluster, writes the same shards: a shard never holds text of two units.

Item = TypeVar("Item")
UNIT_BYTES = 64_000_000
"""Bytes on disk of a unit, at least; a larger file is a unit by itself."""


@dataclass(frozen=True)
class WorkUnit:
    """Some files, in the order of the corpus."""

    number: int
    files: tuple[CorpusFile, ...]

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.size for file in self.files)


def plan_units(files: Sequence[CorpusFile], unit_bytes: int = UNIT_BYTES) -> list[WorkUnit]:
    """Cut a list of files into units of consecutive ones."""
    return [WorkUnit(number, tuple(run)) for number, run in enumerate(_runs(files, lambda file: file.size, unit_bytes))]


def _runs(items: Iterable[Item], size: Callable[[Item], int], least: int) -> Iterator[list[Item]]:
    """Consecutive items in runs of that size, at least; the last may be smaller."""
    run: list[Item] = []
    total = 0
    for item in items:
        run.append(item)
        total += size(item)
        if total >= least:
            yield run
            run, total = [], 0
    if run:
        yield run


Duplicates = Literal["keep", "exact", "near"]
SHARD_BYTES = 8_000_000
RESULTS = "results"
STAYING_NAME = "fingerprints/{}.staying.npy"
ENGINE_LOGS = "logs"


@dataclass(frozen=True, kw_only=True)
class PreparationSettings(Reading):
    """What decides the bytes of a prepared corpus, beside the text and the tokenizer."""

    held_out: float = 0.01
    """Share of documents kept for evaluation; unless it is 0, one at least, or the last sentences of a single one."""
    seed: int = 0
    """Of the choice of them."""
    language: str = "en"
    """Of the sentence splitter."""
    as_lines: bool = False
    """Whether every line is a sentence, and no others are looked for."""
    duplicates: Duplicates = "keep"
    """Whether documents are left out that come again, or nearly again (see `albert.text.duplicates`)."""
    shard_bytes: int = SHARD_BYTES
    """Text of one shard; a document is never divided."""
    unit_bytes: int = UNIT_BYTES
    """Files on disk of one unit of work; a file is never divided."""


@dataclass(frozen=True, kw_only=True)
class SlurmSettings:
    """Where and for how long a task may run, with the engine "slurm"."""

    partition: str = ""
    """The partition that has the machines."""
    time: str = "24:00:00"
    """The longest time of a task."""
    memory_gb: int = 4
    """Memory of a task, in GB."""


@dataclass(frozen=True)
class UnitJob:
    """A unit and all that its shards depend on."""

    unit: WorkUnit
    settings: PreparationSettings
    tokenizer: Tokenizer
    directory: Path
    left_out: str = ""
    """A hash of which documents are left out, where some are; a file in the directory says which."""

    @property
    def name(self) -> str:
        return f"{self.unit.number:05d}"

    @property
    def origin(self) -> tuple[str, ...]:
        """What the unit is made of: another content has another time or size."""
        files = tuple(f"{file.name} {file.size} {file.modified}" for file in self.unit.files)
        return (*files, f"without {self.left_out}") if self.left_out else files


@dataclass(frozen=True)
class Batch:
    """Some documents of a unit, and what they become depends on."""

    name: str
    sources: tuple[str, ...]
    texts: tuple[bytes, ...]
    """In UTF-8: it takes a half or a quarter of the memory, in every process that has them."""
    settings: PreparationSettings
    tokenizer: Tokenizer
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


@dataclass
class UnitNotes:
    """What a stage writes down of a unit: its files, what was read of them, and what was made of every batch."""

    origin: tuple[str, ...] = ()
    read: CorpusReport = field(default_factory=CorpusReport)
    shards: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Stage:
    """One pass over the text: what is made of each batch of documents.

    Attributes:
        of_batch: what `work` returns: the `name` of the batch, the `digest` of its documents, the `files` made of them.
    """

    folder: str
    of_batch: type[Any]
    work: Callable[[Batch], Any]


def prepare_unit(stage: Stage, job: UnitJob) -> UnitNotes:
    """Take a unit through a stage in this process, or find it finished."""
    finished = finished_unit(stage, job)
    if finished is not None:
        return finished
    notes = UnitNotes(job.origin)
    notes.shards = tuple(prepare_batch(stage, batch) for batch in batches(job, notes.read))
    return keep_unit(stage, job, notes)


def finished_unit(stage: Stage, job: UnitJob) -> UnitNotes | None:
    """What an earlier process has kept of this unit, if it is of the same files; what does not fit is made again."""
    place = job.directory / stage.folder / f"{job.name}.json"
    try:
        kept = load_json(UnitNotes, place)
        kept.shards = tuple(from_json(stage.of_batch, shard, str(place)) for shard in kept.shards)
    except AlbertError:
        return None
    return kept if kept.origin == job.origin and all(_is_there(shard, job.directory) for shard in kept.shards) else None


def keep_unit(stage: Stage, job: UnitJob, notes: UnitNotes) -> UnitNotes:
    """Write down that all batches of a unit are finished."""
    save_json(job.directory / stage.folder / f"{job.name}.json", notes)
    return notes


def prepare_batch(stage: Stage, batch: Batch) -> Any:
    """Take a batch of documents through a stage, or find it finished."""
    place = batch.directory / stage.folder / f"{batch.name}.json"
    try:
        kept = load_json(stage.of_batch, place)
    except AlbertError:
        kept = None  # not there, or damaged
    if kept is not None and kept.digest == batch.digest and _is_there(kept, batch.directory):
        return kept
    notes = stage.work(batch)
    save_json(place, notes)
    return notes


def _is_there(notes: Any, directory: Path) -> bool:
    places = {directory / name: file.bytes for name, file in notes.files.items()}
    return all(place.is_file() and place.stat().st_size == size for place, size in places.items())


def documents_of(job: UnitJob, read: CorpusReport, advance: Callable[[int], None] | None = None) -> Iterator[Document]:
    """The documents of a unit, but for those that are left out; `read` counts all of them."""
    documents = read_files(job.unit.files, job.settings, report=read, advance=advance)
    if not job.left_out:
        yield from documents
        return
    staying = np.load(job.directory / STAYING_NAME.format(job.name), allow_pickle=False)
    for document, stays in itertools.zip_longest(documents, staying.tolist()):
        if document is None or stays is None:
            why = f"has changed: it had {len(staying):,} documents when duplicates were looked for"
            raise DamagedData(job.unit.files[0].path, why, "run the same command again")
        if stays:
            yield document


def batches(job: UnitJob, read: CorpusReport, advance: Callable[[int], None] | None = None) -> Iterator[Batch]:
    """The documents of a unit in runs of `shard_bytes` of text, at least; `read` counts what is read."""
    documents = (
        (document.source, document.text.encode("utf-8", "surrogatepass"))
        for document in documents_of(job, read, advance)
    )
    runs = _runs(documents, lambda document: len(document[1]), job.settings.shard_bytes)
    for number, (sources, texts) in enumerate(zip(*run, strict=True) for run in runs):
        yield Batch(f"{job.name}-{number:05d}", sources, texts, job.settings, job.tokenizer, job.directory)


# --------------------------------------------------------------------------------------------------------------------
# Encoding: from a batch of documents to the files of one shard, in whichever process.

KEYS = 2**64


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


def encode_shard(batch: Batch, also_held_out: int | None = None, divided: bool = False) -> ShardResult:
    """Split, encode and write the documents of one shard below `batch.directory`.

    Args:
        also_held_out: the key of a document that is held out though the share does not reach it (see `held_out_key`).
        divided: whether the last sentences of the document are held out, rather than whole documents.
    """
    tokenizer, settings = batch.tokenizer, batch.settings
    documents: dict[str, list[tuple[np.ndarray, np.ndarray, int]]] = {split: [] for split in SPLITS}
    dropped = bytes_dropped = sentences_dropped = 0
    lowest, highest = KEYS, -1
    for encoded in batch.texts:
        text, size = encoded.decode("utf-8", "surrogatepass"), len(encoded)
        sentences = split_sentences(text, settings.language, settings.as_lines)
        tokens, lengths = tokenizer.encode_joined(sentences)
        filled = lengths[lengths > 0]
        sentences_dropped += len(lengths) - len(filled)
        if len(filled) == 0:
            dropped += 1
            bytes_dropped += size
            continue
        key = held_out_key(text, settings.seed)
        last = last_sentences(len(filled), settings.held_out) if divided else 0
        if is_held_out(key, settings.held_out) or key == also_held_out:
            documents["held_out"].append((tokens, filled, size))
        elif last:
            tokens_before = int(filled[:-last].sum())
            first = int(np.flatnonzero(lengths > 0)[-last])
            size_behind = sum(len(sentence.encode("utf-8", "surrogatepass")) for sentence in sentences[first:])
            documents["train"].append((tokens[:tokens_before], filled[:-last], size - size_behind))
            documents["held_out"].append((tokens[tokens_before:], filled[-last:], size_behind))
        else:
            lowest, highest = min(lowest, key), max(highest, key)
            documents["train"].append((tokens, filled, size))
    splits, files = {split: SplitCounts() for split in SPLITS}, {}
    for split, held in documents.items():
        if held:
            tokens, lengths, sizes = zip(*held, strict=True)
            arrays = {
                TOKENS_NAME: np.concatenate(tokens).astype(token_type(tokenizer.vocab_size)),
                SENTENCES_NAME: np.concatenate(lengths).astype("<u4"),
                DOCUMENTS_NAME: np.array(list(map(len, lengths)), dtype="<u4"),
            }
            n_tokens, n_sentences, n_documents = map(len, arrays.values())
            unknown = int(np.count_nonzero(arrays[TOKENS_NAME] == tokenizer.unk_id))
            splits[split] = SplitCounts(n_documents, n_sentences, n_tokens, unknown, sum(sizes))
            named = {f"{split}/{pattern.format(batch.name)}": array for pattern, array in arrays.items()}
            files |= save_arrays(batch.directory, named)
    return ShardResult(
        name=batch.name,
        digest=batch.digest,
        documents_in=len(batch.texts),
        bytes_in=sum(map(len, batch.texts)),
        splits=splits,
        documents_dropped=dropped,
        bytes_dropped=bytes_dropped,
        sentences_dropped=sentences_dropped,
        files=files,
        lowest_key=lowest,
        highest_key=highest,
    )


ENCODING = Stage(RESULTS, ShardResult, encode_shard)


# --------------------------------------------------------------------------------------------------------------------
# Work for several processes: results in order, bounded memory, nobody left behind.

Job = TypeVar("Job")
Result = TypeVar("Result")


def in_order(work: Callable[[Job], Result], jobs: Iterable[Job], workers: int) -> Iterator[Result]:
    """The results of jobs in their order, from `workers` processes.

    At most twice as many jobs as processes are in memory at a time. One worker, or one job, needs no second process.
    When anything fails, or the caller stops asking, the processes end at once.
    """
    jobs = iter(jobs)
    first = list(itertools.islice(jobs, 2))
    jobs = itertools.chain(first, jobs)
    if workers == 1 or len(first) < 2:
        yield from map(work, jobs)
        return
    waiting: deque[Future[Result]] = deque()
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_follow_parent)
    try:
        for job in jobs:
            waiting.append(pool.submit(work, job))
            if len(waiting) >= 2 * workers:  # one each in work, one each at hand
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        why = "was killed, probably because memory ran out"
        raise OutOfResources("worker process", why, "use fewer --workers") from error
    except BaseException:
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        raise
    finally:
        if sys.version_info < (3, 11, 5):  # which waits for jobs to be written to processes that have ended (gh-94777)
            pool._call_queue._reader.close()  # type: ignore[attr-defined]
        pool.shutdown(wait=True, cancel_futures=True)


def _follow_parent() -> None:
    """A worker leaves the interrupt key to its parent, and does not outlive it, however the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:

        def follow() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=follow, daemon=True).start()


# --------------------------------------------------------------------------------------------------------------------
# Who runs a stage over all units: processes of this machine, or an engine (Ray, Slurm).

Engine = Literal["processes", "datatrove", "ray", "slurm"]
UNITS_PER_WORKER = 4
"""From so many on, whole units are shared out, and every process reads its own files; else one reads for all."""


@dataclass(frozen=True)
class Workforce:
    """Who does the work."""

    workers: int
    engine: Engine = "processes"
    slurm: SlurmSettings = field(default_factory=SlurmSettings)


def run_stage(stage: Stage, jobs: Sequence[UnitJob], workforce: Workforce, description: str) -> list[UnitNotes]:
    """Take all units through a stage, under a progress bar; what is finished is not done again."""
    with progress(description, sum(job.unit.size for job in jobs) / 1e6, "MB on disk") as bar:
        if workforce.engine != "processes":
            engines = load_by_name("albert.text.engines", "corpus")
            return engines.run_engine(stage, jobs, workforce, bar)
        if len(jobs) < UNITS_PER_WORKER * workforce.workers:
            return _by_batches(stage, jobs, workforce.workers, bar)
        results = []
        for job, result in zip(jobs, in_order(partial(prepare_unit, stage), jobs, workforce.workers), strict=True):
            bar.advance(job.unit.size / 1e6)
            results.append(result)
        return results


def _by_batches(stage: Stage, jobs: Sequence[UnitJob], workers: int, bar: Bar) -> list[UnitNotes]:
    """All units, one after the other; this process reads, all work."""
    results: dict[str, UnitNotes] = {}

    def advance(amount: int) -> None:
        bar.advance(amount / 1e6)
        bar.note(f"{sum(result.read.documents for result in results.values()):,} documents")

    def waiting() -> Iterator[Batch]:
        for job in jobs:
            kept = finished_unit(stage, job)
            if kept is not None:
                results[job.name] = kept
                bar.advance(job.unit.size / 1e6)
                continue
            results[job.name] = UnitNotes(job.origin)
            yield from batches(job, results[job.name].read, advance)

    done = in_order(partial(prepare_batch, stage), waiting(), workers)
    by_name = {job.name: job for job in jobs}
    for unit, group in itertools.groupby(done, lambda notes: notes.name.rpartition("-")[0]):
        results[unit].shards = tuple(group)
        keep_unit(stage, by_name[unit], results[unit])
    return [results[job.name] for job in jobs]
