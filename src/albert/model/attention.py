"""Multi-head self-attention over packed sequences (paper §3.1; Vaswani et al., 2017, §3.2).

`AttentionBlock` is the module. Attention is `plain_attention` on a CPU and `varlen_attention`, a kernel for packed
sequences, on a GPU."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from albert.model.packing import AttentionGroup, PackedSequences, from_padded_blocks, to_padded_blocks
from albert.recipes.architecture import EncoderConfig
from albert.runtime.devices import Dropout, keep_mask, linear
from albert.runtime.environment import lazy_import

# --------------------------------------------------------------------------------------------------------------------
# Attention as matrix products with a handwritten backward pass: on a CPU faster than torch's fused kernel.
#
# A few heads are computed at a time, so that their scores stay in the cache. The softmax of bfloat16 scores is computed
# in float32. The operands and the probabilities are saved for the backward pass.

SCORES_AT_ONCE = 1 << 20
"""Maximum number of scores computed at a time; the scores of one head are not divided."""
LARGE_MATRIX = 1 << 17
"""Number of scores from which `_transposed_times` computes the transposed product."""


def plain_attention(
    query: Float[Tensor, "sequences heads rows head_size"],
    key: Float[Tensor, "sequences heads columns head_size"],
    value: Float[Tensor, "sequences heads columns head_size"],
    mask: Bool[Tensor, "sequences_or_one 1 rows_or_one columns"] | None,
    dropout: float = 0.0,
) -> Float[Tensor, "sequences heads rows head_size"]:
    """softmax(query keyᵀ / √head_size) value (Vaswani et al., 2017, §3.2.1).

    Args:
        query, key, value: contiguous or views.
        mask: true where a row attends to a column (each row has at least one); None: everywhere.
        dropout: probability of dropping an attention probability.
    """
    return _PlainAttention.apply(query, key, value, mask, dropout)


def heads_at_once(heads: int, rows: int, columns: int) -> int:
    """Number of heads whose scores are computed at a time: some of one sequence, or all of several sequences."""
    fitting = max(1, SCORES_AT_ONCE // (rows * columns))
    return fitting if fitting < heads else fitting - fitting % heads


class _PlainAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
        output = torch.empty_like(query)
        saved = []
        bias = None if mask is None else query.new_zeros(mask.shape).masked_fill_(~mask, float("-inf"))
        for part in _parts(query, key):
            q, k, v = (operand[part].contiguous() for operand in (query, key, value))
            probabilities = _probabilities(q, k, bias if bias is None or len(bias) == 1 else bias[part[0]])
            keep = keep_mask(probabilities, dropout) if dropout else None
            output[part] = _drop(probabilities, keep, dropout) @ v
            if any(ctx.needs_input_grad):
                saved += [probabilities, keep]
        ctx.dropout = dropout
        ctx.save_for_backward(query, key, value, *saved)
        return output

    @staticmethod
    @once_differentiable  # the saved probabilities are not part of the graph
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        (grad_output,) = gradients
        query, key, value, *saved = ctx.saved_tensors
        grad_query, grad_key, grad_value = (torch.empty_like(operand) for operand in (query, key, value))
        for part, probabilities, keep in zip(_parts(query, key), saved[::2], saved[1::2], strict=True):
            q, k, v, grad = (operand[part].contiguous() for operand in (query, key, value, grad_output))
            grad_value[part] = _transposed_times(_drop(probabilities, keep, ctx.dropout), grad)
            grad_probs = _drop(grad @ v.transpose(2, 3), keep, ctx.dropout)
            grad_scores = torch.ops.aten._softmax_backward_data(grad_probs, probabilities, -1, probabilities.dtype)
            grad_query[part] = grad_scores @ k * q.shape[-1] ** -0.5
            grad_key[part] = _transposed_times(grad_scores, q * q.shape[-1] ** -0.5)
        return grad_query, grad_key, grad_value, None, None


def _transposed_times(
    scores: Float[Tensor, "sequences heads rows columns"], vectors: Float[Tensor, "sequences heads rows head_size"]
) -> Float[Tensor, "sequences heads columns head_size"]:
    """scoresᵀ vectors; with a large transposed matrix on the left, torch is up to fifteen times slower."""
    if scores.shape[2] * scores.shape[3] >= LARGE_MATRIX:
        return (vectors.transpose(2, 3) @ scores).transpose(2, 3)
    return scores.transpose(2, 3) @ vectors


def _parts(query: Tensor, key: Tensor) -> list[tuple[slice, slice]]:
    """Slices of sequences and of heads that are computed at a time."""
    sequences, heads, rows, _ = query.shape
    matrices = heads_at_once(heads, rows, key.shape[2])
    n_sequences = max(1, matrices // heads)
    n_heads = min(matrices, heads)
    return [
        (slice(first, first + n_sequences), slice(head, head + n_heads))
        for first in range(0, sequences, n_sequences)
        for head in range(0, heads, n_heads)
    ]


def _probabilities(query: Tensor, key: Tensor, bias: Tensor | None) -> Tensor:
    scores = query * query.shape[-1] ** -0.5 @ key.transpose(2, 3)
    if bias is not None:
        scores += bias
    return scores.softmax(-1)  # of bfloat16 scores, torch computes it in float32 and rounds once


def _drop(probabilities: Tensor, keep: Tensor | None, dropout: float) -> Tensor:
    return probabilities if keep is None else probabilities * keep / (1 - dropout)


def to_matmul_dtype(weight: Tensor) -> Tensor:
    """Cast a weight to the dtype of matrix products: autocast's, or its own outside of autocast.

    Autocast caches its casts of parameters, but not of tensors computed from them, nor during the recomputation of
    activation checkpointing.
    """
    device_type = weight.device.type
    if device_type == "meta" or not torch.is_autocast_enabled(device_type):
        return weight
    return weight.to(torch.get_autocast_dtype(device_type))


# --------------------------------------------------------------------------------------------------------------------
# Attention of packed sequences by the limits of their sequences (cu_seqlens), on a GPU.
#
# A custom operation, so that it is one node of a compiled graph: FlashAttention of `torch.nn.attention.varlen` on a
# GPU, a loop over sequences on other devices (for tests). The kernel supports neither dropout nor float32; in these
# cases all sequences are padded on the device.

Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
"""Attention of queries [batch, heads, rows, head_size] to keys and values [batch, heads, columns, head_size], under a
mask broadcast to [batch, heads, rows, columns], true where a row attends to a column; None: everywhere."""

_KERNELS = "torch.nn.attention.varlen"
"""Module that registers the kernels. It is imported on use, because it imports torch's compiler."""


class AttentionKernel:
    """Whether this process may use the kernel; a run that finds it wrong on its GPU switches it off."""

    allowed: ClassVar[bool] = True


@torch.library.custom_op("albert::varlen_attention", mutates_args=())
def varlen_attention(
    query: Tensor, key: Tensor, value: Tensor, cu_seqlens: Tensor, max_seqlen: int, scale: float
) -> tuple[Tensor, Tensor]:
    """softmax(scale query keyᵀ) value within each sequence, and the log-sum-exp of the scores.

    Args:
        query, key, value: [rows heads head_size].
        cu_seqlens: int32 [sequences + 1], ascending from 0 to the number of rows; sequences may be empty.
        max_seqlen: an upper bound of the rows of a sequence.
        scale: factor of the scores.

    Returns:
        [rows heads head_size] and float32 [heads rows].
    """
    if query.device.type == "cuda":
        lazy_import(_KERNELS)
        output, normalizers, _ = torch.ops.torch_attn._varlen_attn(
            query, key, value, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, False, scale
        )
        return output.contiguous(), normalizers
    output = query.new_zeros(query.shape)
    normalizers = query.new_zeros((query.shape[1], len(query)), dtype=torch.float32)
    for rows in _sequence_rows(cu_seqlens):
        q, k, v = (operand[rows].transpose(0, 1) for operand in (query, key, value))
        scores = (q @ k.transpose(1, 2)).float() * scale
        normalizers[:, rows] = scores.logsumexp(-1)
        output[rows] = (scores.softmax(-1).to(v.dtype) @ v).transpose(0, 1)
    return output, normalizers


@torch.library.custom_op("albert::varlen_attention_backward", mutates_args=())
def varlen_attention_backward(
    grad_output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    normalizers: Tensor,
    cu_seqlens: Tensor,
    max_seqlen: int,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value."""
    if query.device.type == "cuda":
        unused = torch.zeros(2, dtype=torch.uint64, device=query.device)  # the state of dropout
        lazy_import(_KERNELS)
        gradients = torch.ops.torch_attn._varlen_attn_backward(
            grad_output.contiguous(), query, key, value, output, normalizers, cu_seqlens, cu_seqlens, max_seqlen,
            max_seqlen, False, unused, scale,
        )  # fmt: skip
        return tuple(gradient.contiguous() for gradient in gradients)
    grad_query, grad_key, grad_value = (query.new_zeros(query.shape) for _ in range(3))
    for rows in _sequence_rows(cu_seqlens):
        q, k, v, o, grad = (operand[rows].transpose(0, 1) for operand in (query, key, value, output, grad_output))
        probabilities = ((q @ k.transpose(1, 2)).float() * scale - normalizers[:, rows, None]).exp()
        grad_value[rows] = (probabilities.to(v.dtype).transpose(1, 2) @ grad).transpose(0, 1)
        mean_gradient = (grad.float() * o.float()).sum(-1, keepdim=True)
        grad_scores = (probabilities * ((grad @ v.transpose(1, 2)).float() - mean_gradient) * scale).to(q.dtype)
        grad_query[rows] = (grad_scores @ k).transpose(0, 1)
        grad_key[rows] = (grad_scores.transpose(1, 2) @ q).transpose(0, 1)
    return grad_query, grad_key, grad_value


def _sequence_rows(cu_seqlens: Tensor) -> list[slice]:
    return [slice(first, last) for first, last in pairwise(cu_seqlens.tolist()) if first < last]


@varlen_attention.register_fake
def _(query, key, value, cu_seqlens, max_seqlen, scale):  # type: ignore[no-untyped-def]
    return query.new_empty(query.shape), query.new_empty((query.shape[1], query.shape[0]), dtype=torch.float32)


@varlen_attention_backward.register_fake
def _(grad_output, query, key, value, output, normalizers, cu_seqlens, max_seqlen, scale):  # type: ignore[no-untyped-def]
    return query.new_empty(query.shape), query.new_empty(query.shape), query.new_empty(query.shape)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, cu_seqlens, ctx.max_seqlen, ctx.scale = inputs
    ctx.save_for_backward(query, key, value, *output, cu_seqlens)


def _backward(ctx: Any, grad_output: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return *varlen_attention_backward(grad_output, *ctx.saved_tensors, ctx.max_seqlen, ctx.scale), None, None, None


varlen_attention.register_autograd(_backward, setup_context=_setup_context)


def attend_varlen(
    qkv: Float[Tensor, "rows three_H"],
    packed: PackedSequences,
    heads: int,
    scale: float,
    attend: Attend,
    kernel: bool = True,
) -> Float[Tensor, "rows H"]:
    """Attention of every token to its own sequence, for a batch without groups.

    Args:
        qkv: queries, keys and values.
        scale: factor of the scores.
        attend: attention of padded sequences, with this scale, where the kernel cannot be used.
        kernel: whether it may be: it has no dropout and adds nothing to the scores.
    """
    max_seqlen = packed.max_seqlen
    parts = qkv.unflatten(1, (3, heads, -1))
    without_kernel = qkv.device.type == "cuda" and qkv.dtype not in (torch.float16, torch.bfloat16)
    if AttentionKernel.allowed and kernel and not without_kernel:
        query, key, value = parts.unbind(1)
        return varlen_attention(query, key, value, packed.cu_seqlens, max_seqlen, scale)[0].flatten(1)
    starts = packed.cu_seqlens[:-1, None].long()
    column = torch.arange(max_seqlen, device=qkv.device)
    padded = (column >= packed.cu_seqlens.diff()[:, None]) & (column > 0)  # a row without any column would be NaN
    cells = (starts + column.where(~padded, 0)).clamp(max=len(qkv) - 1)
    query, key, value = parts[cells].permute(2, 0, 3, 1, 4)
    output = attend(query, key, value, ~padded[:, None, None, :])
    row = torch.arange(len(qkv), device=qkv.device, dtype=torch.int32)
    sequence = torch.searchsorted(packed.cu_seqlens[1:].contiguous(), row, right=True)
    return output.transpose(1, 2).flatten(2)[sequence, packed.position_ids]


# --------------------------------------------------------------------------------------------------------------------
# What is added to the scores by the positions of two tokens.

PositionBias = Callable[[int], Tensor]
"""From a length to [heads, length, length]: added to the scores of a row (a query) and a column (a key)."""


def position_bias(config: EncoderConfig) -> nn.Module | None:
    """What every layer of an encoder adds to its scores (a `PositionBias`); None: nothing.

    In all families here positions are embeddings alone. For one whose attention knows distances (MPNet, T5) this is a
    module with its table; `albert.model.families` has the table's name in files, which is `encoder.position_bias.…`
    among ours.
    """
    return None


def biased(
    mask: Bool[Tensor, "sequences_or_one 1 rows_or_one columns"] | None, bias: Float[Tensor, "heads rows columns"]
) -> Float[Tensor, "... heads rows columns"]:
    """A mask for `scaled_dot_product_attention`: the bias, or minus infinity where a row does not attend."""
    return bias if mask is None else bias.masked_fill(~mask, float("-inf"))


class AttentionMatrices(NamedTuple):
    """Weights of an attention block in the matmul dtype, computed once per forward pass for all layers that share it.

    Query, key and value are one matrix, for a single product. They are separate parameters because LAMB adapts each
    by its own norm.
    """

    qkv: Float[Tensor, "three_H H"]
    qkv_bias: Float[Tensor, " three_H"]
    dense: Float[Tensor, "H H"]
    dense_bias: Float[Tensor, " H"]


class AttentionBlock(nn.Module):
    """Attention, output map, residual connection and LayerNorm (post-norm)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.heads = config.num_attention_heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.dense = nn.Linear(width, width)
        self.layer_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.attention_dropout = Dropout(config.attention_probs_dropout_prob)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def matrices(self) -> AttentionMatrices:
        """The current weights."""
        maps = (self.query, self.key, self.value)
        return AttentionMatrices(
            to_matmul_dtype(torch.cat([part.weight for part in maps])),
            to_matmul_dtype(torch.cat([part.bias for part in maps])),
            to_matmul_dtype(self.dense.weight),
            to_matmul_dtype(self.dense.bias),
        )

    def forward(
        self,
        hidden: Float[Tensor, "rows H"],
        packed: PackedSequences,
        matrices: AttentionMatrices,
        bias: PositionBias | None = None,
    ) -> Float[Tensor, "rows H"]:
        """Let every token attend to the tokens of its own sequence; rows after the tokens are padding rows."""
        qkv = linear(hidden, matrices.qkv, matrices.qkv_bias)
        attend = partial(self._of_padded, bias)
        if packed.has_groups:
            parts = zip(to_padded_blocks(qkv, packed), packed.groups, strict=True)
            blocks = [self._attend(cells, group, attend) for cells, group in parts]
            attended = from_padded_blocks(blocks, packed, len(hidden))
        else:
            scale = (hidden.shape[1] // self.heads) ** -0.5
            kernel = not self._dropout_now and bias is None
            attended = attend_varlen(qkv, packed, self.heads, scale, attend, kernel)
        return self.layer_norm(hidden + self.dropout(linear(attended, matrices.dense, matrices.dense_bias)))

    def _attend(
        self, cells: Float[Tensor, "sequences length three_H"], group: AttentionGroup, attend: Attend
    ) -> Float[Tensor, "sequences length H"]:
        query, key, value = cells.unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mask = None if group.padded is None else ~group.padded[:, None, None, :]
        output = attend(query, key, value, mask)
        return output.transpose(1, 2).flatten(2)

    @property
    def _dropout_now(self) -> float:
        return self.attention_dropout.p if self.training else 0.0

    def _of_padded(
        self, bias: PositionBias | None, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
    ) -> Tensor:
        dropout = self._dropout_now
        if bias is not None:  # by torch, which has the gradient of what is added
            mask = biased(mask, bias(query.shape[2]).to(query.dtype))
        elif query.device.type == "cpu" and not torch.compiler.is_compiling():
            return plain_attention(query, key, value, mask, dropout)
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
