"""What a safetensors file says it holds: names, types, shapes and places, believed only where the file bears it out.

The format (huggingface/safetensors): 8 bytes with the length of the header, the header in JSON, then the tensors,
one after the other without a gap.
"""

import json
import math
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from albert.runtime.errors import DamagedData, MissingInput
from albert.runtime.input_files import open_input
from albert.runtime.strict_json import each_key_once

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_PREFIX = struct.Struct("<Q")
_LARGEST_HEADER = 2**24
"""Bytes; a thousand layers that share nothing need three million."""
_LARGEST_NUMBER = 2**62
_PICKLE_BEGINNINGS = (b"PK\x03\x04", b"\x80")


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file, of which nothing but the header has been read.

    Args:
        file: the file.
        place: its first byte in the file.
        dtype, shape: what it is.
    """

    file: Path
    place: int
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        """Bytes in the file."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(path: Path) -> dict[str, StoredTensor]:
    """Every tensor of a safetensors file.

    Raises:
        MissingInput: the file cannot be read.
        DamagedData: it is cut, a pickle, or anything else but safetensors; or a tensor is of no type that a model has.
    """
    try:
        with open_input(path) as file:
            size = os.fstat(file.fileno()).st_size
            prefix = file.read(_PREFIX.size)
            length = _PREFIX.unpack(prefix)[0] if len(prefix) == _PREFIX.size else 0
            if prefix.startswith(_PICKLE_BEGINNINGS) and length > _LARGEST_HEADER:
                why = "is a pickle under the name of safetensors, which can run any code and is never loaded here"
                raise DamagedData(path, why)
            if not 2 <= length <= min(size - _PREFIX.size, _LARGEST_HEADER):
                raise _damaged(path, f"its header would have {length:,} bytes, the file has {size:,}")
            header = file.read(length)
    except OSError as error:
        raise MissingInput(path, error.strerror or "cannot be read") from error
    return _tensors(path, _entries(path, header), _PREFIX.size + length, size)


def _entries(path: Path, header: bytes) -> dict[str, Any]:
    try:
        entries = json.loads(header, object_pairs_hook=each_key_once)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"its header is not JSON: {error}") from error
    if not isinstance(entries, dict):
        raise _damaged(path, "its header is no object")
    entries.pop("__metadata__", None)
    return entries


def _tensors(path: Path, entries: dict[str, Any], data: int, size: int) -> dict[str, StoredTensor]:
    stored: dict[str, StoredTensor] = {}
    ends: dict[str, int] = {}
    for name, entry in entries.items():
        try:
            kind, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
            numbers = (*shape, begin, end)
        except (TypeError, KeyError, ValueError) as error:
            raise _damaged(path, f"{name} is not described") from error
        if not name.isprintable():
            raise _damaged(path, f"a tensor is called {name!r}")
        if not all(type(number) is int and 0 <= number < _LARGEST_NUMBER for number in numbers):
            raise _damaged(path, f"{name} has sizes that are none")
        if math.prod(max(size, 1) for size in shape) >= _LARGEST_NUMBER:  # none of it, but rows that cannot be counted
            raise _damaged(path, f"{name} has sizes that are none")
        if not isinstance(kind, str) or kind not in DTYPES:
            raise DamagedData(path, f"{name} holds numbers of type {kind!r}", f"known: {', '.join(DTYPES)}")
        stored[name] = StoredTensor(path, data + begin, DTYPES[kind], shape)
        ends[name] = data + end
    reached = data
    for name in sorted(stored, key=lambda name: (stored[name].place, ends[name])):
        tensor = stored[name]
        if tensor.place != reached or ends[name] - tensor.place != tensor.n_bytes:
            raise _damaged(path, f"{name} does not lie where a tensor of shape {tensor.shape} would")
        reached = ends[name]
    if reached != size:
        raise _damaged(path, f"its tensors end at byte {reached:,}, the file at {size:,}")
    return stored


def _damaged(path: Path, detail: str) -> DamagedData:
    return DamagedData(path, f"is not a whole safetensors file ({detail})")
