"""Matrices stored as 8-bit integers with a scale for each row, restored to float32 when they are read.

They lie in a file of another name than transformers looks for, and under other names than its own, so that nothing
takes the integers for weights: matrix `NAME` is `NAME.int8` [rows, columns] and `NAME.scale` [rows]; what else there
is keeps its name and type.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float32, Int8
from torch import Tensor

from albert.checkpoints.safetensors_header import StoredTensor
from albert.runtime.errors import DamagedData

INT8_WEIGHTS_NAME = "model.int8.safetensors"
QUANTIZATION_KEY = "albert_quantization"
"""In `config.json`."""
FORMAT = "int8-per-channel"
_VALUES, _SCALE = ".int8", ".scale"


def stored_names(name: str) -> tuple[str, str]:
    """What a matrix's integers and scales are called in the file."""
    return name + _VALUES, name + _SCALE


def matrices_and_scales(
    stored: Mapping[str, StoredTensor],
) -> tuple[dict[str, StoredTensor], dict[str, StoredTensor]]:
    """The tensors of such a file by the names that they have elsewhere, and the scales of those that are integers.

    Raises:
        DamagedData: integers without scales, scales without integers, or their shapes or types do not go together.
    """
    by_name = dict(stored)
    scales: dict[str, StoredTensor] = {}
    for name in [name.removesuffix(_VALUES) for name in stored if name.endswith(_VALUES)]:
        values, scale = by_name.pop(name + _VALUES), by_name.pop(name + _SCALE, None)
        if scale is None or name in by_name:
            raise DamagedData(values.file, f"{name} {'lacks its scales' if scale is None else 'stands there twice'}")
        if (values.dtype, scale.dtype) != (torch.int8, torch.float32) or scale.shape != values.shape[:1]:
            found = f"{values.dtype} {values.shape} with scales {scale.dtype} {scale.shape}"
            raise DamagedData(values.file, f"{name} is {found}, integers with a scale for each row are expected")
        by_name[name], scales[name] = values, scale
    for name, other in by_name.items():
        if name not in scales and (name.endswith(_SCALE) or not other.dtype.is_floating_point):
            raise DamagedData(other.file, f"{name} is {other.dtype}, and no part of a matrix of integers and scales")
    return by_name, scales


def restore(values: Int8[Tensor, "rows columns"], scales: Float32[Tensor, " rows"]) -> Float32[Tensor, "rows columns"]:
    """The weights that the integers stand for; quantised again they give the same integers and scales."""
    return values * scales[:, None]


def quantization_notes(extra: Mapping[str, Any], directory: Path) -> tuple[str, ...]:
    """What a user has to know of a model whose matrices were stored as integers; nothing of another.

    Args:
        extra: the keys of `config.json` beside the configuration.
        directory: the model's.

    Raises:
        DamagedData: they are stored in a form that this version does not know.
    """
    stated = extra.get(QUANTIZATION_KEY)
    if stated is None:
        return ()
    form = stated.get("format") if isinstance(stated, Mapping) else stated
    if form != FORMAT:
        raise DamagedData(
            directory / "config.json", f"{QUANTIZATION_KEY} has format {form!r}", f"{FORMAT!r} is known here"
        )
    return ("matrices are stored as 8-bit integers, one scale a row; they were restored to float32",)
