"""The encoder: shared blocks applied L times (paper §3.1)."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from albert.model.attention import AttentionBlock, AttentionMatrices
from albert.model.config import AlbertConfig
from albert.model.feed_forward import FeedForwardBlock, FeedForwardMatrices
from albert.model.packed_sequences import PackedSequences
from albert.model.parameter_sharing import (
    LayerApplication,
    n_attention_blocks,
    n_feed_forward_blocks,
    sharing_plan,
)
from albert.model.spare_rows import rows_for_products


class EncoderMatrices(NamedTuple):
    """What each block multiplies by, ready for all layers that apply it."""

    attentions: list[AttentionMatrices]
    feed_forwards: list[FeedForwardMatrices]


class Encoder(nn.Module):
    """Attention and feed-forward blocks, each held once, and the plan that says where each is applied.

    Attributes:
        checkpointing: keep of each layer only what goes into it, and compute the rest again in the backward pass
            (Chen et al., 2016): a third more work, for a fraction of the memory. Results and gradients are the same.
    """

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.plan = sharing_plan(config)
        self.attentions = nn.ModuleList(AttentionBlock(config) for _ in range(n_attention_blocks(config)))
        self.feed_forwards = nn.ModuleList(FeedForwardBlock(config) for _ in range(n_feed_forward_blocks(config)))
        self.checkpointing = False

    def forward(self, hidden: Float[Tensor, "tokens H"], packed: PackedSequences) -> Float[Tensor, "tokens H"]:
        """The output of the last layer."""
        matrices, rows = self._matrices(), rows_for_products(hidden, packed)
        for application in self.plan:
            rows = self._apply_layer(application, rows, packed, matrices)
        return rows[: len(hidden)]

    def hidden_states(
        self, hidden: Float[Tensor, "tokens H"], packed: PackedSequences
    ) -> list[Float[Tensor, "tokens H"]]:
        """What goes into the first layer, then every layer's output."""
        return [hidden, *self.each_layer(hidden, packed)]

    def each_layer(
        self, hidden: Float[Tensor, "tokens H"], packed: PackedSequences, done: int = 0
    ) -> Iterator[Float[Tensor, "tokens H"]]:
        """Every layer's output as soon as it is there: who has seen enough asks for no more.

        Args:
            hidden: what goes into the first layer, or came out of layer number `done`.
            packed: the sequences.
            done: layers that were applied already, to other sequences besides perhaps.
        """
        matrices, rows = self._matrices(), rows_for_products(hidden, packed)
        for application in self.plan[done:]:
            rows = self._apply_layer(application, rows, packed, matrices)
            yield rows[: len(hidden)]

    def _matrices(self) -> EncoderMatrices:
        attentions = cast(Iterable[AttentionBlock], self.attentions)
        feed_forwards = cast(Iterable[FeedForwardBlock], self.feed_forwards)
        return EncoderMatrices(
            [block.matrices() for block in attentions], [block.matrices() for block in feed_forwards]
        )

    def _apply_layer(
        self, application: LayerApplication, rows: Tensor, packed: PackedSequences, matrices: EncoderMatrices
    ) -> Float[Tensor, "rows H"]:
        if self.checkpointing and torch.is_grad_enabled():
            return checkpoint(self._layer, application, rows, packed, matrices, use_reentrant=False)
        return self._layer(application, rows, packed, matrices)

    def _layer(
        self, application: LayerApplication, rows: Tensor, packed: PackedSequences, matrices: EncoderMatrices
    ) -> Tensor:
        attention, feed_forward = application.attention, application.feed_forward
        attended = self.attentions[attention](rows, packed, matrices.attentions[attention])
        return self.feed_forwards[feed_forward](attended, matrices.feed_forwards[feed_forward])
