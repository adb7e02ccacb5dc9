"""Which layers are the same layer (paper §3.1, "cross-layer parameter sharing"; Table 4).

The whole of it is a plan: for each application of a layer, which attention block and which feed-forward block to use.
Blocks that several applications name exist once in memory.
"""

from dataclasses import dataclass

from albert.model.config import AlbertConfig


@dataclass(frozen=True)
class LayerApplication:
    """One of the L steps through the network, as indices of the blocks it uses."""

    attention: int
    feed_forward: int


def sharing_plan(config: AlbertConfig) -> tuple[LayerApplication, ...]:
    """The blocks of every layer application, in order; there are L × inner_group_num of them.

    With sharing "all", layer i belongs to group ⌊i·G/L⌋ (in integers: the reference's floating-point form skips groups
    for some L), and applies that group's inner layers in turn. "attention" or "ffn" share that one block over all
    layers and keep the other of each layer apart; "none" shares nothing.
    """
    layers, groups, inner = config.num_hidden_layers, config.num_hidden_groups, config.inner_group_num
    if config.sharing == "all":
        blocks = [(i * groups // layers) * inner + j for i in range(layers) for j in range(inner)]
        return tuple(LayerApplication(block, block) for block in blocks)
    return tuple(
        LayerApplication(0 if config.sharing == "attention" else i, 0 if config.sharing == "ffn" else i)
        for i in range(layers)
    )


def n_attention_blocks(config: AlbertConfig) -> int:
    """Different attention blocks in memory."""
    return 1 + max(application.attention for application in sharing_plan(config))


def n_feed_forward_blocks(config: AlbertConfig) -> int:
    """Different feed-forward blocks in memory."""
    return 1 + max(application.feed_forward for application in sharing_plan(config))
