"""`albert prepare`, `albert merge`, `albert verify` and `albert plot`."""

import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from tyro.conf import Positional

from albert.api.options import Prepare
from albert.api.text import preparation_rows, run_prepare
from albert.cli.main import load_command
from albert.cli.options import open_console, parse
from albert.pretraining.recipe import RECIPES
from albert.runtime.errors import AlbertError, DamagedData, MissingInput, UsageError
from albert.runtime.json_files import read_journal
from albert.runtime.manifest import MANIFEST_NAME, read_manifest, verify_directory
from albert.runtime.progress import progress
from albert.text.duplicates import ALIKE, EQUAL
from albert.text.prepare import NO_TOKENS, PreparationEstimate, PreparationReport, merge_corpora
from albert.text.shards import DESCRIPTION_NAME, SHOWN_NAME, TokenCorpus, read_description
from albert.training.run_folder import RunFolder


def prepare_main(arguments: list[str]) -> int:
    """Run `albert prepare`."""
    options = parse(Prepare, arguments, "albert prepare")
    console = open_console()
    result = run_prepare(options)
    if result.estimate is not None:
        show_plan(console, result.estimate, options.output)
        return 0
    report = result.report
    assert report is not None
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
        f"next: albert pretrain small --data {shlex.quote(str(options.output))} --output runs/small", markup=False
    )
    return 0


def summary(report: PreparationReport) -> Table:
    """A table of what was read, what each split holds, and what was dropped."""
    headings, *rows = preparation_rows(report)
    table = Table()
    for name in headings:
        table.add_column(name, justify="right" if name else "left")
    for row in rows:
        table.add_row(*row)
    return table


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


# --------------------------------------------------------------------------------------------------------------------
# `albert merge`: prepared corpora become one.


@dataclass(frozen=True)
class Merge:
    """Put prepared corpora of one tokenizer together; their shards are linked, not written again.

    To add text to a corpus there is albert prepare --append; to mix corpora by weight, albert pretrain --data A B.

    Example: albert merge corpus-2024 corpus-2025 --output corpus
    """

    corpora: Annotated[
        Positional[tuple[Path, ...]], tyro.conf.arg(metavar="CORPUS...", help_behavior_hint="(required)")
    ]
    """What `albert prepare` wrote, two or more."""
    output: Path
    """The directory to make."""
    replace: bool = False
    """Replace an existing output."""


def merge_main(arguments: list[str]) -> int:
    """Run `albert merge`."""
    options = parse(Merge, arguments, "albert merge")
    if len(options.corpora) < 2:
        raise UsageError("albert merge", "merge needs at least two corpora", "name two or more")
    merged = merge_corpora(options.corpora, options.output, options.replace)
    console = open_console()
    for split, counts in merged.counts.items():
        what = f"{counts.documents:,} documents, {counts.tokens:,} tokens, {len(merged.shards[split]):,} shards"
        console.print(f"{split.replace('_', ' ')}: {what}", markup=False)
    console.print(f"{options.output} is ready", markup=False)
    data = shlex.quote(str(options.output))
    console.print(f"next: albert pretrain small --data {data} --output runs/small", markup=False)
    return 0


# --------------------------------------------------------------------------------------------------------------------
# `albert verify`: every file of what albert wrote, checked against its manifest.


@dataclass(frozen=True)
class Verify:
    """Check every file of models, corpora, tokenizers and runs against the SHA-256 sums in their manifests.

    Of a run, the model, every checkpoint and the journal are checked. Exit code 65 when anything is damaged.

    Example: albert verify runs/mine corpus
    """

    paths: Annotated[Positional[tuple[Path, ...]], tyro.conf.arg(metavar="PATH...", help_behavior_hint="(required)")]
    """Directories that albert wrote."""


def verify_main(arguments: list[str]) -> int:
    """Run `albert verify`."""
    options = parse(Verify, arguments, "albert verify")
    places = [place for path in options.paths for place in whole_directories(path)]
    total = sum(file.bytes for place in places for file in _sums(place).values())
    table = Table("directory", "files", "MB", "finding", title="albert verify", title_justify="left")
    damaged: list[AlbertError] = []
    with progress("Checking", total=total / 1e6, unit="MB") as bar:
        for place in places:
            checked: list[int] = []

            def count(name: str, size: int, checked: list[int] = checked) -> None:
                checked.append(size)
                bar.advance(size / 1e6)

            try:
                verify_directory(place, count)
                _open_corpus(place)
                finding = "whole"
            except (DamagedData, MissingInput) as damage:
                damaged.append(damage)
                finding = f"[bold red]{escape(str(damage))}[/bold red]"
            table.add_row(escape(str(place)), f"{len(checked):,}", f"{sum(checked) / 1e6:,.2f}", finding)
    for path in options.paths:
        if (journal := RunFolder(path).journal_path).is_file():
            table.add_row(escape(str(journal)), "1", "", f"{len(read_journal(journal)):,} records")
    open_console().print(table)
    if damaged:
        raise DamagedData(
            damaged[0].subject, damaged[0].why, f"{len(damaged)} of {len(places)} directories are damaged"
        )
    return 0


def whole_directories(path: Path) -> list[Path]:
    """The directories with a manifest that a path stands for: itself, or the model and checkpoints of a run."""
    if (path / MANIFEST_NAME).is_file():
        return [path]
    run = RunFolder(path)
    inside = [run.model_path, *(checkpoint for _, checkpoint in run.checkpoints())]
    found = [place for place in inside if place.is_dir()]
    if not found:
        why = f"holds no {MANIFEST_NAME} and no run" if path.is_dir() else "no such directory"
        raise MissingInput(path, why, "name a directory that albert wrote")
    return found


def _sums(place: Path) -> dict:
    """What the manifest lists; nothing when it is damaged itself, which the check will say."""
    try:
        return read_manifest(place)
    except (DamagedData, MissingInput):
        return {}


def _open_corpus(place: Path) -> None:
    """Sums say that the bytes are those written; opening says that they fit together."""
    if (place / DESCRIPTION_NAME).is_file():
        for split in ("train", "held_out"):
            if read_description(place).shards.get(split):
                TokenCorpus.open(place, split, verify=False)


# --------------------------------------------------------------------------------------------------------------------
# `albert plot`: the curves of runs in one picture.


@dataclass(frozen=True)
class Plot:
    """Draw the curves of one or several runs, of pretrain and of finetune, into one PNG: losses, accuracies beside what
    a constant answer scores, learning rate, gradient norm. A run may be going on meanwhile.

    Example: albert plot runs/small runs/two-cores --against minutes
    """

    runs: Annotated[Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN...", help_behavior_hint="(required)")]
    """What the --output of `albert pretrain` or `albert finetune` was."""
    against: Literal["steps", "tokens", "minutes"] = "steps"
    """The horizontal axis; minutes are those in updates, without evaluations and saves."""
    output: Path = Path("curves.png")
    """The picture, a PNG; an older one is replaced."""
    csv: Path | None = None
    """Write the figures to this file as well, a row each."""


def plot_main(arguments: list[str]) -> None:
    """Run `albert plot`."""
    options = parse(Plot, arguments, "albert plot")
    if not options.runs:
        raise UsageError("albert plot", "no run is named", "albert plot RUN... --output curves.png")
    if len({run.resolve() for run in options.runs}) < len(options.runs):
        raise UsageError("albert plot", "a run is named twice")
    if options.output.suffix.lower() != ".png":
        raise UsageError(f"--output {options.output}", "must end in .png", "choose a name that ends in .png")
    curves = load_command("albert.experiments.curves")
    runs = curves.read_runs(options.runs)
    curves.draw_runs(runs, options.output, options.against)
    if options.csv is not None:
        curves.write_table(runs, options.csv)
    console = open_console()
    for run in runs:
        last = run.updates[-1]
        where = f"{last['step']:,} steps, {last['tokens']:,} tokens, {last['seconds'] / 60:,.1f} minutes"
        console.print(f"{run.name}: {where}", markup=False)
    console.print(" and ".join(str(path) for path in (options.output, options.csv) if path), markup=False)


# --------------------------------------------------------------------------------------------------------------------
# `albert prepare --plan`: what preparing a corpus will take and give, before it starts.

FULL = 0.75
"""How full sequences are, of the longest: documents are halved until they fit."""


def show_plan(console: Console, estimate: PreparationEstimate, output: Path) -> None:
    """Print the estimate, and how often the named recipes would see the corpus."""
    free = shutil.disk_usage(_existing(output)).free
    table = Table(title="a plan; nothing is written", title_justify="left", show_header=False)
    table.add_row("files", f"{estimate.files:,}, {_size(estimate.bytes_on_disk)} on disk")
    table.add_row("sample read for it", f"{_size(estimate.sample_bytes)} of text")
    table.add_row("text", f"about {_size(estimate.text_bytes)}, {estimate.documents:,.0f} documents")
    table.add_row("sentences, tokens", f"about {estimate.sentences:,.0f}, {estimate.tokens:,.0f}")
    table.add_row("prepared corpus", f"about {_size(estimate.output_bytes)} ({_size(free)} are free there)")
    processes = "1 process" if estimate.workers == 1 else f"{estimate.workers} processes"
    table.add_row("time, here", f"about {_duration(estimate.seconds)} with {processes}")
    console.print(table)
    epochs = Table("recipe", "updates", "tokens seen, about", "epochs", title="how often a recipe sees it")
    for name, recipe in RECIPES.items():
        seen = recipe.schedule.total_steps * recipe.batch_size * recipe.sequences.max_length * FULL
        times = f"{seen / estimate.tokens:,.1f}"
        epochs.add_row(name, f"{recipe.schedule.total_steps:,}", f"{seen:,.0f}", times)
    for column in epochs.columns[1:]:
        column.justify = "right"
    console.print(epochs)


def _existing(path: Path) -> Path:
    return path if path.exists() or path == path.parent else _existing(path.parent)


def _size(count: float) -> str:
    unit, size = next((each for each in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)) if count >= each[1]), ("kB", 1e3))
    return f"{count / size:,.1f} {unit}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:,.0f} s"
    return f"{seconds / 60:,.0f} minutes" if seconds < 7200 else f"{seconds / 3600:,.1f} hours"
