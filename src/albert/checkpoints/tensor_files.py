"""Weights on disk: safetensors only, in one file or in several under an index; a pickle is never loaded."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from albert.checkpoints.huggingface import BUFFERS
from albert.runtime.errors import DamagedData, MissingInput
from albert.runtime.progress import progress
from albert.runtime.strict_json import read_json_object

WEIGHTS_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_OTHERS = {"tf_model.h5": "TensorFlow", "flax_model.msgpack": "Flax"}
_LARGE = 2**28


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors as safetensors with the metadata that transformers asks for."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(plain, path, metadata={"format": "pt"})


def read_tensors(directory: Path) -> tuple[dict[str, Tensor], str]:
    """All tensors of a model directory, on the CPU, with the name of the file to speak of in errors.

    Raises:
        MissingInput: no weights, or none that can be read safely.
        DamagedData: the file is cut or not safetensors, or holds numbers that are not finite.
    """
    files = _weight_files(directory)
    size = sum(file.stat().st_size for file in files)
    tensors: dict[str, Tensor] = {}
    with progress("Reading weights", total=size / 1e6, unit="MB", quiet=size < _LARGE) as bar:
        for file in files:
            try:
                with safe_open(file, framework="pt", device="cpu") as content:
                    for name in content.keys():  # noqa: SIM118 (not a mapping)
                        # A copy, so that the model does not hang on the file's pages.
                        tensors[name] = _checked(content.get_tensor(name).clone(), name, file)
                        bar.advance(tensors[name].nbytes / 1e6)
            except (SafetensorError, OSError) as error:
                raise DamagedData(file, f"is not a whole safetensors file ({_line(error)})") from error
    return tensors, str(files[0] if len(files) == 1 else directory / INDEX_NAME)


def _weight_files(directory: Path) -> list[Path]:
    if (directory / WEIGHTS_NAME).is_file():
        return [directory / WEIGHTS_NAME]
    if (directory / INDEX_NAME).is_file():
        return _sharded(directory)
    for name in _PICKLES:
        if (directory / name).exists():
            raise MissingInput(
                directory / name,
                "is a pickle, which can run any code and is never loaded here",
                "where you trust it, let transformers save it again: "
                "AutoModel.from_pretrained(...).save_pretrained(...) writes model.safetensors",
            )
    for name, framework in _OTHERS.items():
        if (directory / name).exists():
            raise MissingInput(directory / name, f"holds {framework} weights", f"convert them to {WEIGHTS_NAME} first")
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
    if not tensor.is_floating_point():
        if not name.endswith(BUFFERS):
            raise DamagedData(file, f"{name} holds {tensor.dtype}, numbers with a fraction are expected")
        return tensor
    if not bool(torch.isfinite(tensor).all()):
        raise DamagedData(file, f"{name} holds numbers that are not finite")
    return tensor


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
