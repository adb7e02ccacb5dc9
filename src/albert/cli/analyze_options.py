"""What `albert analyze` is asked for."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from tyro.conf import Positional

from albert.cli.command_line import parse
from albert.cli.main import load_command
from albert.cli.subcommands import dispatch

USAGE = """usage: albert analyze COMMAND [options]

Commands:
  layers    how far each layer moves what comes into it (the paper's Figure 1)

Example: albert analyze layers albert/albert-base-v2 runs/mine --output layers.png"""


@dataclass(frozen=True, kw_only=True)
class AnalyzeLayers:
    """Draw L2 distance and angle between input and output of every layer (the paper's Figure 1), for any models.

    All models read the same passages, each with its own tokenizer; the means are over all tokens.

    Example: albert analyze layers albert/albert-base-v2 runs/mine --text my_text/
    """

    models: Annotated[Positional[tuple[str, ...]], tyro.conf.arg(metavar="MODEL...", help_behavior_hint="(required)")]
    """Model directories, runs, or Hub ids."""
    text: tuple[str, ...] = ()
    """Files or folders whose text is read; the held-out chapters of the embedded sample by default."""
    passages: int = 200
    """How many are read, the first ones of the text."""
    words: int = 100
    """Words of a passage."""
    output: Path = Path("layers.png")
    """The picture, a PNG; an older one is replaced."""
    csv: Path | None = None
    """Write the figures to this file as well, a row for each model and layer."""
    device: Literal["auto", "cpu", "cuda"] = "auto"


def main(arguments: list[str]) -> int:
    """Read the options, and run `albert analyze`."""
    return dispatch("albert analyze", USAGE, {"layers": _layers}, arguments, "command")


def _layers(arguments: list[str]) -> int:
    asked = parse(AnalyzeLayers, arguments, "albert analyze layers")
    return load_command("albert.cli.analyze").layers(asked)
