"""The memory of a pre-training step at its peak, by formula: the plan by which a micro-batch is chosen.

The peak comes early in the backward pass: all weights, moments and gradients are there (those of earlier micro-batches,
to which the new ones are added), all that the forward pass kept, and what the backward pass works with. Sharing layers
saves weights, gradients and moments, which are there once, and no activations; activation checkpointing keeps what goes
into each layer alone and computes the rest again, for one layer at a time.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal

from albert.model.activation_memory import BYTES, FP32, count_activation_memory
from albert.model.config import AlbertConfig
from albert.model.parameter_count import count_parameters
from albert.model.parameter_sharing import n_attention_blocks, n_feed_forward_blocks, sharing_plan
from albert.model.streamed_cross_entropy import LOGITS_AT_ONCE

UPDATED_AT_ONCE = 1 << 24
"""Numbers that LAMB updates together, or those of one larger tensor; as `albert.optim.slots` has it."""


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
    precision: Literal["fp32", "bf16"] = "fp32",
    optimizer: Literal["lamb", "adamw"] = "lamb",
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
    parameters = FP32 * count_parameters(config).pretraining
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
        moments=2 * parameters,
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

    The logits of the tokens before are still there when the next ones come.
    """
    product, words = BYTES[precision], config.vocab_size * config.embedding_size
    at_once = max(1, LOGITS_AT_ONCE // config.vocab_size)
    one = config.vocab_size * (FP32 + (product if precision == "bf16" else 0))
    first, second = min(masked, at_once), min(max(0, masked - at_once), at_once)
    return words * FP32 + max(first * one + words * product, (first + second) * one)


def _topmost_layers_workspace(config: AlbertConfig, tokens: int, precision: str, kept: int) -> int:
    """Bytes that the backward pass of the topmost layer, or of the one below it, adds to what was kept.

    Gradients of the word embeddings wait for those of the looked-up words, gradients of blocks that layers share for
    the lowest of these layers. They are complete after the topmost layer, which is no longer kept then.
    """
    e, h, f, product = config.embedding_size, config.hidden_size, config.intermediate_size, BYTES[precision]
    words = config.vocab_size * e * FP32
    of_feed_forward = product * (tokens * (f + h) + f * h)
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
