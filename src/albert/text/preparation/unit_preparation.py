"""One unit of a corpus to finished shards; what is finished stays so, whatever happens to the process.

WORK/train/UNIT-SHARD.*       token shards, as they will be in the prepared corpus
     results/UNIT-SHARD.json  what a shard holds: written last, so a shard with one is whole
     results/UNIT.json        the same of a whole unit
     fingerprints/            the same of a stage before (see `albert.text.preparation.duplicate_fingerprints`)
     logs/                    of an engine beyond this process (see `albert.text.preparation.preparation_engines`)
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from albert.runtime.errors import AlbertError, DamagedData
from albert.runtime.manifests import FileSum
from albert.runtime.strict_json import load_json, save_json
from albert.text.preparation.shard_encoding import ShardJob, ShardResult, encode_shard
from albert.text.preparation.work_units import UNIT_BYTES, WorkUnit
from albert.text.readers.corpus import read_files
from albert.text.readers.reading import CorpusReport, Document, Reading
from albert.text.tokenizer import Tokenizer

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
    """Whether documents are left out that come again, or nearly again (see `albert.text.preparation.duplicates`)."""
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
        """How its results are called."""
        return f"{self.unit.number:05d}"

    @property
    def origin(self) -> tuple[str, ...]:
        """What the unit is made of: another content has another time or size."""
        files = tuple(f"{file.name} {file.size} {file.modified}" for file in self.unit.files)
        return (*files, f"without {self.left_out}") if self.left_out else files


@dataclass
class UnitNotes:
    """What a stage writes down of a unit: its files, what was read of them, and what was made of every batch."""

    origin: tuple[str, ...] = ()
    read: CorpusReport = field(default_factory=CorpusReport)
    shards: tuple[Any, ...] = ()


Notes = TypeVar("Notes")
OfUnit = TypeVar("OfUnit", bound=UnitNotes)


@dataclass(frozen=True)
class Stage(Generic[OfUnit]):
    """One pass over the text: the documents of every unit in batches, and what is made of each.

    Attributes:
        folder: where notes of what is finished are kept.
        of_unit: the kind of notes of a unit.
        of_batch: the kind of notes of a batch: its `name`, the `digest` of its documents, the `files` made of them.
        batches: cuts a unit, and counts what is read; each has a `name`, a `digest` and a `directory`.
        work: makes the files of a batch.
    """

    folder: str
    of_unit: type[OfUnit]
    of_batch: type[Any]
    batches: Callable[..., Iterator[Any]]
    work: Callable[[Any], Any]


@dataclass
class UnitResult(UnitNotes):
    """What became of a unit: what was read, and its shards."""

    shards: tuple[ShardResult, ...] = ()


def prepare_unit(stage: Stage[OfUnit], job: UnitJob) -> OfUnit:
    """Take a unit through a stage in this process, or find it finished."""
    finished = finished_unit(stage, job)
    if finished is not None:
        return finished
    notes = stage.of_unit(origin=job.origin)
    notes.shards = tuple(prepare_batch(stage, batch) for batch in stage.batches(job, notes.read))
    return keep_unit(stage, job, notes)


def finished_unit(stage: Stage[OfUnit], job: UnitJob) -> OfUnit | None:
    """What an earlier process has kept of this unit, if it is of the same files."""
    kept = _kept(stage.of_unit, job.directory / stage.folder / f"{job.name}.json")
    if kept is None or kept.origin != job.origin:
        return None
    return kept if all(_is_there(shard, job.directory) for shard in kept.shards) else None


def keep_unit(stage: Stage[OfUnit], job: UnitJob, notes: OfUnit) -> OfUnit:
    """Write down that all batches of a unit are finished."""
    save_json(job.directory / stage.folder / f"{job.name}.json", notes)
    return notes


def prepare_batch(stage: Stage[Any], batch: Any) -> Any:
    """Take a batch of documents through a stage, or find it finished."""
    place = batch.directory / stage.folder / f"{batch.name}.json"
    kept = _kept(stage.of_batch, place)
    if kept is not None and kept.digest == batch.digest and _is_there(kept, batch.directory):
        return kept
    notes = stage.work(batch)
    save_json(place, notes)
    return notes


def shard_jobs(job: UnitJob, read: CorpusReport, advance: Callable[[int], None] | None = None) -> Iterator[ShardJob]:
    """The shards of a unit, with their documents; `read` counts what is read."""
    settings = job.settings
    for number, (_, texts) in enumerate(batches(documents_of(job, read, advance), settings.shard_bytes)):
        yield ShardJob(
            name=f"{job.name}-{number:05d}",
            texts=texts,
            tokenizer=job.tokenizer,
            held_out=settings.held_out,
            seed=settings.seed,
            language=settings.language,
            as_lines=settings.as_lines,
            directory=job.directory,
        )


ENCODING = Stage(RESULTS, UnitResult, ShardResult, shard_jobs, encode_shard)


def hold_out_one(job: UnitJob, result: UnitResult, key: int, divided: bool) -> UnitResult:
    """Encode the shards of a finished unit again that have the document of this key, and hold it or its end out."""
    wanted = {shard.name for shard in result.shards if shard.lowest_key == key}
    if not wanted:
        return result
    again = {}
    for shard in shard_jobs(job, CorpusReport()):
        if shard.name in wanted:
            changed = replace(shard, also_held_out=None if divided else key, divided=divided)
            again[shard.name] = encode_shard(changed)
            save_json(job.directory / RESULTS / f"{shard.name}.json", again[shard.name])
    result.shards = tuple(again.get(shard.name, shard) for shard in result.shards)
    return keep_unit(ENCODING, job, result)


def documents_of(job: UnitJob, read: CorpusReport, advance: Callable[[int], None] | None = None) -> Iterator[Document]:
    """The documents of a unit, but for those that are left out; `read` counts all of them.

    Raises:
        DamagedData: they are not those among which duplicates were found.
    """
    documents = read_files(job.unit.files, job.settings, report=read, advance=advance)
    if not job.left_out:
        yield from documents
        return
    staying = np.load(job.directory / STAYING_NAME.format(job.name), allow_pickle=False)
    for document, stays in itertools.zip_longest(documents, staying.tolist()):
        if document is None or stays is None:
            why = f"has not the {len(staying):,} documents that it had when duplicates were looked for"
            raise DamagedData(job.unit.files[0].path, why, "run the same command again")
        if stays:
            yield document


def batches(documents: Iterable[Document], batch_bytes: int) -> Iterator[tuple[tuple[str, ...], tuple[bytes, ...]]]:
    """Documents in runs of so many bytes of text, at least: where they come from, and their text in UTF-8."""
    sources: list[str] = []
    texts: list[bytes] = []
    size = 0
    for document in documents:
        sources.append(document.source)
        texts.append(document.text.encode("utf-8", "surrogatepass"))
        size += len(texts[-1])
        if size >= batch_bytes:
            yield tuple(sources), tuple(texts)
            sources, texts, size = [], [], 0
    if texts:
        yield tuple(sources), tuple(texts)


def add_reports(total: CorpusReport, part: CorpusReport) -> None:
    """Add what was read of a part of a corpus."""
    for each in fields(CorpusReport):
        value, more = getattr(total, each.name), getattr(part, each.name)
        if isinstance(value, Counter):
            value.update(more)
        else:
            setattr(total, each.name, value + more)


def sums_of(results: Iterable[UnitResult]) -> dict[str, FileSum]:
    """Every file of some units, by name."""
    return {name: file for result in results for shard in result.shards for name, file in shard.files.items()}


def _kept(kind: type[Notes], place: Path) -> Notes | None:
    """What an earlier process wrote; nothing where it did not, or what does not fit: it is made again."""
    try:
        return load_json(kind, place)
    except AlbertError:
        return None


def _is_there(notes: Any, directory: Path) -> bool:
    places = {directory / name: file.bytes for name, file in notes.files.items()}
    return all(place.is_file() and place.stat().st_size == size for place, size in places.items())
