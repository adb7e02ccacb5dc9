"""Multi-head self-attention over packed sequences (paper §3.1; Vaswani et al., 2017, §3.2)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from albert.model.attention_pattern import covers
from albert.model.config import AlbertConfig
from albert.model.packed_sequences import AttentionGroup, PackedSequences
from albert.model.window_attention import window_attention


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

    def forward(self, hidden: Float[Tensor, "tokens H"], packed: PackedSequences) -> Float[Tensor, "tokens H"]:
        """Let every token attend to the tokens of its own sequence."""
        # One product instead of three; the parameters stay apart because LAMB adapts each by its own norm.
        weight = torch.cat((self.query.weight, self.key.weight, self.value.weight))
        bias = torch.cat((self.query.bias, self.key.bias, self.value.bias))
        qkv = functional.linear(hidden, weight, bias)
        mixed = torch.cat([self._attend(qkv, group) for group in packed.groups])[packed.cells]
        return self.layer_norm(hidden + self.dropout(self.dense(mixed)))

    def _attend(self, qkv: Float[Tensor, "tokens three_H"], group: AttentionGroup) -> Float[Tensor, "cells H"]:
        sequences, length = group.positions.shape
        width = qkv.shape[1] // 3
        cells = qkv[group.positions.reshape(-1)].view(sequences, length, 3, self.heads, width // self.heads)
        query, key, value = cells.permute(2, 0, 3, 1, 4)
        if self.window is not None and not covers(self.window, length):
            mixed = window_attention(query, key, value, group.padded, self.window, self._dense)
        else:
            mixed = self._dense(query, key, value, None if group.padded is None else ~group.padded[:, None, None, :])
        return mixed.transpose(1, 2).reshape(-1, width)

    def _dense(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        if query.device.type == "cpu":  # SDPA's backward is slower than three plain products there
            return self._plain(query, key, value, mask)
        dropout = self.attention_dropout.p if self.training else 0.0
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)

    def _plain(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        return self.attention_dropout(scores.softmax(dim=-1)).to(value.dtype) @ value
