"""Passes over the text of a corpus (`Stage`), in units of files, by worker processes or on a cluster.

What a stage does with a batch of documents is elsewhere (`albert.text.prepare.encode_shard`, `albert.text.duplicates`).
Finished batches and units survive a crash of the process:

WORK/train/UNIT-BATCH.*       token shards, as in the prepared corpus
     results/UNIT-BATCH.json  the contents of a shard; written last, so its presence means that the shard is complete
     results/UNIT.json        the same for a unit
     fingerprints/            the same for the stage before (see `albert.text.duplicates`)
     logs/                    of a cluster engine (see `albert.text.engines`)"""

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
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from albert.runtime.environment import lazy_import
from albert.runtime.errors import AlbertError, DamagedData, OutOfResources
from albert.runtime.json_files import from_json, load_json, save_json
from albert.runtime.progress import Bar, progress
from albert.tables.files import Advance, InputFile
from albert.text.corpus import read_files
from albert.text.readers import CorpusReport, Reading
from albert.text.tokenizer import Tokenizer
from albert.text.wrapping import Wrapped

# --------------------------------------------------------------------------------------------------------------------
# Units of work are groups of whole files, which depend only on the names and sizes of the files. A shard never holds
# text of two units, so the shards do not depend on the number of processes or machines.

Item = TypeVar("Item")
UNIT_BYTES = 64_000_000
"""Bytes on disk of a unit, at least; a larger file is a unit of its own."""


def grouped(items: Iterable[Item], size: Callable[[Item], int], least: int) -> Iterator[list[Item]]:
    """Yield consecutive items in groups of at least a size; the last group may be smaller."""
    group: list[Item] = []
    total = 0
    for item in items:
        group.append(item)
        total += size(item)
        if total >= least:
            yield group
            group = []
            total = 0
    if group:
        yield group


Duplicates = Literal["keep", "exact"]
SHARD_BYTES = 8_000_000
RESULTS = "results"
KEPT_NAME = "fingerprints/{}.staying.npy"
ENGINE_LOGS = "logs"


@dataclass(frozen=True, kw_only=True)
class PreparationSettings(Reading):
    """The settings that decide the bytes of a prepared corpus, beside the text and the tokenizer.

    Attributes:
        held_out: share of documents for evaluation. Unless it is 0, at least one document, or the last sentences of a
            single one, are held out.
        also_held_out: keys of documents that are held out although they are beyond the share (see `held_out_key`).
        seed: of the choice of held-out documents.
        language: of the sentence splitter.
        as_lines: whether every line is a sentence.
        wrapped: whether line breaks are only a margin (see `albert.text.wrapping`).
        duplicates: whether equal documents are kept (see `albert.text.duplicates`).
        shard_bytes: text of one shard; a document is never divided.
        unit_bytes: files on disk of one unit of work; a file is never divided.
    """

    held_out: float = 0.01
    also_held_out: tuple[int, ...] = ()
    seed: int = 0
    language: str = "en"
    as_lines: bool = False
    wrapped: Wrapped = "auto"
    duplicates: Duplicates = "keep"
    shard_bytes: int = SHARD_BYTES
    unit_bytes: int = UNIT_BYTES


@dataclass(frozen=True, kw_only=True)
class SlurmSettings:
    """Where and for how long a task may run, with the engine "slurm"."""

    partition: str = ""
    """The Slurm partition."""
    time: str = "24:00:00"
    """The time limit of a task."""
    memory_gb: int = 4
    """Memory of a task, in GB."""


@dataclass(frozen=True)
class UnitJob:
    """A unit of work, consecutive files of a corpus, and everything that its shards depend on.

    Attributes:
        dropped: a hash of which documents are duplicates, if any; a file in the directory lists the others.
    """

    number: int
    files: tuple[InputFile, ...]
    settings: PreparationSettings
    tokenizer: Tokenizer
    directory: Path
    dropped: str = ""

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.size for file in self.files)

    @property
    def name(self) -> str:
        return f"{self.number:05d}"

    @property
    def origin(self) -> tuple[str, ...]:
        """Names, sizes and times of the files, to notice changes."""
        files = tuple(f"{file.name} {file.size} {file.modified}" for file in self.files)
        return (*files, f"without {self.dropped}") if self.dropped else files


@dataclass(frozen=True)
class DocumentBatch:
    """Some documents of a unit, and everything that their shard depends on."""

    name: str
    texts: tuple[bytes, ...]
    """UTF-8, which takes a half or a quarter of the memory of str, in every process."""
    settings: PreparationSettings
    tokenizer: Tokenizer
    directory: Path

    @property
    def digest(self) -> str:
        """A hash of the documents."""
        digest = hashlib.blake2b(digest_size=16)
        for text in self.texts:
            digest.update(len(text).to_bytes(8, "little"))
            digest.update(text)
        return digest.hexdigest()


@dataclass
class UnitResult:
    """The result of a stage for a unit: its files, the counts of reading, and the result of every batch."""

    origin: tuple[str, ...] = ()
    read: CorpusReport = field(default_factory=CorpusReport)
    shards: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Stage:
    """One pass over the text.

    Attributes:
        folder: for the results, in the directory of the unfinished corpus.
        result_type: of `work`; has the `name` of the batch, the `digest` of its documents, and the `files` written.
        work: processes a batch of documents.
    """

    folder: str
    result_type: type[Any]
    work: Callable[[DocumentBatch], Any]

    def path(self, work: UnitJob | DocumentBatch) -> Path:
        """Return the file with the result."""
        return work.directory / self.folder / f"{work.name}.json"


def run_unit(stage: Stage, job: UnitJob) -> UnitResult:
    """Run a stage on a unit in this process, unless it is finished."""
    result = load_finished_unit(stage, job)
    if result is None:
        result = UnitResult(job.origin)
        result.shards = tuple(run_batch(stage, batch) for batch in document_batches(job, result.read))
        save_json(stage.path(job), result)
    return result


def load_finished_unit(stage: Stage, job: UnitJob) -> UnitResult | None:
    """Load the saved result of a unit; None if there is none, or its files have changed."""
    path = stage.path(job)
    try:
        saved = load_json(UnitResult, path)
        saved.shards = tuple(from_json(stage.result_type, shard, str(path)) for shard in saved.shards)
    except AlbertError:
        return None
    valid = saved.origin == job.origin and all(_files_exist(shard, job.directory) for shard in saved.shards)
    return saved if valid else None


def run_batch(stage: Stage, batch: DocumentBatch) -> Any:
    """Run a stage on a batch of documents, unless it is finished."""
    try:
        saved = load_json(stage.result_type, stage.path(batch))
    except AlbertError:
        saved = None  # missing, or damaged
    if saved is not None and saved.digest == batch.digest and _files_exist(saved, batch.directory):
        return saved
    result = stage.work(batch)
    save_json(stage.path(batch), result)
    return result


def _files_exist(result: Any, directory: Path) -> bool:
    sizes = {directory / name: file.bytes for name, file in result.files.items()}
    return all(path.is_file() and path.stat().st_size == size for path, size in sizes.items())


def read_unit(job: UnitJob, report: CorpusReport, advance: Advance | None = None) -> Iterator[str]:
    """Yield the documents of a unit without the duplicates; the report counts all of them."""
    documents = read_files(job.files, job.settings, report=report, advance=advance)
    if not job.dropped:
        yield from documents
        return
    kept = np.load(job.directory / KEPT_NAME.format(job.name), allow_pickle=False)
    for document, is_kept in itertools.zip_longest(documents, kept.tolist()):
        if document is None or is_kept is None:
            why = f"has changed: it had {len(kept):,} documents when duplicates were searched"
            raise DamagedData(job.files[0].path, why, "run the same command again")
        if is_kept:
            yield document


def document_batches(job: UnitJob, report: CorpusReport, advance: Advance | None = None) -> Iterator[DocumentBatch]:
    """Yield the documents of a unit in batches of at least `shard_bytes` of text."""
    texts = (text.encode("utf-8") for text in read_unit(job, report, advance))
    for number, batch in enumerate(grouped(texts, len, job.settings.shard_bytes)):
        yield DocumentBatch(f"{job.name}-{number:05d}", tuple(batch), job.settings, job.tokenizer, job.directory)


# ---- A process pool with results in order, bounded memory, and no orphans ------------------------------------------

Job = TypeVar("Job")
Result = TypeVar("Result")


def map_in_order(work: Callable[[Job], Result], jobs: Iterable[Job], workers: int) -> Iterator[Result]:
    """Yield the results of jobs in order, computed by `workers` processes.

    At most two jobs per process are in memory. A single worker or job runs in this process. If a job fails, or the
    caller stops iterating, the processes end at once.
    """
    jobs = iter(jobs)
    first = list(itertools.islice(jobs, 2))
    jobs = itertools.chain(first, jobs)
    if workers == 1 or len(first) < 2:
        yield from map(work, jobs)
        return
    waiting: deque[Future[Result]] = deque()
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_exit_with_parent)
    try:
        for job in jobs:
            with _hidden_script():
                waiting.append(pool.submit(work, job))
            if len(waiting) >= 2 * workers:  # each process has one job and one to go on with
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
        if sys.version_info < (3, 11, 5):  # else it waits for jobs to be written to dead processes (gh-94777)
            pool._call_queue._reader.close()  # type: ignore[attr-defined]
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _hidden_script() -> Iterator[None]:
    """Processes started here do not run the user's script again, as they do to find its functions."""
    main = vars(sys.modules["__main__"])
    hidden = {name: main.pop(name) for name in ("__file__", "__spec__") if name in main}
    main["__spec__"] = None
    try:
        yield
    finally:
        main.update(hidden)


def _exit_with_parent() -> None:
    """Leave the interrupt key to the parent process, and exit when it ends, however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:

        def wait() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=wait, daemon=True).start()


# ---- Running a stage on all units, by processes of this machine or an engine (Ray, Slurm) --------------------------

Engine = Literal["processes", "datatrove", "ray", "slurm"]
UNITS_PER_WORKER = 4
"""With at least so many units, each process reads its own units; with fewer, this process reads for all."""


@dataclass(frozen=True)
class ExecutorOptions:
    """The engine and the number of its workers."""

    workers: int
    engine: Engine = "processes"
    slurm: SlurmSettings = field(default_factory=SlurmSettings)


def run_stage(stage: Stage, jobs: Sequence[UnitJob], options: ExecutorOptions, description: str) -> list[UnitResult]:
    """Run a stage on all units, with a progress bar; finished work is not repeated."""
    with progress(description, sum(job.size for job in jobs) / 1e6, "MB on disk") as bar:
        if options.engine != "processes":
            return lazy_import("albert.text.engines", "corpus").run_engine(stage, jobs, options, bar)
        if len(jobs) < UNITS_PER_WORKER * options.workers:
            return _run_batches(stage, jobs, options.workers, bar)
        results = []
        for job, result in zip(jobs, map_in_order(partial(run_unit, stage), jobs, options.workers), strict=True):
            bar.advance(job.size / 1e6)
            results.append(result)
        return results


def _run_batches(stage: Stage, jobs: Sequence[UnitJob], workers: int, bar: Bar) -> list[UnitResult]:
    """Run a stage on the units one after the other: this process reads, all process batches."""
    results: dict[str, UnitResult] = {}

    def advance(amount: int) -> None:
        bar.advance(amount / 1e6)
        bar.note(f"{sum(result.read.documents for result in results.values()):,} documents")

    def unfinished() -> Iterator[DocumentBatch]:
        for job in jobs:
            finished = load_finished_unit(stage, job)
            if finished is not None:
                results[job.name] = finished
                bar.advance(job.size / 1e6)
                continue
            results[job.name] = UnitResult(job.origin)
            yield from document_batches(job, results[job.name].read, advance)

    by_name = {job.name: job for job in jobs}
    shards = map_in_order(partial(run_batch, stage), unfinished(), workers)
    for name, group in itertools.groupby(shards, lambda shard: shard.name.rpartition("-")[0]):
        results[name].shards = tuple(group)
        save_json(stage.path(by_name[name]), results[name])
    return [results[job.name] for job in jobs]
