"""`albert quantize`: a model directory whose matrices are 8-bit integers."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from albert.cli.command_line import parse
from albert.cli.console import open_console
from albert.cli.light_tables import bytes_of, facts
from albert.inference.quantized_directory import quantize_directory


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
    """Run `albert quantize`."""
    asked = parse(Quantize, arguments, "albert quantize")
    made = quantize_directory(asked.model, asked.output, revision=asked.revision, replace=asked.replace)
    told: dict[str, object] = {
        "matrices": f"{made.matrices} as 8-bit integers, a scale for each row",
        "weights": f"{bytes_of(made.bytes_after)}, {made.bytes_after / made.bytes_before:.1%} of "
        f"{bytes_of(made.bytes_before)}",
    }
    told |= {
        f"{name} moves": f"{largest:.3g} at most over random tokens, "
        f"{made.moved.relative[name]:.2%} of its spread as a rule"
        for name, largest in made.moved.largest.items()
    }
    told["written"] = asked.output
    console = open_console()
    console.print(facts("albert quantize", told))
    console.print(f"next: albert info {shlex.quote(str(asked.output))}", markup=False)
    return 0
