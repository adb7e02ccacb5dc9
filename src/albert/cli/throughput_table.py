"""`albert info --measure`: how fast architectures are here. A file of its own, for training's imports take a second."""

from collections.abc import Mapping

import torch
from rich.console import Console
from rich.markup import escape

from albert.cli.render import table
from albert.experiments.sizes import Measurement, measure_throughput
from albert.model.config import AlbertConfig
from albert.runtime.environment import Precision


def show_throughput(
    console: Console,
    architectures: Mapping[str, AlbertConfig],
    *,
    sequence_length: int,
    batch_size: int | None,
    device: torch.device,
    precision: Precision,
) -> Measurement:
    """Measure, then show speeds and how they were measured (`measure_throughput` has the arguments and errors)."""
    measurement = measure_throughput(
        architectures, sequence_length=sequence_length, batch_size=batch_size, device=device, precision=precision
    )
    _show(console, measurement)
    return measurement


def _show(console: Console, measurement: Measurement) -> None:
    first = next(iter(measurement.results.values()))
    where = f"{measurement.device.upper().replace('CUDA', 'GPU')}, {measurement.precision}"
    if measurement.device == "cpu":
        where += f", {measurement.threads} thread{'s' if measurement.threads > 1 else ''}"
    batch = f"{first.batch_size} × {first.sequence_length} tokens"
    console.print(f"[bold]Measured here[/bold]: {where}, {batch}, medians of {first.rounds} rounds, random weights")
    made = table(None, "", "tokens/s", "sequences/s", "a batch")
    several = len(measurement.results) > 1
    for name, found in measurement.results.items():
        for kind, seconds in (("inference", found.inference_seconds), ("training step", found.training_seconds)):
            label = f"  {name}, {kind}" if several else f"  {kind}"
            rates = (f"{number / seconds:,.1f}" for number in (found.tokens, found.batch_size))
            made.add_row(escape(label), *rates, f"{seconds:,.3f} s")
    console.print(made)
    console.print("  [dim]inference: the encoder forward; training step: forward, both losses, backward, LAMB[/dim]")
