"""Multi-head self-attention over packed sequences (paper §3.1; Vaswani et al., 2017, §3.2).

`AttentionBlock` is the module. On a CPU dense attention is written as plain products with its own gradients; on a GPU
it is a kernel for sequences of any lengths (`varlen_attention`). `window_attention` is for long sequences."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from albert.model.config import AlbertConfig, block_size, covers, dense_is_faster, n_blocks
from albert.model.packing import AttentionGroup, PackedSequences, from_padded_blocks, to_padded_blocks
from albert.runtime.devices import Dropout, keep_mask, linear
from albert.runtime.environment import load_by_name

# --------------------------------------------------------------------------------------------------------------------
# Attention as plain products, with its gradients written out: on a CPU faster than torch's fused kernel.
#
# A few heads are done at a time, so that their scores stay in the processor's cache. The softmax of products in
# bfloat16 is computed in float32. Kept for the backward pass are the operands and the probabilities, these once.

SCORES_AT_ONCE = 1 << 20
"""Most elements of the part of the scores that is computed at a time; the scores of one head are never divided."""
LARGE_MATRIX = 1 << 17
"""Elements from which on the other order of a transposed product is the faster one."""


def plain_attention(
    query: Float[Tensor, "sequences heads rows head_size"],
    key: Float[Tensor, "sequences heads columns head_size"],
    value: Float[Tensor, "sequences heads columns head_size"],
    mask: Bool[Tensor, "sequences_or_one 1 rows_or_one columns"] | None,
    dropout: float = 0.0,
) -> Float[Tensor, "sequences heads rows head_size"]:
    """softmax(query keyᵀ / √head_size) value (Vaswani et al., 2017, §3.2.1).

    Args:
        query, key, value: dense or views.
        mask: true where a row may see a column, and each row sees one; None: everywhere.
        dropout: the share of the probabilities that is dropped.
    """
    return _PlainAttention.apply(query, key, value, mask, dropout)


def heads_at_once(heads: int, rows: int, columns: int) -> int:
    """How many heads' scores are computed at a time: some of one sequence, or all of several sequences."""
    fitting = max(1, SCORES_AT_ONCE // (rows * columns))
    return fitting if fitting < heads else fitting - fitting % heads


class _PlainAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
        mixed, saved = torch.empty_like(query), []
        unseen = None if mask is None else query.new_zeros(mask.shape).masked_fill_(~mask, float("-inf"))
        for part in _parts(query, key):
            q, k, v = (operand[part].contiguous() for operand in (query, key, value))
            probabilities = _softmax(q * q.shape[-1] ** -0.5 @ k.transpose(2, 3), _of_sequences(unseen, part[0]))
            stays = keep_mask(probabilities, dropout) if dropout else None
            mixed[part] = _dropped(probabilities, stays, dropout) @ v
            if any(ctx.needs_input_grad):
                saved += [probabilities, stays]
        ctx.dropout = dropout
        ctx.save_for_backward(query, key, value, *saved)
        return mixed

    @staticmethod
    @once_differentiable  # the probabilities that are kept know nothing of query and key
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        (of_result,) = gradients
        query, key, value, *saved = ctx.saved_tensors
        of_query, of_key, of_value = (torch.empty_like(operand) for operand in (query, key, value))
        for part, probabilities, stays in zip(_parts(query, key), saved[::2], saved[1::2], strict=True):
            q, k, v, of_mixed = (operand[part].contiguous() for operand in (query, key, value, of_result))
            of_value[part] = _transposed_times(_dropped(probabilities, stays, ctx.dropout), of_mixed)
            of_probabilities = _dropped(of_mixed @ v.transpose(2, 3), stays, ctx.dropout)
            of_scores = torch.ops.aten._softmax_backward_data(of_probabilities, probabilities, -1, probabilities.dtype)
            of_query[part] = of_scores @ k * q.shape[-1] ** -0.5
            of_key[part] = _transposed_times(of_scores, q * q.shape[-1] ** -0.5)
        return of_query, of_key, of_value, None, None


def _transposed_times(
    scores: Float[Tensor, "sequences heads rows columns"], vectors: Float[Tensor, "sequences heads rows head_size"]
) -> Float[Tensor, "sequences heads columns head_size"]:
    """scoresᵀ vectors. torch is slow where a large matrix stands transposed on the left, by up to fifteen times."""
    if scores.shape[2] * scores.shape[3] >= LARGE_MATRIX:
        return (vectors.transpose(2, 3) @ scores).transpose(2, 3)
    return scores.transpose(2, 3) @ vectors


def _parts(query: Tensor, key: Tensor) -> list[tuple[slice, slice]]:
    """Which sequences and which of their heads are done at a time."""
    sequences, heads, rows, _ = query.shape
    matrices = heads_at_once(heads, rows, key.shape[2])
    together, of_one = max(1, matrices // heads), min(matrices, heads)
    return [
        (slice(first, first + together), slice(head, head + of_one))
        for first in range(0, sequences, together)
        for head in range(0, heads, of_one)
    ]


def _of_sequences(unseen: Tensor | None, sequences: slice) -> Tensor | None:
    return unseen if unseen is None or len(unseen) == 1 else unseen[sequences]


def _softmax(scores: Float[Tensor, "sequences heads rows columns"], unseen: Tensor | None) -> Tensor:
    """Probabilities in the type of the scores, which are overwritten where −∞ is added.

    torch takes the softmax of bfloat16 numbers in float32 and rounds once.
    """
    if unseen is not None:
        scores += unseen
    return scores.softmax(-1)


def _dropped(probabilities: Tensor, stays: Tensor | None, dropout: float) -> Tensor:
    return probabilities if stays is None else probabilities * stays / (1 - dropout)


# --------------------------------------------------------------------------------------------------------------------
# Weights in the type that matrix products are computed in: bfloat16 within autocast, else their own.


def to_matmul_dtype(weight: Tensor) -> Tensor:
    """The weight as products take it.

    Autocast does the same by itself, and remembers the result for parameters, yet not for what is computed from them,
    nor when activation checkpointing comes back to a layer in the backward pass.
    """
    kind = weight.device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return weight
    return weight.to(torch.get_autocast_dtype(kind))


# --------------------------------------------------------------------------------------------------------------------
# Attention in a window, for long sequences: each token sees its neighbours and [CLS], and [CLS] sees everything.
#
# One of the ways beyond dense attention that the paper's discussion names (Lan et al. 2019, §5). The pattern is
# that of Longformer (Beltagy et al. 2020, §3.1) with [CLS] as the only global token and without projections of its
# own: no parameter is added, and where the window covers the sequence it is dense attention. Work and memory grow
# with length × window in place of length².
#
# The tokens behind [CLS] are cut into blocks of the window's size. A block attends to [CLS], to itself and to the
# block on either side, as if it were a short sequence of its own: the products, their precision and their dropout
# are those of dense attention, and a mask cuts what a block sees to the window.

Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
"""Dense attention: of queries [batch, heads, rows, head_size] over keys and values [batch, heads, columns, head_size],
under a mask that is true where a row may see a column, broadcast to [batch, heads, rows, columns]; None: everywhere."""


def window_attention(
    query: Float[Tensor, "sequences heads length head_size"],
    key: Float[Tensor, "sequences heads length head_size"],
    value: Float[Tensor, "sequences heads length head_size"],
    padded: Bool[Tensor, "sequences length"] | None,
    window: int,
    attend: Attend,
) -> Float[Tensor, "sequences heads length head_size"]:
    """What every token makes of [CLS] (the first token) and of the tokens at most `window` places away.

    Args:
        query, key, value: of a group of sequences of like length.
        padded: the cells that are padding, never a first one; None when there is none.
        window: tokens to either side, at least 1.
        attend: dense attention.
    """
    length = query.shape[2]
    if dense_is_faster(length, window):
        return attend(query, key, value, _dense_mask(query, padded, window))
    first = attend(query[:, :, :1], key, value, None if padded is None else ~padded[:, None, None, :])
    blocks = attend(
        _blocks(query[:, :, 1:], block_size(window)),
        _around_each_block(key, window),
        _around_each_block(value, window),
        _block_mask(query, padded, window),
    )
    by_token = blocks.unflatten(0, (len(query), -1)).transpose(2, 3).flatten(1, 2)[:, : length - 1]
    return torch.cat((first.transpose(1, 2), by_token), dim=1).transpose(1, 2)


def _dense_mask(
    query: Tensor, padded: Tensor | None, window: int
) -> Bool[Tensor, "sequences_or_one 1 length_or_one length"] | None:
    """What a token may see where attention is dense."""
    there = None if padded is None else ~padded[:, None, None, :]
    length = query.shape[2]
    if covers(window, length):
        return there
    place = torch.arange(length, device=query.device)
    near = (place[:, None] - place).abs() <= window
    near[0] = near[:, 0] = True
    return near[None, None] if there is None else near & there


def _blocks(
    behind_first: Shaped[Tensor, "sequences heads length_less_one size"], block: int
) -> Shaped[Tensor, "sequences_times_blocks heads block size"]:
    """The tokens behind [CLS], cut; the last block is filled up with zeros."""
    length = behind_first.shape[2]
    whole = functional.pad(behind_first.transpose(1, 2), (0, 0, 0, 0, 0, -length % block))
    return whole.unflatten(1, (-1, block)).flatten(0, 1).transpose(1, 2)


def _around_each_block(
    cells: Shaped[Tensor, "sequences heads length size"], window: int
) -> Shaped[Tensor, "sequences_times_blocks heads columns size"]:
    """[CLS], the block before, the block itself and the one behind; zeros where there is none."""
    sequences, heads, length, size = cells.shape
    block, n = block_size(window), n_blocks(length, window)
    by_token = functional.pad(cells[:, :, 1:].transpose(1, 2), (0, 0, 0, 0, block, (n + 1) * block - (length - 1)))
    blocks = by_token.view(sequences, n + 2, block, heads, size).transpose(2, 3)
    first = cells[:, None, :, :1].expand(-1, n, -1, -1, -1)
    return torch.cat((first, blocks[:, :-2], blocks[:, 1:-1], blocks[:, 2:]), dim=3).flatten(0, 1)


def _block_mask(
    query: Tensor, padded: Tensor | None, window: int
) -> Bool[Tensor, "sequences_times_blocks 1 block columns"]:
    """What a token may see where blocks attend: [CLS], and tokens that are there and near."""
    sequences, _, length, _ = query.shape
    is_token = torch.ones(sequences, length, dtype=torch.bool, device=query.device) if padded is None else ~padded
    there = _around_each_block(is_token[:, None, :, None], window).transpose(2, 3)
    row = torch.arange(block_size(window), device=query.device)
    column = torch.arange(there.shape[3], device=query.device) - 1 - len(row)  # [CLS], then a block before the rows'
    near = (row[:, None] - column).abs() <= window
    near[:, 0] = True
    return there & near


# --------------------------------------------------------------------------------------------------------------------
# Attention of sequences that stand one after the other, by their boundaries: on a GPU, and where its shapes are wanted.
#
# One custom operation, so that a compiled graph holds it as one node: FlashAttention of `torch.nn.attention.varlen` on
# a GPU, plain products sequence by sequence elsewhere. The kernel has neither dropout nor float32, and a window without
# [CLS]: for these all sequences are gathered into one padded rectangle, which is made on the device.


_KERNELS = "torch.nn.attention.varlen"
"""Registers the kernels; it imports torch's compiler, which nobody needs on a CPU."""


@torch.library.custom_op("albert::varlen_attention", mutates_args=())
def varlen_attention(
    query: Tensor, key: Tensor, value: Tensor, boundaries: Tensor, longest: int, scale: float
) -> tuple[Tensor, Tensor]:
    """softmax(scale query keyᵀ) value within each sequence, and the logarithms of the softmax's denominators.

    Args:
        query, key, value: [rows heads head_size].
        boundaries: int32 [sequences + 1], rising from 0 to the number of rows; a sequence may be empty.
        longest: at least the rows of the longest sequence.
        scale: of the products.

    Returns:
        [rows heads head_size] and float32 [heads rows].
    """
    if query.device.type == "cuda":
        load_by_name(_KERNELS)
        mixed, normalizers, _ = torch.ops.torch_attn._varlen_attn(
            query, key, value, boundaries, boundaries, longest, longest, False, scale
        )
        return mixed.contiguous(), normalizers
    mixed = query.new_zeros(query.shape)
    normalizers = query.new_zeros((query.shape[1], len(query)), dtype=torch.float32)
    for rows in _sequence_rows(boundaries):
        q, k, v = (each[rows].transpose(0, 1) for each in (query, key, value))
        scores = (q @ k.transpose(1, 2)).float() * scale
        normalizers[:, rows] = scores.logsumexp(-1)
        mixed[rows] = (scores.softmax(-1).to(v.dtype) @ v).transpose(0, 1)
    return mixed, normalizers


@torch.library.custom_op("albert::varlen_attention_backward", mutates_args=())
def varlen_attention_backward(
    of_mixed: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mixed: Tensor,
    normalizers: Tensor,
    boundaries: Tensor,
    longest: int,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and value."""
    if query.device.type == "cuda":
        unused = torch.zeros(2, dtype=torch.uint64, device=query.device)  # of dropout, which there is not
        load_by_name(_KERNELS)
        gradients = torch.ops.torch_attn._varlen_attn_backward(
            of_mixed.contiguous(), query, key, value, mixed, normalizers, boundaries, boundaries, longest, longest,
            False, unused, scale,
        )  # fmt: skip
        return tuple(gradient.contiguous() for gradient in gradients)
    of_query, of_key, of_value = (query.new_zeros(query.shape) for _ in range(3))
    for rows in _sequence_rows(boundaries):
        q, k, v, o, of_o = (each[rows].transpose(0, 1) for each in (query, key, value, mixed, of_mixed))
        probabilities = ((q @ k.transpose(1, 2)).float() * scale - normalizers[:, rows, None]).exp()
        of_value[rows] = (probabilities.to(v.dtype).transpose(1, 2) @ of_o).transpose(0, 1)
        along = (of_o.float() * o.float()).sum(-1, keepdim=True)
        of_scores = (probabilities * ((of_o @ v.transpose(1, 2)).float() - along) * scale).to(q.dtype)
        of_query[rows] = (of_scores @ k).transpose(0, 1)
        of_key[rows] = (of_scores.transpose(1, 2) @ q).transpose(0, 1)
    return of_query, of_key, of_value


def _sequence_rows(boundaries: Tensor) -> list[slice]:
    return [slice(first, last) for first, last in pairwise(boundaries.tolist()) if first < last]


@varlen_attention.register_fake
def _(query, key, value, boundaries, longest, scale):  # type: ignore[no-untyped-def]
    return query.new_empty(query.shape), query.new_empty((query.shape[1], query.shape[0]), dtype=torch.float32)


@varlen_attention_backward.register_fake
def _(of_mixed, query, key, value, mixed, normalizers, boundaries, longest, scale):  # type: ignore[no-untyped-def]
    return query.new_empty(query.shape), query.new_empty(query.shape), query.new_empty(query.shape)


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, boundaries, ctx.longest, ctx.scale = inputs
    ctx.save_for_backward(query, key, value, *output, boundaries)


def _gradients(ctx: Any, of_mixed: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    found = varlen_attention_backward(of_mixed, *ctx.saved_tensors, ctx.longest, ctx.scale)
    return *found, None, None, None


varlen_attention.register_autograd(_gradients, setup_context=_keep_for_backward)


def attend_by_boundaries(
    joined: Float[Tensor, "rows three_H"],
    packed: PackedSequences,
    heads: int,
    window: int | None,
    scale: float,
    attend: Attend,
    dropout: float = 0.0,
) -> Float[Tensor, "rows H"]:
    """What every token makes of its own sequence.

    Args:
        joined: queries, keys and values.
        packed: a batch without groups.
        heads: attention heads.
        window: tokens to either side that one sees; None: all.
        scale: of the products.
        attend: dense attention, dropout and scale included, for what the kernel cannot do.
        dropout: whether `attend` drops anything.
    """
    longest, parts = packed.longest, joined.unflatten(1, (3, heads, -1))
    windowed = window is not None and not covers(window, longest)
    without_kernel = joined.device.type == "cuda" and joined.dtype not in (torch.float16, torch.bfloat16)
    if not (windowed or dropout or without_kernel):
        query, key, value = parts.unbind(1)
        return varlen_attention(query, key, value, packed.boundaries, longest, scale)[0].flatten(1)
    starts, column = packed.boundaries[:-1, None].long(), torch.arange(longest, device=joined.device)
    padded = (column >= packed.boundaries.diff()[:, None]) & (column > 0)  # each row sees one cell, or is not a number
    cells = (starts + column.where(~padded, 0)).clamp(max=len(joined) - 1)
    query, key, value = parts[cells].permute(2, 0, 3, 1, 4)
    if window is not None and windowed:
        mixed = window_attention(query, key, value, padded, window, attend)
    else:
        mixed = attend(query, key, value, ~padded[:, None, None, :])
    row = torch.arange(len(joined), device=joined.device, dtype=torch.int32)
    sequence = torch.searchsorted(packed.boundaries[1:].contiguous(), row, right=True)
    return mixed.transpose(1, 2).flatten(2)[sequence, packed.position_ids]


class AttentionMatrices(NamedTuple):
    """What a block multiplies by, in the type of products; made once a forward pass, for all layers that share it.

    Query, key and value are joined, for one product in place of three. The parameters stay apart because LAMB adapts
    each by its own norm.
    """

    joined: Float[Tensor, "three_H H"]
    joined_bias: Float[Tensor, " three_H"]
    dense: Float[Tensor, "H H"]
    dense_bias: Float[Tensor, " H"]


class AttentionBlock(nn.Module):
    """Attention, its output map, and the LayerNorm of the sum with what came in (post-norm)."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.heads = config.num_attention_heads
        self.window = config.attention_window
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.dense = nn.Linear(width, width)
        self.layer_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.attention_dropout = Dropout(config.attention_probs_dropout_prob)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def matrices(self) -> AttentionMatrices:
        """As they are now."""
        maps = (self.query, self.key, self.value)
        return AttentionMatrices(
            to_matmul_dtype(torch.cat([part.weight for part in maps])),
            to_matmul_dtype(torch.cat([part.bias for part in maps])),
            to_matmul_dtype(self.dense.weight),
            to_matmul_dtype(self.dense.bias),
        )

    def forward(
        self, hidden: Float[Tensor, "rows H"], packed: PackedSequences, matrices: AttentionMatrices
    ) -> Float[Tensor, "rows H"]:
        """Let every token attend to the tokens of its own sequence; rows behind the tokens are spare ones."""
        joined = linear(hidden, matrices.joined, matrices.joined_bias)
        if packed.has_groups:
            mixed = [self._attend(*pair) for pair in zip(to_padded_blocks(joined, packed), packed.groups, strict=True)]
            run = from_padded_blocks(mixed, packed, len(hidden))
        else:
            scale, dropout = (hidden.shape[1] // self.heads) ** -0.5, self._dropout_now
            run = attend_by_boundaries(joined, packed, self.heads, self.window, scale, self._dense, dropout)
        return self.layer_norm(hidden + self.dropout(linear(run, matrices.dense, matrices.dense_bias)))

    def _attend(
        self, cells: Float[Tensor, "sequences length three_H"], group: AttentionGroup
    ) -> Float[Tensor, "sequences length H"]:
        query, key, value = cells.unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if self.window is not None and not covers(self.window, cells.shape[1]):
            mixed = window_attention(query, key, value, group.padded, self.window, self._dense)
        else:
            mixed = self._dense(query, key, value, None if group.padded is None else ~group.padded[:, None, None, :])
        return mixed.transpose(1, 2).flatten(2)

    @property
    def _dropout_now(self) -> float:
        return self.attention_dropout.p if self.training else 0.0

    def _dense(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        dropout = self._dropout_now
        if (
            query.device.type == "cpu" and not torch.compiler.is_compiling()
        ):  # the backward pass of torch's own kernel is slower there
            return plain_attention(query, key, value, mask, dropout)
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
