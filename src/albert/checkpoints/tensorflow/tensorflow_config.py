"""`albert_config.json`, held against the tensors beside it.

What the tensors show must be what the file says. They do not show how often a layer is applied, the number of heads
and the activation: those must be said, by the file or by whoever converts.
"""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from albert.model.config import AlbertConfig
from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput
from albert.runtime.strict_json import from_json, read_json_object

CONFIG_NAME = "albert_config.json"
_NOT_SHOWN = ("num_hidden_layers", "num_attention_heads", "hidden_act")
_OURS_ALONE = ("sharing", "embedding_projection", "layer_norm_eps", "classifier_dropout_prob")
_KNOWN = tuple(field.name for field in fields(AlbertConfig) if field.name not in _OURS_ALONE)
_ACTIVATIONS = {"gelu": "gelu_new", "gelu_new": "gelu_new", "relu": "relu", "tanh": "tanh"}
"""The reference's "gelu" is the tanh form in every release; transformers' "gelu" is the exact one."""
_MOST_LAYERS = 2**10
_FIRST = "albert.encoder.albert_layer_groups.0.albert_layers.0"
_PROJECTION = "albert.encoder.embedding_hidden_mapping_in.weight"
Shapes = Mapping[str, tuple[int, ...]]


def shown_sizes(shapes: Shapes, where: str) -> dict[str, int]:
    """The sizes that the tensors of an encoder show, by the names of `AlbertConfig`.

    Args:
        shapes: of the tensors, by transformers' names.
        where: how to call the checkpoint in an error.

    Raises:
        DamagedData: a tensor that shows one is absent, or is no matrix.
    """
    V, E = _matrix(shapes, "albert.embeddings.word_embeddings.weight", where)
    positions, _ = _matrix(shapes, "albert.embeddings.position_embeddings.weight", where)
    types, _ = _matrix(shapes, "albert.embeddings.token_type_embeddings.weight", where)
    F, H = _matrix(shapes, f"{_FIRST}.ffn.weight", where)
    layers = {tuple(map(int, name.split(".")[3:6:2])) for name in shapes if ".albert_layers." in name}
    groups, inner = (max(numbers) + 1 for numbers in zip(*layers, strict=True))
    if len(layers) != groups * inner:
        raise DamagedData(where, f"has {len(layers)} layers in {groups} groups of up to {inner}: some are missing")
    return {
        "vocab_size": V,
        "embedding_size": E,
        "hidden_size": H,
        "num_hidden_groups": groups,
        "inner_group_num": inner,
        "intermediate_size": F,
        "max_position_embeddings": positions,
        "type_vocab_size": types,
    }


def read_albert_config(path: Path | None, directory: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What the file says under keys that the reference's code reads, and the keys that it ignores.

    Args:
        path: the file; None where there is none.
        directory: where it was looked for.

    Raises:
        MissingInput, DamagedData: there is no such file, or no JSON in it.
    """
    content = read_json_object(path) if path is not None else {}
    said = {key: value for key, value in content.items() if key in _KNOWN}
    return said, tuple(sorted(set(content) - set(said)))


def config_of(
    said: Mapping[str, Any], shapes: Shapes, overrides: Mapping[str, Any], file: Path | None, where: str
) -> AlbertConfig:
    """The configuration of a checkpoint.

    Args:
        said: what `albert_config.json` says.
        shapes: of the tensors, by transformers' names.
        overrides: what whoever converts says instead, in our words: `hidden_act` "gelu" is the exact one here.
        file: the configuration's file, for errors; None where there is none.
        where: how to call the checkpoint in an error.

    Raises:
        MissingInput: nobody says what the tensors do not show.
        InvalidConfiguration: the file contradicts the tensors, or says what no model here is.
        DamagedData: the tensors are not those of a whole encoder.
    """
    subject = str(file) if file is not None else where
    shown = shown_sizes(shapes, where)
    values = dict(said)
    if "hidden_act" in values and "hidden_act" not in overrides:
        values["hidden_act"] = _activation(values["hidden_act"], subject)
    values |= overrides
    absent = [key for key in _NOT_SHOWN if key not in values]
    if absent:
        why = "says nothing about " if file is not None else f"there is no {CONFIG_NAME} beside it to say "
        flags = " ".join("--" + key.replace("_", "-") for key in absent)
        raise MissingInput(subject, why + ", ".join(absent) + ", and the tensors do not show it", f"say it: {flags}")
    for key, size in shown.items():
        if key in said and said[key] != size:
            why = f"is {said[key]!r}, the tensors of {where} have {size}"
            raise InvalidConfiguration(f"{subject}: {key}", why, "take the configuration of this checkpoint")
    if shown["embedding_size"] == shown["hidden_size"] and _PROJECTION in shapes:
        values["embedding_projection"] = True
    config = from_json(AlbertConfig, values | shown, subject)
    if config.num_hidden_layers * config.inner_group_num > _MOST_LAYERS:
        why = f"gives {config.num_hidden_layers * config.inner_group_num} layers, at most {_MOST_LAYERS} are read"
        raise InvalidConfiguration(f"{subject}: num_hidden_layers", why)
    _refuse_groups_that_rounding_moved(config, subject)
    return config


def _matrix(shapes: Shapes, name: str, where: str) -> tuple[int, int]:
    shape = shapes.get(name)
    if shape is None or len(shape) != 2:
        raise DamagedData(
            where, f"lacks {name}" if shape is None else f"{name} has shape {shape}, a matrix is expected"
        )
    return shape


def _activation(name: Any, subject: str) -> str:
    """Ours for the reference's, which does not mind the case."""
    found = _ACTIVATIONS.get(name.lower()) if isinstance(name, str) else None
    if found is None:
        known = ", ".join(_ACTIVATIONS)
        raise InvalidConfiguration(
            f"{subject}: hidden_act", f"is {name!r}", f"known: {known}; --hidden-act says another"
        )
    return found


def _refuse_groups_that_rounding_moved(config: AlbertConfig, subject: str) -> None:
    """The reference divides by the number of layers first; for some, 44 layers in 22 groups say, it rounds down."""
    L, G = config.num_hidden_layers, config.num_hidden_groups
    moved = [layer for layer in range(L) if int(layer / L * G) != layer * G // L]
    if moved:
        why = f"{G} groups in {L} layers: the reference's rounding puts layer {moved[0]} into the group before its own"
        raise InvalidConfiguration(f"{subject}: num_hidden_groups", why, "no model here applies layers like that")
