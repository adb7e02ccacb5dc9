"""`albert verify`: every file of what albert wrote, checked against its manifest."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.markup import escape
from rich.table import Table
from tyro.conf import Positional

from albert.cli.command_line import parse
from albert.cli.console import open_console
from albert.runtime.errors import AlbertError, DamagedData, MissingInput
from albert.runtime.journal import read_journal
from albert.runtime.manifests import MANIFEST_NAME, read_manifest, verify_directory
from albert.runtime.progress import progress
from albert.text.preparation.corpus_description import DESCRIPTION_NAME, read_description
from albert.text.preparation.shards import TokenCorpus
from albert.training.run_folder import RunFolder


@dataclass(frozen=True)
class Verify:
    """Check every file of models, corpora, tokenizers and runs against the SHA-256 sums in their manifests.

    Of a run, the model, every checkpoint and the journal are checked. Exit code 65 when anything is damaged.

    Example: albert verify runs/mine corpus
    """

    paths: Annotated[Positional[tuple[Path, ...]], tyro.conf.arg(metavar="PATH...", help_behavior_hint="(required)")]
    """Directories that albert wrote."""


def main(arguments: list[str]) -> int:
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
    """The directories with a manifest that a path stands for: itself, or the model and checkpoints of a run.

    Raises:
        MissingInput: there is none.
    """
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
