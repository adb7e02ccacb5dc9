"""How long the loop runs, how often it tells and saves, and what it does when training goes wrong."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from albert.runtime.errors import InvalidConfiguration
from albert.runtime.precisions import Precision
from albert.training.divergence import Reaction
from albert.training.training_state import TrainingState

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

    def __post_init__(self) -> None:
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
