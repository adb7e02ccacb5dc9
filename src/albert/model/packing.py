"""Packed sequences: a batch as one run of tokens with boundaries; padding exists in attention alone.

Everything that works token by token (embeddings, projections, feed-forward, heads) sees only real tokens. Attention on
a CPU needs rectangles, so sequences of like length are grouped, and each group is gathered into one padded block; on a
GPU a kernel takes the boundaries.
`padded_rows` rounds the number of rows up, because oneDNN compiles each matrix shape anew."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from albert.runtime.errors import InvalidConfiguration

MAX_PADDING_SHARE = 0.15
"""At most this share of a group's rectangle may be padding, before a new group is opened."""
FREE_PADDING = 4096
"""Padded cells, times the length, that a group may have in any case: a group of its own costs more than they do, since
each of its products is a call, and on a CPU in bfloat16 a kernel that is made for this very shape."""
LENGTH_STEP = 8
"""Padded rectangles are multiples of this long, so that the same shapes come again and again."""


@dataclass(frozen=True)
class AttentionGroup:
    """Sequences of like length, as a rectangle of token positions."""

    positions: Int[Tensor, "sequences length"]
    """Where in the run of tokens each cell comes from; a padded cell repeats the sequence's first token."""
    padded: Bool[Tensor, "sequences length"] | None
    """The cells that are padding; None when the group has none."""


@dataclass(frozen=True)
class PackedSequences:
    """A batch.

    Attributes:
        token_ids, token_type_ids, position_ids: one entry a token, sequences one after the other.
        lengths: tokens of each sequence, special tokens included.
        first_positions: where each sequence begins, that is, its [CLS].
        groups: how attention sees the batch on a CPU; none on a GPU, where it sees the boundaries.
        cells: where each token lies in the groups' rectangles, flattened and put one after the other.
        boundaries: int32, where each sequence begins, and the end of the last one.
        longest: at least the tokens of the longest sequence.
    """

    token_ids: Int[Tensor, " tokens"]
    token_type_ids: Int[Tensor, " tokens"]
    position_ids: Int[Tensor, " tokens"]
    lengths: tuple[int, ...]
    first_positions: Int[Tensor, " sequences"]
    groups: tuple[AttentionGroup, ...]
    cells: Int[Tensor, " cells"]
    boundaries: Int[Tensor, " sequences_and_one"]
    longest: int

    @property
    def n_tokens(self) -> int:
        """Tokens in the batch."""
        return sum(self.lengths)

    @property
    def n_sequences(self) -> int:
        """Sequences in the batch."""
        return len(self.lengths)

    @property
    def has_equal_lengths(self) -> bool:
        """Whether all sequences have one length, so that the run of tokens is the rectangle of the only group."""
        return len(self.groups) == 1 and self.groups[0].padded is None

    @property
    def has_groups(self) -> bool:
        """Whether attention sees groups of sequences of like length; if not, it sees the boundaries."""
        return len(self.groups) > 0

    def to(self, device: torch.device) -> "PackedSequences":
        """The same batch on a device: as it is on a CPU, without groups elsewhere."""
        if device.type == "cpu":
            return self
        return self.without_groups(device)

    def without_groups(self, device: torch.device) -> "PackedSequences":
        """The same batch on a device, for attention by boundaries."""
        return PackedSequences(
            self.token_ids.to(device, non_blocking=True),
            self.token_type_ids.to(device, non_blocking=True),
            self.position_ids.to(device, non_blocking=True),
            self.lengths,
            self.first_positions.to(device, non_blocking=True),
            (),
            self.cells[:0].to(device),
            self.boundaries.to(device, non_blocking=True),
            self.longest,
        )


def pack(token_ids: Sequence[np.ndarray], token_type_ids: Sequence[np.ndarray]) -> PackedSequences:
    """Put sequences one after the other.

    Args:
        token_ids: of each sequence, its tokens with the special ones.
        token_type_ids: of each sequence, 0 for its first segment and 1 for its second.
    """
    return pack_run(
        np.concatenate(token_ids).astype(np.int64),
        np.concatenate(token_type_ids).astype(np.int64),
        np.array([len(ids) for ids in token_ids], dtype=np.int64),
    )


def pack_run(token_ids: np.ndarray, token_type_ids: np.ndarray, lengths: np.ndarray) -> PackedSequences:
    """Sequences that stand one after the other already; their memory is taken over.

    Args:
        token_ids, token_type_ids: int64, one entry a token.
        lengths: int64, tokens of each sequence.
    """
    starts = np.cumsum(lengths) - lengths
    groups, cells = _attention_groups(lengths, starts, len(token_ids))
    return PackedSequences(
        token_ids=torch.from_numpy(token_ids),
        token_type_ids=torch.from_numpy(token_type_ids),
        position_ids=torch.from_numpy(np.arange(len(token_ids)) - np.repeat(starts, lengths)),
        lengths=tuple(lengths.tolist()),
        first_positions=torch.from_numpy(starts),
        groups=groups,
        cells=torch.from_numpy(cells),
        boundaries=torch.from_numpy(np.append(starts, len(token_ids)).astype(np.int32)),
        longest=int(lengths.max(initial=1)),
    )


def split_lengths(packed: PackedSequences) -> tuple[int, ...]:
    """Tokens of each text of sequences `[CLS] a [SEP] b [SEP]` in `split_segments`: of the first a, its b, and so on.

    Raises:
        InvalidConfiguration: a sequence has no second segment.
    """
    seconds = [int(types.sum()) for types in packed.token_type_ids.cpu().split(packed.lengths)]
    if not all(seconds):
        why = "has no second text, the model compares two"
        raise InvalidConfiguration(f"sequence {seconds.index(0) + 1}", why, "give a pair of texts")
    each = zip(packed.lengths, seconds, strict=True)
    return tuple(n for length, second in each for n in (length - second, second + 1))


def split_segments(packed: PackedSequences) -> PackedSequences:
    """Sequences `[CLS] a [SEP] b [SEP]` as two each, `[CLS] a [SEP]` and `[CLS] b [SEP]`, on the same device.

    Raises:
        InvalidConfiguration: a sequence has no second segment.
    """
    lengths = np.array(split_lengths(packed), np.int64)
    ids, kept = packed.token_ids.cpu().numpy(), lengths.copy()
    kept[1::2] -= 1  # what a second text has in the run, where it has no [CLS]
    run = np.insert(ids, (np.cumsum(kept) - kept)[1::2], ids[packed.first_positions.cpu().numpy()])
    split, device = pack_run(run, np.zeros_like(run), lengths), packed.token_ids.device
    return split.to(device) if packed.has_groups else split.without_groups(device)


def mean_states(
    hidden: Float[Tensor, "tokens H"], lengths: tuple[int, ...], weights: Float[Tensor, " tokens"] | None = None
) -> Float[Tensor, "sequences H"]:
    """The mean of each sequence's states, [CLS] and [SEP] among them, in float32; weighted where weights are given."""
    counts = torch.tensor(lengths, device=hidden.device)
    member = torch.arange(len(lengths), device=hidden.device).repeat_interleave(counts)
    sums = hidden.new_zeros(len(lengths), hidden.shape[1], dtype=torch.float32)
    if weights is None:
        return sums.index_add(0, member, hidden.float()) / counts[:, None]
    total = weights.new_zeros(len(lengths)).index_add(0, member, weights)
    return sums.index_add(0, member, hidden.float() * weights[:, None]) / total[:, None]


def _attention_groups(
    lengths: np.ndarray, starts: np.ndarray, total: int
) -> tuple[tuple[AttentionGroup, ...], np.ndarray]:
    order = np.argsort(-lengths, kind="stable")
    descending = lengths[order].tolist()
    groups, first, offset = [], 0, 0
    first_cells = np.empty_like(starts)
    while first < len(order):
        last = _end_of_group(descending, first)
        members, ragged = order[first:last], descending[last - 1] < descending[first]
        length = _padded_length(descending[first]) if ragged else descending[first]
        columns = np.arange(length)
        padded = columns >= lengths[members, None]
        positions = np.where(padded, 0, columns) + starts[members, None]
        groups.append(AttentionGroup(torch.from_numpy(positions), torch.from_numpy(padded) if ragged else None))
        first_cells[members] = offset + length * np.arange(len(members))
        first, offset = last, offset + positions.size
    return tuple(groups), np.repeat(first_cells - starts, lengths) + np.arange(total)


def _end_of_group(descending: list[int], first: int) -> int:
    longest, real = descending[first], 0
    for last in range(first, len(descending)):
        real += descending[last]
        if descending[last] < longest:
            length = _padded_length(longest)
            cells = length * (last - first + 1)
            if cells - real > max(FREE_PADDING / length, MAX_PADDING_SHARE * cells):
                return last
    return len(descending)


def _padded_length(longest: int) -> int:
    return -(-longest // LENGTH_STEP) * LENGTH_STEP


# --------------------------------------------------------------------------------------------------------------------
# A run of tokens as the rectangles that attention needs, and back: copies of whole rows in both directions.
#
# Every token has one cell, so both gradients are copies too. A padded cell holds no token: what it repeats counts
# for nothing, so it passes no gradient on and gets none. Nor do spare rows, which a run may have behind its tokens.


def to_padded_blocks(run: Float[Tensor, "rows width"], packed: PackedSequences) -> tuple[Tensor, ...]:
    """Of each group of sequences, its cells [sequences, length, width]; a view where the batch is one full group."""
    if packed.has_equal_lengths:
        return (run.view(packed.n_sequences, packed.lengths[0], run.shape[1]),)
    return _ToRectangles.apply(run, packed)


def from_padded_blocks(
    cells: Sequence[Float[Tensor, "_ _ width"]], packed: PackedSequences, rows: int
) -> Float[Tensor, "rows width"]:
    """The tokens of the groups' cells, as one run with so many rows; those behind the tokens are 0.

    A full group has no rows behind its tokens.
    """
    if packed.has_equal_lengths:
        return cells[0].flatten(0, 1)
    return _FromRectangles.apply(packed, rows, *cells)


def _gather(run: Tensor, packed: PackedSequences) -> tuple[Tensor, ...]:
    return tuple(
        run.index_select(0, group.positions.flatten()).unflatten(0, group.positions.shape) for group in packed.groups
    )


def _put_back(cells: Sequence[Tensor], packed: PackedSequences, rows: int) -> Tensor:
    every = torch.cat([group.flatten(0, 1) for group in cells])
    run = every.new_empty(rows, every.shape[1])
    torch.index_select(every, 0, packed.cells, out=run[: packed.n_tokens])
    run[packed.n_tokens :] = 0
    return run


class _ToRectangles(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, run: Tensor, packed: PackedSequences) -> tuple[Tensor, ...]:
        ctx.packed, ctx.rows = packed, len(run)
        return _gather(run, packed)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _put_back(gradients, ctx.packed, ctx.rows), None


class _FromRectangles(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, packed: PackedSequences, rows: int, *cells: Tensor) -> Tensor:
        ctx.packed = packed
        return _put_back(cells, packed, rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (of_run,) = gradients
        of_cells = _gather(of_run, ctx.packed)
        for of_group, group in zip(of_cells, ctx.packed.groups, strict=True):
            if group.padded is not None:
                of_group.masked_fill_(group.padded[:, :, None], 0)
        return None, None, *of_cells


# --------------------------------------------------------------------------------------------------------------------
# Padding rows: oneDNN compiles a product for each number of rows (1 ms and nearly 1 MB), so there should be few.
#
# Batches have hundreds of different numbers of tokens. Rows without a token behind the others bring them to few;
# they go through the products alone, nobody reads what becomes of them, and no gradient comes back to them. What is
# compiled is kept: a server that has seen all numbers of rows needs no more memory.

SMALL_BATCH, SMALL_STEP = 64, 4
"""Up to so many rows their number is a multiple of 4: a single short text has hardly a row in vain."""
STEP = 16
"""Beyond, of 16, and beyond 512 rows of the power of two that is at most a sixteenth of them."""


def padded_rows(tokens: int) -> int:
    """How many rows so many tokens take."""
    step = SMALL_STEP if tokens <= SMALL_BATCH else max(STEP, 1 << (tokens - 1).bit_length() >> 5)
    return -(-tokens // step) * step


def pad_rows(states: Float[Tensor, "tokens width"]) -> Float[Tensor, "rows width"]:
    """Zeros behind the tokens, or the states themselves where no row is missing, or products are not oneDNN's."""
    missing = padded_rows(len(states)) - len(states)
    return functional.pad(states, (0, 0, 0, missing)) if missing and pads_rows(states.device) else states


def pad_batch_rows(states: Float[Tensor, "tokens width"], packed: PackedSequences) -> Float[Tensor, "rows width"]:
    """`pad_rows` of a batch that is learnt; one of equal lengths has the same size each time and needs none."""
    return pad_rows(states) if packed.has_groups and not packed.has_equal_lengths else states


def pads_rows(device: torch.device) -> bool:
    """Whether products are oneDNN's."""
    return device.type == "cpu" and torch.backends.mkldnn.is_available()
