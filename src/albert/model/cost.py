"""Formulas for the number of parameters, floating-point operations (FLOPs) and memory of a model.

A factorised embedding has V·E + E·H parameters instead of V·H, and a shared block counts once (paper §3.1). Sharing
does not change the FLOPs."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Literal

from albert.model.attention import heads_at_once
from albert.model.config import (
    AlbertConfig,
    computed_scores,
    copied_vectors,
    n_attention_blocks,
    n_feed_forward_blocks,
    score_matrices,
    seen_pairs,
    sharing_plan,
)
from albert.model.encoder import ACTIVATED_AT_ONCE
from albert.model.heads import LOGITS_AT_ONCE, LOGITS_IN_CACHE
from albert.runtime.environment import OptimizerKind, Precision


@dataclass(frozen=True, kw_only=True)
class ParameterCount:
    """Number of parameters by part; a LayerNorm counts with the block before it."""

    embeddings: int
    projection: int
    attention: int
    feed_forward: int
    pooler: int
    masked_language_model_head: int
    sentence_order_head: int

    @property
    def encoder(self) -> int:
        """Without the pooler: as the paper counts BERT and models without sharing."""
        return self.embeddings + self.projection + self.attention + self.feed_forward

    @property
    def model(self) -> int:
        """With the pooler: as the paper counts ALBERT."""
        return self.encoder + self.pooler

    @property
    def pretraining(self) -> int:
        """With both pre-training heads."""
        return self.model + self.masked_language_model_head + self.sentence_order_head

    def by_part(self) -> dict[str, int]:
        """Part -> parameters, then the three sums."""
        parts = {f.name: getattr(self, f.name) for f in fields(self)}
        return {**parts, "encoder": self.encoder, "model": self.model, "pretraining": self.pretraining}


@dataclass(frozen=True, kw_only=True)
class FlopsPerToken:
    """FLOPs of a forward pass for one token; a multiply-add counts 2.

    Matrix products only, without LayerNorm, activations and softmax. The sums are those of the encoder: the masked
    language model head applies to masked tokens only, the pooler once per sequence. Of window attention, the scores
    within the window count, although blocks compute more (`computed_scores`).
    """

    projection: int
    attention_weights: int
    attention_scores: int
    feed_forward: int
    masked_language_model_head: int

    @property
    def forward(self) -> int:
        """Forward pass of the encoder."""
        return self.projection + self.attention_weights + self.attention_scores + self.feed_forward

    @property
    def training(self) -> int:
        """Forward and backward pass of the encoder: each product has two gradients."""
        return 3 * self.forward


def count_parameters(config: AlbertConfig) -> ParameterCount:
    """Number of parameters by part, equal to `sum(p.numel() for p in model.parameters())`."""
    v, e, h, f = config.vocab_size, config.embedding_size, config.hidden_size, config.intermediate_size
    rows = v + config.max_position_embeddings + config.type_vocab_size
    return ParameterCount(
        embeddings=rows * e + 2 * e,
        projection=e * h + h if config.projects_embeddings else 0,
        attention=n_attention_blocks(config) * (4 * (h * h + h) + 2 * h),
        feed_forward=n_feed_forward_blocks(config) * (h * f + f + f * h + h + 2 * h),
        pooler=h * h + h,
        masked_language_model_head=h * e + e + 2 * e + v,
        sentence_order_head=2 * h + 2,
    )


def count_flops(config: AlbertConfig, sequence_length: int | None = None) -> FlopsPerToken:
    """FLOPs per token of a sequence of this length; None: the maximum."""
    length = config.max_position_embeddings if sequence_length is None else sequence_length
    e, h, f = config.embedding_size, config.hidden_size, config.intermediate_size
    applications = len(sharing_plan(config))
    return FlopsPerToken(
        projection=2 * e * h if config.projects_embeddings else 0,
        attention_weights=2 * applications * 4 * h * h,
        attention_scores=2 * applications * 2 * h * seen_pairs(length, config.attention_window) // length,
        feed_forward=2 * applications * 2 * h * f,
        masked_language_model_head=2 * (h * e + e * config.vocab_size),
    )


# --------------------------------------------------------------------------------------------------------------------
# Model FLOPs of a pre-training step (Chowdhery et al., 2022, appendix B): those that the losses need, without padding
# and without the recomputation of activation checkpointing.

PASSES = 3
"""Forward and backward pass in units of the forward pass: each product has two gradients."""


def pretraining_flops(config: AlbertConfig, lengths: Sequence[int], n_masked: int) -> int:
    """FLOPs of the forward and backward pass over packed sequences, counted as in `count_flops`.

    Embedding lookups cost nothing; vocabulary logits are computed for masked tokens only.
    """
    h = config.hidden_size
    encoder = sum(n * length * count_flops(config, length).forward for length, n in Counter(lengths).items())
    head = n_masked * count_flops(config).masked_language_model_head
    sentences = len(lengths) * 2 * (h * h + 2 * h)  # pooler and sentence order
    return PASSES * (encoder + head + sentences)


# --------------------------------------------------------------------------------------------------------------------
# Activation memory in bytes: tensors saved for the backward pass, and live tensors in inference.
#
# Sharing parameters does not reduce it: each of the L × inner_group_num layer applications saves its own activations.
# The formulas are those of this implementation for sequences of equal length. Attention on a CPU saves the
# probabilities of each head (length²); on a GPU it does not.
#
# Tests compare the CPU values with the tensors that autograd saves and with the live tensors of a forward pass. The GPU
# values follow from the tensors that its kernels save.

INDEX = 8
"""Bytes of an int64."""
FP32 = 4
BYTES = {"fp32": 4, "bf16": 2}


@dataclass(frozen=True, kw_only=True)
class ActivationMemory:
    """Bytes per sequence; `weight_copies` are per batch."""

    embeddings: int
    """Saved for the backward pass: embeddings and their map to H."""
    layer_input: int
    """Saved: the input of one layer, which is all that activation checkpointing saves of it."""
    attention: int
    """Saved: all attention blocks, without probabilities."""
    attention_probabilities: int
    """Saved: attention probabilities; 0 on a GPU."""
    feed_forward: int
    """Saved: all feed-forward blocks."""
    heads: int
    """Saved: both pre-training heads; vocabulary logits are recomputed."""
    inference: int
    """Peak of live tensors in a forward pass of the encoder without gradients, without copies of weights."""
    weight_copies: int
    """Joined query, key and value weights, and bfloat16 weights, in training."""

    @property
    def training(self) -> int:
        """Saved for the backward pass of pre-training, for one sequence."""
        return self.embeddings + self.attention + self.attention_probabilities + self.feed_forward + self.heads


def count_activation_memory(
    config: AlbertConfig,
    sequence_length: int | None = None,
    *,
    device: Literal["cpu", "cuda"] = "cpu",
    precision: Precision = "fp32",
    masked_tokens: int | None = None,
) -> ActivationMemory:
    """Activation memory of a sequence, with the dropout of the configuration.

    Args:
        sequence_length: tokens; None: the maximum.
        precision: "bf16" for torch.autocast.
        masked_tokens: number of masked tokens; None: 15 %.
    """
    length = config.max_position_embeddings if sequence_length is None else sequence_length
    masked = max(1, round(0.15 * length)) if masked_tokens is None else masked_tokens
    saved = _SavedBytes(config, device, precision)
    applications, product = len(sharing_plan(config)), BYTES[precision]
    matrices, rows, columns = score_matrices(length, config.attention_window)
    copies = product * config.hidden_size * copied_vectors(length, config.attention_window)
    head_size = config.hidden_size // config.num_attention_heads
    # Live at the softmax: scores, probabilities and operands; the probabilities of the previous heads.
    scores, previous = product * (2 * rows * columns + (rows + 2 * columns) * head_size), product * rows * columns
    if device == "cuda":
        scores = previous = 0
    stream, activated = config.hidden_size * saved.stream, config.intermediate_size * product
    at_once = heads_at_once(config.num_attention_heads, rows, columns) * (scores + previous)
    in_attention = length * config.hidden_size * (2 * saved.stream + product * (6 if device == "cuda" else 4)) + copies
    in_attention += min(config.num_attention_heads * matrices * scores, at_once)
    in_feed_forward = length * (3 * stream + 2 * activated + max(0, 2 * stream - activated + 2 * FP32))
    return ActivationMemory(
        embeddings=length * saved.embeddings,
        layer_input=length * config.hidden_size * saved.stream,
        attention=applications * (length * saved.attention + copies),
        attention_probabilities=computed_scores(length, config.attention_window) * applications * saved.probabilities,
        feed_forward=length * applications * saved.feed_forward,
        heads=masked * saved.masked_token + saved.pooled,
        inference=max(in_attention, in_feed_forward),
        weight_copies=_weight_copies(config, precision),
    )


class _SavedBytes:
    """Bytes per token that autograd saves, by part."""

    def __init__(self, config: AlbertConfig, device: str, precision: str) -> None:
        e, h, f = config.embedding_size, config.hidden_size, config.intermediate_size
        product = BYTES[precision]
        # Dropout saves its noise in the dtype of its input, on a GPU as booleans.
        hidden_noise = (1 if device == "cuda" else product) if config.hidden_dropout_prob else 0
        embedding_noise = (1 if device == "cuda" else FP32) if config.hidden_dropout_prob else 0
        norm = 2 * FP32  # mean and standard deviation
        # Autocast runs LayerNorm in float32 on a GPU, and in the dtype of its input on a CPU.
        self.stream = FP32 if device == "cuda" or not config.projects_embeddings else product
        norm_input = FP32 if device == "cuda" else product
        activated = 2 if config.hidden_act.startswith("gelu") else 1  # ReLU and tanh save only their result
        # ids, types, positions
        self.embeddings = 3 * INDEX + e * FP32 + norm + e * embedding_noise
        self.embeddings += e * product if config.projects_embeddings else 0
        block = h * (hidden_noise + self.stream) + norm  # dropout, residual sum, LayerNorm
        # input; query, key, value; output of attention
        self.attention = product * 5 * h + block
        self.probabilities = 0
        if device == "cuda":
            self.attention += product * h + FP32 * config.num_attention_heads  # saved by the kernel
        else:
            dropped = 1 if config.attention_probs_dropout_prob else 0  # mask, as booleans
            self.probabilities = (product + dropped) * config.num_attention_heads
        self.feed_forward = product * (h + activated * f) + block
        head = product * h + (activated - 1) * product * e + norm_input * e + norm + product * e
        self.masked_token = head + FP32 + 2 * INDEX  # normaliser, position, label
        # [CLS], tanh, two log-probabilities, position, label
        self.pooled = product * 2 * h + 2 * FP32 + 2 * INDEX


def _weight_copies(config: AlbertConfig, precision: str) -> int:
    """Bytes of weight copies: joined query, key and value weights, and bfloat16 weights."""
    e, h, f, v = config.embedding_size, config.hidden_size, config.intermediate_size, config.vocab_size
    joined = n_attention_blocks(config) * 3 * h * h * BYTES[precision]
    if precision == "fp32":
        return joined
    cast = n_attention_blocks(config) * h * h + n_feed_forward_blocks(config) * 2 * h * f
    cast += e * h if config.projects_embeddings else 0
    cast += h * h + 2 * h + h * e + v * e + v  # pooler and heads; the decoder is tied to the word embeddings
    return joined + cast * BYTES[precision]


def count_training_state(config: AlbertConfig) -> int:
    """Bytes of weights, gradients and two moments (LAMB, Adam) of a pre-training model, in float32."""
    return 4 * FP32 * count_parameters(config).pretraining


# --------------------------------------------------------------------------------------------------------------------
# Peak memory of a pre-training step, from which the micro-batch size is chosen.
#
# The peak is early in the backward pass: weights, moments and gradients (of earlier micro-batches), all saved
# activations, and the workspace of the backward pass. Sharing layers reduces weights, gradients and moments, not
# activations. Activation checkpointing saves the input of each layer and recomputes one layer at a time.

UPDATED_AT_ONCE = 1 << 24
"""Equal to `UPDATE_BUFFER` of `albert.optim.lamb`."""


@dataclass(frozen=True, kw_only=True)
class TrainingMemory:
    """Bytes of one step with a micro-batch, by purpose."""

    weights: int
    gradients: int
    moments: int
    update: int
    """Buffer of LAMB's updates on a CPU."""
    weight_copies: int
    """Joined query, key and value weights, and bfloat16 weights."""
    embeddings: int
    layers: int
    """Saved for the backward pass of all layers."""
    recomputed_layer: int
    """With activation checkpointing: the recomputed activations of one layer."""
    heads: int
    workspace: int
    """Temporary tensors of the backward pass at the peak."""

    @property
    def peak(self) -> int:
        """Sum of all parts."""
        return sum(getattr(self, field.name) for field in fields(self))


def count_training_memory(
    config: AlbertConfig,
    *,
    batch_size: int,
    sequence_length: int,
    device: Literal["cpu", "cuda"] = "cpu",
    precision: Precision = "fp32",
    optimizer: OptimizerKind = "lamb",
    activation_checkpointing: bool = False,
    masked_tokens: int | None = None,
) -> TrainingMemory:
    """Memory of a step on one device, with the dropout of the configuration.

    Args:
        batch_size: sequences of a micro-batch.
        sequence_length: tokens of each sequence, without padding.
        precision: "bf16" for torch.autocast; weights, gradients and moments are float32.
        masked_tokens: of each sequence; None: 15 %.
    """
    masked = max(1, round(0.15 * sequence_length)) if masked_tokens is None else masked_tokens
    parameters = FP32 * (parts := count_parameters(config)).pretraining
    # Muon has one moment for matrices; the biases of layers are counted with them.
    one_moment = FP32 * (parts.projection + parts.attention + parts.feed_forward) if optimizer == "muon" else 0
    saved = count_activation_memory(config, sequence_length, device=device, precision=precision, masked_tokens=masked)
    applications = len(sharing_plan(config))
    layer = batch_size * (saved.attention + saved.attention_probabilities + saved.feed_forward) // applications
    recomputed = layer if activation_checkpointing else 0
    heads = batch_size * saved.heads
    # The memory of the heads is free again when the last layer starts its backward pass.
    in_cross_entropy = _cross_entropy_workspace(config, batch_size * masked, precision) - recomputed
    saved_layer = batch_size * saved.layer_input if activation_checkpointing else layer
    in_layer = _last_layer_workspace(config, batch_size * sequence_length, precision, saved_layer) - heads
    return TrainingMemory(
        weights=parameters,
        gradients=parameters,
        moments=2 * parameters - one_moment,
        update=min(parameters, _update_at_once(config)) if optimizer == "lamb" and device == "cpu" else 0,
        weight_copies=saved.weight_copies,
        embeddings=batch_size * saved.embeddings,
        layers=applications * saved_layer,
        recomputed_layer=recomputed,
        heads=heads,
        workspace=max(in_cross_entropy, in_layer, 0),
    )


def _update_at_once(config: AlbertConfig) -> int:
    h, words = config.hidden_size, config.vocab_size * config.embedding_size
    return FP32 * max(UPDATED_AT_ONCE, words, h * h, h * config.intermediate_size)


def _cross_entropy_workspace(config: AlbertConfig, masked: int, precision: str) -> int:
    """Bytes of the backward pass of the cross-entropy: embedding gradients, and logits of two consecutive parts."""
    product, words = BYTES[precision], config.vocab_size * config.embedding_size
    at_once, in_cache = (max(1, n // config.vocab_size) for n in (LOGITS_AT_ONCE, LOGITS_IN_CACHE))
    first, second = min(masked, at_once), min(max(0, masked - at_once), at_once)
    computed = config.vocab_size * min(first, in_cache)
    narrow = config.vocab_size * product
    at_logits = computed * (FP32 + (product if precision == "bf16" else 0))
    at_logits += computed * FP32 if masked > in_cache else 0
    return words * FP32 + max(first * narrow + computed * FP32 + words * product, (first + second) * narrow + at_logits)


def _last_layer_workspace(config: AlbertConfig, tokens: int, precision: str, saved: int) -> int:
    """Bytes that the backward pass of the last layer, or of the one before, adds to the saved activations.

    Gradients of the word embeddings and of shared blocks are live until the first layer. When those of the shared
    blocks exist, the activations of the last layer are free again.
    """
    e, h, f, product = config.embedding_size, config.hidden_size, config.intermediate_size, BYTES[precision]
    words = config.vocab_size * e * FP32
    of_feed_forward = product * (tokens * (f + h) + f * h)
    if config.hidden_act == "gelu_new":  # its forward pass needs its input and buffers
        of_feed_forward = max(of_feed_forward, product * tokens * f + 5 * FP32 * min(ACTIVATED_AT_ONCE, tokens * f))
    plan = sharing_plan(config)
    attention = 4 * h * h if len(plan) > n_attention_blocks(config) else 0
    feed_forward = 2 * h * f if len(plan) > n_feed_forward_blocks(config) else 0
    return words + of_feed_forward + max(0, product * (attention + feed_forward) - saved)


def largest_batch(memory_of: Callable[[int], TrainingMemory], limit: int) -> int:
    """The largest number of sequences whose peak is within `limit` bytes; 0 if none is."""
    too_many = 1
    while memory_of(too_many).peak <= limit:
        too_many *= 2
    return bisect_right(range(too_many), limit, key=lambda sequences: memory_of(sequences).peak if sequences else 0) - 1
