"""Multi-head self-attention over packed sequences (paper §3.1; Vaswani et al., 2017, §3.2)."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from albert.model.attention_pattern import covers
from albert.model.config import AlbertConfig
from albert.model.packed_sequences import AttentionGroup, PackedSequences
from albert.model.plain_attention import plain_attention
from albert.model.product_type import in_product_type
from albert.model.rectangles import from_rectangles, to_rectangles
from albert.model.window_attention import window_attention
from albert.runtime.linear_product import linear


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
        self.attention_dropout = nn.Dropout(config.attention_probs_dropout_prob)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def matrices(self) -> AttentionMatrices:
        """As they are now."""
        maps = (self.query, self.key, self.value)
        return AttentionMatrices(
            in_product_type(torch.cat([part.weight for part in maps])),
            in_product_type(torch.cat([part.bias for part in maps])),
            in_product_type(self.dense.weight),
            in_product_type(self.dense.bias),
        )

    def forward(
        self, hidden: Float[Tensor, "rows H"], packed: PackedSequences, matrices: AttentionMatrices
    ) -> Float[Tensor, "rows H"]:
        """Let every token attend to the tokens of its own sequence; rows behind the tokens are spare ones."""
        rectangles = to_rectangles(linear(hidden, matrices.joined, matrices.joined_bias), packed)
        mixed = [self._attend(*pair) for pair in zip(rectangles, packed.groups, strict=True)]
        run = from_rectangles(mixed, packed, len(hidden))
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

    def _dense(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        dropout = self.attention_dropout.p if self.training else 0.0
        if query.device.type == "cpu":  # the backward pass of torch's own kernel is slower there
            return plain_attention(query, key, value, mask, dropout)
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
