"""Task batches with what was found out about their examples beforehand: encoder states, a teacher's logits."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from albert.finetuning.batches import TaskBatch, TaskBatches
from albert.finetuning.frozen_encoder import KnownStates


@dataclass(frozen=True)
class TaughtBatch:
    """A batch, and what is known of it.

    Attributes:
        batch: sequences and what is to be learnt; where states are known, only the tokens that the head reads.
        states: what the encoder gives for these tokens at each depth.
        teacher: a teacher's logits, or its numbers.
    """

    batch: TaskBatch
    states: Float[Tensor, "depths tokens H"] | None = None
    teacher: Float[Tensor, "examples outputs"] | None = None

    @property
    def counts(self) -> Mapping[str, int]:
        """The denominator of the loss term."""
        return self.batch.counts

    @property
    def n_tokens(self) -> int:
        """Tokens that pass through the model, or its head."""
        return self.batch.n_tokens

    def to(self, device: torch.device) -> "TaughtBatch":
        """The same batch on a device."""
        moved = (None if each is None else each.to(device) for each in (self.states, self.teacher))
        return TaughtBatch(self.batch.to(device), *moved)


@dataclass(frozen=True)
class TaughtBatches:
    """The batches of a run with what is known of all its examples; the same examples in the same order."""

    batches: TaskBatches
    known: KnownStates | None = None
    teacher: Float[np.ndarray, "examples outputs"] | None = None

    def micro_batches(self, step: int, rank: int, world_size: int) -> list[TaughtBatch]:
        """One process's share of the batch of update number `step`."""
        read = self.batches if self.known is None else replace(self.batches, sequences=self.known.sequences)
        return [
            TaughtBatch(
                read.of(members),
                None if self.known is None else self.known.of(read.sequences_of(members)),
                None if self.teacher is None else torch.from_numpy(self.teacher[members]),
            )
            for members in read.pieces(step, rank, world_size)
        ]
