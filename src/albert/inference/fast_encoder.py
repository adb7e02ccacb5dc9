"""The encoder for answers alone: what its layers multiply by is prepared once, and nothing is kept for gradients.

ALBERT applies the same few matrices L times. They are joined (query, key and value), cast and laid out for the
processor when the model is opened; in int8 those of ALBERT-base take 7 MB, which stays in the cache from layer to
layer. States between layers are bfloat16 at bf16 and float32 else; LayerNorm and softmax count in float32 throughout.
"""

from collections.abc import Iterator
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from albert.inference.fast_attention import attend
from albert.inference.linear_maps import make_map, why_not_prepacked
from albert.inference.precision import InferencePrecision, check_int8
from albert.model.attention import AttentionBlock
from albert.model.encoder import Encoder
from albert.model.feed_forward import FeedForwardBlock
from albert.model.packed_sequences import PackedSequences
from albert.model.spare_rows import with_spare_rows
from albert.runtime.devices import multiplies_bf16


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
        without_prepacking: why weights are not laid out for oneDNN; None: they are.

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
        self.without_prepacking = why_not_prepacked(device, self._states)
        with torch.inference_mode():
            attentions = [cast(AttentionBlock, block) for block in encoder.attentions]
            feed_forwards = [cast(FeedForwardBlock, block) for block in encoder.feed_forwards]
            self._attentions = [_FastAttention(block, precision, self._states) for block in attentions]
            self._feed_forwards = [_FastFeedForward(block, precision, self._states) for block in feed_forwards]

    def forward(self, hidden: Float[Tensor, "tokens H"], packed: PackedSequences) -> Float[Tensor, "tokens H"]:
        """The output of the last layer."""
        with torch.inference_mode():
            rows = with_spare_rows(hidden.to(self._states))
            for number in range(len(self.plan)):
                rows = self._layer(number, rows, packed)
            return rows[: len(hidden)].float()

    def hidden_states(
        self, hidden: Float[Tensor, "tokens H"], packed: PackedSequences
    ) -> list[Float[Tensor, "tokens H"]]:
        """What goes into the first layer, then every layer's output."""
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
        self._heads, self._window, self._norm = block.heads, block.window, _Norm(block.layer_norm)
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
        self._norm = _Norm(block.layer_norm)
        self._intermediate = make_map(
            block.intermediate.weight, block.intermediate.bias, precision, states, block.activation
        )
        self._output = make_map(block.output.weight, block.output.bias, precision, states)

    def __call__(self, hidden: Tensor) -> Tensor:
        return self._norm(self._output.added(self._intermediate.activated(hidden), hidden))


class _Norm:
    """A LayerNorm; torch takes means and variances of bfloat16 numbers in float32."""

    def __init__(self, norm: nn.LayerNorm) -> None:
        self._shape, self._epsilon = list(norm.normalized_shape), norm.eps
        self._weight, self._bias = norm.weight.detach().clone(), norm.bias.detach().clone()

    def __call__(self, hidden: Tensor) -> Tensor:
        return functional.layer_norm(hidden, self._shape, self._weight, self._bias, self._epsilon)
