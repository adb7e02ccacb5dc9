"""The encoder for inference: attention over padded blocks, and `FastEncoder`, which replaces a trained encoder."""

from collections.abc import Callable, Iterator
from copy import copy, deepcopy
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from albert.inference.linears import (
    FixedInt8Linear,
    InferencePrecision,
    Int8Linear,
    PlainLinear,
    WatchedLinear,
    make_linear,
)
from albert.model.attention import AttentionBlock, PositionBias, attend_varlen, biased
from albert.model.encoder import Encoder, FeedForwardBlock, InputScale, LayerScales
from albert.model.packing import AttentionGroup, PackedSequences, from_padded_blocks, pad_rows, to_padded_blocks
from albert.runtime.devices import multiplies_bf16

# --------------------------------------------------------------------------------------------------------------------
# Attention without a backward pass, over the padded blocks of a packed batch, by torch's own kernel: it compiles
# nothing per shape, where products by oneDNN keep up to 1 MB for each number and length of sequences.


def attend(
    qkv: Float[Tensor, "tokens three_H"], packed: PackedSequences, heads: int, bias: PositionBias | None = None
) -> Float[Tensor, "tokens H"]:
    """Attention of every token within its own sequence; the queries in `qkv` are already scaled."""
    if not packed.has_groups:
        return attend_varlen(qkv, packed, heads, 1.0, partial(dense_attention, bias=bias), kernel=bias is None)
    if packed.has_equal_lengths:
        cells = qkv.view(packed.n_sequences, packed.lengths[0], qkv.shape[1])
        return _attend_group(cells, packed.groups[0], heads, bias).flatten(0, 1)
    if qkv.dtype == torch.float32:
        return _attend_by_length(qkv, packed, heads, bias)
    mixed = [
        _attend_group(cells, group, heads, bias)
        for cells, group in zip(to_padded_blocks(qkv, packed), packed.groups, strict=True)
    ]
    return from_padded_blocks(mixed, packed, packed.n_tokens)


def _attend_by_length(
    qkv: Float[Tensor, "tokens three_H"], packed: PackedSequences, heads: int, bias: PositionBias | None
) -> Float[Tensor, "tokens H"]:
    """Attention of equally long sequences together, as views of the tokens: nothing is padded, gathered or put back.

    The sequences of a batch are sorted by length, so that there are few lengths.
    """
    mixed = []
    first = 0
    for length, sequences in packed.adjacent_lengths:
        tokens = qkv[first : first + sequences * length]
        parts = tokens.view(sequences, length, 3, heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind()
        mixed.append(dense_attention(query, key, value, None, bias).transpose(1, 2).reshape(len(tokens), -1))
        first += len(tokens)
    return torch.cat(mixed)


def _attend_group(
    cells: Float[Tensor, "sequences length three_H"], group: AttentionGroup, heads: int, bias: PositionBias | None
) -> Float[Tensor, "sequences length H"]:
    sequences, length, width = cells.shape
    qkv = cells.view(sequences, length, 3, heads, width // (3 * heads))
    query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind()
    mask = None if group.padded is None else ~group.padded[:, None, None, :]
    mixed = dense_attention(query, key, value, mask, bias)
    return mixed.transpose(1, 2).flatten(2)


def dense_attention(
    query: Float[Tensor, "sequences heads rows head_size"],
    key: Float[Tensor, "sequences heads columns head_size"],
    value: Float[Tensor, "sequences heads columns head_size"],
    mask: Bool[Tensor, "sequences_or_one 1 rows_or_one columns"] | None,
    bias: PositionBias | None = None,
) -> Float[Tensor, "sequences heads rows head_size"]:
    """softmax(query keyᵀ + bias) value; the mask is true where a row attends to a column."""
    if bias is not None:
        mask = biased(mask, bias(query.shape[2]).to(query.dtype))
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=1.0)


# --------------------------------------------------------------------------------------------------------------------
# The encoder for inference: weights are prepared once, and nothing is kept for gradients.
#
# ALBERT applies the same few matrices L times. Query, key and value are one matrix, cast and prepacked when the
# model is opened; in int8 those of ALBERT-base take 7 MB, which stays in the cache from layer to layer. Hidden states
# are bfloat16 at bf16 and float32 otherwise; LayerNorm and softmax are computed in float32.


Watch = Callable[[int, str, Tensor], Tensor]
"""Given the number of an application, the name of a product (a field of `LayerScales`) and its inputs: inputs."""


class FastEncoder(nn.Module):
    """Replacement for a trained encoder: the same methods, shapes and, in fp32, the same numbers to 1e-5.

    Inputs and outputs are float32. `attentions` and `feed_forwards` are the blocks of the encoder; their
    weights must not change any more, because those that are prepared may be copies. In int8 a product whose inputs
    have no scale in `input_scales` gives each row its own.

    Args:
        watch: sees, and may change, the inputs of every product.
    """

    def __init__(self, encoder: Encoder, precision: InferencePrecision = "fp32", watch: Watch | None = None) -> None:
        super().__init__()
        self.plan = encoder.plan
        self.precision: InferencePrecision = precision
        self.input_scales = encoder.input_scales
        self.position_bias = encoder.position_bias
        self.attentions = encoder.attentions
        self.feed_forwards = encoder.feed_forwards
        self._watch = watch
        self._prepare(next(encoder.parameters()).device)

    def _prepare(self, device: torch.device) -> None:
        """Cast, join and prepack the weights, once for all applications of a block."""
        precision = self.precision
        self._states = torch.bfloat16 if precision == "bf16" else torch.float32
        with torch.inference_mode(), torch.autocast(device.type, enabled=False):
            self._attentions = [
                _FastAttention(cast(AttentionBlock, block), precision, self._states, self.position_bias)
                for block in self.attentions
            ]
            self._feed_forwards = [
                _FastFeedForward(cast(FeedForwardBlock, block), precision, self._states) for block in self.feed_forwards
            ]
        scales = (self.input_scales or ())[: len(self.plan)] if precision == "int8" else ()
        self._calibrated = [self._application(number).with_scales(own) for number, own in enumerate(scales)]

    def _application(self, number: int) -> "_FastLayer":
        application = self.plan[number]
        layer = _FastLayer(self._attentions[application.attention], self._feed_forwards[application.feed_forward])
        return layer if self._watch is None else layer.watched(partial(self._watch, number))

    def __deepcopy__(self, memo: dict[int, Any]) -> "FastEncoder":
        """A copy with weights of its own, which are prepared again: those of oneDNN cannot be copied."""
        copied = FastEncoder.__new__(FastEncoder)
        memo[id(self)] = copied
        nn.Module.__init__(copied)
        copied.plan = self.plan
        copied.precision = self.precision
        copied.input_scales = self.input_scales
        copied.position_bias = deepcopy(self.position_bias, memo)
        copied.attentions = deepcopy(self.attentions, memo)
        copied.feed_forwards = deepcopy(self.feed_forwards, memo)
        copied._watch = self._watch
        copied._prepare(next(copied.parameters()).device)
        return copied.train(self.training)

    def forward(self, hidden: Float[Tensor, "tokens H"], packed: PackedSequences) -> Float[Tensor, "tokens H"]:
        with torch.inference_mode():
            rows = self._padded(hidden)
            for number in range(len(self.plan)):
                rows = self._layer(number, rows, packed)
            return rows[: len(hidden)].float()

    def each_layer(
        self, hidden: Float[Tensor, "tokens H"], packed: PackedSequences
    ) -> Iterator[Float[Tensor, "tokens H"]]:
        """Yield the output of every layer; see `Encoder.each_layer`."""
        tokens = len(hidden)
        with torch.inference_mode():
            rows = self._padded(hidden)
        for number in range(len(self.plan)):
            with torch.inference_mode():
                rows = self._layer(number, rows, packed)
                output = rows[:tokens].float()
            yield output

    def _padded(self, hidden: Tensor) -> Tensor:
        """The states, with rows of zeros where a kernel is compiled for each number of rows."""
        rows = hidden.to(self._states)
        return pad_rows(rows) if self._feed_forwards[0].compiles_shapes else rows

    def _layer(self, number: int, hidden: Tensor, packed: PackedSequences) -> Tensor:
        layer = self._calibrated[number] if number < len(self._calibrated) else self._application(number)
        return layer.feed_forward(layer.attention(hidden, packed))


class _FastAttention:
    def __init__(
        self, block: AttentionBlock, precision: InferencePrecision, states: torch.dtype, bias: PositionBias | None
    ) -> None:
        self._heads = block.heads
        self._bias = bias
        self._norm = _norm_of(block.layer_norm, states)
        matrices = block.matrices()
        width = block.query.out_features
        # The scale 1 / √(head size) of the scores is folded into the queries' weights.
        divisors = torch.ones_like(matrices.qkv_bias)
        divisors[:width] = (width // block.heads) ** -0.5
        products = torch.bfloat16 if precision == "int8" and multiplies_bf16(divisors.device) else states
        weight = matrices.qkv * divisors[:, None]
        self.qkv = make_linear(weight, matrices.qkv_bias * divisors, precision, products)
        self.dense = make_linear(matrices.dense, matrices.dense_bias, precision, states)

    def __call__(self, hidden: Tensor, packed: PackedSequences) -> Tensor:
        tokens = len(packed.token_ids)
        mixed = attend(self.qkv(hidden)[:tokens], packed, self._heads, self._bias)
        if len(hidden) > tokens:
            mixed = pad_rows(mixed)
        return self._norm(self.dense.with_residual(mixed, hidden))


def _norm_of(layer_norm: nn.LayerNorm, states: torch.dtype) -> Callable[[Tensor], Tensor]:
    """The normalisation with a copy of its weights, without the calls of a module.

    On a CPU the weights stay in float32; a GPU's kernel needs those of the states' dtype.
    """
    shape = tuple(layer_norm.normalized_shape)
    epsilon = layer_norm.eps
    dtype = torch.float32 if layer_norm.weight.device.type == "cpu" else states
    weight = layer_norm.weight.detach().to(dtype, copy=True)
    bias = layer_norm.bias.detach().to(dtype, copy=True)
    return lambda rows: torch.layer_norm(rows, shape, weight, bias, epsilon)


class _FastFeedForward:
    def __init__(self, block: FeedForwardBlock, precision: InferencePrecision, states: torch.dtype) -> None:
        self._norm = _norm_of(block.layer_norm, states)
        first = block.intermediate
        second = block.output
        self.intermediate = make_linear(first.weight, first.bias, precision, states, block.activation)
        self.output = make_linear(second.weight, second.bias, precision, states)
        self.compiles_shapes = self.output.compiles_shapes

    def __call__(self, hidden: Tensor) -> Tensor:
        return self._norm(self.output.with_residual(self.intermediate.with_activation(hidden), hidden))


class _FastLayer(NamedTuple):
    """An application of a layer."""

    attention: _FastAttention
    feed_forward: _FastFeedForward

    def with_scales(self, scales: LayerScales) -> "_FastLayer":
        """The layer whose products have fixed scales where there is one."""

        def fixed(name: str, linear: PlainLinear) -> PlainLinear:
            own: InputScale | None = getattr(scales, name)
            outputs = scales.output if name == "intermediate" else None
            return linear if own is None else FixedInt8Linear(cast(Int8Linear, linear), own, outputs)

        return self._changed(fixed)

    def watched(self, watch: Callable[[str, Tensor], Tensor]) -> "_FastLayer":
        """The layer whose products take their inputs from a function."""
        return self._changed(lambda name, linear: WatchedLinear(linear, partial(watch, name)))

    def _changed(self, change: Callable[[str, PlainLinear], PlainLinear]) -> "_FastLayer":
        attention = copy(self.attention)
        feed_forward = copy(self.feed_forward)
        attention.qkv = change("qkv", attention.qkv)
        attention.dense = change("dense", attention.dense)
        feed_forward.intermediate = change("intermediate", feed_forward.intermediate)
        feed_forward.output = change("output", feed_forward.output)
        return _FastLayer(attention, feed_forward)
