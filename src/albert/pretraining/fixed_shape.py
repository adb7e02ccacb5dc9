"""Micro-batches of one fixed shape, for GPUs: so many rows (tokens), sequences and masked tokens, whatever the samples.

A step's samples are those of `PretrainingBatches`; they are dealt out to micro-batches so that few rows stay empty.
Empty rows belong to sequences that count for nothing. A micro-batch is one tensor of int32, so a step is a single copy,
and the loss is one graph that is compiled once."""

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
from albert.pretraining.batches import SampleSource, hardness
from albert.pretraining.recipe import ALL_ALIKE, HardExamplesRecipe, PretrainingRecipe
from albert.pretraining.sampling import Samples
from albert.pretraining.segments import NO_LABEL
from albert.runtime.errors import InvalidConfiguration, Unavailable
from albert.training.update import Batch, Sums

TERMS = ("masked_tokens", "sentence_order")
ENOUGH = 0.974
"""The largest shape with so many of its rows filled is taken. A little above 97 %: steps to come differ a little."""
FEWEST_ROWS, OVERHEAD_ROWS = 4096, 512
"""Shapes of fewer rows are not taken for being full: a micro-batch costs as much as so many rows beside its own. An
estimate, for ALBERT-base on a large GPU; never measured."""
ROW_STEP, PREDICTION_STEP = 128, 8
"""Rows and masked tokens are multiples of these, as the kernels of a GPU like them."""
PLANNED_SEQUENCES, DEALT_SEQUENCES = 1 << 17, 1 << 14
"""The lengths of at most so many are looked at to choose a shape, in whole steps; so many of them are dealt out."""

_ANY = 1 << 30


class FixedTensors(NamedTuple):
    """A micro-batch taken apart."""

    token_ids: Tensor
    """[rows], as the next two."""
    token_type_ids: Tensor
    position_ids: Tensor
    boundaries: Tensor
    """[sequences + 1]."""
    order_labels: Tensor
    """[sequences], `NO_LABEL` where nothing is asked."""
    masked_positions: Tensor
    """[predictions], 0 where none is left."""
    masked_labels: Tensor
    """[predictions], `NO_LABEL` where none is left."""
    focus: Tensor
    """[1], float32: see `hardness`."""


@dataclass(frozen=True)
class FixedShape:
    """How large every micro-batch of a run is."""

    rows: int
    """Tokens, those of empty rows included."""
    sequences: int
    predictions: int
    """Masked tokens."""
    longest: int
    """Tokens of the longest sequence."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of each part of `FixedTensors`, in their order."""
        return (self.rows,) * 3 + (self.sequences + 1, self.sequences) + (self.predictions,) * 2 + (1,)

    def holds(self, lengths: np.ndarray, masks: np.ndarray) -> bool:
        """Whether sequences of these lengths, with so many masked tokens each, fit, with what fills the empty rows."""
        empty = self.rows - int(lengths.sum())
        fillers = -(-empty // self.longest)
        return empty >= 0 and len(lengths) + fillers <= self.sequences and int(masks.sum()) <= self.predictions

    def deal(self, lengths: np.ndarray, masks: np.ndarray) -> list[np.ndarray]:
        """Which sequences go together: as few micro-batches as are found, each in ascending order.

        Raises:
            InvalidConfiguration: a sequence is too large for the shape.
        """
        count = max(1, -(-int(lengths.sum()) // self.rows), -(-int(masks.sum()) // self.predictions))
        while count <= len(lengths):
            parts = _tightly(lengths, self.rows, count)
            if parts is not None and all(self.holds(lengths[part], masks[part]) for part in parts):
                return parts
            count += 1
        raise InvalidConfiguration("fixed shape", f"{self} holds no sequence of {int(lengths.max())} tokens")

    def fill(self, samples: Samples, members: np.ndarray, focus: float, buffer: Int32[np.ndarray, " width"]) -> None:
        """Write some of the samples as one micro-batch."""
        tokens, types, places, boundaries, orders, positions, labels, weight = np.split(
            buffer, np.cumsum(self.sizes)[:-1]
        )
        lengths = samples.lengths[members]
        ends = np.cumsum(lengths)
        used = int(ends[-1])
        starts = (np.cumsum(samples.lengths) - samples.lengths)[members]
        source = np.arange(used) + np.repeat(starts - (ends - lengths), lengths)
        tokens[:used], types[:used] = samples.token_ids[source], samples.token_type_ids[source]
        tokens[used:] = types[used:] = 0
        boundaries[0], boundaries[1 : len(ends) + 1] = 0, ends
        fillers = np.arange(len(ends) + 1, len(boundaries)) - len(ends)
        boundaries[len(ends) + 1 :] = np.minimum(used + fillers * self.longest, self.rows)
        places[:] = np.arange(self.rows) - np.repeat(boundaries[:-1], np.diff(boundaries))
        orders[: len(members)], orders[len(members) :] = samples.order_labels[members], NO_LABEL
        # Masked tokens are ascending in the samples, so those of a sequence stand together.
        first, last = (np.searchsorted(samples.masked_positions, edge) for edge in (starts, starts + lengths))
        masks = last - first
        which = np.arange(int(masks.sum())) + np.repeat(first - (np.cumsum(masks) - masks), masks)
        positions[: len(which)] = samples.masked_positions[which] - np.repeat(starts - (ends - lengths), masks)
        labels[: len(which)] = samples.masked_labels[which]
        positions[len(which) :], labels[len(which) :] = 0, NO_LABEL
        weight[:] = np.array([focus], dtype=np.float32).view(np.int32)

    def parts(self, buffer: Int32[Tensor, " width"]) -> FixedTensors:
        """A micro-batch taken apart, in int64 but for the boundaries and the focus."""
        tokens, types, places, boundaries, orders, positions, labels, focus = buffer.split(self.sizes)
        return FixedTensors(
            tokens.long(), types.long(), places.long(), boundaries, orders.long(), positions.long(), labels.long(),
            focus.view(torch.float32),
        )  # fmt: skip


def _tightly(lengths: np.ndarray, rows: int, count: int) -> list[np.ndarray] | None:
    """Items in parts of so many rows: the longest first, each where least room is left; None: they do not fit."""
    parts: list[list[int]] = [[] for _ in range(count)]
    rooms = [(rows, part) for part in range(count)]
    for item in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[item])
        place = bisect.bisect_left(rooms, (length, -1))
        if place == count:
            return None
        room, part = rooms.pop(place)
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
    """The largest shape whose rows are nearly all filled, or the one that is estimated to be fastest if none is.

    A pure function of its arguments, the same on all ranks.

    Args:
        budgets: most masked tokens of sequences of given lengths.
        micro_batch_size: there are at most as many rows as so many of the longest sequences have.
    """
    planned = min(PLANNED_SEQUENCES, max(DEALT_SEQUENCES, samples.per_epoch))
    steps, dealt_steps = (max(4, min(512, n // batch_size)) for n in (planned, DEALT_SEQUENCES))
    lengths = samples.lengths(np.arange(steps * batch_size))
    shares = lengths.reshape(steps, -1, world_size).transpose(0, 2, 1)  # [steps, ranks, sequences of a rank]
    busiest = shares.sum(axis=2).max(axis=1)
    limit = max(1, micro_batch_size * max_length // ROW_STEP) * ROW_STEP
    smallest = max(max_length, int(np.median(busiest)) // (8 * (1 + int(np.median(busiest)) // limit)))
    candidates = np.arange(limit, smallest - 1, -ROW_STEP) if limit >= smallest else np.array([smallest])
    # Micro-batches of each step if sequences could be cut anywhere: no more of them can be full.
    fewest = np.ceil(busiest / candidates[:, None])
    bounds = int(lengths.sum()) / (world_size * candidates * fewest.sum(axis=1))
    rows, parts = 0, []
    full = np.flatnonzero((bounds >= ENOUGH) & (candidates >= FEWEST_ROWS)).tolist()
    for place in (*full, int(np.argmax(bounds * candidates / (candidates + OVERHEAD_ROWS)))):
        rows = int(candidates[place])
        taken, parts = _dealt(shares[:dealt_steps], FixedShape(rows, _ANY, _ANY, max_length))
        if bounds[place] * fewest[place, :dealt_steps].sum() >= ENOUGH * taken:
            break
    most = max(len(part) for part in parts)
    masks = max(int(budgets(part).sum()) for part in parts)
    sequences = math.ceil(1.15 * most) + 2 + -(-rows // max_length)
    predictions = max(math.ceil(1.02 * masks), int(budgets(np.array([max_length]))[0]))
    return FixedShape(rows, sequences, -(-predictions // PREDICTION_STEP) * PREDICTION_STEP, max_length)


def _dealt(shares: np.ndarray, shape: FixedShape) -> tuple[int, list[np.ndarray]]:
    """Micro-batches of all steps where ranks wait for the one with most, and the lengths that each of them holds."""
    dealt = [[[share[part] for part in shape.deal(share, 0 * share)] for share in step] for step in shares]
    return sum(max(map(len, step)) for step in dealt), [part for step in dealt for share in step for part in share]


def shape_of(recipe: PretrainingRecipe, samples: SampleSource, world_size: int) -> FixedShape:
    """The shape of a run's micro-batches."""
    sizes = (recipe.batch_size, recipe.micro_batch_size, world_size, recipe.sequences.max_length)
    return choose_shape(samples, recipe.masking.budgets, *sizes)


@dataclass(frozen=True)
class FixedBatch:
    """A micro-batch of the fixed shape."""

    buffer: Int32[Tensor, " width"]
    lengths: tuple[int, ...]
    """Tokens of each sequence that counts."""
    counts: Mapping[str, int]

    @property
    def n_tokens(self) -> int:
        """Tokens that count."""
        return sum(self.lengths)

    def to(self, device: torch.device) -> "FixedBatch":
        """The same batch on a device."""
        return FixedBatch(self.buffer.to(device, non_blocking=True), self.lengths, self.counts)


class FixedBatches:
    """The batches of `PretrainingBatches`, the same samples in each step, in micro-batches of a fixed shape."""

    def __init__(
        self,
        samples: SampleSource,
        batch_size: int,
        shape: FixedShape,
        hard_examples: HardExamplesRecipe = ALL_ALIKE,
    ) -> None:
        self._samples, self._batch_size, self._shape, self._hard_examples = samples, batch_size, shape, hard_examples

    def micro_batches(self, step: int, rank: int, world_size: int) -> Sequence[FixedBatch]:
        """One rank's share of a step: views of one tensor."""
        first, at_once = step * self._batch_size, self._samples.preferred_batch
        numbers = np.arange(first + rank, first + self._batch_size, world_size)
        samples = _joined([self._samples.batch(numbers[i : i + at_once]) for i in range(0, len(numbers), at_once)])
        ends = np.cumsum(samples.lengths)
        masks = np.diff(np.searchsorted(samples.masked_positions, ends), prepend=0)
        dealt = self._shape.deal(samples.lengths, masks)
        buffers = torch.empty(len(dealt), sum(self._shape.sizes), dtype=torch.int32)
        batches = []
        for members, buffer in zip(dealt, buffers, strict=True):
            self._shape.fill(samples, members, self._hard_examples.focus_of(step), buffer.numpy())
            orders = int(np.count_nonzero(samples.order_labels[members] != NO_LABEL))
            counts = {"masked_tokens": int(masks[members].sum()), "sentence_order": orders}
            batches.append(FixedBatch(buffer, tuple(samples.lengths[members].tolist()), counts))
        return batches


def _joined(made: Sequence[Samples]) -> Samples:
    """Samples one after the other."""
    before = np.cumsum([0, *(len(samples.token_ids) for samples in made[:-1])])
    shifted = [s._replace(masked_positions=s.masked_positions + n) for s, n in zip(made, before, strict=True)]
    return Samples(*(np.concatenate(column) for column in zip(*shifted, strict=True)))


class PretrainingLoss(nn.Module):
    """The sums of both losses over a micro-batch of a fixed shape, as one graph."""

    def __init__(self, model: AlbertForPreTraining, shape: FixedShape) -> None:
        super().__init__()
        self.model, self.shape = model, shape

    def compile_graph(self, backend: str | Callable[..., Any] = "inductor", mode: str | None = None) -> None:
        """Compile the forward pass, and the backward pass with it, when first called; never again for this shape.

        What data parallelism hangs onto the module stays outside. Where torch cannot compile, without a C++ compiler,
        the first call raises `Unavailable`.
        """
        compiled = torch.compile(self.forward, fullgraph=True, dynamic=False, backend=backend, mode=mode)

        def forward(buffer: Tensor) -> tuple[Tensor, Tensor]:
            try:
                return compiled(buffer)
            except Exception as error:
                if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
                    raise
                why = next(iter(str(error).splitlines()), type(error).__name__)
                raise Unavailable("compile", f"torch cannot compile the loss: {why}", "use --compile False") from error

        self.forward = forward

    def forward(self, buffer: Int32[Tensor, " width"]) -> tuple[Float[Tensor, "2"], Int[Tensor, "2"]]:
        """Sums of the losses, in the order of `TERMS`, and how many items are answered right."""
        parts, model = self.shape.parts(buffer), self.model
        first = parts.boundaries[:-1].long().clamp(max=self.shape.rows - 1)
        packed = PackedSequences(
            parts.token_ids, parts.token_type_ids, parts.position_ids, (), first, (), first[:0], parts.boundaries,
            self.shape.longest,
        )  # fmt: skip
        hidden, words = model.albert(packed), model.albert.embeddings.word_embeddings.weight
        masked = hidden.index_select(0, parts.masked_positions)
        each, right = model.predictions.compilable_losses(masked, words, parts.masked_labels)
        order = model.sop_classifier(model.albert.pool(hidden, packed)).float()
        order_loss = functional.cross_entropy(order, parts.order_labels, reduction="sum", ignore_index=NO_LABEL)
        losses = torch.stack(((hardness(each, parts.focus) * each).sum(), order_loss))
        return losses, torch.stack((right.sum(), (order.argmax(-1) == parts.order_labels).sum()))


def fixed_objective(model: nn.Module, batch: Batch) -> Sums:
    """Sums of both cross-entropies, in float32, over a micro-batch of the fixed shape."""
    assert isinstance(batch, FixedBatch)
    losses, right = model(batch.buffer)
    return Sums(dict(zip(TERMS, losses.unbind(), strict=True)), dict(zip(TERMS, right.unbind(), strict=True)))
