"""Training logs (journal and curves), memory and throughput, and `TrainingPlan`: how long to train, how often to log,
evaluate and save."""

import math
import resource
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from albert.runtime.environment import DEFAULT_LOG, Log, Precision
from albert.runtime.json_files import Journal
from albert.runtime.words import counted
from albert.training.metric_logger import MetricService, open_services
from albert.training.run_folder import RunFolder
from albert.training.state import TrainingState
from albert.training.update import Reaction

# --------------------------------------------------------------------------------------------------------------------
# Metrics of a run: the journal and the curves.

MACHINE_METRICS = ("time", "seconds", "tokens_per_second", "matmul_share", "peak_memory_bytes")
"""Journal fields that differ between two runs of the same steps."""


class MetricLogger:
    """Writes each event to the journal and to a logger; does nothing on ranks other than the first.

    Args:
        settings: the record of the run, for the logger.
    """

    def __init__(
        self,
        run: RunFolder,
        first_step: int,
        active: bool,
        log: Log = DEFAULT_LOG,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._journal: Journal | None = None
        self._services: list[MetricService] = []
        if active:
            self._journal = Journal(run.journal_path)
            self._services = open_services(log, run, first_step, settings or {})

    def write(self, event: str, step: int, **values: Any) -> None:
        """Record an event of a step; its finite numbers become metrics named `event/…`."""
        if self._journal is None:
            return
        self._journal.write(event, step=step, **values)
        numbers = {
            f"{event}/{name}": value
            for name, value in values.items()
            if isinstance(value, int | float) and math.isfinite(value)
        }
        for service in self._services if numbers else ():
            service.write(step, numbers)

    def sync(self) -> None:
        """Flush the journal to disk, so that it survives a power failure."""
        if self._journal is not None:
            self._journal.sync()

    def rewind(self, step: int) -> None:
        """Go back to an earlier step; the journal keeps the old records, and the last record for a step wins."""
        for service in self._services:
            service.rewind(step)

    def close(self) -> None:
        """Flush and close all."""
        if self._journal is not None:
            self._journal.close()
        for service in self._services:
            service.close()


# --------------------------------------------------------------------------------------------------------------------
# Memory.


def peak_memory_bytes(device: torch.device) -> int:
    """Peak memory of this process so far: GPU memory on a GPU, else resident memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


# --------------------------------------------------------------------------------------------------------------------
# Length of a run, intervals for logs, evaluations and checkpoints, handling of divergence.

Limit = Literal["steps", "tokens", "minutes", "patience"]
"""What ends a run."""


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """Settings of the training loop."""

    total_steps: int
    """Maximum number of optimiser updates."""
    max_tokens: int | None = None
    """Stop after the update that reaches this number of tokens."""
    max_minutes: float | None = None
    """Stop after this many minutes of updates, over all parts of the run (evaluations and saves not counted)."""
    seed: int = 0
    clip_norm: float = 1.0
    """Maximum global gradient norm (reference `optimization.py`: 1.0)."""
    on_divergence: Reaction = "stop"
    """Reaction to a loss or gradient norm that is not finite."""
    max_rollbacks: int = 10
    """Maximum number of rollbacks."""
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
    """Data loading processes; the batches do not depend on their number."""
    delay_metrics: bool | None = None
    """Read the metrics of an update only after the next one is launched, so that the device never waits; None: on a
    GPU, unless divergence rolls back."""

    def delays_metrics(self, device: torch.device) -> bool:
        """Return whether metrics are read one update late."""
        late = device.type == "cuda" if self.delay_metrics is None else self.delay_metrics
        return late and self.on_divergence != "rollback"

    def reached(self, state: TrainingState) -> Limit | None:
        """The limit that the run has reached, None if none; the first rank's clock counts for all."""
        if state.step >= self.total_steps:
            return "steps"
        if self.max_tokens is not None and state.tokens >= self.max_tokens:
            return "tokens"
        return "minutes" if self._minutes_used(state.seconds_of_first) >= 1 else None

    def _minutes_used(self, seconds: float) -> float:
        return 0.0 if self.max_minutes is None else seconds / (60 * self.max_minutes)

    def budget_used(self, state: TrainingState) -> float:
        """Fraction of the token or time budget used, whichever is larger; equal on all ranks."""
        tokens = 0.0 if self.max_tokens is None else state.tokens / self.max_tokens
        return max(tokens, self._minutes_used(state.seconds_of_first))

    def likely_steps(self, state: TrainingState) -> int:
        """Expected last step, at the present speed."""
        used = max(self.budget_used(state), self._minutes_used(state.seconds))
        return min(self.total_steps, round(state.step / used) if used else self.total_steps)


@dataclass(frozen=True)
class TrainingResult:
    """Result of a finished run."""

    steps: int
    tokens: int
    seconds: float
    """Time of all updates over all parts of the run, without evaluations and saves."""
    evaluation: Mapping[str, float] = field(default_factory=dict)
    """The last evaluation."""
    ended_by: Limit = "steps"
    total_steps: int = 0
    """Maximum number of updates of the plan."""
    patience: int | None = None
    """Evaluations in a row without a better score that end the run; None: they do not."""
    skipped: int = 0
    """Updates that were skipped on divergence."""
    rollbacks: int = 0
    """Rollbacks to a checkpoint."""

    @property
    def tokens_per_second(self) -> float:
        """Training throughput over all ranks."""
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def ending(self) -> str:
        """Why the run ended, as text: "stopped after 60 minutes at step 5,312 of 9,500"."""
        if self.ended_by == "steps":
            return "the only step taken" if self.steps == 1 else f"all {self.steps:,} steps taken"
        if self.ended_by == "patience":
            waited = counted(self.patience or 0, "evaluations")
            return f"stopped after {waited} without a better score at step {self.steps:,} of {self.total_steps:,}"
        used = counted(self.tokens, "tokens") if self.ended_by == "tokens" else f"{self.seconds / 60:.3g} minutes"
        return f"stopped after {used} at step {self.steps:,} of {self.total_steps:,}"
