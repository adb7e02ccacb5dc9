"""`albert quantize`: a model directory whose matrices are 8-bit integers."""

import shlex

from albert.cli.console import open_console
from albert.cli.light_tables import bytes_of, facts
from albert.cli.quantize_options import Quantize
from albert.inference.quantized_directory import quantize_directory


def run(asked: Quantize) -> int:
    """Run `albert quantize`."""
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
