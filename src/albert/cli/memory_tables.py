"""The memory of a training step as a table, and sizes as people write them."""

import re
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from albert.cli.light_tables import bytes_of, in_millions, table
from albert.experiments.memory_plan import MemoryPlan
from albert.model.training_memory import TrainingMemory
from albert.runtime.errors import UsageError

_UNITS = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
          "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}  # fmt: skip
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([kmgt]i?b)", re.IGNORECASE)
_HELD = {
    "weights": "weights",
    "gradients": "gradients",
    "moments": "two moments",
    "update": "LAMB's update",
    "weight_copies": "copies of weights",
}
_KEPT = {
    "recomputed_layer": "a layer computed again",
    "embeddings": "embeddings",
    "heads": "both heads",
    "workspace": "workspace of the backward pass",
}


def bytes_from(option: str, size: str) -> int:
    """Bytes of a size as it is written: 24GB, 22.5 GiB, 800MB.

    Raises:
        UsageError: it is no size.
    """
    written = _SIZE.fullmatch(size.strip())
    if written is None:
        raise UsageError(option, f"{size!r} is no size", "write it as 24GB or 800MB")
    return int(float(written[1]) * _UNITS[written[2].lower()])


def show_memory_plan(console: Console, plan: MemoryPlan, layers: int) -> None:
    """A training step at its peak, with and without activation checkpointing.

    Args:
        console: where to.
        plan: what to show.
        layers: how many layers are applied.
    """
    console.print(_table(plan, layers))
    where = "GPU" if plan.device == "cuda" else "CPU"
    console.print(
        f"  [dim]{where}, {plan.precision}, {plan.optimizer}; {plan.masked_tokens:,} masked tokens a sequence; "
        f"{plan.flops / 1e12:,.3g} TFLOPs of use forward and backward[/dim]"
    )


def _table(plan: MemoryPlan, layers: int) -> Table:
    both = (plan.all_kept, plan.checkpointed)
    shown = in_millions(some.peak for some in both)
    title = f"A training step of {plan.batch_size:,} × {plan.sequence_length:,} tokens, MB"
    made = table(title, "", "all kept", "checkpointing")
    made.add_row("whatever the batch", style="bold")
    _add_rows(made, _HELD, both, shown)
    made.add_row("of the batch", style="bold")
    made.add_row(f"  {layers} layers", *(shown(some.layers) for some in both))
    made.add_row("  each of them", *(shown(some.layers / layers) for some in both), style="dim")
    _add_rows(made, _KEPT, both, shown)
    made.add_row("at the peak", *(shown(some.peak) for some in both), style="bold")
    if plan.limit is not None:
        largest = (plan.largest_batch, plan.largest_batch_checkpointed)
        made.add_row(f"largest micro-batch in {bytes_of(plan.limit)}", *(f"{n:,}" for n in largest), style="bold")
    return made


def _add_rows(
    made: Table, names: dict[str, str], both: tuple[TrainingMemory, TrainingMemory], shown: Callable[[int], str]
) -> None:
    for name, words in names.items():
        numbers = [getattr(some, name) for some in both]
        if any(numbers):
            made.add_row(f"  {words}", *(shown(number) if number else "–" for number in numbers))
