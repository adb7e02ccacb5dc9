"""Weights on disk: safetensors only, in one file or in several under an index; a pickle is never loaded."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from albert.checkpoints.file_relics import BUFFERS
from albert.checkpoints.int8_weights import INT8_WEIGHTS_NAME, matrices_and_scales, restore
from albert.checkpoints.safetensors_header import StoredTensor, read_header
from albert.runtime.durable_files import written_by_library
from albert.runtime.errors import DamagedData, MissingInput, OutOfResources
from albert.runtime.input_files import open_unbuffered
from albert.runtime.progress import progress
from albert.runtime.strict_json import read_json_object

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
    """The tensors of a model directory, none of them read yet.

    Args:
        source: the file to speak of in errors, or the index when there are several.
        by_name: every tensor.
        scales: of the rows of those that are stored as integers.
    """

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
        """Read some tensors, each into memory of its own, so that nothing hangs on the file.

        Args:
            names: which ones.
            dtype: what to make of numbers with a fraction; None leaves them as they are.

        Raises:
            MissingInput: a file cannot be read.
            DamagedData: a file changed under us, or a tensor holds no numbers of a model.
            OutOfResources: there is not enough memory.
        """
        wanted = {name: self.by_name[name] for name in names}
        size = sum(stored.n_bytes for stored in wanted.values())
        tensors: dict[str, Tensor] = {}
        with progress("Reading weights", total=size / 1e6, unit="MB", quiet=size < _LARGE) as bar:
            for path in sorted({stored.file for stored in wanted.values()}):
                try:
                    with open_unbuffered(path) as file:
                        for name, stored in wanted.items():
                            if stored.file == path:
                                tensor = _checked(self._restored(file, name), name, path)
                                tensors[name] = tensor.to(dtype) if dtype and tensor.is_floating_point() else tensor
                                bar.advance(stored.n_bytes / 1e6)
                except OSError as error:
                    raise MissingInput(path, error.strerror or "cannot be read") from error
        return tensors

    def _restored(self, file: FileIO, name: str) -> Tensor:
        tensor = _read(file, self.by_name[name])
        return restore(tensor, _read(file, self.scales[name])) if name in self.scales else tensor


def stored_tensors(directory: Path) -> StoredTensors:
    """What the weights of a model directory are, by their headers.

    Raises:
        MissingInput: no weights, or none that can be read safely.
        DamagedData: a file is cut or not safetensors, or the index does not describe the files.
    """
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
            stored.file, f"{stored.n_bytes:,} bytes of memory are not to be had for one tensor"
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


def _checked(tensor: Tensor, name: str, file: Path) -> Tensor:
    # The extremes tell it without a mask as large as the tensor: one that is not a number is the extreme.
    if (
        tensor.numel()
        and tensor.is_floating_point()
        and not all(bool(torch.isfinite(extreme)) for extreme in torch.aminmax(tensor))
    ):
        raise DamagedData(file, f"{name} holds numbers that are not finite")
    return tensor
