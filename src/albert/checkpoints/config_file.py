"""`config.json`: our configuration under the keys of transformers' AlbertConfig, every one written out.

Every one, because what is left out means the default there, and those are the sizes of xxlarge. An `attention_window`
that does not cover all positions has no place there: a model with one is written as another type of model, so that
transformers refuses it and does not run it with dense attention.
"""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from albert.checkpoints.huggingface import exported_groups
from albert.checkpoints.tensor_files import QUANTIZATION_KEY
from albert.model.config import AlbertConfig
from albert.runtime.errors import InvalidConfiguration, did_you_mean
from albert.runtime.json_files import from_json, read_json_object, to_json

CONFIG_NAME = "config.json"
_FIELDS = tuple(f.name for f in fields(AlbertConfig))
_TRANSFORMERS_DEFAULTS: dict[str, Any] = {
    "vocab_size": 30000,
    "embedding_size": 128,
    "hidden_size": 4096,
    "num_hidden_layers": 12,
    "num_hidden_groups": 1,
    "num_attention_heads": 64,
    "intermediate_size": 16384,
    "inner_group_num": 1,
    "hidden_act": "gelu_new",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
    "classifier_dropout_prob": 0.1,
}
# The same functions under other names of transformers.
_ACTIVATIONS = {"gelu_pytorch_tanh": "gelu_new", "gelu_python": "gelu"}
# Far beyond any model; without them a damaged number would fill the memory before the weights can contradict it.
_LARGEST_SIZE = 2**24
_MOST_LAYERS = 2**10
_ALWAYS_WRITTEN = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "tie_word_embeddings": True}
# transformers' Auto classes refuse the unknown type, and its ALBERT, which only warns of it, the unknown attention.
_DENSE = {"model_type": "albert"}
_WINDOWED = {"model_type": "albert_window", "attn_implementation": "sliding_window"}
UNEVEN_GROUPS_KEY = "uneven_groups"
_NOT_CARRIED = {
    UNEVEN_GROUPS_KEY,
    QUANTIZATION_KEY,
    "architectures",
    "model_type",
    "attn_implementation",
    "dtype",
    "torch_dtype",
    "transformers_version",
    "_name_or_path",
}


def config_to_json(
    config: AlbertConfig,
    architecture: str,
    dtype: torch.dtype,
    num_labels: int | None,
    extra: Mapping[str, Any],
) -> dict[str, Any]:
    """What `config.json` holds.

    Args:
        architecture: the transformers class that opens the weights.
        num_labels: outputs of the head, which transformers derives from `id2label`; None: their number is the same
            whatever that says.
        extra: further keys, of a task say: `id2label`, `problem_type`, `sentence_objective`, ...

    Raises:
        InvalidConfiguration: `id2label` does not name every output, or `extra` names a size of the model.
    """
    for key in extra:
        if key in _FIELDS:
            raise InvalidConfiguration(key, "is a field of the model's configuration", "set it there")
    values = to_json(config)
    values["num_hidden_groups"] = exported_groups(config)
    if config.embedding_size == config.hidden_size:
        values["embedding_projection"] = config.projects_embeddings
    else:
        del values["embedding_projection"]
    if config.attention_window is None:
        del values["attention_window"]
    labels = {}
    if num_labels is not None:
        names = dict(enumerate(labels_of(extra, num_labels)))
        labels = {"id2label": to_json(names), "label2id": {label: index for index, label in names.items()}}
    return {
        "architectures": [architecture],
        **(_DENSE if config.effective_window is None else _WINDOWED),
        **values,
        **_ALWAYS_WRITTEN,
        "dtype": str(dtype).removeprefix("torch."),
        **{key: to_json(value) for key, value in extra.items() if key not in _NOT_CARRIED},
        **labels,
    }


def labels_of(extra: Mapping[str, Any], num_labels: int) -> list[str]:
    """The names of a head's outputs, `LABEL_0`, `LABEL_1`, ... when nobody named them.

    Raises:
        InvalidConfiguration: there are names, but not one for each output.
    """
    named = extra.get("id2label")
    if named is None:
        return [f"LABEL_{index}" for index in range(num_labels)]
    given = {str(index): str(label) for index, label in named.items()} if isinstance(named, Mapping) else {}
    if set(given) != {str(index) for index in range(num_labels)} or len(set(given.values())) != num_labels:
        raise InvalidConfiguration(
            "id2label",
            f"names {sorted(given)}, the head has {num_labels} outputs",
            "give each one its own name",
        )
    return [given[str(index)] for index in range(num_labels)]


def read_config(directory: Path) -> tuple[AlbertConfig, dict[str, Any]]:
    """The configuration in a model directory, and every other key that is beside it.

    `id2label` comes back with numbers for keys. A model of equal embedding and hidden size that does not say
    `"embedding_projection": false` keeps the map that transformers always has. Groups that do not divide the layers
    become one a layer, and their number comes back as `uneven_groups` (see `albert.checkpoints.loading`).

    Raises:
        MissingInput: no `config.json`.
        DamagedData: not JSON.
        InvalidConfiguration: of another kind of model, or with values that no ALBERT has.
    """
    path = directory / CONFIG_NAME
    content = read_json_object(path)
    kind = content.get("model_type", "albert" if "embedding_size" in content else "no model type")
    if kind not in (_DENSE["model_type"], _WINDOWED["model_type"]):
        raise InvalidConfiguration(path, f"describes a model of type {kind!r}, not 'albert'")
    if kind == _WINDOWED["model_type"] and content.get("attention_window") is None:
        raise InvalidConfiguration(f"{path}: attention_window", f"is missing from a model of type {kind!r}")
    values = _TRANSFORMERS_DEFAULTS | {key: content[key] for key in _FIELDS if key in content}
    if values["classifier_dropout_prob"] is None:  # as transformers' token classification takes it
        values["classifier_dropout_prob"] = values["hidden_dropout_prob"]
    if isinstance(values["hidden_act"], str):
        values["hidden_act"] = _ACTIVATIONS.get(values["hidden_act"], values["hidden_act"])
    if values.get("sharing", "all") != "all":
        values["num_hidden_groups"] = 1  # written once a layer for transformers
    if values["embedding_size"] == values["hidden_size"]:
        values["embedding_projection"] = None if values.get("embedding_projection") is False else True
    for key, value in values.items():
        if isinstance(value, int) and value > _LARGEST_SIZE:
            raise InvalidConfiguration(f"{path}: {key}", f"is {value}, no model has more than {_LARGEST_SIZE}")
    uneven = _uneven_groups(values)
    if uneven is not None:
        values["num_hidden_groups"] = values["num_hidden_layers"]
    config = from_json(AlbertConfig, values, str(path))
    depth = config.num_hidden_layers * config.inner_group_num
    if depth > _MOST_LAYERS:
        raise InvalidConfiguration(
            f"{path}: num_hidden_layers", f"gives {depth} layers, at most {_MOST_LAYERS} are read"
        )
    extra = {key: value for key, value in content.items() if key not in (*_FIELDS, UNEVEN_GROUPS_KEY)}
    if uneven is not None:
        extra[UNEVEN_GROUPS_KEY] = uneven
    if extra.get("id2label") is None:
        extra.pop("id2label", None)
    else:
        extra["id2label"] = _numbered(extra["id2label"], path)
    if not isinstance(extra.get("architectures") or [], list):
        raise InvalidConfiguration(f"{path}: architectures", "is not a list of names")
    return config, extra


def with_overrides(config: AlbertConfig, overrides: Mapping[str, Any]) -> AlbertConfig:
    """The configuration with some fields set anew: another dropout, another number of heads or layers.

    Raises:
        InvalidConfiguration: no such field, or a value that does not fit.
    """
    for key in overrides:
        if key not in _FIELDS:
            raise InvalidConfiguration(key, "is not a field of the configuration", did_you_mean(key, _FIELDS))
    return from_json(AlbertConfig, to_json(config) | dict(overrides), "overrides")


def _uneven_groups(values: Mapping[str, Any]) -> int | None:
    layers, groups = values["num_hidden_layers"], values["num_hidden_groups"]
    if type(layers) is not int or type(groups) is not int or layers < 1 or groups < 1 or layers % groups == 0:
        return None
    return groups


def _numbered(id2label: Any, path: Path) -> dict[int, str]:
    try:
        return {int(index): str(label) for index, label in id2label.items()}
    except (AttributeError, ValueError) as error:
        raise InvalidConfiguration(f"{path}: id2label", "is not a label for each number") from error
