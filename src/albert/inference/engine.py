"""The inference engine: packed batches, a fast encoder and attention, prepacked and int8 matrices, precision."""

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from copy import deepcopy
from functools import cache, partial
from typing import Any, Literal, TypeVar, cast, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int8, UInt8
from torch import Tensor, nn
from torch.nn import functional

from albert.model.albert import PreTrainingLogits, output_rows
from albert.model.attention import AttentionBlock, attend_by_boundaries
from albert.model.encoder import Encoder, FeedForwardBlock
from albert.model.packing import AttentionGroup, PackedSequences, from_padded_blocks, pack, pad_rows, to_padded_blocks
from albert.runtime.devices import (
    default_precision,
    in_one_thread,
    multiplies_bf16,
    multiplies_faster_by_mkl,
    multiplies_int8,
    parallel_map,
    slower_in_int8,
)
from albert.runtime.errors import InvalidConfiguration, Unavailable, did_you_mean

_logger = logging.getLogger(__name__)

# --------------------------------------------------------------------------------------------------------------------
# Attention without a backward pass, over the padded blocks of a packed batch, by torch's own kernel: it compiles
# nothing per shape, where products by oneDNN keep up to 1 MB for each number and length of sequences.


def attend(joined: Float[Tensor, "tokens three_H"], packed: PackedSequences, heads: int) -> Float[Tensor, "tokens H"]:
    """Attention of every token within its own sequence; the queries in `joined` are already scaled."""
    if not packed.has_groups:
        return attend_by_boundaries(joined, packed, heads, 1.0, dense_attention)
    if packed.has_equal_lengths:
        cells = joined.view(packed.n_sequences, packed.lengths[0], joined.shape[1])
        return _attend_group(cells, packed.groups[0], heads).flatten(0, 1)
    if joined.dtype == torch.float32:
        return _attend_by_length(joined, packed, heads)
    mixed = [
        _attend_group(cells, group, heads)
        for cells, group in zip(to_padded_blocks(joined, packed), packed.groups, strict=True)
    ]
    return from_padded_blocks(mixed, packed, packed.n_tokens)


def _attend_by_length(
    joined: Float[Tensor, "tokens three_H"], packed: PackedSequences, heads: int
) -> Float[Tensor, "tokens H"]:
    """Attention of equally long sequences together, as views of the tokens: nothing is padded, gathered or put back.

    The sequences of a batch are sorted by length, so that there are few lengths.
    """
    mixed = []
    first = 0
    for length, sequences in packed.adjacent_lengths:
        tokens = joined[first : first + sequences * length]
        parts = tokens.view(sequences, length, 3, heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind()
        mixed.append(dense_attention(query, key, value, None).transpose(1, 2).reshape(len(tokens), -1))
        first += len(tokens)
    return torch.cat(mixed)


def _attend_group(
    cells: Float[Tensor, "sequences length three_H"], group: AttentionGroup, heads: int
) -> Float[Tensor, "sequences length H"]:
    sequences, length, width = cells.shape
    joined = cells.view(sequences, length, 3, heads, width // (3 * heads))
    query, key, value = joined.permute(2, 0, 3, 1, 4).unbind()
    mask = None if group.padded is None else ~group.padded[:, None, None, :]
    mixed = dense_attention(query, key, value, mask)
    return mixed.transpose(1, 2).flatten(2)


def dense_attention(
    query: Float[Tensor, "sequences heads rows head_size"],
    key: Float[Tensor, "sequences heads columns head_size"],
    value: Float[Tensor, "sequences heads columns head_size"],
    mask: Bool[Tensor, "sequences_or_one 1 rows_or_one columns"] | None,
) -> Float[Tensor, "sequences heads rows head_size"]:
    """softmax(query keyᵀ) value; the mask is true where a row attends to a column."""
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=1.0)


# --------------------------------------------------------------------------------------------------------------------
# Weights as 8-bit integers, one scale per output channel, symmetric around zero.

INT8_MAX = 127  # −128 is not used, so that a weight and its negative are represented equally well
_SCALE_BITS = 16
"""Significant bits of a scale: with the 7 of a value they fit a float32, so that a value times its scale is exact."""


MIN_DIMENSION = 16


def is_worth_quantizing(weight: Tensor) -> bool:
    """Return whether a tensor is a matrix of 16 rows and columns or more: small ones save nothing and matter most."""
    return weight.ndim == 2 and min(weight.shape) >= MIN_DIMENSION


def quantize_matrix(
    weight: Float32[Tensor, "outputs inputs"],
) -> tuple[Int8[Tensor, "outputs inputs"], Float32[Tensor, " outputs"]]:
    """Integers in −127…127 and the scale of each row: `values * scales[:, None]` is approximately the weight.

    The largest of each row becomes ±127. Quantising `values * scales[:, None]` gives exactly these values and scales
    again, so a file of either form opens to the same model. A row of zeros has scale 1, and so has one whose scale
    would not be a normal number.
    """
    largest = weight.abs().amax(dim=1)
    mantissa, exponent = torch.frexp(largest / INT8_MAX)
    scales = torch.ldexp((mantissa * 2**_SCALE_BITS).ceil() / 2**_SCALE_BITS, exponent)
    scales = torch.where(largest > 2 * INT8_MAX * torch.finfo(torch.float32).tiny, scales, torch.ones_like(scales))
    return (weight / scales[:, None]).round().clamp(-INT8_MAX, INT8_MAX).to(torch.int8), scales


# --------------------------------------------------------------------------------------------------------------------
# Precision of inference, and what this machine supports.

InferencePrecision = Literal["fp32", "bf16", "int8"]
PrecisionChoice = Literal["auto", "fp32", "bf16", "int8"]


def choose_precision(precision: PrecisionChoice, device: torch.device) -> InferencePrecision:
    """Resolve "auto": fp32 on a CPU, and bf16 on a GPU that multiplies it in hardware.

    Other precisions change scores: `albert evaluate --precision fp32 bf16 int8` shows by how much. Logs a warning, once
    per process, where int8 is slower than bf16.
    """
    choices = get_args(PrecisionChoice)
    if precision not in choices:
        raise InvalidConfiguration("precision", f"{precision!r} is not a choice", did_you_mean(str(precision), choices))
    if precision == "int8":
        check_int8(device)
        if slower_in_int8(device):
            _warn_slow_int8()
    return default_precision(device) if precision == "auto" else precision


@cache
def _warn_slow_int8() -> None:
    _logger.warning("albert: note: int8 is slower than bf16 on this processor, which has AMX: use --precision bf16")


def check_int8(device: torch.device) -> None:
    """Raises Unavailable where int8 products are not supported, or not exact.

    x86 without VNNI adds pairs of products in 16 bits, which overflow: it would be slower, and wrong.
    """
    if device.type != "cpu":
        raise Unavailable("precision int8", f"is made for CPUs, not for {device.type}", "use bf16, or --device cpu")
    if not torch.backends.mkldnn.is_available():
        raise Unavailable("precision int8", "needs oneDNN, which this build of torch lacks", "use bf16 or fp32")
    if not multiplies_int8(device):
        raise Unavailable("precision int8", "this processor has no instructions for it (VNNI, AMX)", "use fp32")


# --------------------------------------------------------------------------------------------------------------------
# Linear layers with weights prepared once: cast, prepacked for the processor's kernels, or as 8-bit integers.
#
# oneDNN reads weights in blocks that fit its registers; with a prepacked weight a product is up to a third faster than
# `functional.linear`, and elementwise operations that follow it (activation, residual) are fused.

_ZERO_POINT = 128  # The unsigned byte of 0: oneDNN is fast only for unsigned bytes times signed ones
_MIN_ABSOLUTE = 1e-30  # Lower bound on a row's largest absolute value, so that a row of zeros has a scale


class LinearMap:
    """A weight and a bias, applied to rows [tokens, inputs] of the encoder's dtype.

    This class uses `functional.linear`: for GPUs, and for builds of torch without oneDNN.
    """

    compiles_shapes = False
    """Whether a kernel is compiled, and kept, for each number of rows."""

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype, activation: nn.Module | None) -> None:
        self._weight = weight.to(dtype)
        self._bias = bias.to(dtype)
        self._activation = activation

    def __call__(self, rows: Float[Tensor, "tokens inputs"]) -> Float[Tensor, "tokens outputs"]:
        return functional.linear(rows, self._weight, self._bias)

    def with_activation(self, rows: Float[Tensor, "tokens inputs"]) -> Float[Tensor, "tokens outputs"]:
        assert self._activation is not None, "a map without an activation"
        return self._activation(self(rows))

    def with_residual(
        self, rows: Float[Tensor, "tokens inputs"], residual: Float[Tensor, "tokens outputs"]
    ) -> Float[Tensor, "tokens outputs"]:
        return self(rows) + residual


class MklMap(LinearMap):
    """MKL's product, and the activation in place after it; for few rows oneDNN's product with a prepacked weight.

    For processors with AVX2 but without AVX-512. oneDNN's product of few rows is faster there, that of many rows up to
    a tenth slower, and its GELU, which it computes with the product, takes six times as long as torch's. The times are
    in results/inference.md, "Few rows".
    """

    FEW_ROWS = 32

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype, activation: nn.Module | None) -> None:
        super().__init__(weight, bias, dtype, activation)
        self._prepacked = None
        if torch.backends.mkldnn.is_available():
            self._prepacked = torch.ops.mkldnn._reorder_linear_weight(self._weight.contiguous())
        self._approximation = getattr(activation, "approximate", "none")

    def __call__(self, rows: Tensor) -> Tensor:
        if len(rows) <= self.FEW_ROWS and self._prepacked is not None:
            return torch.ops.mkldnn._linear_pointwise(rows, self._prepacked, self._bias, "none", [], "")
        return functional.linear(rows, self._weight, self._bias)

    def with_activation(self, rows: Tensor) -> Tensor:
        assert self._activation is not None, "a map without an activation"
        product = self(rows)
        if isinstance(self._activation, nn.GELU):
            return torch.ops.aten.gelu_.default(product, approximate=self._approximation)
        return self._activation(product)

    def with_residual(self, rows: Tensor, residual: Tensor) -> Tensor:
        if len(rows) <= self.FEW_ROWS:
            return self(rows).add_(residual)
        return torch.add(residual, self._bias).addmm_(rows, self._weight.t())


class PrepackedMap(LinearMap):
    """oneDNN's linear layer with a prepacked weight."""

    compiles_shapes = True

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype, activation: nn.Module | None) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype).contiguous())
        self._bias = bias.to(dtype)
        self._attribute = "none"
        self._algorithm = ""
        if activation is not None:
            # oneDNN's names: gelu with "tanh" or "none", relu, tanh
            self._attribute = type(activation).__name__.lower()
            self._algorithm = getattr(activation, "approximate", "")

    def __call__(self, rows: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(rows, self._weight, self._bias, "none", [], "")

    def with_activation(self, rows: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(rows, self._weight, self._bias, self._attribute, [], self._algorithm)

    def with_residual(self, rows: Tensor, residual: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise.binary(rows, residual, self._weight, self._bias, "add")


class Int8Map(LinearMap):
    """8-bit products: weights with a scale per output, inputs quantised dynamically with a scale per row.

    Each row has its own scale, so a token's result does not depend on the rest of the batch. Inputs and outputs are
    float32, except for the output of `__call__`, which is `dtype`.
    """

    compiles_shapes = True

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype, activation: nn.Module | None) -> None:
        values, self._scales = quantize_matrix(weight.float())
        self._weight = torch.ops.onednn.qlinear_prepack(values, None)
        self._zeros = values.new_zeros(len(values), dtype=torch.int64)
        self._bias = bias.float()
        self._rounded_bias = bias.to(dtype)
        self._dtype = dtype
        # The tanh form is within 0.0005 of the exact one, below the resolution of int8, and takes three times as long.
        self._activation = nn.GELU() if isinstance(activation, nn.GELU) else activation

    def __call__(self, rows: Tensor) -> Tensor:
        product, steps = self._product(rows, self._dtype)
        return torch.addcmul(self._rounded_bias, product, steps.to(self._dtype))

    def with_activation(self, rows: Tensor) -> Tensor:
        assert self._activation is not None, "a map without an activation"
        product, steps = self._product(rows, torch.float32)
        return self._activation(torch.addcmul(self._bias, product, steps))

    def with_residual(self, rows: Tensor, residual: Tensor) -> Tensor:
        product, steps = self._product(rows, torch.float32)
        return torch.addcmul(self._bias, product, steps).add_(residual)

    def _product(self, rows: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        integers, steps = quantize_rows(rows)
        product = torch.ops.onednn.qlinear_pointwise(
            integers, 1.0, _ZERO_POINT, self._weight, self._scales, self._zeros, None, 1.0, 0, dtype, "none", [], ""
        )
        return product, steps


def quantize_rows(
    rows: Float[Tensor, "tokens inputs"],
) -> tuple[UInt8[Tensor, "tokens inputs"], Float[Tensor, "tokens 1"]]:
    """Each row as bytes with zero point 128, and its scale: `(bytes - 128) * steps` is approximately the row."""
    rows = rows.float()
    steps = rows.abs().amax(dim=1, keepdim=True).clamp_min_(_MIN_ABSOLUTE).div_(INT8_MAX)
    signed = (rows * steps.reciprocal()).round_().to(torch.int8)
    return signed.view(torch.uint8).bitwise_xor_(_ZERO_POINT), steps


def make_map(
    weight: Float[Tensor, "outputs inputs"],
    bias: Float[Tensor, " outputs"],
    precision: InferencePrecision,
    dtype: torch.dtype,
    activation: nn.Module | None = None,
) -> LinearMap:
    """The fastest linear map for the weight's device and this precision. It may share the weight and the bias."""
    if precision == "int8":
        return Int8Map(weight, bias, dtype, activation)
    if weight.device.type == "cpu" and dtype == torch.float32 and multiplies_faster_by_mkl():
        return MklMap(weight, bias, dtype, activation)
    has_prepacked = (
        weight.device.type == "cpu"
        and torch.backends.mkldnn.is_available()
        and (dtype != torch.bfloat16 or torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )
    if has_prepacked:
        return PrepackedMap(weight, bias, dtype, activation)
    return LinearMap(weight, bias, dtype, activation)


# --------------------------------------------------------------------------------------------------------------------
# The encoder for inference: weights are prepared once, and nothing is kept for gradients.
#
# ALBERT applies the same few matrices L times. They are joined (query, key and value), cast and prepacked when the
# model is opened; in int8 those of ALBERT-base take 7 MB, which stays in the cache from layer to layer. Hidden states
# are bfloat16 at bf16 and float32 otherwise; LayerNorm and softmax are computed in float32.


class FastEncoder(nn.Module):
    """Replacement for a trained encoder: the same methods, shapes and, in fp32, the same numbers to 1e-5.

    Inputs and outputs are float32. `attentions` and `feed_forwards` are the blocks of the encoder; their
    weights must not change any more, because those that are prepared may be copies.
    """

    def __init__(self, encoder: Encoder, precision: InferencePrecision = "fp32") -> None:
        super().__init__()
        device = next(encoder.parameters()).device
        if precision == "int8":
            check_int8(device)
        self.plan = encoder.plan
        self.precision: InferencePrecision = precision
        self.attentions = encoder.attentions
        self.feed_forwards = encoder.feed_forwards
        self._prepare(device)

    def _prepare(self, device: torch.device) -> None:
        """Cast, join and prepack the weights."""
        precision = self.precision
        self._states = torch.bfloat16 if precision == "bf16" else torch.float32
        with torch.inference_mode(), torch.autocast(device.type, enabled=False):
            self._attentions = [
                _FastAttention(cast(AttentionBlock, block), precision, self._states) for block in self.attentions
            ]
            self._feed_forwards = [
                _FastFeedForward(cast(FeedForwardBlock, block), precision, self._states) for block in self.feed_forwards
            ]

    def __deepcopy__(self, memo: dict[int, Any]) -> "FastEncoder":
        """A copy with weights of its own, which are prepared again: those of oneDNN cannot be copied."""
        copied = FastEncoder.__new__(FastEncoder)
        memo[id(self)] = copied
        nn.Module.__init__(copied)
        copied.plan = self.plan
        copied.precision = self.precision
        copied.attentions = deepcopy(self.attentions, memo)
        copied.feed_forwards = deepcopy(self.feed_forwards, memo)
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
        application = self.plan[number]
        return self._feed_forwards[application.feed_forward](self._attentions[application.attention](hidden, packed))


def use_fast_encoders(model: nn.Module, precision: InferencePrecision) -> None:
    """Replace every encoder in a model by a `FastEncoder`, unless it is one."""
    for part in list(model.modules()):
        for name, child in part.named_children():
            if isinstance(child, Encoder):
                setattr(part, name, FastEncoder(child, precision))


class _FastAttention:
    def __init__(self, block: AttentionBlock, precision: InferencePrecision, states: torch.dtype) -> None:
        self._heads = block.heads
        self._norm = _norm_of(block.layer_norm, states)
        joined = block.matrices()
        width = block.query.out_features
        # The scale 1 / √(head size) of the scores is folded into the queries' weights.
        divisors = torch.ones_like(joined.joined_bias)
        divisors[:width] = (width // block.heads) ** -0.5
        products = torch.bfloat16 if precision == "int8" and multiplies_bf16(divisors.device) else states
        self._joined = make_map(joined.joined * divisors[:, None], joined.joined_bias * divisors, precision, products)
        self._dense = make_map(joined.dense, joined.dense_bias, precision, states)

    def __call__(self, hidden: Tensor, packed: PackedSequences) -> Tensor:
        tokens = len(packed.token_ids)
        mixed = attend(self._joined(hidden)[:tokens], packed, self._heads)
        if len(hidden) > tokens:
            mixed = pad_rows(mixed)
        return self._norm(self._dense.with_residual(mixed, hidden))


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
        self._intermediate = make_map(
            block.intermediate.weight, block.intermediate.bias, precision, states, block.activation
        )
        self._output = make_map(block.output.weight, block.output.bias, precision, states)
        self.compiles_shapes = self._output.compiles_shapes

    def __call__(self, hidden: Tensor) -> Tensor:
        return self._norm(self._output.with_residual(self._intermediate.with_activation(hidden), hidden))


Result = TypeVar("Result")

_TOKENS_A_THREAD = 512  # Tokens per CPU thread and batch: a layer's results for so many stay in the cache
_MIN_TOKENS_PER_WORKER = 64
"""A batch with fewer tokens per worker is not divided among workers, but computed by torch's threads."""
_TOKENS_ON_A_GPU = 16384
_LOGIT_ROWS = 1024  # Rows of vocabulary logits that are computed at once: with 30,000 pieces they take 120 MB


def _no_op() -> None:
    """Default of `BETWEEN_BATCHES`, outside of a server."""


BETWEEN_BATCHES: ContextVar[Callable[[], None]] = ContextVar("between_batches", default=_no_op)
"""Called before each batch. A server sets it in its threads, to let others compute in between, or to stop by an
exception."""


class Autotuner:
    """Times two variants of a computation, and runs the one with the lower minimum over its last calls.

    A single text is computed fastest by all threads of torch on an idle machine, but by one thread if another program
    uses a core, because every operation waits for the slowest thread. The other variant is retried now and then.
    """

    RETRY_EVERY = 32  # calls of one size
    HISTORY = 3  # calls over which the minimum is taken

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._calls: Counter[int] = Counter()
        self._seconds: dict[tuple[int, int], tuple[float, ...]] = {}

    def run(self, size: int, *variants: Callable[[], Result]) -> Result:
        """The result of the variant that has been faster for about this size."""
        size = size.bit_length()
        number = self._calls[size]
        self._calls[size] += 1
        # Three calls of each variant at first: the first call for a size also compiles kernels, and does not count.
        choice = number // 3
        if number >= 6:
            choice = min((0, 1), key=lambda choice: min(self._seconds.get((size, choice), (math.inf,))))
            choice = 1 - choice if number % self.RETRY_EVERY == 0 else choice
        began = self._clock()
        result = variants[choice]()
        if number not in (0, 3):
            earlier = self._seconds.get((size, choice), ())
            self._seconds[size, choice] = (*earlier, self._clock() - began)[-self.HISTORY :]
        return result


class PackedModel:
    """A model in evaluation mode on its device, computed in packed micro-batches.

    Args:
        model: one of the model classes. It is moved to the device, and its encoder is replaced by a `FastEncoder`.
        micro_batch_tokens: approximate number of tokens per micro-batch; on a CPU, per worker (see
            `albert.runtime.devices`). None: a fast default for the device.
        precision: of the encoder's matrix products; heads compute in fp32.
    """

    def __init__(
        self,
        model: nn.Module,
        device: torch.device,
        micro_batch_tokens: int | None = None,
        precision: InferencePrecision = "fp32",
    ) -> None:
        self.model: Any = model.eval().to(device)
        use_fast_encoders(model, precision)
        default = _TOKENS_A_THREAD if device.type == "cpu" else _TOKENS_ON_A_GPU
        self.device = device
        self.micro_batch_tokens = micro_batch_tokens or default
        self._autotuner = Autotuner()

    def rows(self, token_ids: Sequence[np.ndarray], token_types: Sequence[np.ndarray]) -> list[Any]:
        """The head's output for each sequence, in input order (see `output_rows`)."""
        rows: list[Any] = [None] * len(token_ids)

        def compute(members: Sequence[int]) -> Sequence[Any]:
            packed = self.pack(token_ids, token_types, members)
            return output_rows(self.model(packed), packed.lengths)

        for members, outputs in self.compute(compute, [len(ids) for ids in token_ids]):
            for member, row in zip(members, outputs, strict=True):
                rows[member] = row
        return rows

    def at(
        self, token_ids: Sequence[np.ndarray], token_types: Sequence[np.ndarray], positions: Sequence[np.ndarray]
    ) -> Iterator[tuple[int, Tensor, Tensor | None]]:
        """Logits of a masked-token head at the given positions of each sequence.

        Vocabulary logits are large, so they are yielded as they are computed: the index of a sequence, its logits
        [positions, V], and those of its order [2] if there is a head for it.
        """

        def compute(members: Sequence[int]) -> tuple[Tensor, Tensor | None]:
            packed = self.pack(token_ids, token_types, members)
            starts = zip(members, packed.first_positions.tolist(), strict=True)
            shifted = torch.from_numpy(np.concatenate([positions[member] + start for member, start in starts]))
            logits = self.model(packed, shifted.to(self.device))
            if isinstance(logits, PreTrainingLogits):
                return logits.masked_tokens, logits.sentence_order
            return logits, None

        counts = [len(row) for row in positions]
        for members, (masked, order) in self.compute(compute, [len(ids) for ids in token_ids], counts):
            parts = masked.split([counts[member] for member in members])
            for row, (member, part) in enumerate(zip(members, parts, strict=True)):
                yield member, part, None if order is None else order[row]

    @property
    def _workers(self) -> int:
        return torch.get_num_threads() if self.device.type == "cpu" else 1

    def pack(
        self, token_ids: Sequence[np.ndarray], token_types: Sequence[np.ndarray], members: Sequence[int]
    ) -> PackedSequences:
        """Some of the sequences as a batch on the device."""
        packed = pack([token_ids[member] for member in members], [token_types[member] for member in members])
        return packed.to(self.device)

    def compute(
        self,
        compute: Callable[[Sequence[int]], Result],
        lengths: Sequence[int],
        logit_rows: Sequence[int] | None = None,
    ) -> Iterator[tuple[list[int], Result]]:
        """The members of each micro-batch and its result, for sequences (or groups of them) of these lengths in tokens;
        `logit_rows` counts their vocabulary logits.

        Batches are computed by one worker each, a single one with all threads of torch or with one. In a server, and
        where logits take memory, only as many are computed at a time as there are workers.
        """

        def run(members: list[int]) -> Result:
            with torch.inference_mode(), torch.autocast(self.device.type, enabled=False):
                return compute(members)

        batches = self._micro_batches(lengths, logit_rows)
        between = BETWEEN_BATCHES.get()
        together = len(batches) if between is _no_op and logit_rows is None else self._workers
        for first in range(0, len(batches), max(1, together)):
            between()
            group = batches[first : first + together]
            if len(group) != 1 or self._workers == 1:
                results = parallel_map(run, group)
            else:
                single = partial(run, group[0])
                tokens = sum(lengths[member] for member in group[0])
                results = [self._autotuner.run(tokens, single, partial(in_one_thread, single))]
            yield from zip(group, results, strict=True)

    def _micro_batches(self, lengths: Sequence[int], rows: Sequence[int] | None) -> list[list[int]]:
        """Indices of sequences of similar length, in batches of similar size for all workers."""
        total = sum(lengths)
        workers = self._workers
        count = -(-total // self.micro_batch_tokens)
        if total >= workers * _MIN_TOKENS_PER_WORKER:
            count = -(-count // workers) * workers
        batches: list[list[int]] = []
        tokens = 0
        logit_rows = 0
        for index in sorted(range(len(lengths)), key=lambda index: lengths[index]):
            own = rows[index] if rows is not None else 0
            logit_rows += own
            is_full = (2 * tokens + lengths[index]) * count >= 2 * len(batches) * total
            if not batches or is_full or logit_rows > _LOGIT_ROWS // workers:
                batches.append([])
                logit_rows = own
            batches[-1].append(index)
            tokens += lengths[index]
        return batches
