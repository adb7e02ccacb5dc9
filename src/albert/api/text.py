"""What `albert.tokenizer.train`, `albert.prepare` and the commands of the same names do, and their results."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from albert.api.functions import Displayable
from albert.api.options import Prepare, TrainTokenizer
from albert.runtime.errors import UsageError
from albert.runtime.files import new_directory
from albert.runtime.json_files import common_fields
from albert.runtime.progress import progress
from albert.text.corpus import find_corpus_files, read_corpus
from albert.text.executors import PreparationSettings, SlurmSettings
from albert.text.prepare import PreparationReport, prepare
from albert.text.readers import CorpusReport, Reading
from albert.text.sentencepiece import (
    TrainingReport,
    VocabularySettings,
    accents_per_million,
    sample_documents,
    train_on_documents,
)
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_loading import load_tokenizer
from albert.text.unknown import WARN_FROM


@dataclass(frozen=True, repr=False, kw_only=True)
class TokenizerResult(Displayable):
    """A trained tokenizer, and counts of the text that was read and used."""

    output: Path
    tokenizer: Tokenizer
    read: CorpusReport
    used: TrainingReport
    seconds: float

    def title(self) -> str:
        return f"TokenizerResult: {self.tokenizer.vocab_size:,} pieces in {self.output}"

    def rows(self) -> list[tuple[str, ...]]:
        documents = ("documents", f"{self.read.documents_in:,}", f"{self.used.documents_used:,}")
        megabytes = ("MB of text", f"{self.read.bytes_in / 1e6:,.2f}", f"{self.used.bytes_used / 1e6:,.2f}")
        return [("", "read", "used"), documents, megabytes]

    def remarks(self) -> list[str]:
        return self.read.remarks()


def run_train_tokenizer(options: TrainTokenizer, on_accents: Callable[[int], None] | None = None) -> TokenizerResult:
    """Run `albert.tokenizer.train` or `albert tokenizer train`.

    Args:
        on_accents: called with the number of accents and vowel signs in a million characters, if they are dropped.
    """
    settings = VocabularySettings(
        **common_fields(VocabularySettings, options),
        maximum_bytes=round(options.megabytes * 1e6),
        maximum_sentences=options.sentences,
        as_lines=options.sentences_as_lines,
    )
    begin = time.monotonic()
    megabytes = sum(file.size for file in find_corpus_files(options.paths).files) / 1e6
    read = CorpusReport()
    used = TrainingReport()
    with new_directory(options.output, replace=options.replace) as directory:
        with progress("Reading", total=megabytes, unit="MB on disk") as bar:
            reading = Reading(**options.reading)
            corpus = read_corpus(options.paths, reading, report=read, advance=lambda amount: bar.advance(amount / 1e6))
            documents = sample_documents(corpus, settings, used)
        if not options.keep_accents and on_accents is not None:
            on_accents(accents_per_million(documents))
        tokenizer = train_on_documents(documents, settings, used)
        tokenizer.save(directory)
    read.lines = used.lines
    seconds = time.monotonic() - begin
    return TokenizerResult(output=options.output, tokenizer=tokenizer, read=read, used=used, seconds=seconds)


@dataclass(frozen=True, repr=False, kw_only=True)
class PrepareResult(Displayable):
    """A prepared corpus.

    Attributes:
        output: the corpus.
        report: counts of what was read, held out and dropped.
    """

    output: Path
    report: PreparationReport

    def title(self) -> str:
        return f"PrepareResult: {self.output}"

    def rows(self) -> list[tuple[str, ...]]:
        return preparation_rows(self.report)

    def remarks(self) -> list[str]:
        return [*unknown_remarks(self.report), *self.report.remarks()]


def unknown_remarks(report: PreparationReport) -> list[str]:
    """A line if the tokenizer does not know the text."""
    tokens = sum(split.tokens for split in report.splits.values())
    unknown = sum(split.unknown_tokens for split in report.splits.values())
    if tokens == 0 or unknown / tokens < WARN_FROM:
        return []
    remedy = "train one on such text (albert tokenizer train), with --character-coverage 1 if it has many signs"
    return [f"warning: {unknown / tokens:.0%} of the pieces are unknown to the tokenizer: {remedy}"]


def preparation_rows(report: PreparationReport) -> list[tuple[str, ...]]:
    """A table of counts, headings first: read, in each split, dropped."""
    splits = [report.splits["train"], report.splits["held_out"]]
    dropped = report.dropped.total()
    dropped_bytes = report.dropped_bytes.total()
    documents = [*(counts.documents for counts in splits), dropped, report.documents_in]
    megabytes = [*(counts.bytes for counts in splits), dropped_bytes, report.bytes_in]
    return [
        ("", "train", "held out", "dropped", "read"),
        ("documents", *(f"{count:,}" for count in documents)),
        ("MB of text", *(f"{count / 1e6:,.2f}" for count in megabytes)),
        ("sentences", *(f"{counts.sentences:,}" for counts in splits), "", ""),
        ("tokens", *(f"{counts.tokens:,}" for counts in splits), "", ""),
        ("unknown tokens", *(_ratio(counts.unknown_tokens, counts.tokens, ".4%") for counts in splits), "", ""),
        ("bytes per token", *(_ratio(counts.bytes, counts.tokens, ".2f") for counts in splits), "", ""),
    ]


def _ratio(part: int, whole: int, form: str) -> str:
    return format(part / whole, form) if whole else "-"


def run_prepare(options: Prepare) -> PrepareResult:
    """Run `albert.prepare` or `albert prepare`; for the errors see `albert.text.prepare.prepare`."""
    if options.slurm != SlurmSettings() and options.engine != "slurm":
        raise UsageError("--partition, --time, --memory-gb", "require --engine slurm", "add it, or leave them out")
    tokenizer = load_tokenizer(options.tokenizer)
    settings = PreparationSettings(
        **(common_fields(PreparationSettings, options) | options.reading),
        as_lines=options.sentences_as_lines,
        shard_bytes=round(options.shard_megabytes * 1e6),
    )
    report = prepare(
        options.paths,
        tokenizer,
        options.output,
        settings,
        workers=options.workers,
        replace=options.replace,
        engine=options.engine,
        slurm=options.slurm,
    )
    return PrepareResult(output=options.output, report=report)
