"""Weights on disk: safetensors in one file or several, and 8-bit matrices; a pickle is never loaded."""

import json
import math
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float32, Int8
from safetensors.torch import save_file
from torch import Tensor

from albert.checkpoints.huggingface import BUFFERS
from albert.runtime.errors import DamagedData, MissingInput, OutOfResources
from albert.runtime.files import written_by_library
from albert.runtime.json_files import each_key_once, read_json_object
from albert.runtime.manifest import open_input, open_unbuffered
from albert.runtime.progress import progress

# --------------------------------------------------------------------------------------------------------------------
# The header of a safetensors file: names, types, shapes and offsets, checked against the file.
#
# The format (huggingface/safetensors): 8 bytes with the length of the header, the header in JSON, then the tensors,
# one after the other without a gap.

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
    """A tensor in a file, of which nothing but the header has been read."""

    file: Path
    place: int
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        """Bytes in the file."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(path: Path) -> dict[str, StoredTensor]:
    """Every tensor of a safetensors file."""
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
        raise _damaged(path, "its header is not a JSON object")
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
            raise _damaged(path, f"{name} has invalid sizes")
        if math.prod(max(size, 1) for size in shape) >= _LARGEST_NUMBER:  # none of it, but rows that cannot be counted
            raise _damaged(path, f"{name} has invalid sizes")
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


# --------------------------------------------------------------------------------------------------------------------
# Matrices stored as 8-bit integers with a scale for each row, restored to float32 when they are read.
#
# They lie in a file of another name than transformers looks for, and under other names than its own, so that
# nothing takes the integers for weights: matrix `NAME` is `NAME.int8` [rows, columns] and `NAME.scale` [rows]; what
# else there is keeps its name and type.

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
    """The tensors of such a file by the names that they have elsewhere, and the scales of those that are integers."""
    by_name = dict(stored)
    scales: dict[str, StoredTensor] = {}
    for name in [name.removesuffix(_VALUES) for name in stored if name.endswith(_VALUES)]:
        values, scale = by_name.pop(name + _VALUES), by_name.pop(name + _SCALE, None)
        if scale is None or name in by_name:
            raise DamagedData(values.file, f"{name} {'lacks its scales' if scale is None else 'occurs twice'}")
        if (values.dtype, scale.dtype) != (torch.int8, torch.float32) or scale.shape != values.shape[:1]:
            found = f"{values.dtype} {values.shape} with scales {scale.dtype} {scale.shape}"
            raise DamagedData(values.file, f"{name} is {found}, integers with a scale for each row are expected")
        by_name[name], scales[name] = values, scale
    for name, other in by_name.items():
        if name not in scales and (name.endswith(_SCALE) or not other.dtype.is_floating_point):
            raise DamagedData(other.file, f"{name} is {other.dtype}, and belongs to no matrix of integers")
    return by_name, scales


def restore(values: Int8[Tensor, "rows columns"], scales: Float32[Tensor, " rows"]) -> Float32[Tensor, "rows columns"]:
    """The weights that the integers stand for; quantised again they give the same integers and scales."""
    return values * scales[:, None]


def quantization_notes(extra: Mapping[str, Any], directory: Path) -> tuple[str, ...]:
    """What a user has to know of a model whose matrices were stored as integers; nothing of another."""
    stated = extra.get(QUANTIZATION_KEY)
    if stated is None:
        return ()
    form = stated.get("format") if isinstance(stated, Mapping) else stated
    if form != FORMAT:
        raise DamagedData(
            directory / "config.json", f"{QUANTIZATION_KEY} has format {form!r}", f"{FORMAT!r} is known here"
        )
    return ("matrices are stored as 8-bit integers, one scale a row; they were restored to float32",)


WEIGHTS_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_OTHERS = {"tf_model.h5": ("TensorFlow", "from_tf"), "flax_model.msgpack": ("Flax", "from_flax")}
_LARGE = 2**28


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors as safetensors with the metadata that transformers asks for."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with written_by_library(path):
        save_file(plain, path, metadata={"format": "pt"})


@dataclass(frozen=True)
class StoredTensors:
    """The tensors of a model directory, none of them read yet."""

    source: str
    by_name: Mapping[str, StoredTensor]
    scales: Mapping[str, StoredTensor] = field(default_factory=dict)

    def described(self) -> dict[str, Tensor]:
        """Names, types and shapes as tensors that have no memory."""
        return {
            name: torch.empty(stored.shape, dtype=torch.float32 if name in self.scales else stored.dtype, device="meta")
            for name, stored in self.by_name.items()
        }

    def read(self, names: Iterable[str], dtype: torch.dtype | None = None) -> dict[str, Tensor]:
        """Read some tensors, each into memory of its own, so that nothing hangs on the file."""
        wanted = {name: self.by_name[name] for name in names}
        size = sum(stored.n_bytes for stored in wanted.values())
        tensors: dict[str, Tensor] = {}
        with progress("Reading weights", total=size / 1e6, unit="MB", quiet=size < _LARGE) as bar:
            for path in sorted({stored.file for stored in wanted.values()}):
                try:
                    with open_unbuffered(path) as file:
                        for name, stored in wanted.items():
                            if stored.file == path:
                                tensor = require_finite(self._restored(file, name), name, path)
                                tensors[name] = tensor.to(dtype) if dtype and tensor.is_floating_point() else tensor
                                bar.advance(stored.n_bytes / 1e6)
                except OSError as error:
                    raise MissingInput(path, error.strerror or "cannot be read") from error
        return tensors

    def _restored(self, file: FileIO, name: str) -> Tensor:
        tensor = _read(file, self.by_name[name])
        return restore(tensor, _read(file, self.scales[name])) if name in self.scales else tensor


def stored_tensors(directory: Path) -> StoredTensors:
    """What the weights of a model directory are, by their headers."""
    files = _weight_files(directory)
    if files[0].name == INT8_WEIGHTS_NAME:
        return StoredTensors(str(files[0]), *matrices_and_scales(read_header(files[0])))
    by_name: dict[str, StoredTensor] = {}
    for file in files:
        for name, stored in read_header(file).items():
            if name in by_name:
                raise DamagedData(file, f"holds {name}, which {by_name[name].file.name} holds too")
            if not (stored.dtype.is_floating_point or name.endswith(BUFFERS)):
                raise DamagedData(file, f"{name} holds {stored.dtype}, numbers with a fraction are expected")
            by_name[name] = stored
    return StoredTensors(str(files[0] if len(files) == 1 else directory / INDEX_NAME), by_name)


def _read(file: FileIO, stored: StoredTensor) -> Tensor:
    try:
        tensor = torch.empty(stored.shape, dtype=stored.dtype)
    except RuntimeError as error:
        raise OutOfResources(
            stored.file, f"needs {stored.n_bytes:,} bytes of memory for one tensor, more than there are"
        ) from error
    if not stored.n_bytes:
        return tensor
    memory = tensor.view(-1).view(torch.uint8).numpy().data
    file.seek(stored.place, os.SEEK_SET)
    done = 0
    while done < stored.n_bytes:
        count = file.readinto(memory[done:])
        if not count:
            raise DamagedData(stored.file, "became shorter while it was read")
        done += count
    return tensor


def _weight_files(directory: Path) -> list[Path]:
    if (directory / WEIGHTS_NAME).is_file():
        return [directory / WEIGHTS_NAME]
    if (directory / INDEX_NAME).is_file():
        return _sharded(directory)
    if (directory / INT8_WEIGHTS_NAME).is_file():
        return [directory / INT8_WEIGHTS_NAME]
    for name in _PICKLES:
        if (directory / name).exists():
            raise MissingInput(
                directory / name,
                "is a pickle, which can run any code and is never loaded here",
                "where you trust it, let transformers save it again: "
                "AutoModel.from_pretrained(...).save_pretrained(...) writes model.safetensors",
            )
    for name, (framework, flag) in _OTHERS.items():
        if (directory / name).exists():
            remedy = f"transformers 4 opens them with {flag}=True and saves {WEIGHTS_NAME}"
            raise MissingInput(directory / name, f"holds {framework} weights", remedy)
    raise MissingInput(directory, f"holds no {WEIGHTS_NAME}", "name a directory that albert or transformers wrote")


def _sharded(directory: Path) -> list[Path]:
    index = directory / INDEX_NAME
    placed = read_json_object(index).get("weight_map")
    if not isinstance(placed, dict) or not placed:
        raise DamagedData(index, "holds no weight_map")
    files = []
    for name in sorted({str(file) for file in placed.values()}):
        if Path(name).name != name:
            raise DamagedData(index, f"names {name!r}, which is not a file of this directory")
        if not (directory / name).is_file():
            raise MissingInput(directory / name, f"is named by {INDEX_NAME} but missing")
        files.append(directory / name)
    return files


def require_finite(tensor: Tensor, name: str, file: Path) -> Tensor:
    """The tensor, if it holds no NaN and no infinity."""
    # The extremes tell it without a mask as large as the tensor: one that is not a number is the extreme.
    if (
        tensor.numel()
        and tensor.is_floating_point()
        and not all(bool(torch.isfinite(extreme)) for extreme in torch.aminmax(tensor))
    ):
        raise DamagedData(file, f"{name} holds numbers that are not finite")
    return tensor
