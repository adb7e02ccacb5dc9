"""One unit of a corpus to finished shards; what is finished stays so, whatever happens to the process.

WORK/train/UNIT-SHARD.*       token shards, as they will be in the prepared corpus
     results/UNIT-SHARD.json  what a shard holds: written last, so a shard with one is whole
     results/UNIT.json        the same of a whole unit
     logs/                    of an engine beyond this process (see `albert.text.preparation_engines`)
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TypeVar

from albert.runtime.durable_files import FileSum
from albert.runtime.errors import AlbertError
from albert.runtime.strict_json import load_json, save_json
from albert.text.corpus import read_files
from albert.text.reading import CorpusReport, Reading
from albert.text.shard_encoding import ShardJob, ShardResult, encode_shard
from albert.text.tokenizer import Tokenizer
from albert.text.work_units import UNIT_BYTES, WorkUnit

Kept = TypeVar("Kept")
SHARD_BYTES = 16_000_000
RESULTS = "results"
ENGINE_LOGS = "logs"


@dataclass(frozen=True, kw_only=True)
class PreparationSettings(Reading):
    """What decides the bytes of a prepared corpus, beside the text and the tokenizer."""

    held_out: float = 0.01
    """Share of documents kept for evaluation."""
    seed: int = 0
    """Of the choice of them."""
    language: str = "en"
    """Of the sentence splitter."""
    as_lines: bool = False
    """Whether every line is a sentence, and no others are looked for."""
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

    @property
    def name(self) -> str:
        """How its results are called."""
        return f"{self.unit.number:05d}"

    @property
    def origin(self) -> tuple[str, ...]:
        """What the unit is made of: another content has another time or size."""
        return tuple(f"{file.name} {file.size} {file.modified}" for file in self.unit.files)


@dataclass
class UnitResult:
    """What became of a unit: what was read, and its shards."""

    origin: tuple[str, ...] = ()
    read: CorpusReport = field(default_factory=CorpusReport)
    shards: tuple[ShardResult, ...] = ()


def prepare_unit(job: UnitJob) -> UnitResult:
    """Prepare a unit in this process, or find it finished."""
    finished = finished_unit(job)
    if finished is not None:
        return finished
    result = UnitResult(job.origin)
    result.shards = tuple(prepare_shard(shard) for shard in shard_jobs(job, result.read))
    return keep_unit(job, result)


def finished_unit(job: UnitJob) -> UnitResult | None:
    """What an earlier process has kept of this unit, if it is of the same files."""
    kept = _kept(UnitResult, job.directory / RESULTS / f"{job.name}.json")
    if kept is None or kept.origin != job.origin:
        return None
    return kept if all(_is_there(shard, job.directory) for shard in kept.shards) else None


def keep_unit(job: UnitJob, result: UnitResult) -> UnitResult:
    """Write down that all shards of a unit are finished."""
    save_json(job.directory / RESULTS / f"{job.name}.json", result)
    return result


def shard_jobs(job: UnitJob, read: CorpusReport, advance: Callable[[int], None] | None = None) -> Iterator[ShardJob]:
    """The shards of a unit, with their documents; `read` counts what is read."""
    settings = job.settings
    documents = read_files(job.unit.files, settings, report=read, advance=advance)
    for number, texts in enumerate(_batches((document.text for document in documents), settings.shard_bytes)):
        name = f"{job.name}-{number:05d}"
        yield ShardJob(
            name=name,
            texts=texts,
            tokenizer=job.tokenizer,
            held_out=settings.held_out,
            seed=settings.seed,
            language=settings.language,
            as_lines=settings.as_lines,
            directory=job.directory,
        )


def prepare_shard(job: ShardJob) -> ShardResult:
    """Encode and write a shard, or find it finished."""
    place = job.directory / RESULTS / f"{job.name}.json"
    kept = _kept(ShardResult, place)
    if kept is not None and kept.digest == job.digest and _is_there(kept, job.directory):
        return kept
    result = encode_shard(job)
    save_json(place, result)
    return result


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


def _kept(kind: type[Kept], place: Path) -> Kept | None:
    """What an earlier process wrote; nothing where it did not, or what does not fit: it is made again."""
    try:
        return load_json(kind, place)
    except AlbertError:
        return None


def _is_there(result: ShardResult, directory: Path) -> bool:
    places = {directory / name: file.bytes for name, file in result.files.items()}
    return all(place.is_file() and place.stat().st_size == size for place, size in places.items())


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
