"""Attention without a backward pass, over the rectangles of a packed batch, by whichever kernel is faster."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from albert.model.attention_pattern import covers
from albert.model.packed_sequences import AttentionGroup, PackedSequences
from albert.model.rectangles import from_rectangles, to_rectangles
from albert.model.window_attention import window_attention

SCORES_AT_ONCE = 1 << 20
"""Most scores that are computed at a time, so that they stay in the cache; those of one sequence are not divided."""


def attend(
    joined: Float[Tensor, "tokens three_H"], packed: PackedSequences, heads: int, window: int | None
) -> Float[Tensor, "tokens H"]:
    """What every token makes of its own sequence.

    Args:
        joined: queries, divided by the root of their width already, keys and values.
        packed: the batch.
        heads: attention heads.
        window: tokens to either side that one sees; None: all.
    """
    mixed = [
        _attend_group(cells, group, heads, window)
        for cells, group in zip(to_rectangles(joined, packed), packed.groups, strict=True)
    ]
    return from_rectangles(mixed, packed, packed.n_tokens)


def _attend_group(
    cells: Float[Tensor, "sequences length three_H"], group: AttentionGroup, heads: int, window: int | None
) -> Float[Tensor, "sequences length H"]:
    query, key, value = cells.unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
    if window is not None and not covers(window, cells.shape[1]):
        mixed = window_attention(query, key, value, group.padded, window, dense_attention)
    else:
        there = None if group.padded is None else ~group.padded[:, None, None, :]
        mixed = dense_attention(query, key, value, there)
    return mixed.transpose(1, 2).flatten(2)


def dense_attention(
    query: Float[Tensor, "sequences heads rows head_size"],
    key: Float[Tensor, "sequences heads columns head_size"],
    value: Float[Tensor, "sequences heads columns head_size"],
    mask: Bool[Tensor, "sequences_or_one 1 rows_or_one columns"] | None,
) -> Float[Tensor, "sequences heads rows head_size"]:
    """softmax(query keyᵀ) value; the mask is true where a row sees a column.

    torch's own kernel, except for bfloat16 on CPUs, where two products and a softmax (in float32 inside) take less
    time at all lengths.
    """
    if query.device.type != "cpu" or query.dtype != torch.bfloat16:
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=1.0)
    sequences, heads, rows, _ = query.shape
    together = max(1, SCORES_AT_ONCE // (heads * rows * key.shape[2]))
    hidden = None if mask is None else query.new_zeros(mask.shape).masked_fill_(~mask, float("-inf"))
    if sequences <= together:
        return _plain(query, key, value, hidden)
    mixed = torch.empty_like(query)
    for first in range(0, sequences, together):
        part = slice(first, first + together)
        of_part = hidden if hidden is None or len(hidden) == 1 else hidden[part]
        mixed[part] = _plain(query[part], key[part], value[part], of_part)
    return mixed


def _plain(query: Tensor, key: Tensor, value: Tensor, hidden: Tensor | None) -> Tensor:
    scores = query @ key.transpose(2, 3)
    if hidden is not None:
        scores += hidden
    return scores.softmax(-1) @ value
