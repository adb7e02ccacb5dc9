"""Attention as plain products, with its gradients written out: on a CPU faster than torch's fused kernel.

A few heads are done at a time, so that their scores stay in the processor's cache. The softmax of products in bfloat16
is computed in float32. Kept for the backward pass are the operands and the probabilities, these once.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

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
            stays = torch.empty_like(probabilities, dtype=torch.bool).bernoulli_(1 - dropout) if dropout else None
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
