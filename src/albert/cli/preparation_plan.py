"""`albert prepare --plan`: what preparing a corpus will take and give, before it starts."""

import shutil
from pathlib import Path

from rich.console import Console
from rich.table import Table

from albert.pretraining.recipe import RECIPES
from albert.text.prepare import PreparationEstimate

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
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count / 1e3:,.1f} kB"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:,.0f} s"
    return f"{seconds / 60:,.0f} minutes" if seconds < 7200 else f"{seconds / 3600:,.1f} hours"
