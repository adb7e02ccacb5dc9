"""Samples of pre-training as arrays (`Samples`) and as tensors (`PretrainingBatch`), and their loss: masked tokens plus
sentence order (paper §3.1). Which samples a batch has: `albert.pretraining.sampling`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.nn import functional

from albert.model.packing import PackedSequences, pack_run
from albert.pretraining.segments import NO_LABEL
from albert.training.update import Batch, Sums


class Sample(NamedTuple):
    """One masked sequence."""

    token_ids: np.ndarray
    """int64 [tokens]: [CLS] first [SEP] second [SEP]."""
    token_type_ids: np.ndarray
    """int64 [tokens]: 0 up to the first [SEP], then 1."""
    masked_positions: np.ndarray
    """int64 [masked]."""
    masked_labels: np.ndarray
    """int64 [masked]."""
    order_label: int
    """0 in order, 1 swapped or from another document, -100 no label."""


class Samples(NamedTuple):
    """Masked sequences, concatenated."""

    token_ids: np.ndarray
    """int64 [tokens]."""
    token_type_ids: np.ndarray
    """int64 [tokens]."""
    lengths: np.ndarray
    """int64 [sequences]: tokens of each."""
    masked_positions: np.ndarray
    """int64 [masked], ascending, in the concatenated sequences."""
    masked_labels: np.ndarray
    """int64 [masked]."""
    order_labels: np.ndarray
    """int64 [sequences]."""

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> "Samples":
        """Single samples as a batch."""
        return cls.concatenate(
            [
                cls(ids, types, np.array([len(ids)]), positions, labels, np.array([order]))
                for ids, types, positions, labels, order in samples
            ]
        )

    @classmethod
    def concatenate(cls, batches: Sequence["Samples"]) -> "Samples":
        """Batches one after the other."""
        starts = np.cumsum([0, *(len(batch.token_ids) for batch in batches[:-1])])
        moved = [b._replace(masked_positions=b.masked_positions + s) for b, s in zip(batches, starts, strict=True)]
        return cls(*map(np.concatenate, zip(*moved, strict=True)))

    @property
    def masked_counts(self) -> np.ndarray:
        """int64 [sequences]: masked tokens of each."""
        return np.diff(np.searchsorted(self.masked_positions, np.cumsum(self.lengths)), prepend=0)

    @property
    def counts(self) -> dict[str, int]:
        """Items of each term of the loss."""
        labelled = int(np.count_nonzero(self.order_labels != NO_LABEL))
        return {"masked_tokens": len(self.masked_labels), "sentence_order": labelled}

    def take(self, rows: np.ndarray) -> "Samples":
        """Some of the sequences, in the given order.

        Of sequences of 4, 6 and 5 tokens with masks at 1, 6 and 12, the rows [2, 0] have the lengths [5, 4], the tokens
        10 to 14 and 0 to 3, and the masks 12 and 1, which are at 2 and 6 now.
        """
        lengths = self.lengths[rows]
        masked_counts = self.masked_counts
        starts = (np.cumsum(self.lengths) - self.lengths)[rows]
        new_starts = np.cumsum(lengths) - lengths
        masked_starts = (np.cumsum(masked_counts) - masked_counts)[rows]
        masked_counts = masked_counts[rows]
        tokens = _ranges(starts, lengths)
        masked = _ranges(masked_starts, masked_counts)
        return Samples(
            self.token_ids[tokens],
            self.token_type_ids[tokens],
            lengths,
            self.masked_positions[masked] + np.repeat(new_starts - starts, masked_counts),
            self.masked_labels[masked],
            self.order_labels[rows],
        )

    def part(self, begin: int, end: int) -> "Samples":
        """Sequences begin to end - 1, as views except for the positions."""
        before = int(self.lengths[:begin].sum())
        after = before + int(self.lengths[begin:end].sum())
        first, last = np.searchsorted(self.masked_positions, (before, after)).tolist()
        return Samples(
            self.token_ids[before:after],
            self.token_type_ids[before:after],
            self.lengths[begin:end],
            self.masked_positions[first:last] - before,
            self.masked_labels[first:last],
            self.order_labels[begin:end],
        )

    def unbatch(self) -> list[Sample]:
        """The single samples."""
        parts = (self.part(i, i + 1) for i in range(len(self.lengths)))
        return [Sample(ids, types, places, labels, int(order[0])) for ids, types, _, places, labels, order in parts]


def _ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The concatenated integers of all ranges [start, start + length): of starts [7, 2] and lengths [3, 2] these are
    7, 8, 9, 2, 3."""
    return np.arange(int(lengths.sum())) + np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)


@dataclass(frozen=True)
class PretrainingBatch:
    """Masked sequences with their labels."""

    packed: PackedSequences
    masked_positions: Int[Tensor, " masked"]
    """Indices into the concatenated tokens."""
    masked_labels: Int[Tensor, " masked"]
    order_labels: Int[Tensor, " sequences"]
    counts: Mapping[str, int]

    @property
    def n_tokens(self) -> int:
        """Tokens that pass through the model."""
        return self.packed.n_tokens

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens of each sequence."""
        return self.packed.lengths

    def to(self, device: torch.device) -> "PretrainingBatch":
        """The same batch on a device."""
        return PretrainingBatch(
            self.packed.to(device),
            self.masked_positions.to(device, non_blocking=True),
            self.masked_labels.to(device, non_blocking=True),
            self.order_labels.to(device, non_blocking=True),
            self.counts,
        )


def collate(samples: Sequence[Sample]) -> PretrainingBatch:
    """Samples as a micro-batch."""
    return batch_of(Samples.of(samples))


def batch_of(samples: Samples) -> PretrainingBatch:
    """A batch of samples as tensors."""
    return PretrainingBatch(
        packed=pack_run(samples.token_ids, samples.token_type_ids, samples.lengths),
        masked_positions=torch.from_numpy(samples.masked_positions),
        masked_labels=torch.from_numpy(samples.masked_labels),
        order_labels=torch.from_numpy(samples.order_labels),
        counts=samples.counts,
    )


# --------------------------------------------------------------------------------------------------------------------
# The pre-training loss: masked tokens plus sentence order, with the number of correct answers (paper §3.1).


def pretraining_objective(model: nn.Module, batch: Batch, hits: list[np.ndarray] | None = None) -> Sums:
    """Sums of both cross-entropies, in float32, over a micro-batch.

    Args:
        hits: a list to which bool [masked] is appended: which masked tokens are predicted correctly.
    """
    assert isinstance(batch, PretrainingBatch)
    output = model(batch.packed, batch.masked_positions, batch.masked_labels)
    if hits is not None:
        hits.append(output.masked_tokens_correct.cpu().numpy())
    order = output.sentence_order.float()
    return Sums(
        losses={
            "masked_tokens": output.masked_tokens.sum(),
            "sentence_order": functional.cross_entropy(
                order, batch.order_labels, reduction="sum", ignore_index=NO_LABEL
            ),
        },
        correct={
            "masked_tokens": output.masked_tokens_correct.sum(),
            "sentence_order": (order.argmax(-1) == batch.order_labels).sum(),
        },
    )
