"""What `albert show` is asked for."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from tyro.conf import Positional

from albert.cli.command_line import parse
from albert.cli.main import load_command
from albert.pretraining.ngram_masking import MaskingRecipe
from albert.pretraining.samples import SequenceRecipe

SEQUENCES, MASKING = SequenceRecipe(max_length=128), MaskingRecipe()
"""What is shown unless something else is asked for; the paper's 512 tokens fill a page each."""


@dataclass(frozen=True, kw_only=True)
class Show:
    """Show what a prepared corpus becomes in training: a few samples as text, and counts of many.

    Every sample is what a run with this seed and these settings would see, at that place of that epoch.

    Example: albert show corpus --number 2 --objective sop --max-length 128
    """

    corpus: Positional[Path]
    """What `albert prepare` wrote."""
    number: int = 3
    """How many samples to show."""
    first: int = 0
    """The first of them, in the order of training."""
    epoch: int = 0
    """Of which epoch."""
    seed: int = 0
    """Of the run."""
    split: Literal["train", "held_out"] = "train"
    count: int = 2000
    """How many samples to count, from the first on; 0: none."""
    sequences: Annotated[SequenceRecipe, tyro.conf.arg(name="")] = SEQUENCES
    masking: Annotated[MaskingRecipe, tyro.conf.arg(name="")] = MASKING


def main(arguments: list[str]) -> int:
    """Read the options, and run `albert show`."""
    asked = parse(Show, arguments, "albert show")
    return load_command("albert.cli.show").run(asked)
