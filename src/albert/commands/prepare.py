"""`albert prepare` and `albert.prepare`: text and a tokenizer to token shards.

Here are the options and what is shown; `albert.text.prepare` has the steps, from text files to shards, and
`albert.pretraining.sampling` those from shards to batches."""

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from albert.cli.main import imports
from albert.cli.render import bold_prefix, next_line, open_console, print_lines, table
from albert.cli.signature import PathLike, Rows, option_name
from albert.commands.function import command, on_command_line
from albert.report.display import Displayable
from albert.runtime.errors import UsageError
from albert.runtime.words import counted
from albert.text.executors import SHARD_BYTES, Duplicates, Engine, PreparationSettings, SlurmSettings
from albert.text.readers import BadUtf8, DocumentBoundary, Reading
from albert.text.wrapping import Wrapped

if TYPE_CHECKING:
    from albert.text.prepare import PreparationReport


Corpus = Rows | Sequence[PathLike]
"""Files, folders, patterns and addresses; or rows in memory."""


def names_of(corpus: Corpus) -> list[str]:
    """The files of a corpus; rows in memory are in one."""
    several = [corpus] if isinstance(corpus, str | os.PathLike) else cast(Sequence[PathLike], corpus)
    return [os.fspath(each) for each in several]


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """How the text of a corpus is read: options of `prepare` and of `tokenizer train`."""

    text_field: str = Reading.text_field
    documents: DocumentBoundary = Reading.documents
    sentences_as_lines: bool = False
    wrapped: Wrapped = "auto"
    language: str = "en"
    bad_utf8: BadUtf8 = Reading.bad_utf8

    def __post_init__(self) -> None:
        if self.sentences_as_lines and self.wrapped == "yes":
            raise UsageError("--wrapped yes", "and --sentences-as-lines contradict each other", "give one of them")

    @property
    def reading(self) -> dict[str, Any]:
        """The fields of `albert.text.readers.Reading`."""
        return {
            "text_field": self.text_field,
            "documents": self.documents,
            "bad_utf8": self.bad_utf8,
        }

    def command_line(self, corpus: Sequence[str]) -> str:
        """A corpus and these options, for another command that reads the same text."""
        flags = []
        for option in fields(TextOptions):
            value = getattr(self, option.name)
            if value != option.default:
                flags += [option_name(option.name), *([] if value is True else [str(value)])]
        return shlex.join([*corpus, *flags])


@command("albert prepare", rows="beside output")
def prepare(
    corpus: Corpus,
    *,
    tokenizer: PathLike,
    output: PathLike,
    text_field: str = Reading.text_field,
    documents: DocumentBoundary = Reading.documents,
    sentences_as_lines: bool = False,
    wrapped: Wrapped = "auto",
    language: str = "en",
    bad_utf8: BadUtf8 = Reading.bad_utf8,
    held_out: float = 0.01,
    workers: int | None = None,
    seed: int = 0,
    shard_megabytes: float = SHARD_BYTES / 1e6,
    replace: bool = False,
    duplicates: Duplicates = "keep",
    engine: Engine = "processes",
    partition: str = "",
    time: str = "24:00:00",
    memory_gb: int = 4,
) -> "PrepareResult":
    """Turn text into token shards for pre-training, in parallel.

    Boundaries of sentences and documents are kept; a share of the documents is held out for evaluation. The
    result does not depend on engine or workers. If it is stopped, the same command resumes.

    Example: albert prepare corpus/ --tokenizer tokenizer --output data

    Args:
        corpus: Files, folders or patterns: .txt, .jsonl, .json, .csv, .tsv, .xlsx, .parquet, packed as .gz, .bz2, .xz
            or .zst; a folder that `datasets` saved; or hf://OWNER/NAME[/CONFIG][@REVISION]:SPLIT on the Hub.
        tokenizer: A directory with a tokenizer, a spiece.model or a vocab.txt: `albert tokenizer train` makes one.
        output: The directory to create.
        held_out: Share of the documents held out for evaluation, selected by a hash of their text: at least one, or the
            last sentences of a single one, unless the share is 0.
        workers: Number of processes; one per processor by default.
        seed: Seed of the selection.
        shard_megabytes: Text of one shard, in millions of bytes; each worker keeps one in memory.
        duplicates: Keep documents that repeat an earlier one of CORPUS, or leave out those that do exactly, except for
            white space; the text is then read twice. For near copies see examples/near_duplicates.py.
        engine: Where the work runs: processes of this machine, or datatrove (here, on Ray, on Slurm); the bytes are the
            same.
        partition: The Slurm partition.
        time: The time limit of a task.
        memory_gb: Memory of a task, in GB.
    """
    slurm = SlurmSettings(partition=partition, time=time, memory_gb=memory_gb)
    if slurm != SlurmSettings() and engine != "slurm":
        raise UsageError("--partition, --time, --memory-gb", "require --engine slurm", "add it, or leave them out")
    text = TextOptions(
        text_field=text_field,
        documents=documents,
        sentences_as_lines=sentences_as_lines,
        wrapped=wrapped,
        language=language,
        bad_utf8=bad_utf8,
    )
    output = Path(output)
    with imports():
        from albert.text.normalization import lower_case_note
        from albert.text.prepare import prepare as prepare_corpus
        from albert.text.tokenizer_loading import load_tokenizer

    settings = PreparationSettings(
        **text.reading,
        held_out=held_out,
        seed=seed,
        language=text.language,
        as_lines=text.sentences_as_lines,
        wrapped=text.wrapped,
        duplicates=duplicates,
        shard_bytes=round(shard_megabytes * 1e6),
    )
    loaded = load_tokenizer(Path(tokenizer))
    note = lower_case_note(text.language, loaded.lower_case, loaded.keep_accents)
    if note is not None:
        print(f"albert: note: {note}", file=sys.stderr)
    report = prepare_corpus(
        [Path(name) for name in names_of(corpus)],
        loaded,
        output,
        settings,
        workers=workers,
        replace=replace,
        engine=engine,
        slurm=slurm,
    )
    return PrepareResult(output=output, held_out=held_out, report=report)


@dataclass(frozen=True, repr=False, kw_only=True)
class PrepareResult(Displayable):
    """A prepared corpus.

    Attributes:
        output: the corpus.
        held_out: the share of documents to hold out, as it was asked for.
        report: counts of what was read, held out and dropped.
    """

    output: Path
    held_out: float
    report: "PreparationReport"

    def title(self) -> str:
        return f"PrepareResult: {self.output}"

    def rows(self) -> list[tuple[str, ...]]:
        """Counts of what was read, of each split, and of what was dropped."""
        report = self.report
        splits = [report.splits["train"], report.splits["held_out"]]
        documents = [*(counts.documents for counts in splits), report.dropped.total(), report.documents_in]
        megabytes = [*(counts.bytes for counts in splits), report.dropped_bytes.total(), report.bytes_in]
        return [
            ("", "train", "held out", "dropped", "read"),
            ("documents", *(f"{count:,}" for count in documents)),
            ("MB of text", *(f"{count / 1e6:,.2f}" for count in megabytes)),
            ("sentences", *(f"{counts.sentences:,}" for counts in splits), "", ""),
            ("tokens", *(f"{counts.tokens:,}" for counts in splits), "", ""),
            ("unknown tokens", *(ratio(counts.unknown_tokens, counts.tokens, ".4%") for counts in splits), "", ""),
            ("bytes per token", *(ratio(counts.bytes, counts.tokens, ".2f") for counts in splits), "", ""),
        ]

    def remarks(self) -> list[str]:
        from albert.text.unknown import WARN_FROM

        tokens = sum(split.tokens for split in self.report.splits.values())
        unknown = sum(split.unknown_tokens for split in self.report.splits.values())
        lines = self.report.remarks()
        if tokens > 0 and unknown / tokens >= WARN_FROM:
            remedy = "train one on such text (albert tokenizer train), with --character-coverage 1 if it has many signs"
            lines.insert(0, f"warning: {unknown / tokens:.0%} of the pieces are unknown to the tokenizer: {remedy}")
        return [*lines, *self._held_out_lines()]

    def _held_out_lines(self) -> list[str]:
        """A line if nothing is held out, or another part than the share selects."""
        report = self.report
        if report.splits["held_out"].documents == 0:
            return ["nothing is held out: the share is 0, all documents are equal, or there is a single sentence"]
        if not report.held_out_fallback:
            return []
        if report.held_out_fallback == "sentences":
            return ["the last sentences of the only document are held out; --held-out 0 holds out nothing"]
        selected = f"the share of {self.held_out:.3g} selected none of {counted(report.documents, 'documents')}"
        remedy = "a larger --held-out or another --seed selects more, --held-out 0 holds out nothing"
        return [f"{selected}: one document is held out; {remedy}"]


def ratio(part: int, whole: int, form: str) -> str:
    """A part by the whole in a format, or a dash if there is nothing."""
    return format(part / whole, form) if whole else "-"


def show_prepared(result: PrepareResult) -> None:
    """Print what was read, held out and dropped."""
    report = result.report
    rate = report.bytes_in / 1e6 / max(report.seconds, 1e-9)
    processes = "1 process" if report.workers == 1 else f"{report.workers} processes"
    lines = [f"{counted(report.files, 'files')} in {report.seconds:,.1f} s, {rate:,.1f} MB/s with {processes}"]
    lines += result.remarks()
    if report.shards_found:
        lines.append(
            f"{counted(report.shards_found, 'shards')} {'was' if report.shards_found == 1 else 'were'} finished before"
        )
    if report.sentences_dropped:
        lines.append(f"{counted(report.sentences_dropped, 'sentences')} without a token left out")
    ready = bold_prefix(result.output, " is ready")
    corpus = shlex.quote(str(result.output))
    following = next_line(f"pretrain small --data {corpus} --output runs/small max_minutes=60")
    headings, *rows = result.rows()
    print_lines(open_console(), table(None, headings, rows, boxed=True), *lines, ready, following)


prepare_main = on_command_line(prepare, show_prepared)
