"""Training logs: journal and TensorBoard curves, use of the machine; and the plan of a run.

`TrainingPlan` says how long the loop runs and how often it logs, evaluates and saves."""

import math
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch.utils.tensorboard import SummaryWriter

from albert.runtime.environment import Precision
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.files import writing
from albert.runtime.json_files import Journal
from albert.training.run_folder import RunFolder
from albert.training.state import TrainingState
from albert.training.update import Batch, Reaction

# --------------------------------------------------------------------------------------------------------------------
# The numbers of a run as they come: into the journal, as TensorBoard curves, and wherever else they are wanted.

MACHINE_FIGURES = ("time", "seconds", "tokens_per_second", "matmul_share", "peak_memory_bytes")
"""What is told of a step that another run of the same steps tells otherwise."""


@runtime_checkable
class Logger(Protocol):
    """A service that draws curves."""

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Take numbers of a step by name, `train/loss` say; the last record for a step wins."""
        ...

    def rewind(self, step: int) -> None:
        """What was told of later steps holds no more."""
        ...

    def close(self) -> None:
        """No more will come."""
        ...


class TensorBoardLogger:
    """Event files in the run's folder, which `tensorboard --logdir RUNS` shows."""

    def __init__(self, run: RunFolder, first_step: int) -> None:
        self._path = str(run.tensorboard_path)
        self._writer = SummaryWriter(self._path, purge_step=first_step + 1)

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add a point to each curve."""
        with writing(Path(self._path)):
            for name, value in numbers.items():
                self._writer.add_scalar(name, value, step)

    def rewind(self, step: int) -> None:
        """Begin a file that takes the place of later steps."""
        self.close()
        self._writer = SummaryWriter(self._path, purge_step=step + 1)

    def close(self) -> None:
        """Flush and close."""
        with writing(Path(self._path)):
            self._writer.close()


class Curves:
    """Write each event once to the journal and once to every logger; nothing on ranks other than the first."""

    def __init__(self, run: RunFolder, first_step: int, active: bool, more: Sequence[Logger] = ()) -> None:
        self._journal = Journal(run.journal_path) if active else None
        self._loggers: Sequence[Logger] = [TensorBoardLogger(run, first_step), *more] if active else []

    def write(self, event: str, step: int, **values: Any) -> None:
        """Record an event of a step; its numbers become curves named `event/…`."""
        if self._journal is None:
            return
        self._journal.write(event, step=step, **values)
        numbers = {
            f"{event}/{name}": value
            for name, value in values.items()
            if isinstance(value, int | float) and math.isfinite(value)
        }
        for logger in self._loggers:
            logger.write(step, numbers)

    def sync(self) -> None:
        """What the journal was told survives a loss of power from now on."""
        if self._journal is not None:
            self._journal.sync()

    def rewind(self, step: int) -> None:
        """Go on from an earlier step; the journal keeps what was, and of a step told twice the last telling holds."""
        for logger in self._loggers:
            logger.rewind(step)

    def close(self) -> None:
        """Flush and close all."""
        if self._journal is not None:
            self._journal.close()
        for logger in self._loggers:
            logger.close()


# --------------------------------------------------------------------------------------------------------------------
# How much of the machine a run uses: the share of the speed it was measured to have, and memory.


@dataclass(frozen=True)
class Meter:
    """What tells work from time."""

    flops: Callable[[Batch], float]
    """Floating-point operations of the matrix products that a micro-batch needs, forwards and backwards."""
    matmul_rate: Callable[[], float]
    """Operations a second of a large matrix product alone, on this device at this precision; asked when first told."""


def peak_memory_bytes(device: torch.device) -> int:
    """The most memory this process has held so far: of the GPU where it computes on one, else resident."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


# --------------------------------------------------------------------------------------------------------------------
# The plan of a run: how long, how often to log, evaluate and save, what to do on divergence.

Limit = Literal["steps", "tokens", "minutes"]
"""What ends a run."""


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """How the loop runs, whatever it trains.

    Raises:
        InvalidConfiguration: a number out of range.
    """

    total_steps: int
    """Most optimiser updates."""
    max_tokens: int | None = None
    """The run ends with the update that reaches so many tokens."""
    max_minutes: float | None = None
    """The run ends with the update after so many minutes in updates, over all parts of the run."""
    seed: int = 0
    clip_norm: float = 1.0
    """Gradients are scaled down to this global norm (reference `optimization.py`: 1.0)."""
    on_divergence: Reaction = "stop"
    """What happens when a loss or a gradient is not finite, or far above those before."""
    spike_deviations: float | None = None
    """How far above the median of the last updates is too far, in deviations; None: only what is not finite."""
    max_rollbacks: int = 10
    """Most returns to a checkpoint."""
    precision: Precision = "bf16"
    log_every: int = 10
    """Steps between lines of the journal."""
    evaluate_every: int | None = None
    """Steps between evaluations; None: only at the end."""
    checkpoint_every: int | None = None
    """Steps between checkpoints; None: by time alone, and at the end."""
    checkpoint_minutes: float = 10.0
    """Minutes between checkpoints."""
    keep_checkpoints: int = 2
    workers: int = 0
    """Processes that make batches; the batches are the same for any number."""
    late_figures: bool | None = None
    """Read the figures of an update when the next one is on its way, so that the device never waits; None: on a GPU,
    unless an update is to be judged by more than whether its numbers are finite."""

    def __post_init__(self) -> None:
        if self.late_figures and self.judges_before_the_step:
            raise InvalidConfiguration("late_figures", "leave no time for spike_deviations or a rollback")
        counts = ("total_steps", "max_tokens", "log_every", "evaluate_every", "checkpoint_every", "keep_checkpoints")
        for name in counts:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidConfiguration(name, f"is {value}, at least 1 is needed")
        for name in ("max_minutes", "spike_deviations"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InvalidConfiguration(name, f"is {value}, a number above 0 is needed")
        for name in ("workers", "max_rollbacks"):
            if getattr(self, name) < 0:
                raise InvalidConfiguration(name, f"is {getattr(self, name)}, at least 0 is needed")

    @property
    def judges_before_the_step(self) -> bool:
        """Whether the host must see the figures of an update before it is taken."""
        return self.on_divergence == "rollback" or self.spike_deviations is not None

    def reads_late(self, device: torch.device) -> bool:
        """Whether figures are read one update late."""
        wanted = device.type == "cuda" if self.late_figures is None else self.late_figures
        return wanted and not self.judges_before_the_step

    def reached(self, state: TrainingState) -> Limit | None:
        """The limit that a run has come to, None while it goes on; the first rank's clock decides for all."""
        if state.step >= self.total_steps:
            return "steps"
        if self.max_tokens is not None and state.tokens >= self.max_tokens:
            return "tokens"
        return "minutes" if self._minutes_used(state.seconds_of_first) >= 1 else None

    def _minutes_used(self, seconds: float) -> float:
        return 0.0 if self.max_minutes is None else seconds / (60 * self.max_minutes)

    def budget_used(self, state: TrainingState) -> float:
        """The share of tokens or minutes that is used up, whichever is more; the same on all processes."""
        tokens = 0.0 if self.max_tokens is None else state.tokens / self.max_tokens
        return max(tokens, self._minutes_used(state.seconds_of_first))

    def likely_steps(self, state: TrainingState) -> int:
        """The step at which the run will end, at the pace it has."""
        used = max(self.budget_used(state), self._minutes_used(state.seconds))
        return min(self.total_steps, round(state.step / used) if used else self.total_steps)


@dataclass(frozen=True)
class TrainingResult:
    """What a finished run gives back."""

    steps: int
    tokens: int
    seconds: float
    """Time in updates, without evaluations and saves, over all parts of the run."""
    evaluation: Mapping[str, float] = field(default_factory=dict)
    """The last evaluation."""
    ended_by: Limit = "steps"
    total_steps: int = 0
    """Updates that the plan had at most."""
    skipped: int = 0
    """Updates that were left out because they would have done harm."""
    rollbacks: int = 0
    """Returns to a checkpoint."""

    @property
    def tokens_per_second(self) -> float:
        """Training throughput over all ranks."""
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def ending(self) -> str:
        """What ended the run, for people: "stopped after 60 minutes at step 5,312 of 9,500"."""
        if self.ended_by == "steps":
            return f"all {self.steps:,} steps taken"
        used = f"{self.tokens:,} tokens" if self.ended_by == "tokens" else f"{self.seconds / 60:.3g} minutes"
        return f"stopped after {used} at step {self.steps:,} of {self.total_steps:,}"
