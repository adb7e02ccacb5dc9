"""Preparation of a corpus: text files and a tokenizer to token shards; and an estimate of time and size.

The result does not depend on the number of workers. A stopped preparation resumes: finished parts are in
OUTPUT.unfinished until the corpus is complete."""

import dataclasses
import errno
import itertools
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import numpy as np

from albert import __version__
from albert.runtime.environment import load_by_name
from albert.runtime.errors import CannotCreate, InvalidConfiguration, MissingInput, UsageError, WriteFailed
from albert.runtime.files import locked, new_directory, remove_directory, remove_leftovers
from albert.runtime.json_files import common_fields, flatten, read_json_object, save_json, to_json
from albert.runtime.manifest import FileSum, read_manifest, verify_directory
from albert.runtime.progress import progress
from albert.text.corpus import find_corpus_files, read_files
from albert.text.duplicates import drop_duplicates, fingerprint_arrays
from albert.text.executors import (
    ENCODING,
    ENGINE_LOGS,
    RESULTS,
    Engine,
    ExecutorOptions,
    PreparationSettings,
    SlurmSettings,
    UnitJob,
    UnitResult,
    batches,
    encode_shard,
    run_stage,
    runs,
)
from albert.text.readers import CorpusFile, CorpusReport, sum_counts, utf8_length
from albert.text.sentences import check_language, split_sentences
from albert.text.shards import (
    DESCRIPTION_NAME,
    DOCUMENTS_NAME,
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
Fallback = Literal["", "document", "sentences"]


@dataclass
class PreparationReport(CorpusReport):
    """Counts of the text that was read, dropped, and written.

    A single document that is divided counts once in each split.

    Attributes:
        shards_found: shards that an earlier, stopped preparation had finished.
        held_out_fallback: what is held out of a corpus so small that the share holds out nothing.
    """

    sentences_dropped: int = 0
    splits: dict[str, SplitCounts] = field(default_factory=dict)
    seconds: float = 0.0
    workers: int = 1
    shards_found: int = 0
    held_out_fallback: Fallback = ""


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
    """Write a prepared corpus (see `shards.py`) atomically; after a stop the same call resumes.

    Args:
        workers: number of processes; None is one per processor. The result does not depend on it.
        append: add to the existing corpus `output`; its shards do not change.

    Raises:
        CannotCreate: the output exists and `replace` is false, or unfinished work has other settings.
        InvalidConfiguration: a share, worker or shard size out of range; appending to an incompatible corpus.
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
    if os.path.lexists(output) and not (replace or append):
        raise CannotCreate(output, "exists already", "choose another name, or remove it first")
    files, ignored, repeated = find_corpus_files(corpus_paths)
    units = runs(files, lambda file: file.size, settings.unit_bytes)
    libraries = _libraries(settings)
    work = output.parent / f"{output.name}.unfinished"
    with locked(work, "this preparation") as release:
        try:
            base = [load_part(output)] if append else []  # under the lock: another process may have added to it
            for part in base:  # before all work
                added = _describe(settings, libraries, tokenizer, [], PreparationReport())
                _refuse_incompatible(part, CorpusPart(added, corpus_paths[0], {}))
                settings = dataclasses.replace(settings, also_held_out=part.description.also_held_out)
            _write_plan(work, settings, tokenizer, libraries)
            jobs = [UnitJob(number, tuple(unit), settings, tokenizer, work) for number, unit in enumerate(units)]
            shards_found = len(list((work / RESULTS).glob("*-*.json")))
            options = ExecutorOptions(workers, engine, slurm or SlurmSettings())
            jobs, duplicates = drop_duplicates(jobs, options)
            results = run_stage(ENCODING, jobs, options, "Preparing")
            fallback: Fallback = ""
            if not any(part.description.counts["held_out"].documents for part in base):
                fallback, settings = _hold_out_at_least_one(jobs, results, settings)
            report = _report(results, duplicates)
            report.refuse_empty(corpus_paths[0] if len(corpus_paths) == 1 else "corpus")
            if not base and not report.splits["train"].documents:
                remove_directory(work, release)
                count = report.splits["held_out"].documents
                why = f"{settings.held_out:g} leaves none of {count} documents for training"
                raise InvalidConfiguration("held-out share", why, "take a smaller one, or another seed")
            report.files_ignored, report.files_repeated, report.workers = ignored, repeated, workers
            report.shards_found, report.held_out_fallback = shards_found, fallback
            sums = {name: file for result in results for shard in result.shards for name, file in shard.files.items()}
            description = _describe(settings, libraries, tokenizer, results, report)
            assemble([*base, CorpusPart(description, work, sums)], tokenizer, output, replace or append)
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


def _check_settings(settings: PreparationSettings, workers: int) -> None:
    check_language(settings.language)
    for name, value, is_valid in (
        ("held-out share", settings.held_out, 0 <= settings.held_out < 1),
        ("workers", workers, workers >= 1),
        ("shard bytes", settings.shard_bytes, settings.shard_bytes >= 1),
        ("unit bytes", settings.unit_bytes, settings.unit_bytes >= 1),
    ):
        if not is_valid:
            raise InvalidConfiguration(name, f"{value} is out of range")


def _write_plan(work: Path, settings: PreparationSettings, tokenizer: Tokenizer, libraries: Mapping[str, str]) -> None:
    """Write what decides the bytes of a corpus; raise CannotCreate if the unfinished work has something else."""
    path = work / "plan.json"
    plan = {"settings": to_json(settings), "tokenizer_fingerprint": tokenizer.fingerprint, "libraries": libraries}
    if path.is_file():
        old, new = flatten(read_json_object(path)), flatten(plan)
        changes = [
            f"{name.split('.')[-1]} {old[name]} (now {value})"
            for name, value in new.items()
            if old.get(name, value) != value
        ]
        if changes:
            why = f"holds an unfinished preparation with {', '.join(changes)}"
            raise CannotCreate(work, why, "use the same settings to resume, or remove it to start anew")
    save_json(path, plan)


def _libraries(settings: PreparationSettings) -> dict[str, str]:
    names = ["sentencepiece", "sentencex"]
    if settings.duplicates == "near":
        load_by_name("rensa", "duplicates")  # to fail before all work if it is missing
        names.append("rensa")
    return {name: version(name) for name in names}


def _hold_out_at_least_one(
    jobs: Sequence[UnitJob], results: Sequence[UnitResult], settings: PreparationSettings
) -> tuple[Fallback, PreparationSettings]:
    """If the share holds out nothing, hold out the document with the lowest key; return what is held out.

    Of a single document, hold out the last sentences, if it has two; of equal documents, nothing. The shards with the
    document are encoded again, also if an earlier call was stopped while it did so.
    """
    shards = [shard for result in results for shard in result.shards]
    documents, within = sum(shard.documents for shard in shards), sum(shard.within_share for shard in shards)
    divided = documents == 1
    if not settings.held_out or not documents or (within and not divided):
        return "", settings
    lowest, highest = min(shard.lowest_key for shard in shards), max(shard.highest_key for shard in shards)
    if lowest == highest and not divided:
        return "", settings
    if not divided:
        settings = dataclasses.replace(settings, also_held_out=(lowest,))
    replaced = {}
    for job, result in zip(jobs, results, strict=True):
        affected = {shard.name for shard in result.shards if divided or shard.lowest_key == lowest}
        for batch in batches(job, CorpusReport()) if affected else ():
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
    documents, size = sum(shard.documents_dropped for shard in shards), sum(shard.bytes_dropped for shard in shards)
    empty = CorpusReport.dropped_later(NO_TOKENS, documents, size)
    return PreparationReport(
        **vars(sum_counts([empty, *(result.read for result in results), *duplicates])),
        sentences_dropped=sum(shard.sentences_dropped for shard in shards),
        splits=sum_counts([{split: SplitCounts() for split in SPLITS}, *(shard.splits for shard in shards)]),
    )


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
        format=FORMAT,
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
# Estimates of time and size, extrapolated from a sample: the first documents of some files, spread evenly over the
# bytes of the corpus.

SAMPLE_BYTES = 8_000_000
SAMPLED_FILES = 32
BYTES_OF_LENGTH = 4  # on disk, for each sentence and each document


@dataclass(frozen=True)
class PreparationEstimate:
    """Numbers of the corpus, all but `files` and `bytes_on_disk` estimated from a sample, duplicates included."""

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
    """Estimate size and time of a preparation."""
    _check_settings(settings, workers)
    size = sum(file.size for file in files)
    if hub_name := next((file.name for file in files if file.kind == "Hub dataset"), None):
        raise UsageError(hub_name, "its size is unknown before it is read, so nothing can be estimated")
    sampled = _sample_files(files, size)
    sums = np.zeros(5)  # documents, their bytes, sentences, tokens, bytes on disk
    times = np.zeros(3)  # of reading, of splitting and encoding, of fingerprints
    with progress("Looking at a sample", total=len(sampled), unit="files") as bar:
        for file in sampled:
            clock = [time.perf_counter()]
            texts, on_disk = _read_sample(file, settings, SAMPLE_BYTES // len(sampled))
            clock.append(time.perf_counter())
            parts = [split_sentences(text, settings.language, settings.as_lines) for text in texts]
            sentences = list(itertools.chain.from_iterable(parts))
            n_tokens = sum(map(len, tokenizer.encode_batch(sentences)))
            clock.append(time.perf_counter())
            if settings.duplicates != "keep":
                fingerprint_arrays(texts, settings.duplicates == "near")
            clock.append(time.perf_counter())
            sums += len(texts), sum(map(utf8_length, texts)), len(sentences), n_tokens, on_disk
            times += np.diff(clock)
            bar.advance()
    documents, text_bytes, n_sentences, tokens, on_disk = sums.tolist()
    if not tokens:
        raise MissingInput(files[0].path if len(files) == 1 else "corpus", "its sample holds no text")
    factor = size / max(on_disk, 1)
    # With few files one process reads for all; reading and encoding overlap.
    reading, encoding, comparing = times.tolist()
    stages = [encoding] if settings.duplicates == "keep" else [comparing, encoding]
    seconds = factor * sum(max(reading, (reading + work) / workers) for work in stages)
    lengths = BYTES_OF_LENGTH * (n_sentences + documents)
    return PreparationEstimate(
        files=len(files),
        bytes_on_disk=size,
        sample_bytes=round(text_bytes),
        documents=factor * documents,
        text_bytes=factor * text_bytes,
        sentences=factor * n_sentences,
        tokens=factor * tokens,
        output_bytes=factor * (tokens * token_type(tokenizer.vocab_size).itemsize + lengths),
        seconds=seconds,
        workers=workers,
    )


def _sample_files(files: Sequence[CorpusFile], total: int) -> list[CorpusFile]:
    """Return the at most `SAMPLED_FILES` files that hold evenly spaced bytes of the corpus."""
    offsets = (np.arange(SAMPLED_FILES) + 0.5) * total / SAMPLED_FILES
    chosen = np.searchsorted(np.cumsum([file.size for file in files]), offsets, side="right")
    return [files[number] for number in np.unique(np.minimum(chosen, len(files) - 1)).tolist()]


def _read_sample(file: CorpusFile, settings: PreparationSettings, limit: int) -> tuple[list[str], int]:
    """Return the first documents of a file, up to a limit of bytes, and their bytes on disk."""
    texts: list[str] = []
    consumed: list[int] = []
    size = 0
    for text in read_files([file], settings, report=CorpusReport(), advance=consumed.append):
        texts.append(text)
        size += len(text)
        if size >= limit:
            return texts, sum(consumed) or min(file.size, size)
    return texts, file.size


# --------------------------------------------------------------------------------------------------------------------
# Assembling a corpus from finished shards or prepared corpora.
#
# Shards are hard links (copies if the file system has none), and their checksums are known, so a corpus of any size is
# assembled, appended to or merged in seconds.

_NO_LINKS = {errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS}


@dataclass(frozen=True)
class CorpusPart:
    """Finished shards with their description and checksums."""

    description: CorpusDescription
    directory: Path
    sums: Mapping[str, FileSum]


def load_part(directory: Path) -> CorpusPart:
    """Load a prepared corpus as a part of a larger one."""
    description = read_description(directory)
    verify_directory(directory)
    return CorpusPart(description, directory, read_manifest(directory))


def merge_corpora(directories: Sequence[Path], output: Path, replace: bool = False) -> CorpusDescription:
    """Merge prepared corpora of one tokenizer, in the given order; their shards are linked, not copied.

    Raises:
        InvalidConfiguration: they have different tokenizers, or held-out documents by different shares or seeds.
        CannotCreate, WriteFailed: see `new_directory`.
    """
    parts = [load_part(directory) for directory in directories]
    return assemble(parts, load_tokenizer(directories[0]), output, replace)


def assemble(parts: Sequence[CorpusPart], tokenizer: Tokenizer, output: Path, replace: bool) -> CorpusDescription:
    """Write a corpus that consists of parts."""
    for part in parts[1:]:
        _refuse_incompatible(parts[0], part)
    used: set[str] = set()
    renamed = [_rename_shards(part, used) for part in parts]
    description = _merge_descriptions([description for description, _ in renamed])
    checksums: dict[str, FileSum] = {}
    with new_directory(output, replace=replace, known=checksums) as directory:
        for split in SPLITS:
            if description.shards[split]:
                (directory / split).mkdir()
        for part, (_, names) in zip(parts, renamed, strict=True):
            for old, new in names.items():
                _link(part.directory / old, directory / new)
                checksums[new] = part.sums[old]
        tokenizer.save(directory)
        save_json(directory / DESCRIPTION_NAME, description)
    return description


def _refuse_incompatible(first: CorpusPart, other: CorpusPart) -> None:
    ours, theirs = first.description, other.description
    remedy = "prepare it again with the same settings"
    if (ours.tokenizer_fingerprint, ours.vocab_size) != (theirs.tokenizer_fingerprint, theirs.vocab_size):
        raise InvalidConfiguration(other.directory, f"has tokens of another tokenizer than {first.directory}", remedy)
    for name, what in (("held_out_share", "share of held-out documents"), ("seed", "seed of their choice")):
        if (value := getattr(theirs, name)) != (expected := getattr(ours, name)):
            why = f"the {what} is {value}, that of {first.directory} is {expected}: a document could be in both splits"
            raise InvalidConfiguration(other.directory, why, remedy)


def _rename_shards(part: CorpusPart, used: set[str]) -> tuple[CorpusDescription, dict[str, str]]:
    """Return the description with names that are not used yet, and the new name of every file.

    A name is [ORIGIN+]UNIT-SHARD. The first part keeps its names; in others each origin gets a number.
    """
    old_names = sorted({shard.name for shards in part.description.shards.values() for shard in shards})
    new_names: dict[str, str] = {}
    origins: dict[str, str] = {}
    for name in old_names:
        origin, _, rest = name.rpartition("+")
        if origin not in origins:
            free = (f"{number:03d}" for number in itertools.count(1))
            candidates = (origin, *itertools.islice(free, len(used) + 1))
            origins[origin] = next(candidate for candidate in candidates if candidate not in used)
            used.add(origins[origin])
        new_names[name] = f"{origins[origin]}+{rest}" if origins[origin] else rest
    shards = {
        split: tuple(dataclasses.replace(shard, name=new_names[shard.name]) for shard in described)
        for split, described in part.description.shards.items()
    }
    renamed = dataclasses.replace(part.description, shards=shards)
    return renamed, dict(zip(_shard_files(part.description), _shard_files(renamed), strict=True))


def _merge_descriptions(descriptions: Sequence[CorpusDescription]) -> CorpusDescription:
    names = ("documents_in", "bytes_in", "documents_dropped", "bytes_dropped", "noted", "sentences_dropped", "counts")
    languages = {language for each in descriptions for language in each.language.split("+")}
    return dataclasses.replace(
        descriptions[0],
        language="+".join(sorted(languages)),
        also_held_out=tuple(sorted({key for each in descriptions for key in each.also_held_out})),
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
