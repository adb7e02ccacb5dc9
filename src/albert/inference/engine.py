"""The inference engine: packed batches, a faster encoder and attention, prepared and int8 matrices, precision."""

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
from albert.model.attention import AttentionBlock, attend_by_boundaries, window_attention
from albert.model.config import covers
from albert.model.encoder import Encoder, FeedForwardBlock
from albert.model.packing import AttentionGroup, PackedSequences, from_rectangles, pack, to_rectangles, with_spare_rows
from albert.runtime.devices import (
    default_precision,
    in_one_thread,
    multiplies_bf16,
    multiplies_int8,
    share_out,
    slower_in_int8,
)
from albert.runtime.errors import InvalidConfiguration, Unavailable, did_you_mean

_logger = logging.getLogger(__name__)

# --------------------------------------------------------------------------------------------------------------------
# Attention without a backward pass, over the rectangles of a packed batch, by torch's own kernel: it compiles nothing
# for a shape, where products by oneDNN keep up to 1 MB for each number and length of sequences.


def attend(
    joined: Float[Tensor, "tokens three_H"], packed: PackedSequences, heads: int, window: int | None
) -> Float[Tensor, "tokens H"]:
    """What every token makes of its own sequence; the queries in `joined` are divided by the root of their width
    already."""
    if not packed.has_groups:
        return attend_by_boundaries(joined, packed, heads, window, 1.0, dense_attention)
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
    """softmax(query keyᵀ) value; the mask is true where a row sees a column."""
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=1.0)


# --------------------------------------------------------------------------------------------------------------------
# Weights as 8-bit integers, one scale for each output channel, symmetric around zero.

LARGEST = 127
"""−128 is left out, so that a weight and its negative are equally well told."""
_SCALE_BITS = 16
"""Significant bits of a scale: with the 7 of a value they fit a float32, so that a value times its scale is exact."""


def quantize_matrix(
    weight: Float32[Tensor, "outputs inputs"],
) -> tuple[Int8[Tensor, "outputs inputs"], Float32[Tensor, " outputs"]]:
    """Integers in −127…127 and the scale of each row: `values * scales[:, None]` is the weight, nearly.

    The largest of each row becomes ±127. What `values * scales[:, None]` gives has exactly these values and scales
    again, so a file of either form opens to the same model. A row of zeros has scale 1, and so has one whose scale
    would be no normal number.
    """
    largest = weight.abs().amax(dim=1)
    mantissa, exponent = torch.frexp(largest / LARGEST)
    scales = torch.ldexp((mantissa * 2**_SCALE_BITS).ceil() / 2**_SCALE_BITS, exponent)
    scales = torch.where(largest > 2 * LARGEST * torch.finfo(torch.float32).tiny, scales, torch.ones_like(scales))
    return (weight / scales[:, None]).round().clamp(-LARGEST, LARGEST).to(torch.int8), scales


# --------------------------------------------------------------------------------------------------------------------
# At which precision a trained model computes its answers, and which of them this machine is made for.

InferencePrecision = Literal["fp32", "bf16", "int8"]
PrecisionAsked = Literal["auto", "fp32", "bf16", "int8"]


def choose_precision(asked: PrecisionAsked, device: torch.device) -> InferencePrecision:
    """What was asked for; "auto" is bf16 where the device multiplies such numbers in hardware, else fp32.

    "auto" is never int8, which can move scores: `albert evaluate --precision fp32 int8` tells by how much. It logs
    a warning, once a process, where int8 is slower than bf16.

    Raises:
        InvalidConfiguration: there is no such precision.
        Unavailable: int8 where it cannot be had (see `check_int8`).
    """
    if asked not in (choices := get_args(PrecisionAsked)):
        raise InvalidConfiguration("precision", f"{asked!r} is not a choice", did_you_mean(str(asked), choices))
    if asked == "int8":
        check_int8(device)
        if slower_in_int8(device):
            _warn_of_slow_int8()
    if asked != "auto":
        return asked
    return default_precision(device)


@cache
def _warn_of_slow_int8() -> None:
    _logger.warning("albert: note: int8 is slower than bf16 on this processor, which has AMX: use --precision bf16")


def check_int8(device: torch.device) -> None:
    """Raises Unavailable where products of 8-bit integers are not computed, or not exactly.

    x86 without VNNI adds pairs of products in 16 bits, which overflow: it would be slower, and wrong.
    """
    if device.type != "cpu":
        raise Unavailable("precision int8", f"is made for CPUs, not for {device.type}", "use bf16, or --device cpu")
    if not torch.backends.mkldnn.is_available():
        raise Unavailable(
            "precision int8", "this build of torch has no oneDNN, which multiplies it", "use bf16 or fp32"
        )
    if not multiplies_int8(device):
        raise Unavailable("precision int8", "this processor has no instructions for it (VNNI, AMX)", "use fp32")


# --------------------------------------------------------------------------------------------------------------------
# Linear maps made once for many uses: cast, laid out as the processor's kernels read them, or as 8-bit integers.
#
# What it costs to prepare a weight is paid when a model is opened, and every layer that shares the weight gains.
# oneDNN reads weights in blocks that fit its registers; with them in that order a product is up to a third faster
# than one by `functional.linear`, and what follows it element by element (activation, residual) is computed while
# its result is still in the registers.

_FUSED: dict[tuple[type[nn.Module], str], tuple[str, str]] = {
    (nn.GELU, "tanh"): ("gelu", "tanh"),
    (nn.GELU, "none"): ("gelu", "none"),
    (nn.ReLU, ""): ("relu", ""),
    (nn.Tanh, ""): ("tanh", ""),
}
"""Activation, its approximation -> oneDNN's names of both."""
_ZERO = 128
"""What stands for 0 in unsigned bytes; oneDNN multiplies those by signed ones, and is slow for any other pair."""
_SMALLEST = 1e-30
"""Stands for the largest number of a row of zeros, which has no scale."""


class LinearMap:
    """A weight and a bias, applied to rows [tokens, inputs] of the type that the encoder's states have.

    Here by `functional.linear` in one type: for GPUs, and for builds of torch without oneDNN.
    """

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype, activation: nn.Module | None) -> None:
        self._weight, self._bias, self._activation = weight.to(dtype), bias.to(dtype), activation

    def __call__(self, rows: Float[Tensor, "tokens inputs"]) -> Float[Tensor, "tokens outputs"]:
        """The product and the bias."""
        return functional.linear(rows, self._weight, self._bias)

    def activated(self, rows: Float[Tensor, "tokens inputs"]) -> Float[Tensor, "tokens outputs"]:
        """Then the activation."""
        assert self._activation is not None, "a map without an activation"
        return self._activation(self(rows))

    def added(
        self, rows: Float[Tensor, "tokens inputs"], residual: Float[Tensor, "tokens outputs"]
    ) -> Float[Tensor, "tokens outputs"]:
        """The product and the bias, and what went past them."""
        return self(rows) + residual


class PrepackedMap(LinearMap):
    """A product of oneDNN with its weight in blocks."""

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype, activation: nn.Module | None) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype).contiguous())
        self._bias = bias.to(dtype)
        self._attribute, self._algorithm = "none", ""
        if activation is not None:
            self._attribute, self._algorithm = _FUSED[type(activation), getattr(activation, "approximate", "")]

    def __call__(self, rows: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(rows, self._weight, self._bias, "none", [], "")

    def activated(self, rows: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(rows, self._weight, self._bias, self._attribute, [], self._algorithm)

    def added(self, rows: Tensor, residual: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise.binary(rows, residual, self._weight, self._bias, "add")


class Int8Map(LinearMap):
    """Products of 8-bit integers: weights with a scale for each output, rows with one for each, taken from themselves.

    A row's scale is its own, so what a token becomes depends on nothing else in the batch. Rows come and go in float32
    (`dtype` is what `__call__` gives).
    """

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype, activation: nn.Module | None) -> None:
        values, self._scales = quantize_matrix(weight.float())
        self._weight = torch.ops.onednn.qlinear_prepack(values, None)
        self._zeros = torch.zeros(len(values), dtype=torch.int64)
        self._bias, self._rounded_bias, self._dtype = bias.float(), bias.to(dtype), dtype
        # The tanh form lies within 0.0005 of the exact one, a fraction of a step of what is made of it; torch takes
        # three times as long for it.
        is_gelu = isinstance(activation, nn.GELU)
        self._activation = nn.GELU() if is_gelu else activation

    def __call__(self, rows: Tensor) -> Tensor:
        product, steps = self._product(rows, self._dtype)
        return torch.addcmul(self._rounded_bias, product, steps.to(self._dtype))

    def activated(self, rows: Tensor) -> Tensor:
        assert self._activation is not None, "a map without an activation"
        product, steps = self._product(rows, torch.float32)
        return self._activation(torch.addcmul(self._bias, product, steps))

    def added(self, rows: Tensor, residual: Tensor) -> Tensor:
        product, steps = self._product(rows, torch.float32)
        return torch.addcmul(self._bias, product, steps).add_(residual)

    def _product(self, rows: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        integers, steps = quantize_rows(rows)
        product = torch.ops.onednn.qlinear_pointwise(
            integers, 1.0, _ZERO, self._weight, self._scales, self._zeros, None, 1.0, 0, dtype, "none", [], ""
        )
        return product, steps


def quantize_rows(
    rows: Float[Tensor, "tokens inputs"],
) -> tuple[UInt8[Tensor, "tokens inputs"], Float[Tensor, "tokens 1"]]:
    """Each row as bytes around 128, and what a step of them is worth: `(bytes - 128) * steps` is the row, nearly."""
    rows = rows.float()
    steps = rows.abs().amax(dim=1, keepdim=True).clamp_min_(_SMALLEST).div_(LARGEST)
    signed = (rows * steps.reciprocal()).round_().to(torch.int8)
    return signed.view(torch.uint8).bitwise_xor_(_ZERO), steps


def make_map(
    weight: Float[Tensor, "outputs inputs"],
    bias: Float[Tensor, " outputs"],
    precision: InferencePrecision,
    dtype: torch.dtype,
    activation: nn.Module | None = None,
) -> LinearMap:
    """The fastest form of a linear map on the device that it is on; weight and bias are copied.

    Args:
        precision: of its products.
        dtype: of what `__call__` gives.
        activation: what `activated` applies.
    """
    if precision == "int8":
        return Int8Map(weight, bias, dtype, activation)
    has_prepacked = (
        weight.device.type == "cpu"
        and torch.backends.mkldnn.is_available()
        and (dtype != torch.bfloat16 or torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )
    return (PrepackedMap if has_prepacked else LinearMap)(weight, bias, dtype, activation)


# --------------------------------------------------------------------------------------------------------------------
# The encoder for answers alone: what its layers multiply by is prepared once, and nothing is kept for gradients.
#
# ALBERT applies the same few matrices L times. They are joined (query, key and value), cast and laid out for the
# processor when the model is opened; in int8 those of ALBERT-base take 7 MB, which stays in the cache from layer to
# layer. States between layers are bfloat16 at bf16 and float32 else; LayerNorm and softmax count in float32
# throughout.


class FastEncoder(nn.Module):
    """A trained encoder's layers, in its place: the same methods, shapes and, in fp32, the same numbers to 1e-5.

    States go in and come out in float32.

    Args:
        encoder: on the device where it will compute.
        precision: of matrix products.

    Attributes:
        plan: which blocks each layer applies (see `sharing_plan`).
        attentions, feed_forwards: the blocks of the encoder, for who looks into them; what was prepared from their
            weights stays as it is when these change.
        precision: as asked for.

    Raises:
        Unavailable: int8 where it cannot be had.
    """

    def __init__(self, encoder: Encoder, precision: InferencePrecision = "fp32") -> None:
        super().__init__()
        device = next(encoder.parameters()).device
        if precision == "int8":
            check_int8(device)
        self.plan, self.precision = encoder.plan, precision
        self.attentions, self.feed_forwards = encoder.attentions, encoder.feed_forwards
        self._states = torch.bfloat16 if precision == "bf16" else torch.float32
        with torch.inference_mode():
            attentions = [cast(AttentionBlock, block) for block in encoder.attentions]
            feed_forwards = [cast(FeedForwardBlock, block) for block in encoder.feed_forwards]
            self._attentions = [_FastAttention(block, precision, self._states) for block in attentions]
            self._feed_forwards = [_FastFeedForward(block, precision, self._states) for block in feed_forwards]

    def forward(self, hidden: Float[Tensor, "tokens H"], packed: PackedSequences) -> Float[Tensor, "tokens H"]:
        with torch.inference_mode():
            rows = with_spare_rows(hidden.to(self._states))
            for number in range(len(self.plan)):
                rows = self._layer(number, rows, packed)
            return rows[: len(hidden)].float()

    def hidden_states(
        self, hidden: Float[Tensor, "tokens H"], packed: PackedSequences
    ) -> list[Float[Tensor, "tokens H"]]:
        return [hidden, *self.each_layer(hidden, packed)]

    def each_layer(
        self, hidden: Float[Tensor, "tokens H"], packed: PackedSequences, done: int = 0
    ) -> Iterator[Float[Tensor, "tokens H"]]:
        """Every layer's output as soon as it is there; see `Encoder.each_layer`."""
        tokens = len(hidden)
        with torch.inference_mode():
            rows = with_spare_rows(hidden.to(self._states))
        for number in range(done, len(self.plan)):
            with torch.inference_mode():
                rows = self._layer(number, rows, packed)
                given = rows[:tokens].float()
            yield given

    def _layer(self, number: int, hidden: Tensor, packed: PackedSequences) -> Tensor:
        application = self.plan[number]
        return self._feed_forwards[application.feed_forward](self._attentions[application.attention](hidden, packed))


def use_fast_encoders(model: nn.Module, precision: InferencePrecision) -> None:
    """Put a `FastEncoder` in the place of every encoder in a model; one that is there already stays as it is."""
    for part in list(model.modules()):
        for name, child in part.named_children():
            if isinstance(child, Encoder):
                setattr(part, name, FastEncoder(child, precision))


class _FastAttention:
    def __init__(self, block: AttentionBlock, precision: InferencePrecision, states: torch.dtype) -> None:
        self._heads, self._window, self._norm = block.heads, block.window, deepcopy(block.layer_norm).forward
        joined = block.matrices()
        width = block.query.out_features
        # Scores are divided by the root of the head's width: here, once, in the queries' weights.
        divisors = torch.ones_like(joined.joined_bias)
        divisors[:width] = (width // block.heads) ** -0.5
        products = torch.bfloat16 if precision == "int8" and multiplies_bf16(divisors.device) else states
        self._joined = make_map(joined.joined * divisors[:, None], joined.joined_bias * divisors, precision, products)
        self._dense = make_map(joined.dense, joined.dense_bias, precision, states)

    def __call__(self, hidden: Tensor, packed: PackedSequences) -> Tensor:
        tokens = len(packed.token_ids)
        mixed = attend(self._joined(hidden)[:tokens], packed, self._heads, self._window)
        if len(hidden) > tokens:
            mixed = with_spare_rows(mixed)
        return self._norm(self._dense.added(mixed, hidden))


class _FastFeedForward:
    def __init__(self, block: FeedForwardBlock, precision: InferencePrecision, states: torch.dtype) -> None:
        self._norm = deepcopy(block.layer_norm).forward
        self._intermediate = make_map(
            block.intermediate.weight, block.intermediate.bias, precision, states, block.activation
        )
        self._output = make_map(block.output.weight, block.output.bias, precision, states)

    def __call__(self, hidden: Tensor) -> Tensor:
        return self._norm(self._output.added(self._intermediate.activated(hidden), hidden))


Result = TypeVar("Result")

_TOKENS_A_THREAD = 512
"""Tokens that each thread of a CPU has at once: what a layer computes of so many stays in the cache."""
_LEAST_TOKENS_A_WORKER = 64
"""A batch of fewer for each worker goes undivided through torch's threads."""
_TOKENS_ON_A_GPU = 16384
_LOGIT_ROWS = 1024
"""Rows of vocabulary logits that are computed at once: of 30,000 pieces they take 120 MB."""


def _nothing() -> None:
    """Between batches outside of a server."""


BETWEEN_BATCHES: ContextVar[Callable[[], None]] = ContextVar("between_batches", default=_nothing)
"""Called before each batch that goes through a model at once. A server sets it in its threads, to let others compute
in between, or to stop by an exception."""


class FasterWay:
    """Which of two ways to compute something is the faster one, by the least time that they took in the last calls.

    A text by itself is: on a quiet machine with all threads of torch; where another program has taken a core, with one,
    since the others are waited for at every operation. Either way is tried again now and then.
    """

    ASKED_AGAIN = 32
    """Calls of one size, after which the other way is tried again."""
    REMEMBERED = 3

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._calls: Counter[int] = Counter()
        self._seconds: dict[tuple[int, int], tuple[float, ...]] = {}

    def run(self, size: int, *ways: Callable[[], Result]) -> Result:
        """The result, by the way that has been the faster one for about this size; the first way to begin with."""
        size = size.bit_length()
        number = self._calls[size]
        self._calls[size] += 1
        # Three calls of each way to begin with: the first of a size also makes its kernels, and does not count.
        way = number // 3
        if number >= 6:
            way = min((0, 1), key=lambda way: min(self._seconds.get((size, way), (math.inf,))))
            way = 1 - way if number % self.ASKED_AGAIN == 0 else way
        began = self._clock()
        result = ways[way]()
        if number not in (0, 3):
            earlier = self._seconds.get((size, way), ())
            self._seconds[size, way] = (*earlier, self._clock() - began)[-self.REMEMBERED :]
        return result


class PackedModel:
    """A model in evaluation mode, the device it computes on, and how much goes through it at once.

    Args:
        model: one of the model classes. It is moved to the device, and its encoder is replaced by a `FastEncoder`.
        device: where it computes.
        micro_batch_tokens: tokens that go through the model at once, about; each worker of a CPU has as many (see
            `albert.runtime.devices`). None: as many as are fast there.
        precision: of the encoder's matrix products; heads compute in fp32.

    Raises:
        Unavailable: the device does not compute at that precision.
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
        fast = _TOKENS_A_THREAD if device.type == "cpu" else _TOKENS_ON_A_GPU
        self.device, self.micro_batch_tokens = device, micro_batch_tokens or fast
        self._faster = FasterWay()

    def rows(self, token_ids: Sequence[np.ndarray], token_types: Sequence[np.ndarray]) -> list[Any]:
        """What the head gives for each sequence, in the order they came (see `output_rows`)."""
        rows: list[Any] = [None] * len(token_ids)

        def compute(members: Sequence[int]) -> None:
            packed = pack([token_ids[member] for member in members], [token_types[member] for member in members])
            with torch.inference_mode():
                found = output_rows(self.model(packed.to(self.device)), packed.lengths)
            for member, row in zip(members, found, strict=True):
                rows[member] = row

        for batches in self._rounds([len(ids) for ids in token_ids]):
            self._each(compute, batches, token_ids)
        return rows

    def at(
        self, token_ids: Sequence[np.ndarray], token_types: Sequence[np.ndarray], places: Sequence[np.ndarray]
    ) -> Iterator[tuple[int, Tensor, Tensor | None]]:
        """What a model with a masked-token head gives for each sequence at these places in it.

        Logits of the vocabulary are long, so they come as they are computed: a sequence's number, its logits
        [places, V], and those of its order [2] if there is a head for it.
        """

        def compute(members: Sequence[int]) -> tuple[Tensor, Tensor | None]:
            packed = pack([token_ids[member] for member in members], [token_types[member] for member in members])
            starts = packed.first_positions.tolist()
            asked = [places[member] + start for member, start in zip(members, starts, strict=True)]
            with torch.inference_mode():
                found = self.model(packed.to(self.device), torch.from_numpy(np.concatenate(asked)).to(self.device))
            return (
                (found.masked_tokens, found.sentence_order) if isinstance(found, PreTrainingLogits) else (found, None)
            )

        lengths, rows = [len(ids) for ids in token_ids], [len(each) for each in places]
        for batches in self._rounds(lengths, rows):
            for members, (masked, order) in zip(batches, self._each(compute, batches, token_ids), strict=True):
                parts = masked.split([rows[member] for member in members])
                for place, (member, part) in enumerate(zip(members, parts, strict=True)):
                    yield member, part, None if order is None else order[place]

    @property
    def _workers(self) -> int:
        return torch.get_num_threads() if self.device.type == "cpu" else 1

    def _each(
        self,
        compute: Callable[[Sequence[int]], Result],
        batches: Sequence[Sequence[int]],
        tokens: Sequence[np.ndarray],
    ) -> list[Result]:
        """Of several batches each has one worker; a single one is computed by all threads of torch or by one."""
        if len(batches) != 1 or self._workers == 1:
            return share_out(compute, batches)
        size, alone = sum(len(tokens[member]) for member in batches[0]), partial(compute, batches[0])
        return [self._faster.run(size, alone, partial(in_one_thread, alone))]

    def _rounds(self, lengths: Sequence[int], rows: Sequence[int] | None = None) -> Iterator[list[list[int]]]:
        """Batches that are computed together: all of them, or one for each worker where others wait for their turn.

        Args:
            lengths: tokens of each sequence.
            rows: rows of vocabulary logits that are asked of each; these take memory, so there is a batch a worker.
        """
        batches = self._micro_batches(lengths, rows)
        between = BETWEEN_BATCHES.get()
        together = len(batches) if between is _nothing and rows is None else self._workers
        for first in range(0, len(batches), max(1, together)):
            between()
            yield batches[first : first + together]

    def _micro_batches(self, lengths: Sequence[int], rows: Sequence[int] | None) -> list[list[int]]:
        """Places of sequences that go through together, of like length, in batches of like size for all workers."""
        total, workers = sum(lengths), self._workers
        count = -(-total // self.micro_batch_tokens)
        if total >= workers * _LEAST_TOKENS_A_WORKER:
            count = -(-count // workers) * workers
        batches: list[list[int]] = []
        begun = asked = 0
        for place in sorted(range(len(lengths)), key=lambda place: lengths[place]):
            own = rows[place] if rows is not None else 0
            asked += own
            past_the_share = (2 * begun + lengths[place]) * count >= 2 * len(batches) * total
            if not batches or past_the_share or asked > _LOGIT_ROWS // workers:
                batches.append([])
                asked = own
            batches[-1].append(place)
            begun += lengths[place]
        return batches
