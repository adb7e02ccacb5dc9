"""Texts to vectors: what the encoder says of every token, pooled into one vector a text."""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn

from albert.inference.encoding import encode_texts
from albert.inference.packed_model import PackedModel
from albert.model.albert import AlbertModel
from albert.model.packed_sequences import PackedSequences
from albert.runtime.errors import UsageError
from albert.text.tokenizer import Tokenizer

Pooling = Literal["mean", "cls"]
"""The mean over all tokens, [CLS] and [SEP] among them, as sentence-transformers pools; or what stands at [CLS]."""


class PooledEncoder(nn.Module):
    """An encoder that gives one vector a sequence."""

    def __init__(self, encoder: AlbertModel, pooling: Pooling) -> None:
        super().__init__()
        self.encoder, self.pooling = encoder, pooling

    def forward(self, packed: PackedSequences) -> Float[Tensor, "sequences H"]:
        """The last layer's output, pooled."""
        hidden = self.encoder(packed)
        if self.pooling == "cls":
            return hidden[packed.first_positions]
        lengths = torch.tensor(packed.lengths, device=hidden.device)
        sums = hidden.new_zeros(packed.n_sequences, hidden.shape[1], dtype=torch.float32)
        member = torch.arange(packed.n_sequences, device=hidden.device).repeat_interleave(lengths)
        return sums.index_add_(0, member, hidden.float()) / lengths[:, None]


def embed_texts(
    model: PackedModel, tokenizer: Tokenizer, max_length: int, texts: Sequence[str], normalize: bool
) -> tuple[Float32[np.ndarray, "texts H"], list[int]]:
    """A vector for each text, of length 1 if asked, and how many tokens of it did not fit.

    Args:
        model: a `PooledEncoder`.
        tokenizer: its tokenizer.
        max_length: tokens of a sequence, special ones included.
        texts: any texts, the empty one too.
        normalize: divide each vector by its Euclidean length.
    """
    encoded = encode_texts(tokenizer, (texts,), max_length)
    width = model.model.encoder.config.hidden_size
    vectors = np.zeros((len(texts), width), np.float32)
    for number, row in enumerate(model.rows(encoded.ids, encoded.token_types)):
        vectors[number] = row
    if normalize:
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    return vectors, encoded.cut


def check_pooling(pooling: str) -> None:
    """Refuse a word that names no pooling.

    Raises:
        UsageError: it is another.
    """
    if pooling not in get_args(Pooling):
        raise UsageError(f"pooling {pooling!r}", "unknown", f"use {' or '.join(get_args(Pooling))}")
