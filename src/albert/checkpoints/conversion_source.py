"""What can be converted, read into one form: a TensorFlow checkpoint, or a directory of Hugging Face's layout."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from albert.checkpoints.architectures import architecture_of, belongs_to, require_whole
from albert.checkpoints.config_file import CONFIG_NAME, UNEVEN_GROUPS_KEY, read_config, with_overrides
from albert.checkpoints.huggingface import BACKBONE_PREFIX, from_transformers
from albert.checkpoints.int8_weights import INT8_WEIGHTS_NAME, QUANTIZATION_KEY, quantization_notes
from albert.checkpoints.known_quirks import known_quirks
from albert.checkpoints.location import find_model
from albert.checkpoints.model_directory import CARD_NAME
from albert.checkpoints.tensor_files import INDEX_NAME, WEIGHTS_NAME, stored_tensors
from albert.checkpoints.tensorflow.tensorflow_checkpoint import OneOutput, read_tensorflow_checkpoint
from albert.checkpoints.tensorflow.tensorflow_config import read_albert_config
from albert.checkpoints.tensorflow.tensorflow_files import holds_tensorflow
from albert.checkpoints.uneven_groups import spread_over_layers, uneven_groups_note
from albert.model.config import AlbertConfig
from albert.runtime.errors import MissingInput, UsageError
from albert.runtime.manifests import MANIFEST_NAME, verify_directory
from albert.text.tokenizer_directory import vocabulary_file


@dataclass(frozen=True, kw_only=True)
class ConversionOptions:
    """What whoever converts says of the source.

    Args:
        config_file: the `albert_config.json` of a TensorFlow checkpoint, when it lies elsewhere.
        overrides: fields of the configuration that go before what the source says.
        one_output: what a TensorFlow classifier with one output is.
        dtype: of the weights; None leaves them as they are.
        revision: of a Hub repository.
    """

    config_file: Path | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    one_output: OneOutput | None = None
    dtype: torch.dtype | None = None
    revision: str | None = None


@dataclass(frozen=True, kw_only=True)
class ConversionSource:
    """A model in memory, and where all of it came from.

    Args:
        kind: "TensorFlow checkpoint" or "Hugging Face directory".
        place: the file of the weights.
        size: bytes that were read of it.
        config: of the model.
        config_place: the file that says it; None where nothing but the command line did.
        extra: further keys of `config.json`.
        architecture: the class of transformers that the tensors are.
        tensors: our names -> tensors.
        dropped: tensors that say nothing of the model: an optimiser's, equal copies, saved buffers.
        unexpected: tensors that have no place, each with the reason.
        notes: what else a user ought to know.
        tokenizer: a vocabulary, or a directory that holds one; None where there is none.
        steps: checkpoints in the same place, of which this is the newest.
        card: the text of its model card, when it has one.
    """

    kind: str
    place: str
    size: int
    config: AlbertConfig
    config_place: Path | None
    extra: dict[str, Any]
    architecture: str
    tensors: dict[str, Tensor]
    dropped: tuple[str, ...]
    unexpected: dict[str, str]
    notes: tuple[str, ...]
    tokenizer: Path | None
    steps: int = 1
    card: str | None = None


def read_source(source: str, options: ConversionOptions) -> ConversionSource:
    """Read a model for conversion.

    Args:
        source: a directory, a file of a TensorFlow checkpoint or its prefix, or a Hub id.
        options: what the source does not say.

    Raises:
        MissingInput, Unavailable: there is nothing there that can be read.
        DamagedData, InvalidConfiguration: it is damaged, or contradicts itself.
        UsageError: an option that goes with the other kind of source.
    """
    path = _only_directory_in(Path(source))
    of_tensorflow = {"--config": options.config_file, "--one-output": options.one_output}
    if not _is_hugging_face(path) and holds_tensorflow(path):
        if options.revision is not None:
            raise UsageError("--revision", f"{options.revision!r} of {path}, which is no Hub repository")
        return _tensorflow(path, options)
    if not path.exists() and path.parent != Path() and path.parent.is_dir():  # nobody means a Hub id then
        raise MissingInput(path, "no such file or directory, and no checkpoint of that prefix")
    for flag, value in of_tensorflow.items():
        if value is not None:
            raise UsageError(flag, f"goes with a TensorFlow checkpoint, which {source} is not")
    return _hugging_face(source if not path.exists() else path, options)


def _only_directory_in(path: Path) -> Path:
    """A directory in which there is nothing but another one stands for that: archives unpack like that."""
    if not path.is_dir() or _is_hugging_face(path):
        return path
    inside = [entry for entry in path.iterdir() if not entry.name.startswith(".")]
    return inside[0] if len(inside) == 1 and _is_hugging_face(inside[0]) else path


def _is_hugging_face(path: Path) -> bool:
    names = (WEIGHTS_NAME, INDEX_NAME, INT8_WEIGHTS_NAME)
    return (path / CONFIG_NAME).is_file() and any((path / name).is_file() for name in names)


def _tensorflow(path: Path, options: ConversionOptions) -> ConversionSource:
    read = read_tensorflow_checkpoint(
        path,
        config_file=options.config_file,
        overrides=options.overrides,
        one_output=options.one_output,
        dtype=options.dtype,
    )
    said, _ = read_albert_config(read.files.config, path)
    notes = [f"keys that the reference's code ignores too: {', '.join(read.ignored_keys)}"] if read.ignored_keys else []
    if said.get("hidden_act") == "gelu" and "hidden_act" not in options.overrides:
        notes.append('"gelu" is the tanh form in the reference: gelu_new here and in transformers')
    if not read.config.projects_embeddings:
        notes.append("transformers maps E to H even where they are equal: the identity is written")
    notes += known_quirks(read.config, dict.fromkeys(read.ignored_keys))
    return ConversionSource(
        kind="TensorFlow checkpoint",
        place=read.source,
        size=read.size,
        config=read.config,
        config_place=read.files.config,
        extra=read.extra,
        architecture=read.architecture,
        tensors=from_transformers(read.tensors, read.config, read.source).tensors,
        dropped=read.dropped,
        unexpected=read.unexpected,
        notes=tuple(notes),
        tokenizer=read.files.tokenizer,
        steps=read.files.steps,
    )


def _hugging_face(source: str | Path, options: ConversionOptions) -> ConversionSource:
    directory = find_model(source, options.revision)
    if (directory / MANIFEST_NAME).is_file():
        verify_directory(directory)
    config, extra = read_config(directory)
    config = with_overrides(config, options.overrides)
    stored = stored_tensors(directory)
    notes = [*known_quirks(config, extra), *quantization_notes(extra, directory)]
    if (uneven := extra.get(UNEVEN_GROUPS_KEY)) is not None:
        layers = config.num_hidden_groups
        stored = replace(stored, by_name=spread_over_layers(stored.by_name, layers, uneven))
        notes.append(uneven_groups_note(layers, uneven))
    described = from_transformers(stored.described(), config, stored.source)
    stated = next(iter(extra.get("architectures") or []), None)
    architecture = architecture_of(described.in_file.values(), stated)
    require_whole(described, architecture, config, stored.source)
    beside = {theirs for ours, theirs in described.in_file.items() if not _belongs(ours, theirs, architecture)}
    reasons = dict.fromkeys(described.unexpected, "is no tensor of an ALBERT")
    left = {*beside, *described.unexpected}
    tensors = stored.read([name for name in stored.by_name if name not in left], options.dtype)
    size = sum(stored.by_name[name].n_bytes for name in tensors)
    renamed = from_transformers(tensors, config, stored.source)
    card = directory / CARD_NAME
    return ConversionSource(
        kind="Hugging Face directory",
        place=stored.source,
        size=size,
        config=config,
        config_place=directory / CONFIG_NAME,
        extra=extra,
        architecture=architecture,
        tensors=renamed.tensors,
        dropped=renamed.dropped,
        unexpected=reasons | dict.fromkeys(beside, f"has no place in {architecture}"),
        notes=tuple(notes),
        tokenizer=directory if vocabulary_file(directory).is_file() else None,
        card=card.read_text(encoding="utf-8") if card.is_file() and QUANTIZATION_KEY not in extra else None,
    )


def _belongs(ours: str, theirs: str, architecture: str) -> bool:
    """A head goes by its name in the file, which tells a next-sentence head from one for sentence order."""
    return belongs_to(ours if ours.startswith(BACKBONE_PREFIX) else theirs, architecture)
