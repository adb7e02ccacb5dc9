"""The batch of a step, in micro-batches, shared out over the ranks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from albert.model.packed_sequences import PackedSequences, pack
from albert.pretraining.samples import PretrainingSamples, Sample
from albert.pretraining.sentence_order import NO_LABEL


@dataclass(frozen=True)
class PretrainingBatch:
    """Masked sequences, and what is to be predicted of them."""

    packed: PackedSequences
    masked_positions: Int[Tensor, " masked"]
    """Indices into the run of tokens."""
    masked_labels: Int[Tensor, " masked"]
    order_labels: Int[Tensor, " sequences"]
    counts: Mapping[str, int]

    @property
    def n_tokens(self) -> int:
        """Tokens that pass through the model."""
        return self.packed.n_tokens

    def to(self, device: torch.device) -> "PretrainingBatch":
        """The same batch on a device."""
        return PretrainingBatch(
            self.packed.to(device),
            self.masked_positions.to(device),
            self.masked_labels.to(device),
            self.order_labels.to(device),
            self.counts,
        )


def collate(samples: Sequence[Sample]) -> PretrainingBatch:
    """Put samples one after the other."""
    packed = pack([s.token_ids for s in samples], [s.token_type_ids for s in samples])
    firsts = packed.first_positions.tolist()
    positions = [s.masked_positions + first for s, first in zip(samples, firsts, strict=True)]
    labels = [s.masked_labels for s in samples]
    orders = [s.order_label for s in samples]
    return PretrainingBatch(
        packed=packed,
        masked_positions=torch.from_numpy(np.concatenate(positions)),
        masked_labels=torch.from_numpy(np.concatenate(labels)),
        order_labels=torch.tensor(orders),
        counts={
            "masked_tokens": sum(len(some) for some in labels),
            "sentence_order": sum(order != NO_LABEL for order in orders),
        },
    )


class PretrainingBatches:
    """Batches by step: step t holds samples t·B to (t+1)·B − 1, dealt out to the ranks in turn.

    Args:
        samples: of the corpus.
        batch_size: B, sequences over all ranks and micro-batches.
        micro_batch_size: sequences that one process holds at a time.
    """

    def __init__(self, samples: PretrainingSamples, batch_size: int, micro_batch_size: int) -> None:
        self._samples = samples
        self._batch_size, self._micro_batch_size = batch_size, micro_batch_size

    def micro_batches(self, step: int, rank: int, world_size: int) -> Sequence[PretrainingBatch]:
        """One rank's share of a step."""
        first = step * self._batch_size
        numbers = range(first + rank, first + self._batch_size, world_size)
        chunks = (numbers[i : i + self._micro_batch_size] for i in range(0, len(numbers), self._micro_batch_size))
        return [collate([self._samples.numbered(number) for number in chunk]) for chunk in chunks]
