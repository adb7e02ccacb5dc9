"""`albert merge`: prepared corpora become one."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import Positional

from albert.cli.command_line import parse
from albert.cli.console import open_console
from albert.runtime.errors import UsageError
from albert.text.preparation.corpus_assembly import merge_corpora


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


def main(arguments: list[str]) -> int:
    """Run `albert merge`."""
    options = parse(Merge, arguments, "albert merge")
    if len(options.corpora) < 2:
        raise UsageError("albert merge", "one corpus alone is no merger", "name two or more")
    merged = merge_corpora(options.corpora, options.output, options.replace)
    console = open_console()
    for split, counts in merged.counts.items():
        what = f"{counts.documents:,} documents, {counts.tokens:,} tokens, {len(merged.shards[split]):,} shards"
        console.print(f"{split.replace('_', ' ')}: {what}", markup=False)
    console.print(f"{options.output} is ready", markup=False)
    data = shlex.quote(str(options.output))
    console.print(f"next: albert pretrain small --data {data} --output runs/small", markup=False)
    return 0
