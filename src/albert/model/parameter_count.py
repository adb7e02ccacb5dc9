"""Exact sizes by formula: parameters by part and work per token, without building a model.

Lan et al. 2019, §3.1: a factorised embedding costs V·E + E·H in place of V·H, and a block that L layers share
counts once. Sharing saves parameters, never work: the FLOPs of a token do not depend on it.
"""

from dataclasses import dataclass, fields

from albert.model.attention_pattern import seen_pairs
from albert.model.config import AlbertConfig
from albert.model.parameter_sharing import n_attention_blocks, n_feed_forward_blocks, sharing_plan


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
    """Work per token.

    Args:
        config: the model.
        sequence_length: tokens in a sequence, on which the attention scores depend; None: the longest.
    """
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
