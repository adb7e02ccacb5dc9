"""`albert quantize`: a model with 8-bit integers for matrices."""

import os
import shlex
from pathlib import Path

from albert.cli.main import imports
from albert.cli.render import key_value_table, next_line, open_console, print_lines
from albert.cli.signature import PathLike
from albert.commands.function import command, on_command_line
from albert.runtime.words import bytes_of


@command("albert quantize")
def quantize(model: PathLike, *, output: PathLike, calibrate: PathLike | None = None, replace: bool = False) -> None:
    """Write a model with matrices as 8-bit integers, one scale for each row: about half the size of
    float16, a quarter of float32.

    All commands of albert open the result; transformers does not. The change of the outputs is printed; `albert
    evaluate` shows the change of a score.

    Example: albert quantize runs/stars/model --output models/stars-int8

    Args:
        model: A model directory, a run, or a Hub id.
        output: The directory to write.
        calibrate: A file of texts like those that the model will read, by which precision int8 measures the scales of
            the products' inputs: a text on each line, or a table with the column that the model was trained on, or with
            a column text. The first 4,096 tokens are enough. Random tokens when not set.
    """
    with imports():
        from albert.inference.int8 import change_of, quantize_directory

    output = Path(output)
    calibrate_on = None if calibrate is None else Path(calibrate)
    result = quantize_directory(os.fspath(model), output, calibrate_on=calibrate_on, replace=replace)
    share = result.bytes_after / result.bytes_before
    values: dict[str, object] = {
        "matrices": f"{result.matrices} are written as 8-bit integers, a scale for each row",
        "weights": f"{bytes_of(result.bytes_after)}, {share:.1%} of {bytes_of(result.bytes_before)}",
    }
    for name, largest in result.moved.largest.items():
        change = change_of(largest, result.moved.relative[name])
        values[f"{name} change"] = f"by {change}, on random tokens"
    values["--precision int8"] = f"computes in 8 bits, too: inputs of products as {result.inputs}"
    for name, largest in result.moved_in_int8.largest.items():
        change = change_of(largest, result.moved_in_int8.relative[name])
        values[f"{name} then change"] = f"by {change}, on random tokens"
    values["written"] = output
    following = next_line(f"info {shlex.quote(str(output))}")
    print_lines(open_console(), key_value_table("albert quantize", values), following)


quantize_main = on_command_line(quantize)
