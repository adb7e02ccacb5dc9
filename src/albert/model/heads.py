"""Heads: masked tokens, sentence order, answer spans; and a cross-entropy that computes the logits in parts."""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from albert.model.attention import to_matmul_dtype
from albert.model.encoder import ACTIVATIONS, activate
from albert.model.packing import pad_rows
from albert.recipes.architecture import EncoderConfig
from albert.runtime.devices import Dropout, linear, product

# --------------------------------------------------------------------------------------------------------------------
# Cross-entropy without all vocabulary logits in memory.
#
# The V logits of all masked tokens would be the largest tensor of a step. They are computed for a few tokens at a time,
# reduced to losses, and computed again in the backward pass: the product has only E columns, so this takes less time
# than reading the logits from memory. Losses are summed in float32 for any matmul dtype.

LOGITS_AT_ONCE = 1 << 22
"""Elements: 16 MiB in float32. The logits of one token are not divided."""
LOGITS_IN_CACHE = 1 << 19
"""Elements: 2 MiB in float32, for which a CPU computes losses and probabilities at a time."""
LOGITS_AT_ONCE_ON_A_GPU = 1 << 28
"""Elements: 1 GiB in float32, because each part launches a dozen kernels."""


def streamed_cross_entropy(
    transformed: Float[Tensor, "items E"],
    words: Float[Tensor, "V E"],
    bias: Float[Tensor, " V"],
    labels: Int[Tensor, " items"],
) -> tuple[Float[Tensor, " items"], Bool[Tensor, " items"]]:
    """-log softmax(transformed wordsᵀ + bias)[label] of each item, and whether its label has the largest logit.

    The losses are differentiable with respect to `transformed`, `words` and `bias`.
    """
    return _StreamedCrossEntropy.apply(transformed, words, bias, labels)


class _StreamedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, transformed: Tensor, words: Tensor, bias: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        operands = (to_matmul_dtype(transformed), to_matmul_dtype(words), to_matmul_dtype(bias))
        losses, normalizers = (torch.empty_like(labels, dtype=_accumulation_dtype(words)) for _ in range(2))
        correct = torch.empty_like(labels, dtype=torch.bool)
        for part in _parts(transformed, words, LOGITS_IN_CACHE):
            logits = _logits(operands, part)
            label_logits = logits.gather(1, labels[part, None])
            largest = logits.amax(1, keepdim=True)
            correct[part] = _is_argmax(logits, labels[part], label_logits == largest)
            normalizers[part] = (logits.sub_(largest).exp_().sum(1, keepdim=True).log_() + largest)[:, 0]
            losses[part] = normalizers[part] - label_logits[:, 0]
        ctx.save_for_backward(*operands, labels, normalizers)
        ctx.dtypes = (transformed.dtype, words.dtype, bias.dtype)
        ctx.mark_non_differentiable(correct)
        return losses, correct

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        grad_losses = gradients[0]
        transformed, words, bias, labels, normalizers = ctx.saved_tensors
        grad_transformed = torch.empty_like(transformed)
        grad_words, grad_bias = (torch.zeros_like(x, dtype=_accumulation_dtype(x)) for x in (words, bias))
        for part in _parts(transformed, words, LOGITS_AT_ONCE):
            part_gradients = words.new_empty(part.stop - part.start, len(words))  # in the matmul dtype
            for rows in _parts(transformed[part], words, LOGITS_IN_CACHE):
                items = slice(part.start + rows.start, part.start + rows.stop)
                grad_logits = _logits((transformed, words, bias), items).sub_(normalizers[items, None]).exp_()
                grad_logits[torch.arange(len(grad_logits), device=grad_logits.device), labels[items]] -= 1
                grad_bias.addmv_(grad_logits.t(), grad_losses[items])
                part_gradients[rows] = grad_logits
            weights = grad_losses[part, None]  # applied to E columns instead of V
            grad_transformed[part] = product(part_gradients, words.t()) * weights
            grad_words += product(part_gradients.t(), (transformed[part] * weights).to(words.dtype).t())
        gradients = (grad_transformed, grad_words, grad_bias)
        return *(gradient.to(dtype) for gradient, dtype in zip(gradients, ctx.dtypes, strict=True)), None


def _parts(items: Tensor, words: Tensor, logits: int) -> list[slice]:
    at_once = max(1, (logits if items.device.type == "cpu" else LOGITS_AT_ONCE_ON_A_GPU) // len(words))
    return [slice(first, min(first + at_once, len(items))) for first in range(0, len(items), at_once)]


def _is_argmax(logits: Tensor, labels: Tensor, is_maximum: Tensor) -> Tensor:
    """Return whether argmax gives the label; `is_maximum` says whether its logit equals the maximum.

    argmax takes as long as everything else, so a CPU computes it only for labels with the maximum."""
    if logits.device.type != "cpu":
        return logits.argmax(1) == labels
    correct = is_maximum[:, 0]
    correct[correct.clone()] = logits[correct].argmax(1) == labels[correct]
    return correct


def _logits(operands: tuple[Tensor, Tensor, Tensor], part: slice) -> Tensor:
    transformed, words, bias = operands
    logits = product(transformed[part], words, bias)
    return logits.to(_accumulation_dtype(logits))


def _accumulation_dtype(tensor: Tensor) -> torch.dtype:
    """The dtype of sums: at least float32."""
    return torch.promote_types(tensor.dtype, torch.float32)


class MaskedLanguageModelHead(nn.Module):
    """H→E, activation, LayerNorm, then the word embeddings as output matrix (tied), plus a bias.

    Applied to masked positions only: about 15 % of the tokens.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.embedding_size)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.layer_norm = nn.LayerNorm(config.embedding_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(
        self, hidden: Float[Tensor, "masked H"], word_embeddings: Float[Tensor, "V E"]
    ) -> Float[Tensor, "masked V"]:
        """Vocabulary logits."""
        return linear(self._transformed(hidden), word_embeddings, self.bias)

    def losses(
        self, hidden: Float[Tensor, "masked H"], word_embeddings: Float[Tensor, "V E"], labels: Int[Tensor, " masked"]
    ) -> tuple[Float[Tensor, " masked"], Bool[Tensor, " masked"]]:
        """Cross-entropy of each label (float32), and whether it has the largest logit; logits are not kept."""
        rows = pad_rows(hidden)
        padded = functional.pad(labels, (0, len(rows) - len(hidden)))
        losses, correct = streamed_cross_entropy(self._transformed(rows), word_embeddings, self.bias, padded)
        return losses[: len(hidden)], correct[: len(hidden)]

    def compilable_losses(
        self, hidden: Float[Tensor, "items H"], word_embeddings: Float[Tensor, "V E"], labels: Int[Tensor, " items"]
    ) -> tuple[Float[Tensor, " items"], Bool[Tensor, " items"]]:
        """As `losses`, by operations for a compiled graph; a label of -100 has loss 0 and counts as incorrect."""
        transformed = self._transformed(hidden)
        items = max(1, LOGITS_AT_ONCE_ON_A_GPU // len(word_embeddings))
        losses = []
        correct = []
        for rows, row_labels in zip(transformed.split(items), labels.split(items), strict=True):
            logits = linear(rows, word_embeddings, self.bias)
            losses.append(functional.cross_entropy(logits.float(), row_labels, reduction="none"))
            correct.append(logits.argmax(1) == row_labels)
        return torch.cat(losses), torch.cat(correct)

    def _transformed(self, hidden: Float[Tensor, "masked H"]) -> Float[Tensor, "masked E"]:
        return self.layer_norm(activate(linear(hidden, self.dense.weight, self.dense.bias), self.activation))


class SentenceOrderHead(nn.Module):
    """Two logits from the pooled sequence: 0 in order, 1 swapped (for NSP: from another document)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.classifier = nn.Linear(config.hidden_size, 2)

    def forward(self, pooled: Float[Tensor, "sequences H"]) -> Float[Tensor, "sequences 2"]:
        """Logits of both classes."""
        return self.classifier(pooled)


class SpanHead(nn.Module):
    """Start and end logits of every token (SQuAD 1.1)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.outputs = nn.Linear(config.hidden_size, 2)

    def forward(self, hidden: Float[Tensor, "tokens H"]) -> tuple[Float[Tensor, " tokens"], Float[Tensor, " tokens"]]:
        """Start and end logits."""
        start, end = self.outputs(hidden).unbind(-1)
        return start, end


class JointSpanHead(nn.Module):
    """Computes start logits, end logits given a start, and the "no answer" logit of a sequence (paper §4.2).

    The head of XLNet (Yang et al. 2019), which predicts "no answer" separately instead of as a span.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.start = nn.Linear(width, 1)
        self.end_dense = nn.Linear(2 * width, width)
        self.end_layer_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.end = nn.Linear(width, 1)
        self.answer_dense = nn.Linear(2 * width, width)
        self.dropout = Dropout(config.classifier_dropout_prob)
        self.answer = nn.Linear(width, 1, bias=False)

    def starts(self, hidden: Float[Tensor, "tokens H"]) -> Float[Tensor, " tokens"]:
        """Start logit of every token."""
        return self.start(hidden).squeeze(-1)

    def ends(self, hidden: Float[Tensor, "tokens H"], start: Float[Tensor, "tokens H"]) -> Float[Tensor, " tokens"]:
        """End logit of every token, given the state of the start of its sequence's answer."""
        joint = self.end_dense(torch.cat([hidden, start], dim=-1)).tanh()
        return self.end(self.end_layer_norm(joint)).squeeze(-1)

    def unanswerable(
        self, expected_start: Float[Tensor, "sequences H"], first: Float[Tensor, "sequences H"]
    ) -> Float[Tensor, " sequences"]:
        """Logit of "no answer", from the expected state of the start and the state of [CLS]."""
        joint = self.answer_dense(torch.cat([expected_start, first], dim=-1)).tanh()
        return self.answer(self.dropout(joint)).squeeze(-1)
