"""How deep a model runs: where all layers are one layer, its depth is anybody's choice (paper, appendix A.1).

A depth of N is the first N layers. A model whose layers are one layer may be run deeper than it was trained, too; one
with layers of its own has no more than it has.
"""

from collections.abc import Mapping
from typing import Any

from torch import nn

from albert.model.config import AlbertConfig
from albert.model.parameter_sharing import LayerApplication, sharing_plan
from albert.runtime.errors import InvalidConfiguration

EXITS_KEY = "exit_depths"
"""In `config.json`: the depths at which the head learnt to answer, in layers."""
MOST_TIMES_DEEPER = 8
"""So many times the trained depth is the limit: what is beyond is a slip of the pen."""


def depths_of(config: AlbertConfig) -> range:
    """The depths that a model can be run at, in layers."""
    is_one_layer = config.sharing == "all" and config.num_hidden_groups == 1
    return range(1, config.num_hidden_layers * (MOST_TIMES_DEEPER if is_one_layer else 1) + 1)


def check_depth(config: AlbertConfig, depth: int) -> None:
    """Raises InvalidConfiguration when a model cannot be run at that depth, and says which ones it can."""
    allowed = depths_of(config)
    if depth in allowed:
        return
    shared = "which are one layer" if len(allowed) > config.num_hidden_layers else "not all of them the same"
    why = f"is {depth}, the model has {config.num_hidden_layers} layers, {shared}"
    raise InvalidConfiguration("depth", why, f"choose one from 1 to {allowed[-1]}")


def run_to_depth(model: nn.Module, depth: int) -> None:
    """Let a model apply its first `depth` layers, or its one layer so many times. Its configuration stays.

    Args:
        model: one of the model classes.
        depth: in layers, of which each is `inner_group_num` applications.

    Raises:
        InvalidConfiguration: the model cannot be run so deep.
    """
    config = model.config
    assert isinstance(config, AlbertConfig)
    check_depth(config, depth)
    backbone: Any = getattr(model, "albert", model)
    backbone.encoder.plan = plan_to_depth(config, depth)


def plan_to_depth(config: AlbertConfig, depth: int) -> tuple[LayerApplication, ...]:
    """The applications of the first `depth` layers, the plan going round where a model of one layer goes deeper."""
    plan = sharing_plan(config)
    wanted = depth * config.inner_group_num
    return (plan * -(-wanted // len(plan)))[:wanted]


def stated_exits(extra: Mapping[str, Any], model: str) -> tuple[int, ...]:
    """The depths at which a model learnt to answer, ascending, as its `config.json` says.

    Args:
        extra: the keys of `config.json` beside the configuration.
        model: how to call it in an error.

    Raises:
        InvalidConfiguration: it learnt to answer at its full depth alone, or what is said is no list of depths.
    """
    stated = extra.get(EXITS_KEY)
    if stated is None:
        why = "learnt to answer after its last layer alone"
        raise InvalidConfiguration(model, why, "fine-tune it with --exits every, or leave the patience out")
    if not isinstance(stated, list) or not all(type(depth) is int and depth > 0 for depth in stated):
        raise InvalidConfiguration(f"{model}: {EXITS_KEY}", f"is {stated!r}, depths are expected")
    return tuple(sorted(set(stated)))
