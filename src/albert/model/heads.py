"""Heads: masked tokens, sentence order, answer spans; and a cross-entropy that never holds all logits in memory."""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from albert.model.attention import to_matmul_dtype
from albert.model.config import AlbertConfig
from albert.model.encoder import ACTIVATIONS, activate
from albert.model.packing import pad_rows
from albert.runtime.devices import linear, product

# --------------------------------------------------------------------------------------------------------------------
# Cross-entropy over a vocabulary whose logits are never all in memory.
#
# V logits for each masked token are more than anything else a step would hold. They are computed for a few tokens
# at a time, reduced to a loss each, and once more in the backward pass: the product is a small one (E columns), so
# that costs less than reading them back would. Losses are summed in float32 whatever the product is computed in.

LOGITS_AT_ONCE = 1 << 22
"""Elements: 16 MiB in float32. The logits of one token are never divided."""
LOGITS_IN_CACHE = 1 << 19
"""Elements: 2 MiB in float32, of which losses and probabilities are computed at a time on a CPU."""
LOGITS_AT_ONCE_ON_A_GPU = 1 << 28
"""Elements: a gigabyte in float32, since each part is a dozen kernels of its own."""


def streamed_cross_entropy(
    transformed: Float[Tensor, "items E"],
    words: Float[Tensor, "V E"],
    bias: Float[Tensor, " V"],
    labels: Int[Tensor, " items"],
) -> tuple[Float[Tensor, " items"], Bool[Tensor, " items"]]:
    """Each item's -log softmax(transformed wordsᵀ + bias)[label], and whether its label has the largest logit.

    The losses have gradients for `transformed`, `words` and `bias`, however they are weighted afterwards.

    Args:
        transformed: one row for each item.
        words: output matrix.
        bias: of each word.
        labels: from 0 to V - 1.
    """
    return _StreamedCrossEntropy.apply(transformed, words, bias, labels)


class _StreamedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, transformed: Tensor, words: Tensor, bias: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        operands = (to_matmul_dtype(transformed), to_matmul_dtype(words), to_matmul_dtype(bias))
        losses, normalizers = (torch.empty_like(labels, dtype=_exact(words)) for _ in range(2))
        right = torch.empty_like(labels, dtype=torch.bool)
        for part in _parts(transformed, words, LOGITS_IN_CACHE):
            logits = _logits(operands, part)
            of_label, largest = logits.gather(1, labels[part, None]), logits.amax(1, keepdim=True)
            right[part] = _is_largest(logits, labels[part], of_label == largest)
            normalizers[part] = (logits.sub_(largest).exp_().sum(1, keepdim=True).log_() + largest)[:, 0]
            losses[part] = normalizers[part] - of_label[:, 0]
        ctx.save_for_backward(*operands, labels, normalizers)
        ctx.types = (transformed.dtype, words.dtype, bias.dtype)
        ctx.mark_non_differentiable(right)
        return losses, right

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        of_losses = gradients[0]
        transformed, words, bias, labels, normalizers = ctx.saved_tensors
        of_transformed = torch.empty_like(transformed)
        of_words, of_bias = (torch.zeros_like(weight, dtype=_exact(weight)) for weight in (words, bias))
        for part in _parts(transformed, words, LOGITS_AT_ONCE):
            narrow = words.new_empty(part.stop - part.start, len(words))
            for rows in _parts(transformed[part], words, LOGITS_IN_CACHE):
                each = slice(part.start + rows.start, part.start + rows.stop)
                of_logits = _logits((transformed, words, bias), each).sub_(normalizers[each, None]).exp_()
                of_logits[torch.arange(len(of_logits), device=of_logits.device), labels[each]] -= 1
                of_bias.addmv_(of_logits.t(), of_losses[each])
                narrow[rows] = of_logits
            weights = of_losses[part, None]  # weigh E columns instead of V
            of_transformed[part] = product(narrow, words.t()) * weights
            of_words += product(narrow.t(), (transformed[part] * weights).to(words.dtype).t())
        return *(x.to(t) for x, t in zip((of_transformed, of_words, of_bias), ctx.types, strict=True)), None


def _parts(items: Tensor, words: Tensor, logits: int) -> list[slice]:
    at_once = max(1, (logits if items.device.type == "cpu" else LOGITS_AT_ONCE_ON_A_GPU) // len(words))
    return [slice(first, min(first + at_once, len(items))) for first in range(0, len(items), at_once)]


def _is_largest(logits: Tensor, labels: Tensor, as_large: Tensor) -> Tensor:
    """Whether the label is the first of the largest logits, given whether its logit is as large as the largest one.

    Looking for the place of the largest takes as long as all the rest, so it is done for those alone."""
    if logits.device.type != "cpu":
        return logits.argmax(1) == labels
    found = as_large[:, 0]
    found[found.clone()] = logits[found].argmax(1) == labels[found]
    return found


def _logits(operands: tuple[Tensor, Tensor, Tensor], part: slice) -> Tensor:
    transformed, words, bias = operands
    logits = product(transformed[part], words, bias)
    return logits.to(_exact(logits))


def _exact(tensor: Tensor) -> torch.dtype:
    """What sums are taken in: float32 for narrower types."""
    return torch.promote_types(tensor.dtype, torch.float32)


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
        rows = pad_rows(hidden)
        padded = functional.pad(labels, (0, len(rows) - len(hidden)))
        losses, right = streamed_cross_entropy(self._transformed(rows), word_embeddings, self.bias, padded)
        return losses[: len(hidden)], right[: len(hidden)]

    def compilable_losses(
        self,
        hidden: Float[Tensor, "items H"],
        word_embeddings: Float[Tensor, "V E"],
        labels: Int[Tensor, " items"],
    ) -> tuple[Float[Tensor, " items"], Bool[Tensor, " items"]]:
        """The same by operations that a compiled graph can hold; a label of -100 has the loss 0 and is not right."""
        transformed, items = self._transformed(hidden), max(1, LOGITS_AT_ONCE_ON_A_GPU // len(word_embeddings))
        losses, right = [], []
        for rows, of_rows in zip(transformed.split(items), labels.split(items), strict=True):
            logits = linear(rows, word_embeddings, self.bias)
            losses.append(functional.cross_entropy(logits.float(), of_rows, reduction="none"))
            right.append(logits.argmax(1) == of_rows)
        return torch.cat(losses), torch.cat(right)

    def _transformed(self, hidden: Float[Tensor, "masked H"]) -> Float[Tensor, "masked E"]:
        return self.layer_norm(activate(linear(hidden, self.dense.weight, self.dense.bias), self.activation))


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
