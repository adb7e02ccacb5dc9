"""Google's TensorFlow checkpoints as tensors under transformers' names, every variable accounted for."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from albert.checkpoints.architectures import CLASSIFIERS, architecture_of, belongs_to, require_whole
from albert.checkpoints.huggingface import from_transformers
from albert.checkpoints.tensorflow.tensor_bundle import TensorBundle
from albert.checkpoints.tensorflow.tensorflow_config import Shapes, config_of, read_albert_config
from albert.checkpoints.tensorflow.tensorflow_files import CheckpointFiles, find_checkpoint
from albert.checkpoints.tensorflow.tensorflow_names import Place, sort_names
from albert.model.config import AlbertConfig
from albert.runtime.errors import DamagedData, InvalidConfiguration
from albert.runtime.progress import progress

OneOutput = Literal["regression", "multiple_choice"]
_LARGE = 2**28


@dataclass(frozen=True, kw_only=True)
class TensorflowCheckpoint:
    """A checkpoint, read.

    Args:
        config: of the model.
        extra: further keys for `config.json`.
        tensors: transformers' name -> tensor, in memory of its own.
        architecture: the class of transformers that they are.
        dropped: variables of the optimiser.
        unexpected: variables that have no place, each with the reason.
        ignored_keys: of `albert_config.json`, which the reference's code does not read either.
        files: where everything was.
        source: the index, for errors and reports.
        size: bytes of the tensors that were read.
    """

    config: AlbertConfig
    extra: dict[str, Any]
    tensors: dict[str, Tensor]
    architecture: str
    dropped: tuple[str, ...]
    unexpected: dict[str, str]
    ignored_keys: tuple[str, ...]
    files: CheckpointFiles
    source: str
    size: int


def read_tensorflow_checkpoint(
    path: Path,
    *,
    config_file: Path | None = None,
    tokenizer: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    one_output: OneOutput | None = None,
    dtype: torch.dtype | None = None,
) -> TensorflowCheckpoint:
    """Read a checkpoint that google-research/albert wrote or released.

    Names, shapes, configuration and sizes of files are checked before the first number is read.

    Args:
        path: a directory, a prefix, or one file of the checkpoint (see `tensorflow_files`).
        config_file: its `albert_config.json`, when that lies elsewhere.
        tokenizer: its vocabulary, when that lies elsewhere.
        overrides: what goes before `albert_config.json`: `num_hidden_layers`, `num_attention_heads`, `hidden_act`.
        one_output: what a classifier with one output is, STS-B's or RACE's; their checkpoints look alike.
        dtype: of the tensors; None leaves them as they are stored.

    Raises:
        MissingInput: a file is absent, or nobody says how many layers, heads or which activation.
        DamagedData: a file is damaged, of another model or another format.
        InvalidConfiguration: the configuration and the tensors contradict each other.
    """
    files = find_checkpoint(path, config_file, tokenizer)
    bundle = TensorBundle(files.prefix)
    where = str(bundle.index)
    found = sort_names(bundle.entries, where)
    shapes = {place.name: _shape(bundle, variable, place) for variable, place in found.placed.items()}
    said, ignored = read_albert_config(files.config, files.prefix.parent)
    config = config_of(said, shapes, overrides or {}, files.config, where)
    labels = next(iter(shapes.get("classifier.bias", ())), 2)
    architecture, extra = _architecture(shapes, labels, one_output, where)
    places = {variable: place for variable, place in found.placed.items() if belongs_to(place.name, architecture)}
    beside = {v: f"has no place in {architecture}" for v in found.placed if v not in places}
    bundle.require(places)
    described = {place.name: torch.empty(shapes[place.name], device="meta") for place in places.values()}
    require_whole(from_transformers(described, config, where), architecture, config, where)
    return TensorflowCheckpoint(
        config=config,
        extra=extra,
        tensors=_read(bundle, places, dtype),
        architecture=architecture,
        dropped=found.dropped,
        unexpected=found.unexpected | beside,
        ignored_keys=ignored,
        files=files,
        source=where,
        size=sum(bundle.entries[variable].size for variable in places),
    )


def _shape(bundle: TensorBundle, variable: str, place: Place) -> tuple[int, ...]:
    shape = bundle.entries[variable].shape
    return shape[::-1] if place.transposed else shape


def _architecture(shapes: Shapes, labels: int, one_output: OneOutput | None, where: str) -> tuple[str, dict[str, Any]]:
    architecture = architecture_of(shapes)
    if architecture not in CLASSIFIERS:
        return architecture, {}
    if labels > 1:
        return architecture, {"problem_type": "single_label_classification"}
    if one_output is None:
        why = "its classifier has one output: a score of a text, as for STS-B, or of an option, as for RACE"
        raise InvalidConfiguration(where, why, "say which: --one-output regression, or --one-output multiple_choice")
    if one_output == "regression":
        return architecture, {"problem_type": "regression"}
    return "AlbertForMultipleChoice", {}


def _read(bundle: TensorBundle, places: Mapping[str, Place], dtype: torch.dtype | None) -> dict[str, Tensor]:
    """The tensors, the largest first: one is in memory twice while it is transposed, early enough not to matter."""
    order = sorted(places, key=lambda variable: -bundle.entries[variable].size)
    size = sum(bundle.entries[variable].size for variable in places)
    tensors = {}
    with progress("Reading TensorFlow's tensors", total=size / 1e6, unit="MB", quiet=size < _LARGE) as bar:
        for variable in order:
            tensor = bundle.read(variable)
            file = bundle.data_file(bundle.entries[variable].shard)
            if not tensor.is_floating_point():
                raise DamagedData(file, f"{variable} holds {tensor.dtype}, numbers with a fraction are expected")
            if not all(map(math.isfinite, map(float, torch.aminmax(tensor)))):  # NaN is the smallest and the largest
                raise DamagedData(file, f"{variable} holds numbers that are not finite")
            place = places[variable]
            tensor = tensor.to(dtype or tensor.dtype)
            tensors[place.name] = tensor.t().contiguous() if place.transposed else tensor
            bar.advance(bundle.entries[variable].size / 1e6)
    return tensors
