"""Groups of layers that do not divide the layers: transformers takes such models, and spreads the groups unevenly.

Here groups are of equal size, so such a model is opened with a group a layer: the same numbers come out, and its
layers share nothing any more.
"""

import re
from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")
_IN_GROUP = re.compile(r"((?:albert\.)?encoder\.albert_layer_groups\.)(\d{1,6})(\..+)")


def groups_of_layers(layers: int, groups: int) -> list[int]:
    """The group of each layer, in floating point as transformers computes it (`AlbertTransformer.forward`)."""
    return [int(layer / (layers / groups)) for layer in range(layers)]


def spread_over_layers(tensors: Mapping[str, T], layers: int, groups: int) -> dict[str, T]:
    """transformers' tensors of a model with uneven groups, named as those of one with a group a layer.

    Args:
        tensors: by names in a file; what stands in a group that no layer uses is left out.
        layers, groups: what `config.json` says.
    """
    members: dict[int, list[int]] = {}
    for layer, group in enumerate(groups_of_layers(layers, groups)):
        members.setdefault(group, []).append(layer)
    spread: dict[str, T] = {}
    for name, tensor in tensors.items():
        found = _IN_GROUP.fullmatch(name)
        if found is None:
            spread[name] = tensor
            continue
        before, group, after = found.groups()
        spread |= {f"{before}{layer}{after}": tensor for layer in members.get(int(group), [])}
    return spread


def uneven_groups_note(layers: int, groups: int) -> str:
    """What became of the groups, for people."""
    used = len(set(groups_of_layers(layers, groups)))
    said = f"{groups} groups do not divide {layers} layers: every layer has its own copy of its group's weights here"
    return said + (f"; {groups - used} groups, which no layer uses, are left out" if used < groups else "")
