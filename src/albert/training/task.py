"""What a run trains: `TrainingTask`, which the training loop asks for batches, losses, scores and files."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.optim import Optimizer

from albert.runtime.environment import DEFAULT_LOG, Log
from albert.training.self_check import SelfCheck
from albert.training.update import Batch, BatchSource, Sums


@dataclass(kw_only=True)
class TrainingTask(ABC):
    """Everything of a run that depends on what is trained: pre-training, fine-tuning and the others are subclasses.

    The loop (`albert.training.loop.train`) calls `evaluate`, `is_enough` and `save` on the first rank, the other
    methods on every rank.
    """

    module: nn.Module
    """On `device`; trained in place, and left in evaluation mode."""
    optimizer: Optimizer
    """Over the module's parameters."""
    source: BatchSource
    device: torch.device
    description: str = "Training"
    """Displayed beside the progress bar."""
    called: nn.Module | None = None
    """The module that `loss` calls, with the parameters of `module`; None: `module` itself."""
    workers: int = 1
    """Threads that compute micro-batches in parallel (see `training_workers`); a step is split into as many."""
    evaluates: bool = True
    """Whether there is something to evaluate."""
    self_checks: Sequence[SelfCheck] = ()
    """What the paths of a GPU gave on the first micro-batch, for the journal."""
    log: Log = DEFAULT_LOG
    """Where the curves go, beside the journal."""

    @abstractmethod
    def learning_rate(self, step: int, budget_used: float) -> float:
        """The rate of update `step`, counted from 0.

        Args:
            budget_used: share of the token or time budget that is used; 0 without a budget.
        """

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> Sums:
        """Run the model once and sum up. `model` may be wrapped for data parallelism: only call it."""

    @abstractmethod
    def evaluate(self) -> dict[str, float]:
        """Held-out metrics of the present model. A signal interrupts it: partial results are dropped, and the resumed
        run evaluates first."""

    @abstractmethod
    def save(self, directory: Path) -> None:
        """Write the present model into a directory; called for each checkpoint."""

    @property
    def patience(self) -> int | None:
        """Evaluations in a row without a better score that end the run; None: they do not."""
        return None

    def is_enough(self) -> bool:
        """Return whether the evaluations so far, in the journal, end the run; called after each."""
        return False

    def before_step(self, step: int) -> Mapping[str, float]:
        """Apply the changes of the model that are scheduled before an update; they are returned for the journal."""
        return {}

    def gather(self) -> None:
        """Update the model that `evaluate` and `save` see, if another form of it is trained."""
        return None

    def flops(self, batch: Batch) -> float:
        """Floating-point operations of the matrix products that a micro-batch needs, forwards and backwards."""
        return 0.0

    def matmul_rate(self) -> float | None:
        """Operations a second of a large matrix product alone, on this device at this precision; None: not known, and
        no share of it is recorded."""
        return None
