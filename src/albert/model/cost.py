"""Parameters, floating-point operations and memory by formula, without building a model.

Lan et al. 2019, §3.1: a factorised embedding costs V·E + E·H in place of V·H, and a block that L layers share
counts once. Sharing saves parameters, never work: the FLOPs of a token do not depend on it."""

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
    """How many numbers each part of a model holds; a LayerNorm counts with the block that it closes."""

    embeddings: int
    projection: int
    attention: int
    feed_forward: int
    pooler: int
    masked_language_model_head: int
    sentence_order_head: int

    @property
    def encoder(self) -> int:
        """The model without its pooler: what the paper counts for BERT and for models that share nothing."""
        return self.embeddings + self.projection + self.attention + self.feed_forward

    @property
    def model(self) -> int:
        """The model with its pooler: what the paper counts for ALBERT."""
        return self.encoder + self.pooler

    @property
    def pretraining(self) -> int:
        """The model with both pre-training heads."""
        return self.model + self.masked_language_model_head + self.sentence_order_head

    def by_part(self) -> dict[str, int]:
        """Part -> parameters, in the order of the data, then the three sums."""
        parts = {f.name: getattr(self, f.name) for f in fields(self)}
        return {**parts, "encoder": self.encoder, "model": self.model, "pretraining": self.pretraining}


@dataclass(frozen=True, kw_only=True)
class FlopsPerToken:
    """Floating-point operations of a forward pass for one token; a multiplication with its addition counts 2.

    Matrix products only: LayerNorm, activations and softmax are left out, as usual. The sums are of the encoder:
    the masked language model head runs for masked tokens alone, the pooler once a sequence.
    With an attention window, those scores count that are seen; blocks compute some more (`computed_scores`).
    """

    projection: int
    attention_weights: int
    attention_scores: int
    feed_forward: int
    masked_language_model_head: int

    @property
    def forward(self) -> int:
        """The encoder, forward."""
        return self.projection + self.attention_weights + self.attention_scores + self.feed_forward

    @property
    def training(self) -> int:
        """The encoder, forward and backward: the backward pass does each product twice."""
        return 3 * self.forward


def count_parameters(config: AlbertConfig) -> ParameterCount:
    """Parameters by part, as `sum(p.numel() for p in model.parameters())` would find them."""
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
    """Work per token of a sequence, on whose length the attention scores depend; None: the longest."""
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
# Floating-point operations of a pre-training step that are of use: what a step's speed is measured in.
#
# Counted is what the losses need, however it is computed: padding is no work, nor is what activation checkpointing
# computes a second time (the "model FLOPs" of Chowdhery et al., 2022, appendix B).

PASSES = 3
"""Forward, and twice as much backward: each product has two gradients."""


def pretraining_flops(config: AlbertConfig, lengths: Sequence[int], n_masked: int) -> int:
    """FLOPs of forward and backward over packed sequences of these lengths; a multiplication with its addition is 2.

    Matrix products only, as in `count_flops`, whose formulas these are. Looking embeddings up costs none, and logits of
    the vocabulary are computed of masked tokens alone.
    """
    h = config.hidden_size
    encoder = sum(n * length * count_flops(config, length).forward for length, n in Counter(lengths).items())
    head = n_masked * count_flops(config).masked_language_model_head
    sentences = len(lengths) * 2 * (h * h + 2 * h)  # pooler and sentence order
    return PASSES * (encoder + head + sentences)


# --------------------------------------------------------------------------------------------------------------------
# Memory that grows with the batch, by formula: what a sequence keeps for the backward pass, and needs in inference.
#
# Sharing parameters does not save it: each of the L × inner_group_num applications of a layer keeps its own
# activations (users with less than a GPU's worth of memory meet this first). The formulas are those of this
# implementation: packed sequences of equal length, so no padding; plain products in attention on a CPU, where the
# L² probabilities of each head are kept, and scaled_dot_product_attention on a GPU, where they are not. Bytes, not
# elements.
#
# CPU figures are compared with what autograd saves and with the live tensors of a forward pass; those of a GPU are
# derived from what its kernels save, by the same rules.

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
    precision: Precision = "fp32",
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
    """Bytes a token that autograd keeps, of each part."""

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


# --------------------------------------------------------------------------------------------------------------------
# The memory of a pre-training step at its peak, by formula: the plan by which a micro-batch is chosen.
#
# The peak comes early in the backward pass: all weights, moments and gradients are there (those of earlier micro-
# batches, to which the new ones are added), all that the forward pass kept, and what the backward pass works with.
# Sharing layers saves weights, gradients and moments, which are there once, and no activations; activation
# checkpointing keeps what goes into each layer alone and computes the rest again, for one layer at a time.

UPDATED_AT_ONCE = 1 << 24
"""Numbers that LAMB updates together, or those of one larger tensor; as `albert.optim.lamb` has it."""


@dataclass(frozen=True, kw_only=True)
class TrainingMemory:
    """Bytes of one step, for a whole micro-batch, by what they are for."""

    weights: int
    gradients: int
    moments: int
    update: int
    """LAMB's update between its two passes, in memory that is kept from step to step on a CPU."""
    weight_copies: int
    """Query, key and value weights joined, and bfloat16 weights, for as long as the backward pass needs them."""
    embeddings: int
    layers: int
    """Kept for the backward pass of all layers."""
    recomputed_layer: int
    """With activation checkpointing: what one layer keeps, computed again."""
    heads: int
    workspace: int
    """What the backward pass works with at the peak."""

    @property
    def peak(self) -> int:
        """All of it."""
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
    """Memory of a step on one device.

    Args:
        config: the model, with its dropout.
        batch_size: sequences of a micro-batch.
        sequence_length: tokens of each; padding is not stored.
        device: which kernels are used.
        precision: "bf16" for mixed precision; weights, gradients and moments are float32 all the same.
        optimizer: whose moments are held.
        activation_checkpointing: whether layers are computed again in the backward pass.
        masked_tokens: of each sequence; None: 15 %.
    """
    masked = max(1, round(0.15 * sequence_length)) if masked_tokens is None else masked_tokens
    parameters = FP32 * (parts := count_parameters(config)).pretraining
    # Muon keeps one moment of a matrix; biases of layers are counted with the matrices.
    one_moment = FP32 * (parts.projection + parts.attention + parts.feed_forward) if optimizer == "muon" else 0
    kept = count_activation_memory(config, sequence_length, device=device, precision=precision, masked_tokens=masked)
    applications = len(sharing_plan(config))
    layer = batch_size * (kept.attention + kept.attention_probabilities + kept.feed_forward) // applications
    recomputed = layer if activation_checkpointing else 0
    heads = batch_size * kept.heads
    # Vocabulary logits and a layer take turns: the heads are done with when the topmost layer's turn comes.
    in_cross_entropy = _cross_entropy_workspace(config, batch_size * masked, precision) - recomputed
    kept_of_a_layer = batch_size * kept.layer_input if activation_checkpointing else layer
    in_layer = _topmost_layers_workspace(config, batch_size * sequence_length, precision, kept_of_a_layer) - heads
    return TrainingMemory(
        weights=parameters,
        gradients=parameters,
        moments=2 * parameters - one_moment,
        update=min(parameters, _update_at_once(config)) if optimizer == "lamb" and device == "cpu" else 0,
        weight_copies=kept.weight_copies,
        embeddings=batch_size * kept.embeddings,
        layers=applications * kept_of_a_layer,
        recomputed_layer=recomputed,
        heads=heads,
        workspace=max(in_cross_entropy, in_layer, 0),
    )


def _update_at_once(config: AlbertConfig) -> int:
    h, words = config.hidden_size, config.vocab_size * config.embedding_size
    return FP32 * max(UPDATED_AT_ONCE, words, h * h, h * config.intermediate_size)


def _cross_entropy_workspace(config: AlbertConfig, masked: int, precision: str) -> int:
    """Bytes of the backward pass over the vocabulary: gradients of its embeddings, and logits of a few tokens.

    The logits of the tokens before are still there when the next ones come, in the type of products and, of those that
    are computed at a time, in float32.
    """
    product, words = BYTES[precision], config.vocab_size * config.embedding_size
    at_once, in_cache = (max(1, n // config.vocab_size) for n in (LOGITS_AT_ONCE, LOGITS_IN_CACHE))
    first, second = min(masked, at_once), min(max(0, masked - at_once), at_once)
    computed = config.vocab_size * min(first, in_cache)
    narrow = config.vocab_size * product
    at_logits = computed * (FP32 + (product if precision == "bf16" else 0)) + (
        computed * FP32 if masked > in_cache else 0
    )
    return words * FP32 + max(first * narrow + computed * FP32 + words * product, (first + second) * narrow + at_logits)


def _topmost_layers_workspace(config: AlbertConfig, tokens: int, precision: str, kept: int) -> int:
    """Bytes that the backward pass of the topmost layer, or of the one below it, adds to what was kept.

    Gradients of the word embeddings wait for those of the looked-up words, gradients of blocks that layers share for
    the lowest of these layers. They are complete after the topmost layer, which is no longer kept then.
    """
    e, h, f, product = config.embedding_size, config.hidden_size, config.intermediate_size, BYTES[precision]
    words = config.vocab_size * e * FP32
    of_feed_forward = product * (tokens * (f + h) + f * h)
    if config.hidden_act == "gelu_new":  # whose forward pass needs memory: its input, and what is computed at a time
        of_feed_forward = max(of_feed_forward, product * tokens * f + 5 * FP32 * min(ACTIVATED_AT_ONCE, tokens * f))
    plan = sharing_plan(config)
    attention = 4 * h * h if len(plan) > n_attention_blocks(config) else 0
    feed_forward = 2 * h * f if len(plan) > n_feed_forward_blocks(config) else 0
    return words + of_feed_forward + max(0, product * (attention + feed_forward) - kept)


def largest_batch(memory_of: Callable[[int], TrainingMemory], limit: int) -> int:
    """The most sequences whose peak is within `limit` bytes; 0 when one is too much already.

    Args:
        memory_of: the memory of a number of sequences; grows with it.
        limit: bytes.
    """
    too_many = 1
    while memory_of(too_many).peak <= limit:
        too_many *= 2
    enough = too_many // 2
    while too_many - enough > 1:
        middle = (enough + too_many) // 2
        enough, too_many = (middle, too_many) if memory_of(middle).peak <= limit else (enough, middle)
    return enough
