"""Floating-point operations of a pre-training step that are of use: what a step's speed is measured in.

Counted is what the losses need, however it is computed: padding is no work, nor is what activation checkpointing
computes a second time (the "model FLOPs" of Chowdhery et al., 2022, appendix B).
"""

from collections import Counter
from collections.abc import Sequence

from albert.model.config import AlbertConfig
from albert.model.parameter_count import count_flops

PASSES = 3
"""Forward, and twice as much backward: each product has two gradients."""


def pretraining_flops(config: AlbertConfig, lengths: Sequence[int], n_masked: int) -> int:
    """FLOPs of forward and backward over packed sequences; a multiplication with its addition counts 2.

    Matrix products only, as in `count_flops`, whose formulas these are. Looking embeddings up costs none.

    Args:
        config: the model.
        lengths: tokens of each sequence; each attends to itself alone.
        n_masked: masked tokens, of which alone vocabulary logits are computed.
    """
    h = config.hidden_size
    encoder = sum(n * length * count_flops(config, length).forward for length, n in Counter(lengths).items())
    head = n_masked * count_flops(config).masked_language_model_head
    sentences = len(lengths) * 2 * (h * h + 2 * h)  # pooler and sentence order
    return PASSES * (encoder + head + sentences)
