"""`albert prepare`: text and a tokenizer to token shards."""

import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from albert.cli.command_line import parse
from albert.cli.console import open_console
from albert.cli.corpus_options import CorpusOptions
from albert.runtime.late_modules import load_by_name
from albert.text.preparation.corpus_assembly import SHOWN_NAME
from albert.text.preparation.duplicates import ALIKE, EQUAL
from albert.text.preparation.preparation_estimate import estimate_preparation
from albert.text.preparation.prepare import NO_TOKENS, PreparationReport, prepare
from albert.text.preparation.unit_preparation import SHARD_BYTES, Duplicates, PreparationSettings, SlurmSettings
from albert.text.preparation.unit_sharing import Engine
from albert.text.readers.corpus_files import find_corpus_files
from albert.text.tokenizer_directory import load_tokenizer


@dataclass(frozen=True, kw_only=True)
class Prepare(CorpusOptions):
    """Turn text into token shards for pre-training, in parallel.

    Sentences and documents keep their boundaries; a share of the documents is held out for evaluation. The
    result does not depend on who does the work. Stopped, the same command goes on.

    Example: albert prepare corpus/ --tokenizer tokenizer --output data
    """

    tokenizer: Path
    """A directory with a tokenizer, a spiece.model or a vocab.txt: `albert tokenizer train` makes one."""
    output: Path
    """The directory to make."""
    held_out: float = 0.01
    """Share of the documents kept for evaluation, selected by a hash of their text: one at least, or the last sentences
    of a single one, unless the share is 0."""
    workers: int | None = None
    """Processes; one per processor by default."""
    seed: int = 0
    """Seed of the selection."""
    shard_megabytes: float = SHARD_BYTES / 1e6
    """Text of one shard, in millions of bytes; each worker holds one in memory."""
    replace: bool = False
    """Replace an existing output."""
    append: bool = False
    """Add to the corpus that OUTPUT is; its shards are linked, not written again."""
    duplicates: Duplicates = "keep"
    """Leave out documents that repeat an earlier one of CORPUS: `exact` but for white space, or `near`, 80 % of it.
    The text is read twice then; what --append adds to is not compared."""
    engine: Engine = "processes"
    """Who does the work: processes of this machine, or datatrove (here, on Ray, on Slurm); the bytes are the same."""
    plan: bool = False
    """Say what it will take and give, from a sample of the text, and write nothing."""
    slurm: SlurmSettings = field(default_factory=SlurmSettings)


def main(arguments: list[str]) -> int:
    """Run `albert prepare`."""
    options = parse(Prepare, arguments, "albert prepare")
    console = open_console()
    tokenizer = load_tokenizer(options.tokenizer)
    settings = PreparationSettings(
        held_out=options.held_out,
        seed=options.seed,
        **options.reading,
        language=options.language,
        as_lines=options.sentences_as_lines,
        duplicates=options.duplicates,
        shard_bytes=round(options.shard_megabytes * 1e6),
    )
    if options.plan:
        workers = options.workers or os.cpu_count() or 1
        estimate = estimate_preparation(find_corpus_files(options.paths).files, tokenizer, settings, workers)
        load_by_name("albert.cli.preparation_plan").show_plan(console, estimate, options.output)
        return 0
    report = prepare(
        options.paths,
        tokenizer,
        options.output,
        settings,
        workers=options.workers,
        replace=options.replace,
        append=options.append,
        engine=options.engine,
        slurm=options.slurm,
    )
    console.print(summary(report))
    for line in remarks(report):
        console.print(line, markup=False)
    if report.duplicates_shown:
        shown = f"{report.duplicates_shown:,} of the duplicates, the least similar first"
        console.print(f"{options.output / SHOWN_NAME} names {shown}", markup=False)
    if report.splits["held_out"].documents == 0:
        console.print("nothing is held out: the share is 0, or there is a single sentence", markup=False)
    elif report.held_out_though_few:
        what = {"document": "one document is held out", "sentences": "the last sentences of the only document are"}
        few = f"{options.held_out:.3g} of so few documents is none: {what[report.held_out_though_few]}"
        console.print(f"{few}; --held-out 0 holds out nothing", markup=False)
    console.print(f"[bold]{escape(str(options.output))}[/bold] is ready")
    console.print(
        f"next: albert pretrain small --data {shlex.quote(str(options.output))} --output runs/small",
        markup=False,
    )
    return 0


def summary(report: PreparationReport) -> Table:
    """A table of what was read, what each split holds, and what was dropped."""
    table = Table()
    for name in ("", "train", "held out", "dropped", "read"):
        table.add_column(name, justify="right" if name else "left")
    splits = [report.splits["train"], report.splits["held_out"]]
    dropped, dropped_bytes = sum(report.documents_dropped.values()), sum(report.bytes_dropped.values())
    documents = [*(counts.documents for counts in splits), dropped, report.documents_in]
    megabytes = [*(counts.bytes for counts in splits), dropped_bytes, report.bytes_in]
    table.add_row("documents", *(f"{count:,}" for count in documents))
    table.add_row("MB of text", *(f"{count / 1e6:,.2f}" for count in megabytes))
    table.add_row("sentences", *(f"{counts.sentences:,}" for counts in splits))
    table.add_row("tokens", *(f"{counts.tokens:,}" for counts in splits))
    table.add_row("unknown tokens", *(_ratio(counts.unknown_tokens, counts.tokens, ".4%") for counts in splits))
    table.add_row("bytes per token", *(_ratio(counts.bytes, counts.tokens, ".2f") for counts in splits))
    return table


def _ratio(part: int, whole: int, form: str) -> str:
    return format(part / whole, form) if whole else "-"


def remarks(report: PreparationReport) -> list[str]:
    """Speed, and whatever was left out or mended."""
    rate = report.bytes_in / 1e6 / max(report.seconds, 1e-9)
    processes = "1 process" if report.workers == 1 else f"{report.workers} processes"
    lines = [f"{report.read.files:,} files in {report.seconds:,.1f} s, {rate:,.1f} MB/s with {processes}"]
    lines += report.read.remarks()
    for count, what in (
        *((report.documents_dropped[reason], f"documents dropped: {reason}") for reason in (EQUAL, ALIKE, NO_TOKENS)),
        (report.shards_found, "shards were finished before"),
        (report.sentences_dropped, "sentences without a token left out"),
    ):
        if count:
            lines.append(f"{count:,} {what}")
    return lines
