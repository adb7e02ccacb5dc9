"""Attention in a window, for long sequences: each token sees its neighbours and [CLS], and [CLS] sees everything.

One of the ways beyond dense attention that the paper's discussion names (Lan et al. 2019, §5). The pattern is that of
Longformer (Beltagy et al. 2020, §3.1) with [CLS] as the only global token and without projections of its own: no
parameter is added, and where the window covers the sequence it is dense attention. Work and memory grow with
length × window in place of length².

The tokens behind [CLS] are cut into blocks of the window's size. A block attends to [CLS], to itself and to the block
on either side, as if it were a short sequence of its own: the products, their precision and their dropout are those of
dense attention, and a mask cuts what a block sees to the window.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor
from torch.nn import functional

from albert.model.attention_pattern import attends_at_once, block_size, covers, n_blocks

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
    if attends_at_once(length, window):
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
