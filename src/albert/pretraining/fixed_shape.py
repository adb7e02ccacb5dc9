"""Micro-batches of a fixed shape, for GPUs: the same numbers of rows (tokens), sequences and masked tokens every time.

A step has the samples of `PretrainingBatches`, packed into micro-batches with few empty rows. Empty rows belong to
filler sequences without labels. A micro-batch is one int32 tensor, so a step needs a single copy, and the loss is one
graph that is compiled once."""

import bisect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Int32
from torch import Tensor, nn
from torch.nn import functional

from albert.model.albert import AlbertForPreTraining
from albert.model.packing import PackedSequences
from albert.pretraining.batches import Samples
from albert.pretraining.sampling import SampleSource
from albert.pretraining.segments import NO_LABEL
from albert.recipes.pretraining import PretrainingRecipe
from albert.runtime.errors import InvalidConfiguration, Unavailable
from albert.training.update import Batch, Sums

TERMS = ("masked_tokens", "sentence_order")
FILLED_SHARE = 0.974
"""The largest shape with this share of its rows filled is chosen; above 97 % because later steps vary a little."""
MIN_ROWS = 4096
OVERHEAD_ROWS = 512
"""Smaller shapes are not chosen for being full: each micro-batch costs as much as OVERHEAD_ROWS additional rows. An
estimate for ALBERT-base on a large GPU; never measured."""
ROW_STEP = 128
PREDICTION_STEP = 8
"""Rows and masked tokens are multiples of these, for the GPU's kernels."""
PLANNED_SEQUENCES = 1 << 17
PACKED_SEQUENCES = 1 << 14
"""To choose a shape, the lengths of at most PLANNED_SEQUENCES are read and PACKED_SEQUENCES of them are packed."""

_ANY = 1 << 30


class FixedTensors(NamedTuple):
    """The parts of a micro-batch."""

    token_ids: Tensor
    """[rows], like the next two."""
    token_type_ids: Tensor
    position_ids: Tensor
    cu_seqlens: Tensor
    """[sequences + 1]."""
    order_labels: Tensor
    """[sequences], `NO_LABEL` where there is none."""
    masked_positions: Tensor
    """[predictions], padded with 0."""
    masked_labels: Tensor
    """[predictions], padded with `NO_LABEL`."""


@dataclass(frozen=True)
class FixedShape:
    """The shape of every micro-batch of a run."""

    rows: int
    """Tokens, including empty rows."""
    sequences: int
    predictions: int
    """Masked tokens."""
    max_seqlen: int
    """Tokens of the longest sequence."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The length of each part of `FixedTensors`."""
        return (self.rows,) * 3 + (self.sequences + 1, self.sequences) + (self.predictions,) * 2

    def holds(self, lengths: np.ndarray, masks: np.ndarray) -> bool:
        """Return whether sequences with these numbers of tokens and masks fit, with the fillers of empty rows."""
        empty = self.rows - int(lengths.sum())
        fillers = -(-empty // self.max_seqlen)
        return empty >= 0 and len(lengths) + fillers <= self.sequences and int(masks.sum()) <= self.predictions

    def assign(self, lengths: np.ndarray, masks: np.ndarray) -> list[np.ndarray]:
        """Assign sequences to few micro-batches; the indices of each, in ascending order.

        Raises:
            InvalidConfiguration: a sequence is too large for the shape.
        """
        count = max(1, -(-int(lengths.sum()) // self.rows), -(-int(masks.sum()) // self.predictions))
        while count <= len(lengths):
            parts = _best_fit(lengths, self.rows, count)
            if parts is not None and all(self.holds(lengths[part], masks[part]) for part in parts):
                return parts
            count += 1
        raise InvalidConfiguration("fixed shape", f"{self} holds no sequence of {int(lengths.max())} tokens")

    def fill(self, samples: Samples, buffer: Int32[np.ndarray, " width"]) -> None:
        """Write samples as one micro-batch."""
        parts = np.split(buffer, np.cumsum(self.sizes)[:-1])
        tokens, types, places, cu_seqlens, orders, positions, labels = parts
        ends = np.cumsum(samples.lengths)
        used = int(ends[-1])
        count = len(ends)
        masked = len(samples.masked_labels)
        tokens[:used] = samples.token_ids
        types[:used] = samples.token_type_ids
        tokens[used:] = types[used:] = 0
        cu_seqlens[0] = 0
        cu_seqlens[1 : count + 1] = ends
        fillers = np.arange(1, len(cu_seqlens) - count)
        cu_seqlens[count + 1 :] = np.minimum(used + fillers * self.max_seqlen, self.rows)
        places[:] = np.arange(self.rows) - np.repeat(cu_seqlens[:-1], np.diff(cu_seqlens))
        orders[:count] = samples.order_labels
        orders[count:] = NO_LABEL
        positions[:masked] = samples.masked_positions
        labels[:masked] = samples.masked_labels
        positions[masked:] = 0
        labels[masked:] = NO_LABEL

    def batch(self, samples: Samples, buffer: Int32[Tensor, " width"] | None = None) -> "FixedBatch":
        """Samples as one micro-batch, in a new buffer or in the given one."""
        if buffer is None:
            buffer = torch.empty(sum(self.sizes), dtype=torch.int32)
        self.fill(samples, buffer.numpy())
        return FixedBatch(buffer, tuple(samples.lengths.tolist()), samples.counts)

    def parts(self, buffer: Int32[Tensor, " width"]) -> FixedTensors:
        """The parts of a micro-batch, in int64 except the cu_seqlens."""
        tokens, types, places, cu_seqlens, orders, positions, labels = buffer.split(self.sizes)
        return FixedTensors(
            tokens.long(), types.long(), places.long(), cu_seqlens, orders.long(), positions.long(), labels.long(),
        )  # fmt: skip


def _best_fit(lengths: np.ndarray, rows: int, count: int) -> list[np.ndarray] | None:
    """Best-fit decreasing bin packing into `count` parts of `rows`; None if the items do not fit."""
    parts: list[list[int]] = [[] for _ in range(count)]
    rooms = [(rows, part) for part in range(count)]
    for item in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[item])
        index = bisect.bisect_left(rooms, (length, -1))
        if index == count:
            return None
        room, part = rooms.pop(index)
        parts[part].append(item)
        bisect.insort(rooms, (room - length, part))
    return [np.array(sorted(part), dtype=np.int64) for part in parts if part]


def choose_shape(
    samples: SampleSource,
    budgets: Callable[[np.ndarray], np.ndarray],
    batch_size: int,
    micro_batch_size: int,
    world_size: int,
    max_length: int,
) -> FixedShape:
    """The largest shape with nearly all rows filled or, if there is none, the one estimated to be fastest.

    A pure function of its arguments, the same on all ranks.

    Args:
        budgets: returns the most masked tokens of sequences of given lengths.
        micro_batch_size: limits the rows to those of so many sequences of the maximum length.
    """
    planned = min(PLANNED_SEQUENCES, max(PACKED_SEQUENCES, samples.per_epoch))
    steps, packed_steps = (max(4, min(512, n // batch_size)) for n in (planned, PACKED_SEQUENCES))
    lengths = samples.lengths(np.arange(steps * batch_size))
    shares = lengths.reshape(steps, -1, world_size).transpose(0, 2, 1)  # [steps, ranks, sequences of a rank]
    busiest = shares.sum(axis=2).max(axis=1)
    limit = max(1, micro_batch_size * max_length // ROW_STEP) * ROW_STEP
    smallest = max(max_length, int(np.median(busiest)) // (8 * (1 + int(np.median(busiest)) // limit)))
    candidates = np.arange(limit, smallest - 1, -ROW_STEP) if limit >= smallest else np.array([smallest])
    # The fewest micro-batches of each step if sequences could be cut anywhere: an upper bound of the filled share.
    fewest = np.ceil(busiest / candidates[:, None])
    bounds = int(lengths.sum()) / (world_size * candidates * fewest.sum(axis=1))
    rows = 0
    parts = []
    full = np.flatnonzero((bounds >= FILLED_SHARE) & (candidates >= MIN_ROWS)).tolist()
    for index in (*full, int(np.argmax(bounds * candidates / (candidates + OVERHEAD_ROWS)))):
        rows = int(candidates[index])
        count, parts = _pack_steps(shares[:packed_steps], FixedShape(rows, _ANY, _ANY, max_length))
        if bounds[index] * fewest[index, :packed_steps].sum() >= FILLED_SHARE * count:
            break
    # Where a step needs one micro-batch more than usual, the others are full.
    share = rows / sum(int(part.sum()) for part in parts)
    most = max(*map(len, parts), share * sum(map(len, parts)))
    masks = [int(budgets(part).sum()) for part in parts]
    sequences = math.ceil(1.15 * most) + 2 + -(-rows // max_length)
    predictions = math.ceil(1.02 * max(*masks, share * sum(masks), int(budgets(np.array([max_length]))[0])))
    return FixedShape(rows, sequences, -(-predictions // PREDICTION_STEP) * PREDICTION_STEP, max_length)


def _pack_steps(shares: np.ndarray, shape: FixedShape) -> tuple[int, list[np.ndarray]]:
    """Micro-batches of all steps, counting the busiest rank of each, and the sequence lengths in every micro-batch."""
    count = 0
    parts: list[np.ndarray] = []
    for step in shares:
        parts_of_ranks = [[share[part] for part in shape.assign(share, 0 * share)] for share in step]
        count += max(map(len, parts_of_ranks))
        for parts_of_rank in parts_of_ranks:
            parts += parts_of_rank
    return count, parts


def shape_of(recipe: PretrainingRecipe, samples: SampleSource, world_size: int) -> FixedShape:
    """The shape of a run's micro-batches."""
    sizes = (recipe.batch_size, recipe.micro_batch_size, world_size, recipe.sequences.max_length)
    return choose_shape(samples, recipe.masking.budgets, *sizes)


@dataclass(frozen=True)
class FixedBatch:
    """A micro-batch of the fixed shape."""

    buffer: Int32[Tensor, " width"]
    lengths: tuple[int, ...]
    """Tokens of each sequence, without fillers."""
    counts: Mapping[str, int]

    @property
    def n_tokens(self) -> int:
        """Tokens, without fillers."""
        return sum(self.lengths)

    def to(self, device: torch.device) -> "FixedBatch":
        """The same batch on a device."""
        return FixedBatch(self.buffer.to(device, non_blocking=True), self.lengths, self.counts)


class FixedBatches:
    """The samples of `PretrainingBatches` in each step, in micro-batches of a fixed shape."""

    def __init__(
        self,
        samples: SampleSource,
        batch_size: int,
        shape: FixedShape,
    ) -> None:
        self._samples = samples
        self._batch_size = batch_size
        self._shape = shape

    def micro_batches(self, step: int, rank: int, world_size: int) -> Sequence[FixedBatch]:
        """The samples of one rank in a step, as views of one tensor."""
        groups = self.samples_of(step, rank, world_size)
        buffers = torch.empty(len(groups), sum(self._shape.sizes), dtype=torch.int32)
        return [self._shape.batch(part, buffer) for part, buffer in zip(groups, buffers, strict=True)]

    def samples_of(self, step: int, rank: int, world_size: int) -> Sequence[Samples]:
        """The samples of each micro-batch of one rank in a step."""
        first = step * self._batch_size
        at_once = self._samples.preferred_batch
        numbers = np.arange(first + rank, first + self._batch_size, world_size)
        samples = Samples.concatenate(
            [self._samples.batch(numbers[i : i + at_once]) for i in range(0, len(numbers), at_once)]
        )
        return [samples.take(group) for group in self._shape.assign(samples.lengths, samples.masked_counts)]


class PretrainingLoss(nn.Module):
    """The sums of both losses over a micro-batch of a fixed shape, as one graph."""

    def __init__(self, model: AlbertForPreTraining, shape: FixedShape) -> None:
        super().__init__()
        self.model = model
        self.shape = shape

    def compile_graph(self, backend: str | Callable[..., Any] = "inductor", mode: str | None = None) -> None:
        """Compile the forward and backward pass at the first call, once for this shape.

        The hooks of data parallelism stay outside the graph. If torch cannot compile (no C++ compiler, say), the first
        call raises `Unavailable`.
        """
        compiled = torch.compile(self.forward, fullgraph=True, dynamic=False, backend=backend, mode=mode)

        def forward(buffer: Tensor) -> tuple[Tensor, Tensor]:
            try:
                return compiled(buffer)
            except Exception as error:
                if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
                    raise
                why = next(iter(str(error).splitlines()), type(error).__name__)
                raise Unavailable("compile", f"torch cannot compile the loss: {why}", "use compile=false") from error

        self.forward = forward

    def remove_graph(self) -> None:
        """Compute without the compiled graph again."""
        vars(self).pop("forward", None)

    def forward(self, buffer: Int32[Tensor, " width"]) -> tuple[Float[Tensor, "2"], Int[Tensor, "2"]]:
        """Sums of the losses, in the order of `TERMS`, and numbers of correct predictions."""
        parts = self.shape.parts(buffer)
        model = self.model
        first = parts.cu_seqlens[:-1].long().clamp(max=self.shape.rows - 1)
        packed = PackedSequences(
            parts.token_ids, parts.token_type_ids, parts.position_ids, (), first, (), first[:0], parts.cu_seqlens,
            self.shape.max_seqlen,
        )  # fmt: skip
        hidden = model.albert(packed)
        words = model.albert.embeddings.word_embeddings.weight
        masked = hidden.index_select(0, parts.masked_positions)
        mlm_losses, correct = model.predictions.compilable_losses(masked, words, parts.masked_labels)
        order = model.sop_classifier(model.albert.pool(hidden, packed)).float()
        order_loss = functional.cross_entropy(order, parts.order_labels, reduction="sum", ignore_index=NO_LABEL)
        losses = torch.stack((mlm_losses.sum(), order_loss))
        return losses, torch.stack((correct.sum(), (order.argmax(-1) == parts.order_labels).sum()))


def fixed_objective(model: nn.Module, batch: Batch) -> Sums:
    """Sums of both cross-entropies, in float32, over a micro-batch of the fixed shape."""
    assert isinstance(batch, FixedBatch)
    losses, correct = model(batch.buffer)
    return Sums(dict(zip(TERMS, losses.unbind(), strict=True)), dict(zip(TERMS, correct.unbind(), strict=True)))
