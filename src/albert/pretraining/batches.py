"""The batch of a step, in micro-batches, shared out over the ranks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from albert.model.packed_sequences import PackedSequences, pack_run
from albert.pretraining.hard_examples import ALL_ALIKE, HardExamplesRecipe
from albert.pretraining.mixture import SampleSource
from albert.pretraining.samples import Sample, Samples
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
    focus: float = 0.0
    """How much more hard masked tokens count: see `hard_examples`."""

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
            self.focus,
        )


def collate(samples: Sequence[Sample]) -> PretrainingBatch:
    """Put samples one after the other."""
    return batch_of(Samples.joined(samples))


def batch_of(samples: Samples) -> PretrainingBatch:
    """Samples as a micro-batch."""
    return PretrainingBatch(
        packed=pack_run(samples.token_ids, samples.token_type_ids, samples.lengths),
        masked_positions=torch.from_numpy(samples.masked_positions),
        masked_labels=torch.from_numpy(samples.masked_labels),
        order_labels=torch.from_numpy(samples.order_labels),
        counts={
            "masked_tokens": len(samples.masked_labels),
            "sentence_order": int(np.count_nonzero(samples.order_labels != NO_LABEL)),
        },
    )


class PretrainingBatches:
    """Batches by step: step t holds samples t·B to (t+1)·B − 1, dealt out to the ranks in turn.

    Args:
        samples: of a corpus or a mixture.
        batch_size: B, sequences over all ranks and micro-batches.
        micro_batch_size: sequences that one process holds at a time.
        hard_examples: how masked tokens are weighted, from which step on.
    """

    def __init__(
        self,
        samples: SampleSource,
        batch_size: int,
        micro_batch_size: int,
        hard_examples: HardExamplesRecipe = ALL_ALIKE,
    ) -> None:
        self._samples, self._hard_examples = samples, hard_examples
        self._batch_size, self._micro_batch_size = batch_size, micro_batch_size

    def micro_batches(self, step: int, rank: int, world_size: int) -> Sequence[PretrainingBatch]:
        """One rank's share of a step."""
        first = step * self._batch_size
        numbers = np.arange(first + rank, first + self._batch_size, world_size)
        focus = self._hard_examples.focus_of(step)
        return [replace(batch, focus=focus) for batch in micro_batches(self._samples, numbers, self._micro_batch_size)]


def micro_batches(samples: SampleSource, numbers: np.ndarray, micro_batch_size: int) -> Iterator[PretrainingBatch]:
    """Samples in micro-batches.

    Args:
        samples: of a corpus or a mixture.
        numbers: int64, which of them.
        micro_batch_size: sequences of each; the last one may have fewer.
    """
    at_once = max(1, samples.worthwhile // micro_batch_size) * micro_batch_size
    for begin in range(0, len(numbers), at_once):
        made = samples.batch(numbers[begin : begin + at_once])
        for i in range(0, len(made.lengths), micro_batch_size):
            yield batch_of(made.part(i, i + micro_batch_size))
