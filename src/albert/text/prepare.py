"""Preparing a corpus: text files and a tokenizer to token shards; and an estimate of time and size beforehand.

The result is the same however many workers there are. A preparation that was stopped goes on: finished parts lie in
OUTPUT.unfinished until the corpus is whole."""

import errno
import itertools
import os
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import numpy as np

from albert import __version__
from albert.runtime.environment import load_by_name
from albert.runtime.errors import CannotCreate, InvalidConfiguration, MissingInput, UsageError, WriteFailed
from albert.runtime.files import locked, new_directory, remove_directory, remove_leftovers
from albert.runtime.json_files import common_fields, differences, load_json, save_json, to_json
from albert.runtime.manifest import FileSum, read_manifest, verify_directory
from albert.runtime.progress import progress
from albert.text.corpus import find_corpus_files, read_files
from albert.text.duplicates import Leftovers, fingerprint_arrays, leave_out_duplicates
from albert.text.executors import (
    ENCODING,
    ENGINE_LOGS,
    RESULTS,
    Engine,
    PreparationSettings,
    SlurmSettings,
    UnitJob,
    UnitNotes,
    Workforce,
    WorkUnit,
    batches,
    encode_shard,
    keep_unit,
    plan_units,
    run_stage,
)
from albert.text.readers import CorpusFile, CorpusReport, size_in_bytes, sum_counts
from albert.text.sentences import check_language, split_sentences
from albert.text.shards import (
    DESCRIPTION_NAME,
    DOCUMENTS_NAME,
    DUPLICATES_NAME,
    FORMAT,
    SENTENCES_NAME,
    SPLITS,
    TOKENS_NAME,
    CorpusDescription,
    ShardDescription,
    SplitCounts,
    read_description,
    token_type,
)
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_loading import load_tokenizer

NO_TOKENS = "no tokens"


@dataclass
class PreparationReport:
    """What became of the text. Documents and bytes in equal those of the splits plus the dropped ones.

    A single document that is divided counts as one in each split.
    """

    documents_in: int = 0
    bytes_in: int = 0
    documents_dropped: Counter[str] = field(default_factory=Counter)
    bytes_dropped: Counter[str] = field(default_factory=Counter)
    sentences_dropped: int = 0
    read: CorpusReport = field(default_factory=CorpusReport)
    splits: dict[str, SplitCounts] = field(default_factory=lambda: {split: SplitCounts() for split in SPLITS})
    seconds: float = 0.0
    workers: int = 1
    shards_found: int = 0
    """Shards that an earlier, stopped preparation had finished."""
    held_out_fallback: Literal["", "document", "sentences"] = ""
    """What is held out of a corpus of so few documents that the share alone held out none."""
    duplicates_shown: int = 0
    """Of the duplicates that were left out, those which the corpus names, to be looked at."""


@dataclass(frozen=True)
class Plan:
    """What decides the bytes of a corpus, and which files it is made of; kept beside unfinished work."""

    settings: PreparationSettings
    tokenizer_fingerprint: str
    units: tuple[WorkUnit, ...]
    libraries: dict[str, str] = field(default_factory=dict)


def prepare(
    corpus_paths: Sequence[Path],
    tokenizer: Tokenizer,
    output: Path,
    settings: PreparationSettings | None = None,
    *,
    workers: int | None = None,
    replace: bool = False,
    append: bool = False,
    engine: Engine = "processes",
    slurm: SlurmSettings | None = None,
) -> PreparationReport:
    """Write a prepared corpus (see `shards.py`), whole or not at all; the same call goes on after a stop.

    Args:
        workers: processes; None is one per processor. The result does not depend on it.
        append: add to the corpus that `output` is; its shards stay as they are.

    Raises:
        CannotCreate: the output exists and `replace` is false; unfinished work of other settings is in the way.
        InvalidConfiguration: a share, worker or shard size out of range; appending to a corpus of another kind.
        MissingInput, UsageError, DamagedData: the corpus cannot be read.
        WriteFailed: the disk is full; finished shards are kept.
        OutOfResources: a worker process was killed.
        Unavailable: the engine is not installed.
        TryAgain: the work was handed to Slurm, or a part of it failed; the same call goes on.
    """
    settings = settings or PreparationSettings()
    workers = workers if workers is not None else (os.cpu_count() or 1)
    _check(settings, workers)
    begin = time.monotonic()
    if output.parent.is_dir():
        remove_leftovers(output.parent)
    if os.path.lexists(output) and not (replace or append):
        raise CannotCreate(output, "exists already", "choose another name, or remove it first")
    base = [prepared_part(output)] if append else []
    files, ignored, repeated = find_corpus_files(corpus_paths)
    units = tuple(plan_units(files, settings.unit_bytes))
    plan = Plan(settings, tokenizer.fingerprint, units, _libraries(settings))
    work = output.parent / f"{output.name}.unfinished"
    with locked(work, "this preparation") as release:
        try:
            _keep_plan(work, plan)
            jobs = [UnitJob(unit, settings, tokenizer, work) for unit in units]
            found = len(list((work / RESULTS).glob("*-*.json")))
            force = Workforce(workers, engine, slurm or SlurmSettings())
            jobs, left_out = leave_out_duplicates(jobs, force)
            results = run_stage(ENCODING, jobs, force, "Preparing")
            holds_out = any(part.description.counts["held_out"].documents for part in base)
            though_few = "" if holds_out else _hold_out_of_few(jobs, results, settings)
            subject = corpus_paths[0] if len(corpus_paths) == 1 else "corpus"
            report = _report(results, left_out, workers, subject)
            report.read.files_ignored, report.read.files_repeated = ignored, repeated
            report.shards_found, report.held_out_fallback = found, though_few
            sums = {name: one for result in results for shard in result.shards for name, one in shard.files.items()}
            part = CorpusPart(_describe(plan, tokenizer, results, report), work, sums)
            assemble([*base, part], tokenizer, output, replace or append)
        except BaseException as error:
            if not any(work.glob("*/*-*.json")) and not (work / ENGINE_LOGS).exists():
                shutil.rmtree(work, ignore_errors=True)  # nothing is lost
            elif isinstance(error, WriteFailed):
                remedy = f"free space and run the same command, which goes on with what {work} holds"
                raise WriteFailed(error.subject, error.why, remedy) from error
            raise
        remove_directory(work, release)
    report.seconds = time.monotonic() - begin
    return report


def _check(settings: PreparationSettings, workers: int) -> None:
    check_language(settings.language)
    for name, value, fine in (
        ("held-out share", settings.held_out, 0 <= settings.held_out < 1),
        ("workers", workers, workers >= 1),
        ("shard bytes", settings.shard_bytes, settings.shard_bytes >= 1),
        ("unit bytes", settings.unit_bytes, settings.unit_bytes >= 1),
    ):
        if not fine:
            raise InvalidConfiguration(name, f"{value} is out of range")


def _keep_plan(work: Path, plan: Plan) -> None:
    """Write the plan; refuse to go on with the unfinished work of another one."""
    place = work / "plan.json"
    if place.is_file():
        kept = load_json(Plan, place)
        was, now = ({**to_json(one.settings), "tokenizer": one.tokenizer_fingerprint} for one in (kept, plan))
        versions = {name: plan.libraries.get(name) for name in kept.libraries}
        changed = [f"{name} {before!r} (now {value!r})" for name, before, value in differences(was, now)]
        changed += [f"{name} {before} (now {value})" for name, before, value in differences(kept.libraries, versions)]
        if changed:
            why = f"holds an unfinished preparation with {', '.join(changed)}"
            raise CannotCreate(work, why, "use the same settings to go on, or remove it to start anew")
    save_json(place, plan)


def _libraries(settings: PreparationSettings) -> dict[str, str]:
    names = ["sentencepiece", "sentencex"]
    if settings.duplicates == "near":
        load_by_name("rensa", "duplicates")  # a missing library is said before all work
        names.append("rensa")
    return {name: version(name) for name in names}


def _hold_out_of_few(
    jobs: Sequence[UnitJob], results: Sequence[UnitNotes], settings: PreparationSettings
) -> Literal["", "document", "sentences"]:
    """Where the share holds out nothing: hold out the document that a larger share would take first.

    Of a single document the last sentences, if it has two; of documents that are all equal nothing. The shards that
    have the document are encoded again.
    """
    shards = [shard for result in results for shard in result.shards]
    documents = sum(shard.splits["train"].documents for shard in shards)
    if not settings.held_out or not documents or any(shard.splits["held_out"].documents for shard in shards):
        return ""
    lowest, highest = min(shard.lowest_key for shard in shards), max(shard.highest_key for shard in shards)
    divided = documents == 1
    if lowest == highest and not divided:
        return ""
    wanted = {shard.name for shard in shards if shard.lowest_key == lowest}
    again = {}
    for job, result in zip(jobs, results, strict=True):
        if not any(shard.name in wanted for shard in result.shards):
            continue
        for batch in batches(job, CorpusReport()):
            if batch.name in wanted:
                again[batch.name] = encode_shard(batch, None if divided else lowest, divided)
                save_json(job.directory / RESULTS / f"{batch.name}.json", again[batch.name])
        result.shards = tuple(again.get(shard.name, shard) for shard in result.shards)
        keep_unit(ENCODING, job, result)
    if not any(shard.splits["held_out"].documents for shard in again.values()):
        return ""
    return "sentences" if divided else "document"


def _report(results: Sequence[UnitNotes], left_out: Leftovers, workers: int, subject: Path | str) -> PreparationReport:
    shards = [shard for result in results for shard in result.shards]
    read = sum_counts([result.read for result in results])
    documents, size = sum(shard.documents_dropped for shard in shards), sum(shard.bytes_dropped for shard in shards)
    splits = {split: SplitCounts() for split in SPLITS}
    report = PreparationReport(
        documents_in=read.documents_in,
        bytes_in=read.bytes_in,
        documents_dropped=sum_counts([+Counter({NO_TOKENS: documents}), read.dropped, left_out.documents]),
        bytes_dropped=sum_counts([+Counter({NO_TOKENS: size}), read.dropped_bytes, left_out.bytes]),
        sentences_dropped=sum(shard.sentences_dropped for shard in shards),
        read=read,
        splits=sum_counts([splits, *(shard.splits for shard in shards)]),
        workers=workers,
        duplicates_shown=left_out.shown,
    )
    if read.documents == 0:
        raise MissingInput(subject, f"no document with text ({read.documents_in} read)")
    if not any(counts.documents for counts in report.splits.values()):
        raise MissingInput(subject, f"not one token is left of {read.documents_in:,} documents")
    return report


def _describe(
    plan: Plan, tokenizer: Tokenizer, results: Sequence[UnitNotes], report: PreparationReport
) -> CorpusDescription:
    shards = [shard for result in results for shard in result.shards]
    return CorpusDescription(
        **common_fields(CorpusDescription, plan.settings),
        **common_fields(CorpusDescription, report),
        format=FORMAT,
        tokenizer_fingerprint=tokenizer.fingerprint,
        vocab_size=tokenizer.vocab_size,
        token_type=token_type(tokenizer.vocab_size).name,
        held_out_share=float(plan.settings.held_out),
        counts=report.splits,
        shards={
            split: tuple(
                ShardDescription(shard.name, counts.documents, counts.sentences, counts.tokens)
                for shard in shards
                if (counts := shard.splits[split]).documents
            )
            for split in SPLITS
        },
        noted=report.read.noted,
        sources=report.read.sources,
        versions=plan.libraries | {"albert": __version__},
    )


# --------------------------------------------------------------------------------------------------------------------
# What preparing a corpus will take: a sample is read, split and encoded, and the rest is rule of three.
#
# The sample is the beginning of some files, spread evenly over the corpus by bytes on disk.

SAMPLE_BYTES = 8_000_000
PLACES = 32
BYTES_OF_LENGTH = 4
"""On disk, of a sentence and of a document."""


@dataclass(frozen=True)
class PreparationEstimate:
    """Numbers of the whole corpus, from a sample of it.

    Attributes:
        files, bytes_on_disk: of the corpus, exact.
        documents, text_bytes, sentences, tokens: estimated, duplicates included.
    """

    files: int
    bytes_on_disk: int
    sample_bytes: int
    documents: float
    text_bytes: float
    sentences: float
    tokens: float
    output_bytes: float
    seconds: float
    workers: int


def estimate_preparation(
    files: Sequence[CorpusFile], tokenizer: Tokenizer, settings: PreparationSettings, workers: int
) -> PreparationEstimate:
    """Estimate what preparing some files takes."""
    size = sum(file.size for file in files)
    if unknown := next((file.name for file in files if file.kind == "Hub dataset"), None):
        raise UsageError(unknown, "its size is unknown before it is read, so nothing can be estimated")
    sampled = _spread(files, size)
    sums = np.zeros(5)  # documents, their bytes, sentences, tokens, bytes on disk
    times = np.zeros(3)  # of reading, of splitting and encoding, of looking for duplicates
    with progress("Looking at a sample", total=len(sampled), unit="files") as bar:
        for file in sampled:
            clock = [time.perf_counter()]
            texts, on_disk = _beginning(file, settings, SAMPLE_BYTES // len(sampled))
            clock.append(time.perf_counter())
            split = [each for text in texts for each in split_sentences(text, settings.language, settings.as_lines)]
            n_tokens = sum(map(len, tokenizer.encode_batch(split)))
            clock.append(time.perf_counter())
            if settings.duplicates != "keep":
                fingerprint_arrays(texts, settings.duplicates == "near")
            clock.append(time.perf_counter())
            sums += len(texts), sum(map(size_in_bytes, texts)), len(split), n_tokens, on_disk
            times += np.diff(clock)
            bar.advance()
    documents, text_bytes, sentences, tokens, on_disk = sums.tolist()
    if not tokens:
        raise MissingInput(files[0].path if len(files) == 1 else "corpus", "its sample holds no text")
    more = size / max(on_disk, 1)
    # One process reads for all where there are few files; reading and encoding overlap.
    reading, encoding, comparing = times.tolist()
    stages = [encoding] if settings.duplicates == "keep" else [comparing, encoding]
    seconds = more * sum(max(reading, (reading + work) / workers) for work in stages)
    lengths = BYTES_OF_LENGTH * (sentences + documents)
    return PreparationEstimate(
        files=len(files),
        bytes_on_disk=size,
        sample_bytes=round(text_bytes),
        documents=more * documents,
        text_bytes=more * text_bytes,
        sentences=more * sentences,
        tokens=more * tokens,
        output_bytes=more * (tokens * token_type(tokenizer.vocab_size).itemsize + lengths),
        seconds=seconds,
        workers=workers,
    )


def _spread(files: Sequence[CorpusFile], total: int) -> list[CorpusFile]:
    """At most `PLACES` files, those that hold evenly spaced bytes of the corpus."""
    wanted = (np.arange(PLACES) + 0.5) * total / PLACES
    chosen = np.searchsorted(np.cumsum([file.size for file in files]), wanted, side="right")
    return [files[number] for number in np.unique(np.minimum(chosen, len(files) - 1)).tolist()]


def _beginning(file: CorpusFile, settings: PreparationSettings, room: int) -> tuple[list[str], int]:
    """The first documents of a file, up to some bytes of text, and how many bytes on disk they took."""
    report, texts, size = CorpusReport(), [], 0
    consumed: list[int] = []
    documents = read_files([file], settings, report=report, advance=consumed.append)
    for document in documents:
        texts.append(document.text)
        size += len(document.text)
        if size >= room:
            break
    else:
        return texts, file.size
    return texts, sum(consumed) or min(file.size, size)


# --------------------------------------------------------------------------------------------------------------------
# Finished shards become a prepared corpus; prepared corpora become a larger one. No shard is written twice.
#
# Shards are linked into the new directory (hard links; copies where the file system has none), with the sums that were
# taken when they were written, so that a corpus of any size is put together, appended to or merged in seconds.

_NO_LINKS = {errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS}


@dataclass(frozen=True)
class CorpusPart:
    """Shards that are whole, and what they hold."""

    description: CorpusDescription
    directory: Path
    sums: Mapping[str, FileSum]


def prepared_part(directory: Path, verify: bool = True) -> CorpusPart:
    """A prepared corpus as a part of a larger one."""
    description = read_description(directory)
    if verify:
        verify_directory(directory)
    names = set(_shard_files(description))
    sums = {name: entry for name, entry in read_manifest(directory).items() if name in names}
    return CorpusPart(description, directory, sums)


def merge_corpora(directories: Sequence[Path], output: Path, replace: bool = False) -> CorpusDescription:
    """Put prepared corpora of one tokenizer together, in the given order; their shards are linked, not written anew.

    Raises:
        InvalidConfiguration: another tokenizer, or another choice of held-out documents.
        CannotCreate, WriteFailed: see `new_directory`.
    """
    parts = [prepared_part(directory) for directory in directories]
    return assemble(parts, load_tokenizer(directories[0]), output, replace)


def assemble(parts: Sequence[CorpusPart], tokenizer: Tokenizer, output: Path, replace: bool) -> CorpusDescription:
    """Write a corpus that consists of some parts."""
    for part in parts[1:]:
        _refuse_incompatible(parts[0], part)
    taken: set[str] = set()
    renamed = [_renamed(part, taken) for part in parts]
    description = _together([description for description, _ in renamed])
    known: dict[str, FileSum] = {}
    with new_directory(output, replace=replace, known=known) as directory:
        for split in SPLITS:
            if description.shards[split]:
                (directory / split).mkdir()
        for part, (_, names) in zip(parts, renamed, strict=True):
            for old, new in names.items():
                _link(part.directory / old, directory / new)
                known[new] = part.sums[old]
        shown = [part.directory / DUPLICATES_NAME for part in parts if (part.directory / DUPLICATES_NAME).is_file()]
        if shown:
            (directory / DUPLICATES_NAME).write_bytes(b"".join(place.read_bytes() for place in shown))
        tokenizer.save(directory)
        save_json(directory / DESCRIPTION_NAME, description)
    return description


def _refuse_incompatible(first: CorpusPart, other: CorpusPart) -> None:
    ours, theirs = first.description, other.description
    remedy = "prepare it again with the same settings"
    if (ours.tokenizer_fingerprint, ours.vocab_size) != (theirs.tokenizer_fingerprint, theirs.vocab_size):
        raise InvalidConfiguration(other.directory, f"has tokens of another tokenizer than {first.directory}", remedy)
    for name, what in (("held_out_share", "share of held-out documents"), ("seed", "seed of their choice")):
        if (here := getattr(theirs, name)) != (there := getattr(ours, name)):
            why = f"the {what} is {here}, that of {first.directory} is {there}: a document could be in both splits"
            raise InvalidConfiguration(other.directory, why, remedy)


def _renamed(part: CorpusPart, taken: set[str]) -> tuple[CorpusDescription, dict[str, str]]:
    """The description with names that nobody has taken yet, and the new name of every file.

    A name is [ORIGIN+]UNIT-SHARD. A part keeps its names if it comes first; else each of its origins gets a number.
    """
    old_names = sorted({shard.name for shards in part.description.shards.values() for shard in shards})
    new_names: dict[str, str] = {}
    origins: dict[str, str] = {}
    for name in old_names:
        origin, _, rest = name.rpartition("+")
        if origin not in origins:
            free = (f"{number:03d}" for number in itertools.count(1))
            origins[origin] = next(o for o in (origin, *itertools.islice(free, len(taken) + 1)) if o not in taken)
            taken.add(origins[origin])
        new_names[name] = f"{origins[origin]}+{rest}" if origins[origin] else rest
    shards = {
        split: tuple(replace(shard, name=new_names[shard.name]) for shard in described)
        for split, described in part.description.shards.items()
    }
    renamed = replace(part.description, shards=shards)
    return renamed, dict(zip(_shard_files(part.description), _shard_files(renamed), strict=True))


def _together(descriptions: Sequence[CorpusDescription]) -> CorpusDescription:
    names = ("documents_in", "bytes_in", "documents_dropped", "bytes_dropped", "noted", "sentences_dropped", "counts")
    languages = {language for each in descriptions for language in each.language.split("+")}
    return replace(
        descriptions[0],
        language="+".join(sorted(languages)),
        **{name: sum_counts([getattr(each, name) for each in descriptions]) for name in (*names, "shards", "sources")},
    )


def _shard_files(description: CorpusDescription) -> list[str]:
    return [
        f"{split}/{pattern.format(shard.name)}"
        for split, shards in description.shards.items()
        for shard in shards
        for pattern in (TOKENS_NAME, SENTENCES_NAME, DOCUMENTS_NAME)
    ]


def _link(old: Path, new: Path) -> None:
    try:
        os.link(old, new)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        shutil.copyfile(old, new)
        with open(new, "rb+") as file:
            os.fsync(file.fileno())
