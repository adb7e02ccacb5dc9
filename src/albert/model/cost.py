"""Formulas for the number of parameters, floating-point operations (FLOPs) and memory of a model.

A factorised embedding has V·E + E·H parameters instead of V·H, and a shared block counts once (paper §3.1). Sharing
does not change the FLOPs."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Literal

from albert.model.encoder import ACTIVATED_AT_ONCE
from albert.model.heads import LOGITS_AT_ONCE, LOGITS_IN_CACHE
from albert.model.sharing import n_attention_blocks, n_feed_forward_blocks, sharing_plan
from albert.recipes.architecture import EncoderConfig
from albert.runtime.environment import Precision


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
    language model head applies to masked tokens only, the pooler once per sequence.
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


def count_parameters(config: EncoderConfig) -> ParameterCount:
    """Number of parameters by part, equal to `sum(p.numel() for p in model.parameters())`."""
    v = config.vocab_size
    e = config.embedding_size
    h = config.hidden_size
    f = config.intermediate_size
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


def count_flops(config: EncoderConfig, sequence_length: int | None = None) -> FlopsPerToken:
    """FLOPs per token of a sequence of this length; None: the maximum."""
    length = config.max_position_embeddings if sequence_length is None else sequence_length
    e = config.embedding_size
    h = config.hidden_size
    f = config.intermediate_size
    applications = len(sharing_plan(config))
    return FlopsPerToken(
        projection=2 * e * h if config.projects_embeddings else 0,
        attention_weights=2 * applications * 4 * h * h,
        attention_scores=2 * applications * 2 * h * length,
        feed_forward=2 * applications * 2 * h * f,
        masked_language_model_head=2 * (h * e + e * config.vocab_size),
    )


# --------------------------------------------------------------------------------------------------------------------
# Model FLOPs of a pre-training step (Chowdhery et al., 2022, appendix B): those that the losses need, without padding
# and without the recomputation of activation checkpointing.

PASSES = 3
"""Forward and backward pass in units of the forward pass: each product has two gradients."""


def pretraining_flops(config: EncoderConfig, lengths: Sequence[int], n_masked: int) -> int:
    """FLOPs of the forward and backward pass over packed sequences, counted as in `count_flops`.

    Embedding lookups cost nothing; vocabulary logits are computed for masked tokens only.
    """
    h = config.hidden_size
    encoder = sum(n * length * count_flops(config, length).forward for length, n in Counter(lengths).items())
    head = n_masked * count_flops(config).masked_language_model_head
    sentences = len(lengths) * 2 * (h * h + 2 * h)  # pooler and sentence order
    return PASSES * (encoder + head + sentences)


# --------------------------------------------------------------------------------------------------------------------
# Memory of a pre-training step by parts, within a tenth of what is measured.
#
# The peak is early in the backward pass: weights, moments and gradients (of earlier micro-batches), all saved
# activations, and the workspace of the backward pass. Sharing layers reduces weights, gradients and moments, not
# activations. Activation checkpointing saves the input of each layer and recomputes one layer at a time. Attention on a
# CPU saves the probabilities of each head (length²); on a GPU it does not.

FP32 = 4
BYTES = {"fp32": 4, "bf16": 2}
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


def masked_tokens_of(length: int) -> int:
    """15 % of a sequence, at least one token."""
    return max(1, round(0.15 * length))


def count_training_memory(
    config: EncoderConfig,
    *,
    batch_size: int,
    sequence_length: int,
    device: Literal["cpu", "cuda"] = "cpu",
    precision: Precision = "fp32",
    activation_checkpointing: bool = False,
) -> TrainingMemory:
    """Memory of a step with LAMB on one device, with the dropout of the configuration and 15 % of the tokens masked.

    Args:
        batch_size: sequences of a micro-batch.
        sequence_length: tokens of each sequence, without padding.
        precision: "bf16" for torch.autocast; weights, gradients and moments are float32.
    """
    e = config.embedding_size
    h = config.hidden_size
    f = config.intermediate_size
    v = config.vocab_size
    product = BYTES[precision]
    tokens = batch_size * sequence_length
    masked = batch_size * masked_tokens_of(sequence_length)
    applications = len(sharing_plan(config))
    parameters = FP32 * count_parameters(config).pretraining
    update = min(parameters, FP32 * max(UPDATED_AT_ONCE, v * e, h * h, h * f))

    # Of a token in a layer: inputs of products, query, key, value, GELU's input; dropout's noise; inputs of LayerNorm.
    stream = FP32 if device == "cuda" or not config.projects_embeddings else product
    noise = 0
    embedding_noise = 0
    if config.hidden_dropout_prob:
        noise = 1 if device == "cuda" else product
        embedding_noise = 1 if device == "cuda" else FP32
    activated = 2 if config.hidden_act.startswith("gelu") else 1
    layer = tokens * (product * (6 * h + activated * f) + 2 * h * (noise + stream))
    if device == "cuda":
        layer += tokens * product * h  # the output, once more, of the kernel of attention
    else:
        dropped = 1 if config.attention_probs_dropout_prob else 0
        scores = batch_size * sequence_length * sequence_length
        layer += scores * (product + dropped) * config.num_attention_heads
    saved_layer = tokens * h * stream if activation_checkpointing else layer
    recomputed = layer if activation_checkpointing else 0
    embeddings = tokens * e * (FP32 + embedding_noise + (product if config.projects_embeddings else 0))
    heads = masked * (product * (h + 2 * e) + FP32 * e)

    joined = n_attention_blocks(config) * 3 * h * h * product
    cast = n_attention_blocks(config) * h * h + n_feed_forward_blocks(config) * 2 * h * f + v * e
    # Gradients of the embeddings, and of the logits or of a layer and a shared block; the heads are free when the last
    # layer starts.
    at_once = min(masked, max(1, LOGITS_AT_ONCE // v))
    in_cache = FP32 * v * min(at_once, max(1, LOGITS_IN_CACHE // v))
    in_logits = product * v * at_once + max(product * v * e + in_cache, product * v * at_once + 2 * in_cache)
    shared = 4 * h * h if applications > n_attention_blocks(config) else 0
    shared += 2 * h * f if applications > n_feed_forward_blocks(config) else 0
    in_feed_forward = product * (tokens * (f + h) + h * f)
    if config.hidden_act == "gelu_new":  # its forward pass, computed again, has float32 buffers
        in_feed_forward = max(in_feed_forward, product * tokens * f + 5 * FP32 * min(ACTIVATED_AT_ONCE, tokens * f))
    in_layer = in_feed_forward - heads + max(0, product * shared - saved_layer)
    return TrainingMemory(
        weights=parameters,
        gradients=parameters,
        moments=2 * parameters,
        update=update if device == "cpu" else 0,
        weight_copies=joined + (cast * product if precision == "bf16" else 0),
        embeddings=embeddings,
        layers=applications * saved_layer,
        recomputed_layer=recomputed,
        heads=heads,
        workspace=v * e * FP32 + max(in_logits - recomputed, in_layer, 0),
    )


def largest_batch(memory_of: Callable[[int], TrainingMemory], limit: int) -> int:
    """The largest number of sequences whose peak is within `limit` bytes; 0 if none is."""
    too_many = 1
    while memory_of(too_many).peak <= limit:
        too_many *= 2
    return bisect_right(range(too_many), limit, key=lambda sequences: memory_of(sequences).peak if sequences else 0) - 1
