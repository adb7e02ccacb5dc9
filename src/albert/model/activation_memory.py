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

from albert.model.attention_pattern import computed_scores, copied_vectors, score_matrices
from albert.model.config import AlbertConfig
from albert.model.parameter_count import count_parameters
from albert.model.parameter_sharing import n_attention_blocks, n_feed_forward_blocks, sharing_plan
from albert.model.plain_attention import heads_at_once

INDEX = 8
"""Bytes of an index, int64."""
FP32 = 4
BYTES = {"fp32": 4, "bf16": 2}


@dataclass(frozen=True, kw_only=True)
class ActivationMemory:
    """Bytes for one sequence of a batch of several, and bytes whatever the batch."""

    embeddings: int
    """Kept for the backward pass: of the embeddings and their map to H."""
    layer_input: int
    """Kept: what goes into one layer, all that activation checkpointing keeps of it."""
    attention: int
    """Kept: of all attention blocks, but for their probabilities."""
    attention_probabilities: int
    """Kept: L² for each head and layer; nothing on a GPU."""
    feed_forward: int
    """Kept: of all feed-forward blocks."""
    heads: int
    """Kept: of both pre-training heads, of masked tokens and of [CLS]; logits of the vocabulary are computed again."""
    inference_attention: int
    """Live in an attention block, in a forward pass of the encoder without gradients, but for the scores."""
    inference_scores: int
    """Live: scores and probabilities of one sequence, and what is multiplied to get them; nothing on a GPU."""
    inference_scores_at_once: int
    """The same of as many heads as are done at a time, whatever the batch."""
    inference_feed_forward: int
    """Live in a feed-forward block."""
    weight_copies: int
    """Kept whatever the batch: query, key and value weights joined, and bfloat16 weights."""
    inference_weight_copies: int
    """The same of the encoder, with biases."""

    @property
    def inference(self) -> int:
        """Live at once at the peak of a forward pass of the encoder, without gradients, for one sequence."""
        return self.inference_peak(1) - self.inference_weight_copies

    def inference_peak(self, sequences: int) -> int:
        """Live at once at the peak of such a pass over a batch, whatever there is."""
        scores = min(sequences * self.inference_scores, self.inference_scores_at_once)
        blocks = (sequences * self.inference_attention + scores, sequences * self.inference_feed_forward)
        return self.inference_weight_copies + max(blocks)

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
    applications, product = len(sharing_plan(config)), BYTES[precision]
    matrices, rows, columns = score_matrices(length, config.attention_window)
    copies = product * config.hidden_size * copied_vectors(length, config.attention_window)
    head_size = config.hidden_size // config.num_attention_heads
    scores = 0 if device == "cuda" else _scores_of_a_head(rows, columns, head_size, precision)
    before = 0 if device == "cuda" else rows * columns * product  # probabilities of the heads before
    stream, activated = config.hidden_size * kept.stream, config.intermediate_size * product
    at_activation, at_norm = 3 * stream + 2 * activated, 5 * stream + activated + 2 * FP32
    return ActivationMemory(
        embeddings=length * kept.embeddings,
        layer_input=length * config.hidden_size * kept.stream,
        attention=applications * (length * kept.attention + copies),
        attention_probabilities=computed_scores(length, config.attention_window) * applications * kept.probabilities,
        feed_forward=length * applications * kept.feed_forward,
        heads=masked * kept.masked_token + kept.pooled,
        inference_attention=length * config.hidden_size * (2 * kept.stream + product * (6 if device == "cuda" else 4))
        + copies,
        inference_scores=config.num_attention_heads * matrices * scores,
        inference_scores_at_once=heads_at_once(config.num_attention_heads, rows, columns) * (scores + before),
        inference_feed_forward=length * max(at_activation, at_norm),
        weight_copies=_weight_copies(config, precision),
        inference_weight_copies=_inference_weight_copies(config, precision),
    )


class _Kept:
    """Bytes a token that autograd keeps, of each part.

    Args:
        config: the model.
        device: "cpu" or "cuda".
        precision: "fp32" or "bf16".
    """

    def __init__(self, config: AlbertConfig, device: str, precision: str) -> None:
        e, h, f = config.embedding_size, config.hidden_size, config.intermediate_size
        product = BYTES[precision]
        # Dropout keeps its noise in the width of what it acts on, on a GPU a truth value.
        hidden_noise = (1 if device == "cuda" else product) if config.hidden_dropout_prob else 0
        embedding_noise = (1 if device == "cuda" else FP32) if config.hidden_dropout_prob else 0
        norm = 2 * FP32  # its mean and its deviation
        # Autocast runs LayerNorm in float32 on a GPU; on a CPU it takes what it is given.
        self.stream = FP32 if device == "cuda" or not config.projects_embeddings else product
        norm_input = FP32 if device == "cuda" else product
        activated = 2 if config.hidden_act.startswith("gelu") else 1  # ReLU and tanh keep their result alone
        # ids, types, positions
        self.embeddings = 3 * INDEX + e * FP32 + norm + e * embedding_noise
        self.embeddings += e * product if config.projects_embeddings else 0
        block = h * (hidden_noise + self.stream) + norm  # dropout, the sum, its LayerNorm
        # what comes in; query, key, value; what they mix to
        self.attention = product * 5 * h + block
        self.probabilities = 0
        if device == "cuda":
            self.attention += product * h + FP32 * config.num_attention_heads  # kept by the kernel
        else:
            dropped = 1 if config.attention_probs_dropout_prob else 0  # which ones, as truth values
            self.probabilities = (product + dropped) * config.num_attention_heads
        self.feed_forward = product * (h + activated * f) + block
        head = product * h + (activated - 1) * product * e + norm_input * e + norm + product * e
        self.masked_token = head + FP32 + 2 * INDEX  # its normaliser, where it is, its label
        # [CLS], its tanh, two log-probabilities, where it is, its label
        self.pooled = product * 2 * h + 2 * FP32 + 2 * INDEX


def _scores_of_a_head(rows: int, columns: int, head_size: int, precision: str) -> int:
    """Bytes at the softmax: what comes in, what comes out, and the operands."""
    return (2 * rows * columns + (rows + 2 * columns) * head_size) * BYTES[precision]


def _weight_copies(config: AlbertConfig, precision: str) -> int:
    """Bytes of weights that are not parameters: a block's query, key and value joined, and all in bfloat16."""
    e, h, f, v = config.embedding_size, config.hidden_size, config.intermediate_size, config.vocab_size
    joined = n_attention_blocks(config) * 3 * h * h * BYTES[precision]
    if precision == "fp32":
        return joined
    cast = n_attention_blocks(config) * h * h + n_feed_forward_blocks(config) * 2 * h * f
    cast += e * h if config.projects_embeddings else 0
    cast += h * h + 2 * h + h * e + v * e + v  # pooler and heads; the decoder is the word embeddings, with a bias
    return joined + cast * BYTES[precision]


def _inference_weight_copies(config: AlbertConfig, precision: str) -> int:
    h, f, product = config.hidden_size, config.intermediate_size, BYTES[precision]
    attention, feed_forward = 3 * (h * h + h), 0
    if precision == "bf16":
        attention, feed_forward = 4 * (h * h + h), h * f + f + f * h + h
    return product * (n_attention_blocks(config) * attention + n_feed_forward_blocks(config) * feed_forward)


def count_training_state(config: AlbertConfig) -> int:
    """Bytes of weights, gradients and LAMB's (or Adam's) two moments, float32, of a pre-training model."""
    return 4 * FP32 * count_parameters(config).pretraining
