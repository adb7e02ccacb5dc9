"""What stands on top of the encoder: masked tokens, sentence order, classes, answer spans."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from albert.model.config import AlbertConfig
from albert.model.feed_forward import ACTIVATIONS
from albert.model.spare_rows import with_spare_rows
from albert.model.streamed_cross_entropy import streamed_cross_entropy
from albert.runtime.linear_product import linear


class MaskedLanguageModelHead(nn.Module):
    """H→E, activation, LayerNorm, then the word embeddings again as the output matrix (tied), plus a bias.

    It is given the masked positions alone, so that V logits are computed for about 15 % of the tokens.
    """

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.embedding_size)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.layer_norm = nn.LayerNorm(config.embedding_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(
        self, hidden: Float[Tensor, "masked H"], word_embeddings: Float[Tensor, "V E"]
    ) -> Float[Tensor, "masked V"]:
        """Logits over the vocabulary."""
        return linear(self._transformed(hidden), word_embeddings, self.bias)

    def losses(
        self,
        hidden: Float[Tensor, "masked H"],
        word_embeddings: Float[Tensor, "V E"],
        labels: Int[Tensor, " masked"],
    ) -> tuple[Float[Tensor, " masked"], Bool[Tensor, " masked"]]:
        """Cross-entropies of the labels, in float32, and which have the largest logit; logits are not kept."""
        rows = with_spare_rows(hidden)
        padded = functional.pad(labels, (0, len(rows) - len(hidden)))
        losses, right = streamed_cross_entropy(self._transformed(rows), word_embeddings, self.bias, padded)
        return losses[: len(hidden)], right[: len(hidden)]

    def _transformed(self, hidden: Float[Tensor, "masked H"]) -> Float[Tensor, "masked E"]:
        return self.layer_norm(self.activation(linear(hidden, self.dense.weight, self.dense.bias)))


class SentenceOrderHead(nn.Module):
    """Two logits from the pooled sequence: 0 the segments are in order, 1 they are swapped (or, for NSP, foreign)."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.classifier = nn.Linear(config.hidden_size, 2)

    def forward(self, pooled: Float[Tensor, "sequences H"]) -> Float[Tensor, "sequences 2"]:
        """Logits of the two orders."""
        return self.classifier(pooled)


class SpanHead(nn.Module):
    """Two logits a token: that the answer starts here, that it ends here (SQuAD 1.1)."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.outputs = nn.Linear(config.hidden_size, 2)

    def forward(self, hidden: Float[Tensor, "tokens H"]) -> tuple[Float[Tensor, " tokens"], Float[Tensor, " tokens"]]:
        """Start and end logits."""
        start, end = self.outputs(hidden).unbind(-1)
        return start, end
