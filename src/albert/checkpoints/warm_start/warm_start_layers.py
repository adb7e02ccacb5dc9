"""Which layer of a trained model each layer of another begins as.

Depth: layer i of n takes layer ⌊i·k/n⌋ of k, so that a deeper model repeats every layer in place and a shallower one
takes layers evenly spaced; layers of a group stay in their group, for ⌊⌊i·k/n⌋·G/k⌋ = ⌊i·G/n⌋. (Lan et al. 2019, App.
A.1 warm-start each depth from the one before; with everything shared any order is the same.)
Sharing: a block that several layers use begins as the one block that all of their origins use. Where their origins use
different ones there is none: no single block computes what several do, and an average computes none of it.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from albert.model.config import AlbertConfig
from albert.model.parameter_sharing import LayerApplication, sharing_plan
from albert.runtime.errors import InvalidConfiguration

ROOMS = {"attentions": "attention", "feed_forwards": "feed_forward"}
"""Where the encoder keeps its blocks, and what a layer application calls them."""
_PREFIX = "albert.encoder."


def layer_origins(source: AlbertConfig, target: AlbertConfig) -> list[int]:
    """For every layer application of the target, the application of the source that it begins as.

    Raises:
        InvalidConfiguration: groups of another make-up at another depth.
    """
    k, n = source.num_hidden_layers, target.num_hidden_layers
    inner = target.inner_group_num
    if source.inner_group_num == inner:
        return [(layer * k // n) * inner + j for layer in range(n) for j in range(inner)]
    if k * source.inner_group_num == n * inner:
        return list(range(n * inner))
    why = f"is {source.inner_group_num} in the trained model and {inner} here, at another depth"
    raise InvalidConfiguration("inner_group_num", why, "change one of the two, or train from random weights")


def block_origins(source: AlbertConfig, target: AlbertConfig, room: str) -> list[list[int]]:
    """For every block of one room of the target, the source's blocks that its layers begin as, each once."""

    def used(application: LayerApplication) -> int:
        return getattr(application, ROOMS[room])

    before, now = sharing_plan(source), sharing_plan(target)
    found: dict[int, dict[int, None]] = {}
    for application, origin in zip(now, layer_origins(source, target), strict=True):
        found.setdefault(used(application), {})[used(before[origin])] = None
    return [list(found[block]) for block in range(len(found))]


def warm_start_layers(
    tensors: Mapping[str, Tensor], source: AlbertConfig, target: AlbertConfig, names: Sequence[str]
) -> dict[str, Tensor]:
    """The blocks of the target's encoder.

    Args:
        tensors: of the source, by our names.
        source, target: the two architectures, of equal H and F.
        names: the target's tensors; those of its blocks are returned.

    Raises:
        InvalidConfiguration: layers that differ in the source would have to become one.
    """
    made: dict[str, Tensor] = {}
    for room in ROOMS:
        for block, origins in enumerate(block_origins(source, target, room)):
            start = f"{_PREFIX}{room}.{block}."
            for name in (name for name in names if name.startswith(start)):
                first, *others = (tensors[f"{_PREFIX}{room}.{o}.{name.removeprefix(start)}"] for o in origins)
                if not all(torch.equal(first, other) for other in others):
                    why = f"cannot become {_described(target)}: layers that differ would have to be one"
                    remedy = "no shared layer computes what different ones do; keep the trained model's sharing"
                    raise InvalidConfiguration(_described(source), why, remedy)
                made[name] = first
    return made


def layers_note(source: AlbertConfig, target: AlbertConfig) -> str | None:
    """The change in words; None when there is none."""
    if _described(source) == _described(target):
        return None
    note = f"{_described(source)} → {_described(target)}"
    k, n = source.num_hidden_layers, target.num_hidden_layers
    return note if k == n else f"{note} (layer i begins as layer ⌊i·{k}/{n}⌋)"


def _described(config: AlbertConfig) -> str:
    words = f"{config.num_hidden_layers} layers with sharing {config.sharing}"
    if config.num_hidden_groups > 1:
        words += f" in {config.num_hidden_groups} groups"
    return words if config.inner_group_num == 1 else f"{words} of {config.inner_group_num} inner layers"
