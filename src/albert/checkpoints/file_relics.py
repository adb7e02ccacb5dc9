"""What files of many years hold beside the tensors of a model, or call otherwise.

Copies of tied tensors, buffers that were saved once, the LayerNorm's old names, an encoder without its prefix.
"""

from collections.abc import Collection, Iterable

import torch
from torch import Tensor

from albert.runtime.errors import DamagedData

BACKBONE_PREFIX = "albert."
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
PREDICTIONS_BIAS, DECODER_BIAS = "predictions.bias", "predictions.decoder.bias"
_TIED = {
    "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
    DECODER_BIAS: PREDICTIONS_BIAS,
}
_OLD_LAYER_NORM = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


def current_names(names: Iterable[str], heads: Collection[str]) -> dict[str, str]:
    """Today's name of every tensor -> its name in the file. One that is there under both keeps its old name, too.

    Args:
        names: those in the file; an encoder that was saved alone has no prefix.
        heads: first parts of the names that stand outside the encoder.
    """
    names = list(names)
    prefixed = any(name.startswith(BACKBONE_PREFIX) for name in names)
    found: dict[str, str] = {}
    for name in sorted(names, key=lambda name: _modern(name) != name):
        full = name if prefixed or name.split(".", 1)[0] in heads else BACKBONE_PREFIX + name
        found[full if _modern(full) in found else _modern(full)] = name
    return found


def drop_equal_ties(content: dict[str, Tensor], where: str) -> list[str]:
    """Remove copies of tied tensors from `content`; a copy without its original takes its place.

    Returns:
        the removed names, without `predictions.decoder.bias`, which every file of ours has.

    Raises:
        DamagedData: a copy differs.
    """
    copies = []
    for copy, original in _TIED.items():
        if copy not in content:
            continue
        if original not in content:
            content[original] = content.pop(copy)
            continue
        if differ(content[copy], content[original]):
            raise DamagedData(
                where,
                f"{copy} and {original} are tied in ALBERT but differ in this file",
                f"save the model again with the two tied, or remove {copy}",
            )
        del content[copy]
        if copy != DECODER_BIAS:
            copies.append(copy)
    return copies


def differ(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are not the same; of tensors on the meta device, whether they cannot be."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return True
    return not one.is_meta and not torch.equal(one, other)


def _modern(name: str) -> str:
    for old, new in _OLD_LAYER_NORM.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name
