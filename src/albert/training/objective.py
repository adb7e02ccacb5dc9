"""What the loop asks of whoever uses it: batches by step, and sums of losses.

Every loss term is a SUM over its items, with the number of items known before the forward pass. The loop divides once,
by the count over all micro-batches and ranks, so neither accumulation nor world size changes the numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn


@runtime_checkable
class Batch(Protocol):
    """A micro-batch."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Items of each loss term, for instance {"masked_tokens": 154, "sentence_order": 16}."""
        ...

    @property
    def n_tokens(self) -> int:
        """Tokens that pass through the model."""
        ...

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device."""
        ...


@runtime_checkable
class BatchSource(Protocol):
    """The data, as a pure function of the step."""

    def micro_batches(self, step: int, rank: int, world_size: int) -> Sequence[Batch]:
        """The share of one process in the batch of update number `step`, in micro-batches; at least one."""
        ...


@dataclass(frozen=True)
class Sums:
    """What one micro-batch gives: sums over its items, by term."""

    losses: Mapping[str, Tensor]
    """Differentiable sums of losses; the training loss is the sum over terms of sum / count."""
    correct: Mapping[str, Tensor] = field(default_factory=dict)
    """Items answered right, for the accuracies shown while training."""


@runtime_checkable
class Objective(Protocol):
    """A model's loss on a micro-batch."""

    def __call__(self, model: nn.Module, batch: Batch) -> Sums:
        """Run the model once and sum up. `model` may be wrapped for data parallelism: call it, do not look inside."""
        ...


@runtime_checkable
class TellsStatistics(Protocol):
    """An optimiser that has figures of its last step to tell."""

    def statistics(self) -> dict[str, float]:
        """Figures by name, trust ratios say; {} when there are none."""
        ...
