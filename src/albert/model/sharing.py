"""Which layers share parameters (paper §3.1; Table 4).

A plan lists, for each layer application, the index of its attention block and of its feed-forward block. A block that
several applications use exists once in memory."""

from dataclasses import dataclass

from albert.recipes.architecture import MAX_DEPTH_FACTOR, EncoderConfig
from albert.runtime.errors import InvalidConfiguration


@dataclass(frozen=True)
class LayerApplication:
    """Indices of the blocks that one layer application uses."""

    attention: int
    feed_forward: int


def sharing_plan(config: EncoderConfig) -> tuple[LayerApplication, ...]:
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


def n_attention_blocks(config: EncoderConfig) -> int:
    """Number of attention blocks in memory."""
    return 1 + max(application.attention for application in sharing_plan(config))


def n_feed_forward_blocks(config: EncoderConfig) -> int:
    """Number of feed-forward blocks in memory."""
    return 1 + max(application.feed_forward for application in sharing_plan(config))


# --------------------------------------------------------------------------------------------------------------------
# Other depths (paper, appendix A.1): the first N layers, or more layers than a model was trained with if all layers
# share their parameters.


def allowed_depths(config: EncoderConfig) -> range:
    """Depths at which a model can run, in layers."""
    shares_all = config.sharing == "all" and config.num_hidden_groups == 1
    return range(1, config.num_hidden_layers * (MAX_DEPTH_FACTOR if shares_all else 1) + 1)


def check_depth(config: EncoderConfig, depth: int) -> None:
    """Raise InvalidConfiguration if a model cannot run at this depth."""
    allowed = allowed_depths(config)
    if depth in allowed and not isinstance(depth, bool | float):
        return
    shared = "which are one layer" if len(allowed) > config.num_hidden_layers else "not all of them the same"
    why = f"is {depth!r}, the model has {config.num_hidden_layers} layers, {shared}"
    raise InvalidConfiguration("depth", why, f"choose one from 1 to {allowed[-1]}")


def plan_for_depth(config: EncoderConfig, depth: int) -> tuple[LayerApplication, ...]:
    """Applications of the first `depth` layers; the plan repeats beyond the trained depth."""
    plan = sharing_plan(config)
    n_applications = depth * config.inner_group_num
    return (plan * -(-n_applications // len(plan)))[:n_applications]
