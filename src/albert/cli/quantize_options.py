"""What `albert quantize` is asked for."""

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from albert.cli.command_line import parse
from albert.cli.main import load_command


@dataclass(frozen=True, kw_only=True)
class Quantize:
    """Write a model with 8-bit integers for matrices, one scale for each row: about a quarter of the size.

    Every command of albert opens the result, `albert predict` and `albert evaluate` among them; transformers does not.
    How far the outputs move is told here; what that does to a score, albert evaluate tells.

    Example: albert quantize runs/stars/model --output models/stars-int8
    """

    model: Positional[str]
    """A model directory, a run, or a Hub id."""
    output: Path
    """The directory to write."""
    revision: str | None = None
    """A branch, tag or commit of a Hub repository."""
    replace: bool = False
    """Replace an existing output."""


def main(arguments: list[str]) -> int:
    """Read the options, and run `albert quantize`."""
    asked = parse(Quantize, arguments, "albert quantize")
    return load_command("albert.cli.quantize").run(asked)
