"""Which layers share parameters (paper §3.1; Table 4).

A plan lists, for each layer application, the index of its attention block and of its feed-forward block. A block that
several applications use exists once in memory."""

from dataclasses import dataclass

from albert.recipes.architecture import AlbertConfig


@dataclass(frozen=True)
class LayerApplication:
    """Indices of the blocks that one layer application uses."""

    attention: int
    feed_forward: int


def sharing_plan(config: AlbertConfig) -> tuple[LayerApplication, ...]:
    """The L × inner_group_num layer applications, in order.

    With sharing "all", layer i applies the inner layers of group ⌊i·G/L⌋ (integer arithmetic: the reference's
    floating-point form skips groups for some L). "attention" and "ffn" share only that block; "none" shares nothing.
    """
    layers = config.num_hidden_layers
    groups = config.num_hidden_groups
    inner = config.inner_group_num
    if config.sharing == "all":
        blocks = [(i * groups // layers) * inner + j for i in range(layers) for j in range(inner)]
        return tuple(LayerApplication(block, block) for block in blocks)
    return tuple(
        LayerApplication(0 if config.sharing == "attention" else i, 0 if config.sharing == "ffn" else i)
        for i in range(layers)
    )


def n_attention_blocks(config: AlbertConfig) -> int:
    """Number of attention blocks in memory."""
    return 1 + max(application.attention for application in sharing_plan(config))


def n_feed_forward_blocks(config: AlbertConfig) -> int:
    """Number of feed-forward blocks in memory."""
    return 1 + max(application.feed_forward for application in sharing_plan(config))
