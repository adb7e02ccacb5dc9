"""A small configuration, a fixture that changes files of a model directory, and checkpoints of TensorFlow."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.checkpoints import tensorflow_writer
from tests.tiny import tiny_config

from albert.checkpoints.model_directory import write_model
from albert.cli.main import run
from albert.model.albert import AlbertForPreTraining
from albert.recipes.architecture import EncoderConfig


@pytest.fixture
def config() -> EncoderConfig:
    return tiny_config(50, num_hidden_layers=3, max_position_embeddings=20)


@pytest.fixture
def directory(tmp_path: Path, config: EncoderConfig) -> Path:
    """A pre-training model without a manifest, so that tests may change it."""
    path = tmp_path / "model"
    path.mkdir()
    write_model(path, AlbertForPreTraining(config), None)
    return path


@pytest.fixture
def described(capsys) -> Callable[[Path], dict[str, Any]]:
    """Returns a function: what `albert info --json` says of a model directory."""

    def describe(path: Path) -> dict[str, Any]:
        capsys.readouterr()
        assert run(["info", str(path), "--json"]) == 0
        return json.loads(capsys.readouterr().out)["model"]

    return describe


@pytest.fixture
def rewrite() -> Callable[..., None]:
    """Change keys of `config.json` (None removes one) and tensors of `model.safetensors`."""

    def change(
        directory: Path,
        keys: Mapping[str, Any] | None = None,
        tensors: Callable[[dict[str, torch.Tensor]], None] | None = None,
    ) -> None:
        path = directory / "config.json"
        content = json.loads(path.read_text()) | dict(keys or {})
        path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
        if tensors is not None:
            content = load_file(directory / "model.safetensors")
            tensors(content)
            save_file({name: tensor.clone() for name, tensor in content.items()}, directory / "model.safetensors")

    return change


@pytest.fixture(scope="session")
def checkpoints() -> Path:
    """The folder of checkpoints that `dev/scripts/make_tensorflow_checkpoints.py` wrote."""
    return Path(__file__).parent / "tensorflow"


@pytest.fixture(scope="session")
def writer() -> ModuleType:
    """A writer of the same format."""
    return tensorflow_writer
