"""Memory that grows with the batch, by formula: what a sequence keeps for the backward pass, and needs in inference.

Sharing parameters does not save it: each of the L × inner_group_num applications of a layer keeps its own activations
(users with less than a GPU's worth of memory meet this first). The formulas are those of this implementation:
packed sequences of equal length, so no padding; plain products in attention on a CPU, where the L² probabilities of
each head are kept, and scaled_dot_product_attention on a GPU, where they are not. Bytes, not elements.

CPU figures are compared with what autograd saves and with the live tensors of a forward pass; those of a GPU are
derived from what its kernels save, by the same rules.
"""

from dataclasses import dataclass
from typing import Literal

from albert.model.config import AlbertConfig
from albert.model.parameter_count import count_parameters
from albert.model.parameter_sharing import n_attention_blocks, n_feed_forward_blocks, sharing_plan

INDEX = 8
"""Bytes of an index, int64."""
FP32 = 4
_BYTES = {"fp32": 4, "bf16": 2}


@dataclass(frozen=True, kw_only=True)
class ActivationMemory:
    """Bytes for one sequence of a batch of several, and bytes whatever the batch."""

    embeddings: int
    """Kept for the backward pass: of the embeddings and their map to H."""
    attention: int
    """Kept: of all attention blocks, but for their probabilities."""
    attention_probabilities: int
    """Kept: L² for each head and layer; nothing on a GPU."""
    feed_forward: int
    """Kept: of all feed-forward blocks."""
    heads: int
    """Kept: of both pre-training heads, mostly V log-probabilities for each masked token."""
    inference: int
    """Live at once at the peak of a forward pass of the encoder, without gradients."""
    weight_copies: int
    """Kept whatever the batch: query, key and value weights joined in each application, and bfloat16 weights."""
    inference_weight_copies: int
    """Live whatever the batch, in inference: the joined weights of one application."""

    @property
    def training(self) -> int:
        """Kept for the backward pass of pre-training, for one sequence."""
        return self.embeddings + self.attention + self.attention_probabilities + self.feed_forward + self.heads


def count_activation_memory(
    config: AlbertConfig,
    sequence_length: int | None = None,
    *,
    device: Literal["cpu", "cuda"] = "cpu",
    precision: Literal["fp32", "bf16"] = "fp32",
    masked_tokens: int | None = None,
) -> ActivationMemory:
    """Memory of a sequence.

    Args:
        config: the model, with its dropout: masks of dropout are kept too.
        sequence_length: tokens; None: the longest.
        device: which attention is used, and how masks are kept.
        precision: "bf16" for mixed precision: products in bfloat16, the rest as torch.autocast has it.
        masked_tokens: of which the vocabulary is predicted; None: 15 %.
    """
    length = config.max_position_embeddings if sequence_length is None else sequence_length
    masked = max(1, round(0.15 * length)) if masked_tokens is None else masked_tokens
    kept = _Kept(config, device, precision)
    applications = len(sharing_plan(config))
    return ActivationMemory(
        embeddings=length * kept.embeddings,
        attention=length * applications * kept.attention,
        attention_probabilities=length * length * applications * kept.probabilities,
        feed_forward=length * applications * kept.feed_forward,
        heads=masked * kept.masked_token + kept.pooled,
        inference=length * _live(config, length, device, precision, kept.stream),
        weight_copies=_weight_copies(config, precision, applications),
        inference_weight_copies=FP32 * 3 * config.hidden_size * (config.hidden_size + 1),
    )


class _Kept:
    """Bytes a token that autograd keeps, of each part.

    Args:
        config: the model.
        device: "cpu" or "cuda".
        precision: "fp32" or "bf16".
    """

    def __init__(self, config: AlbertConfig, device: str, precision: str) -> None:
        e, h, f, v = config.embedding_size, config.hidden_size, config.intermediate_size, config.vocab_size
        product = _BYTES[precision]
        # Dropout keeps its noise in the width of what it acts on, on a GPU a truth value.
        hidden_noise = (1 if device == "cuda" else product) if config.hidden_dropout_prob else 0
        embedding_noise = (1 if device == "cuda" else FP32) if config.hidden_dropout_prob else 0
        norm = 2 * FP32  # its mean and its deviation
        # Autocast runs LayerNorm in float32 on a GPU; on a CPU it takes what it is given.
        self.stream = FP32 if device == "cuda" or not config.projects_embeddings else product
        norm_input = FP32 if device == "cuda" else product
        activated = 2 if config.hidden_act.startswith("gelu") else 1  # ReLU and tanh keep their result alone
        # ids, types, positions, and where attention finds its cells and puts them back
        self.embeddings = 5 * INDEX + e * FP32 + norm + e * embedding_noise
        self.embeddings += e * product if config.projects_embeddings else 0
        block = h * (hidden_noise + self.stream) + norm  # dropout, the sum, its LayerNorm
        # what comes in; query, key, value; what they mix to
        self.attention = product * 5 * h + block
        self.probabilities = 0
        if device == "cuda":
            self.attention += product * h + FP32 * config.num_attention_heads  # kept by the kernel
        else:
            copies = 3 if config.attention_probs_dropout_prob else 1  # before, noise, after
            self.probabilities = product * copies * config.num_attention_heads
        self.feed_forward = product * (h + activated * f) + block
        head = product * h + (activated - 1) * product * e + norm_input * e + norm + product * e
        self.masked_token = head + v * FP32 + 2 * INDEX
        # [CLS], its tanh, two log-probabilities, where it is, its label
        self.pooled = product * 2 * h + 2 * FP32 + 2 * INDEX


def _live(config: AlbertConfig, length: int, device: str, precision: str, stream: int) -> int:
    """Bytes a token that are live at the peak of a layer.

    The embeddings' output stays alive for as long as the encoder runs, and a layer's input for as long as the layer.
    """
    h, f, product = config.hidden_size, config.intermediate_size, _BYTES[precision]
    probabilities = config.num_attention_heads * length
    joined = 2 * 3 * h  # query, key and value as they come out, and again in attention's rectangles
    # Products copy what is not contiguous: query and key beside their scores, then values beside scores and
    # probabilities. A GPU's kernel holds neither.
    mixing = 2 * h if device == "cuda" else max(3 * h + probabilities, 2 * h + 2 * probabilities)
    attention = joined + mixing
    return max(2 * h * stream + product * attention, 3 * h * stream + product * 2 * f)


def _weight_copies(config: AlbertConfig, precision: str, applications: int) -> int:
    """Bytes of weights that are not parameters: query, key and value are joined anew in each application."""
    e, h, f, v = config.embedding_size, config.hidden_size, config.intermediate_size, config.vocab_size
    joined = applications * 3 * h * h * _BYTES[precision]
    if precision == "fp32":
        return joined
    cast = n_attention_blocks(config) * h * h + n_feed_forward_blocks(config) * 2 * h * f
    cast += e * h if config.projects_embeddings else 0
    cast += h * h + 2 * h + h * e + v * e  # pooler and heads; the decoder is the word embeddings
    return joined + cast * _BYTES[precision]


def count_training_state(config: AlbertConfig) -> int:
    """Bytes of weights, gradients and LAMB's (or Adam's) two moments, float32, of a pre-training model."""
    return 4 * FP32 * count_parameters(config).pretraining
