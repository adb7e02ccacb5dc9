"""Cross-entropy over a vocabulary whose logits are never all in memory.

V logits for each masked token are more than anything else a step would hold. They are computed for a few tokens at a
time, reduced to a loss each, and once more in the backward pass: the product is a small one (E columns), so that costs
less than reading them back would. Losses are summed in float32 whatever the product is computed in.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from albert.model.product_type import in_product_type
from albert.runtime.linear_product import product

LOGITS_AT_ONCE = 1 << 22
"""Elements: 16 MiB in float32. The logits of one token are never divided."""


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
        operands = (in_product_type(transformed), in_product_type(words), in_product_type(bias))
        losses, normalizers = (torch.empty_like(labels, dtype=_exact(words)) for _ in range(2))
        right = torch.empty_like(labels, dtype=torch.bool)
        for part in _parts(transformed, words):
            logits = _logits(operands, part)
            of_label = labels[part, None]
            losses[part] = -logits.log_softmax(1).gather(1, of_label)[:, 0]
            normalizers[part] = logits.gather(1, of_label)[:, 0] + losses[part]
            right[part] = logits.argmax(1) == labels[part]
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
        for part in _parts(transformed, words):
            of_logits = _logits((transformed, words, bias), part).sub_(normalizers[part, None]).exp_()
            of_logits[torch.arange(len(of_logits)), labels[part]] -= 1
            of_bias.addmv_(of_logits.t(), of_losses[part])
            narrow, weights = of_logits.to(words.dtype), of_losses[part, None]  # weigh E columns instead of V
            of_transformed[part] = product(narrow, words.t()) * weights
            of_words += product(narrow.t(), (transformed[part] * weights).to(words.dtype).t())
        return *(x.to(t) for x, t in zip((of_transformed, of_words, of_bias), ctx.types, strict=True)), None


def _parts(transformed: Tensor, words: Tensor) -> list[slice]:
    items = max(1, LOGITS_AT_ONCE // len(words))
    return [slice(first, first + items) for first in range(0, len(transformed), items)]


def _logits(operands: tuple[Tensor, Tensor, Tensor], part: slice) -> Tensor:
    transformed, words, bias = operands
    logits = product(transformed[part], words, bias)
    return logits.to(_exact(logits))


def _exact(tensor: Tensor) -> torch.dtype:
    """What sums are taken in: float32 for narrower types."""
    return torch.promote_types(tensor.dtype, torch.float32)
