"""Packed sequences: the tokens of a batch one after the other, with their limits; only attention uses padding.

Embeddings, projections, feed-forward blocks and heads compute real tokens only. Attention on a CPU groups sequences of
similar lengths and pads each group to a block; on a GPU a kernel uses `cu_seqlens`, the cumulative lengths.
`padded_rows` rounds the number of rows up, because oneDNN compiles a kernel for each matrix shape."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from albert.runtime.errors import InvalidConfiguration

MAX_PADDING_SHARE = 0.15
"""Maximum share of padding in a group; more padding starts a new group."""
FREE_PADDING = 4096
"""Padded cells times length that a group may always have: they cost less than another group, which needs further calls
and, in bfloat16 on a CPU, kernels compiled for its shape."""
LENGTH_STEP = 8
"""Padded lengths are multiples of this, so that shapes repeat."""


@dataclass(frozen=True)
class AttentionGroup:
    """Sequences of similar lengths, padded to a block of token positions."""

    positions: Int[Tensor, "sequences length"]
    """Index of each cell in the tokens of the batch; padding repeats the first token of its sequence."""
    padded: Bool[Tensor, "sequences length"] | None
    """True for padding; None: no padding."""


@dataclass(frozen=True)
class PackedSequences:
    """A batch.

    Attributes:
        token_ids, token_type_ids, position_ids: one entry per token, sequences one after the other.
        lengths: tokens of each sequence, including special tokens.
        first_positions: index of each sequence's [CLS].
        groups: padded blocks for attention on a CPU; empty on a GPU.
        gather_index: index of each token in the concatenated, flattened blocks; empty on a GPU.
        cu_seqlens: int32, start of each sequence and end of the last one, for attention on a GPU.
        max_seqlen: an upper bound of the lengths.
    """

    token_ids: Int[Tensor, " tokens"]
    token_type_ids: Int[Tensor, " tokens"]
    position_ids: Int[Tensor, " tokens"]
    lengths: tuple[int, ...]
    first_positions: Int[Tensor, " sequences"]
    groups: tuple[AttentionGroup, ...]
    gather_index: Int[Tensor, " gathered"]
    cu_seqlens: Int[Tensor, " sequences_and_one"]
    max_seqlen: int

    @property
    def n_tokens(self) -> int:
        """Number of tokens."""
        return sum(self.lengths)

    @property
    def n_sequences(self) -> int:
        """Number of sequences."""
        return len(self.lengths)

    @property
    def has_equal_lengths(self) -> bool:
        """Whether all sequences have the same length, so that the only block is a view of the tokens."""
        return len(self.groups) == 1 and self.groups[0].padded is None

    @cached_property
    def adjacent_lengths(self) -> tuple[tuple[int, int], ...]:
        """The lengths of sequences that follow one another, and how many have each."""
        return tuple((length, len(list(equal))) for length, equal in groupby(self.lengths))

    @property
    def has_groups(self) -> bool:
        """Whether attention uses padded blocks instead of cu_seqlens."""
        return len(self.groups) > 0

    def to(self, device: str | torch.device) -> "PackedSequences":
        """The batch on a device; without groups unless it is a CPU."""
        device = torch.device(device)
        return self if device.type == "cpu" else self.without_groups(device)

    def without_groups(self, device: torch.device) -> "PackedSequences":
        """The batch on a device, for attention by cu_seqlens."""
        names = ("token_ids", "token_type_ids", "position_ids", "first_positions", "cu_seqlens")
        moved = {name: getattr(self, name).to(device, non_blocking=True) for name in names}
        return replace(self, **moved, groups=(), gather_index=self.gather_index[:0].to(device))


def pack(token_ids: Sequence[np.ndarray], token_type_ids: Sequence[np.ndarray]) -> PackedSequences:
    """Pack sequences.

    Args:
        token_ids: int [length] of each sequence, including special tokens.
        token_type_ids: int [length] of each sequence, 0 for the first segment and 1 for the second.
    """
    return pack_run(
        np.concatenate(token_ids).astype(np.int64),
        np.concatenate(token_type_ids).astype(np.int64),
        np.array([len(ids) for ids in token_ids], dtype=np.int64),
    )


def pack_run(token_ids: np.ndarray, token_type_ids: np.ndarray, lengths: np.ndarray) -> PackedSequences:
    """Pack sequences that are concatenated already, without a copy.

    Args:
        token_ids, token_type_ids: int64 [tokens].
        lengths: int64 [sequences].
    """
    if len(lengths) == 1:
        return _pack_one(torch.from_numpy(token_ids), torch.from_numpy(token_type_ids))
    starts = np.cumsum(lengths) - lengths
    groups, gather_index = _attention_groups(lengths, starts, len(token_ids))
    return PackedSequences(
        token_ids=torch.from_numpy(token_ids),
        token_type_ids=torch.from_numpy(token_type_ids),
        position_ids=torch.from_numpy(np.arange(len(token_ids)) - np.repeat(starts, lengths)),
        lengths=tuple(lengths.tolist()),
        first_positions=torch.from_numpy(starts),
        groups=groups,
        gather_index=torch.from_numpy(gather_index),
        cu_seqlens=torch.from_numpy(np.append(starts, len(token_ids)).astype(np.int32)),
        max_seqlen=int(lengths.max(initial=1)),
    )


def _pack_one(token_ids: Tensor, token_type_ids: Tensor) -> PackedSequences:
    """One sequence, in a tenth of the time that finding the groups of several takes."""
    length = len(token_ids)
    positions = torch.arange(length)
    return PackedSequences(
        token_ids=token_ids,
        token_type_ids=token_type_ids,
        position_ids=positions,
        lengths=(length,),
        first_positions=torch.zeros(1, dtype=torch.int64),
        groups=(AttentionGroup(positions[None], None),),
        gather_index=positions,
        cu_seqlens=torch.tensor((0, length), dtype=torch.int32),
        max_seqlen=max(1, length),
    )


def tokens_in_other_segment(packed: PackedSequences) -> Bool[Tensor, " tokens"]:
    """Return whether each token occurs in the other segment of its sequence."""
    ids, types = (
        pad_sequence(list(values.split(packed.lengths)), batch_first=True, padding_value=-1)
        for values in (packed.token_ids, packed.token_type_ids)
    )
    equal = (ids[:, :, None] == ids[:, None, :]) & (types[:, :, None] != types[:, None, :])
    return equal.any(dim=2)[ids >= 0]


def split_lengths(packed: PackedSequences) -> tuple[int, ...]:
    """The lengths of the sequences that `split_segments` makes.

    Raises:
        InvalidConfiguration: a sequence has no second segment.
    """
    second_lengths = [int(types.sum()) for types in packed.token_type_ids.cpu().split(packed.lengths)]
    if not all(second_lengths):
        why = "has no second text, the model compares two"
        raise InvalidConfiguration(f"sequence {second_lengths.index(0) + 1}", why, "give a pair of texts")
    pairs = zip(packed.lengths, second_lengths, strict=True)
    return tuple(n for length, second in pairs for n in (length - second, second + 1))


def split_segments(packed: PackedSequences) -> PackedSequences:
    """Split each sequence `[CLS] a [SEP] b [SEP]` into `[CLS] a [SEP]` and `[CLS] b [SEP]`, on the same device."""
    lengths = np.array(split_lengths(packed), np.int64)
    ids = packed.token_ids.cpu().numpy()
    unsplit = lengths.copy()
    unsplit[1::2] -= 1  # second texts have no [CLS] yet
    with_cls = np.insert(ids, (np.cumsum(unsplit) - unsplit)[1::2], ids[packed.first_positions.cpu().numpy()])
    split = pack_run(with_cls, np.zeros_like(with_cls), lengths)
    device = packed.token_ids.device
    return split.to(device) if packed.has_groups else split.without_groups(device)


def mean_states(
    hidden: Float[Tensor, "tokens H"], lengths: tuple[int, ...], weights: Float[Tensor, " tokens"] | None = None
) -> Float[Tensor, "sequences H"]:
    """Mean state of each sequence including [CLS] and [SEP], in float32, optionally weighted."""
    if len(lengths) == 1 and weights is None:
        return hidden.float().mean(dim=0, keepdim=True)
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
    groups = []
    first = 0
    offset = 0
    first_cells = np.empty_like(starts)
    while first < len(order):
        last = _end_of_group(descending, first)
        members = order[first:last]
        ragged = descending[last - 1] < descending[first]
        length = _padded_length(descending[first]) if ragged else descending[first]
        columns = np.arange(length)
        padded = columns >= lengths[members, None]
        positions = np.where(padded, 0, columns) + starts[members, None]
        groups.append(AttentionGroup(torch.from_numpy(positions), torch.from_numpy(padded) if ragged else None))
        first_cells[members] = offset + length * np.arange(len(members))
        first = last
        offset = offset + positions.size
    return tuple(groups), np.repeat(first_cells - starts, lengths) + np.arange(total)


def _end_of_group(descending: list[int], first: int) -> int:
    longest = descending[first]
    real = 0
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
# Copies between packed tokens and the padded blocks of attention.
#
# Every token has one cell, so both gradients are copies, too. Padding and the padding rows after the tokens have no
# gradient.


def to_padded_blocks(tokens: Float[Tensor, "rows width"], packed: PackedSequences) -> tuple[Tensor, ...]:
    """The block [sequences, length, width] of each group; a view if all sequences have the same length."""
    if packed.has_equal_lengths:
        return (tokens.view(packed.n_sequences, packed.lengths[0], tokens.shape[1]),)
    return _ToBlocks.apply(tokens, packed)


def from_padded_blocks(
    blocks: Sequence[Float[Tensor, "_ _ width"]], packed: PackedSequences, rows: int
) -> Float[Tensor, "rows width"]:
    """The tokens of the blocks, followed by zeros up to `rows` (none if all sequences have the same length)."""
    return blocks[0].flatten(0, 1) if packed.has_equal_lengths else _FromBlocks.apply(packed, rows, *blocks)


def _gather(tokens: Tensor, packed: PackedSequences) -> tuple[Tensor, ...]:
    return tuple(
        tokens.index_select(0, group.positions.flatten()).unflatten(0, group.positions.shape) for group in packed.groups
    )


def _put_back(blocks: Sequence[Tensor], packed: PackedSequences, rows: int) -> Tensor:
    flat = torch.cat([block.flatten(0, 1) for block in blocks])
    tokens = flat.new_empty(rows, flat.shape[1])
    torch.index_select(flat, 0, packed.gather_index, out=tokens[: packed.n_tokens])
    tokens[packed.n_tokens :] = 0
    return tokens


class _ToBlocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tokens: Tensor, packed: PackedSequences) -> tuple[Tensor, ...]:
        ctx.packed = packed
        ctx.rows = len(tokens)
        return _gather(tokens, packed)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _put_back(gradients, ctx.packed, ctx.rows), None


class _FromBlocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, packed: PackedSequences, rows: int, *blocks: Tensor) -> Tensor:
        ctx.packed = packed
        return _put_back(blocks, packed, rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (grad_tokens,) = gradients
        grad_blocks = _gather(grad_tokens, ctx.packed)
        for grad_block, group in zip(grad_blocks, ctx.packed.groups, strict=True):
            if group.padded is not None:
                grad_block.masked_fill_(group.padded[:, :, None], 0)
        return None, None, *grad_blocks


# --------------------------------------------------------------------------------------------------------------------
# Padding rows: oneDNN compiles a kernel for each number of rows (1 ms and nearly 1 MB).
#
# Batches have hundreds of different numbers of tokens. Rows of zeros after the tokens reduce these to fewer than a
# hundred. They pass through matrix products only; their results are dropped and they have no gradient.

SMALL_BATCH = 64
SMALL_STEP = 4
"""Up to 64 rows, their number is a multiple of 4."""
STEP = 16
"""Then of 16, and above 512 rows of the largest power of two up to a sixteenth of them."""


def padded_rows(tokens: int) -> int:
    """Number of rows for a number of tokens."""
    step = SMALL_STEP if tokens <= SMALL_BATCH else max(STEP, 1 << (tokens - 1).bit_length() >> 5)
    return -(-tokens // step) * step


def pad_rows(states: Float[Tensor, "tokens width"]) -> Float[Tensor, "rows width"]:
    """Append rows of zeros up to `padded_rows`; only where oneDNN computes matrix products."""
    missing = padded_rows(len(states)) - len(states)
    return functional.pad(states, (0, 0, 0, missing)) if missing and pads_rows(states.device) else states


def pad_batch_rows(states: Float[Tensor, "tokens width"], packed: PackedSequences) -> Float[Tensor, "rows width"]:
    """`pad_rows` for training, unless all sequences have the same length: such batches have few sizes."""
    return pad_rows(states) if packed.has_groups and not packed.has_equal_lengths else states


def pads_rows(device: torch.device) -> bool:
    """Return whether oneDNN computes matrix products."""
    return device.type == "cpu" and torch.backends.mkldnn.is_available()
