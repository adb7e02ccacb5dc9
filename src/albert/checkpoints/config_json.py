"""`config.json`: our configuration under the keys of transformers' class of a family, read and written.

All keys are written, because the defaults of transformers' ALBERT are the sizes of xxlarge. A model with a match
embedding is written as another model type: transformers refuses it, instead of computing without. Which keys a family
has, and its defaults, are in `albert.model.families`.

A key that is read is followed (`followed_keys`), changes no answer (`WITHOUT_EFFECT`), or must have the value that is
computed with here (`NEEDED`): another one would give other answers than in transformers, and is refused by its name. A
test walks through the configuration classes and the code of the models, and fails for a key that is not listed."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from albert.checkpoints.cross_encoders import ACTIVATION_KEY, activation_keys, read_activation
from albert.checkpoints.huggingface import OBJECTIVE_KEY, exported_groups
from albert.checkpoints.loading import QUANTIZATION_KEY
from albert.checkpoints.sentence_transformers import SENTENCE_KEY, read_sentence_vectors
from albert.model.families import FAMILIES, OTHER_FAMILIES, Family, Needed, family_of
from albert.recipes.architecture import EncoderConfig
from albert.runtime.errors import InvalidConfiguration, did_you_mean
from albert.runtime.json_files import from_json, read_json_object, to_json
from albert.text.tokenizer_loading import gives_token_types

# --------------------------------------------------------------------------------------------------------------------
# What is done with each key.

WITHOUT_EFFECT: dict[str, str] = {
    "transformers_version": "who wrote the file",
    "_name_or_path": "from where it was read",
    "dtype": "weights are read as they are stored; the precision is chosen when the model is loaded",
    "_attn_implementation": "the same numbers by another kernel",
    "output_attentions": "further outputs",
    "output_hidden_states": "further outputs",
    "return_dict": "the form of the outputs",
    "chunk_size_feed_forward": "the same numbers in less memory",
    "use_cache": "of decoders",
    "label2id": "labels are named by id2label",
    "tie_word_embeddings": "a decoder of its own is noticed in the weights, and refused",
    "pad_token_id": "texts are not padded; in families whose positions begin after it, it is needed",
    "bos_token_id": "special pieces are those of the tokenizer",
    "eos_token_id": "special pieces are those of the tokenizer",
    "sinusoidal_pos_embds": "initial values of the positions; the file has the trained ones",
    "qa_dropout": "in training there; classifier_dropout here",
    "summary_first_dropout": "in training there; classifier_dropout here",
    "summary_last_dropout": "in training there; classifier_dropout here",
}
"""Key -> why the answers are the same with any value, unless the family needs one."""

_FOLLOWED = ("architectures", "model_type", "id2label", "num_labels", "problem_type")
"""Beside the fields of `EncoderConfig`."""


NEEDED: tuple[Needed, ...] = (
    Needed(key="position_embedding_type", values=("absolute", None), why="positions are absolute here"),
    Needed(key="is_encoder_decoder", values=(False, None), why="the model is no encoder alone"),
    Needed(key="is_decoder", values=(False, None), why="the model is a decoder"),
    Needed(key="add_cross_attention", values=(False, None), why="the model is a decoder"),
    Needed(key="pruned_heads", values=({}, None), why="heads that were removed are not supported"),
    Needed(key="per_layer_config", values=({}, None), why="layers of different settings are not supported"),
    Needed(key="quantization_config", values=({}, None), why="quantised weights of others cannot be read"),
)
"""In all families; each has further ones (`albert.model.families`)."""

NOT_CARRIED = frozenset(
    needed.key for family in FAMILIES.values() for needed in family.needed if needed.architecture is not None
)
"""Keys that a model of another class may have with any value, so that they are not copied into a new one."""


def followed_keys(family: Family) -> frozenset[str]:
    """The keys of a family's `config.json` that are read."""
    own = (family.config.get(field.name, field.name) for field in fields(EncoderConfig))
    return frozenset({*own, *family.aliases, *_FOLLOWED})


def require_needed_values(content: Mapping[str, Any], family: Family, architecture: str | None, path: Path) -> None:
    """Raise InvalidConfiguration for a key of `config.json` with which transformers computes something else.

    Args:
        architecture: the class in the file, by our name.
    """
    for needed in (*NEEDED, *family.needed):
        if needed.architecture is not None and needed.architecture != architecture:
            continue
        if needed.key in content and content[needed.key] not in needed.values:
            usual = json.dumps(needed.values[0])
            why = f"is {json.dumps(content[needed.key])[:60]}: {needed.why}"
            raise InvalidConfiguration(f"{path}: {needed.key}", why, f"{family.title} opens with {usual}")


# --------------------------------------------------------------------------------------------------------------------
# Writing and reading.

CONFIG_NAME = "config.json"
_FIELDS = tuple(f.name for f in fields(EncoderConfig))
# transformers' other names of the same functions.
_ACTIVATIONS = {"gelu_pytorch_tanh": "gelu_new", "gelu_fast": "gelu_new", "gelu_python": "gelu"}
_MAX_SIZE = 2**24
"""Far beyond any model; a larger number is damaged, and could fill the memory before it is compared with weights."""
_ONLY_ALBERT = (
    "embedding_size",
    "num_hidden_groups",
    "inner_group_num",
    "sharing",
    "embedding_projection",
    "match_embedding",
)
"""Fields that other families do not have."""
# The unknown type is refused by transformers' Auto classes; the unknown attention by its ALBERT classes.
_PLAIN = {"model_type": "albert"}
_MATCHING = {"model_type": "albert_match", "attn_implementation": "match_embedding"}
_TYPES = (_PLAIN, _MATCHING)
_NOT_CARRIED = {
    *NOT_CARRIED,
    SENTENCE_KEY,
    ACTIVATION_KEY,
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
    config: EncoderConfig, architecture: str, dtype: torch.dtype, num_labels: int | None, extra: Mapping[str, Any]
) -> dict[str, Any]:
    """The content of `config.json`; `num_labels` is None for a head with a fixed number of outputs."""
    for key in extra:
        if key in _FIELDS:
            raise InvalidConfiguration(key, "is a field of the model's configuration", "set it there")
    family = family_of(config)
    values = to_json(config)
    del values["family"]
    if config.head_pooling == "pooler":
        del values["head_pooling"]
    if config.segment_types:
        del values["segment_types"]
    if family.name == "albert":
        values["num_hidden_groups"] = exported_groups(config)
        if config.embedding_size == config.hidden_size:
            values["embedding_projection"] = config.projects_embeddings
        else:
            del values["embedding_projection"]
        kind = _MATCHING
        if not config.match_embedding:
            del values["match_embedding"]
            kind = _PLAIN
    else:
        values["max_position_embeddings"] += family.first_position
        own = ("embedding_size",) if family.has_embedding_size else ()
        values = {
            family.config.get(name, name): value
            for name, value in values.items()
            if name not in family.fixed and (name in own or name not in _ONLY_ALBERT)
        }
        kind = {"model_type": family.name}
    labels = {}
    if num_labels is not None:
        names = dict(enumerate(label_names(extra, num_labels)))
        labels = {"id2label": to_json(names), "label2id": {label: index for index, label in names.items()}}
    return {
        "architectures": [written_class(architecture, config)],
        **kind,
        **values,
        **family.written,
        "tie_word_embeddings": True,
        "dtype": str(dtype).removeprefix("torch."),
        **{key: to_json(value) for key, value in extra.items() if key not in _NOT_CARRIED},
        **labels,
        **activation_keys(extra),
    }


def written_class(architecture: str, config: EncoderConfig) -> str:
    """The class in `config.json`: transformers' name, or one that it does not know where it would compute otherwise."""
    name = family_of(config).class_name(architecture)
    if config.head_pooling == "pooler" or architecture not in _POOLED_CLASSES:
        return name
    return name.replace("For", _POOLED_MARK, 1)


_POOLED_CLASSES = ("AlbertForSequenceClassification", "AlbertForMultipleChoice")
_POOLED_MARK = "ForPooled"


def label_names(extra: Mapping[str, Any], num_labels: int) -> list[str]:
    """The names of a head's outputs; `LABEL_0`, `LABEL_1`, ... without `id2label`."""
    id2label = extra.get("id2label")
    if id2label is None:
        return [f"LABEL_{index}" for index in range(num_labels)]
    labels = {str(index): str(label) for index, label in id2label.items()} if isinstance(id2label, Mapping) else {}
    repeated = [label for label, count in Counter(labels.values()).items() if count > 1]
    if repeated:
        raise InvalidConfiguration("id2label", f"names {repeated[0]!r} twice", "give each output its own name")
    if set(labels) != {str(index) for index in range(num_labels)}:
        why = f"names {sorted(labels)}, the head has {num_labels} outputs"
        raise InvalidConfiguration("id2label", why, "name each output from 0 on")
    return [labels[str(index)] for index in range(num_labels)]


def read_config(directory: Path) -> tuple[EncoderConfig, dict[str, Any]]:
    """The configuration in a model directory, and all other keys of `config.json`.

    `id2label` is returned with integer keys. A model of equal embedding and hidden size has the map that transformers
    always has, unless it says `"embedding_projection": false`. What the files of sentence-transformers say is returned
    as `sentence_transformers`.
    """
    path = directory / CONFIG_NAME
    content = read_json_object(path)
    kind = content.get("model_type", "albert" if "embedding_size" in content else "no model type")
    kinds = [each["model_type"] for each in _TYPES]
    family = FAMILIES.get(str(kind), FAMILIES["albert"])
    if kind not in [*kinds, *FAMILIES]:
        titles = ", ".join(each.title for each in FAMILIES.values())
        if "model_type" not in content:
            remedy = f'write the one of the model into it, such as "model_type": "bert"; families that open: {titles}'
            raise InvalidConfiguration(path, "has no model_type", remedy)
        what = OTHER_FAMILIES.get(str(kind), f"a model of type {kind!r}")
        raise InvalidConfiguration(path, f"describes {what}: it is no BERT inside", f"families that open: {titles}")
    require_needed_values(content, family, _stated_class(content, family, path), path)
    code = content.get("auto_map")
    if isinstance(code, dict) and any(str(name).startswith("AutoModel") for name in code):
        remedy = "if its weights are those of the class of transformers, remove auto_map"
        raise InvalidConfiguration(f"{path}: auto_map", "names code of the model's own, which is never run", remedy)
    if kind == _MATCHING["model_type"] and content.get("match_embedding") is not True:
        raise InvalidConfiguration(f"{path}: match_embedding", f"is not true in a model of type {kind!r}")
    if family.name == "albert":
        values = dict(family.defaults) | {key: content[key] for key in _FIELDS if key in content}
        values["family"] = "albert"
    else:
        values = _values_of_family(content, family)
    if "segment_types" not in values and values["type_vocab_size"] != 1:
        values["segment_types"] = gives_token_types(directory)
    if values.get("classifier_dropout_prob") is None:  # as in transformers
        values["classifier_dropout_prob"] = values["hidden_dropout_prob"]
    if isinstance(values["hidden_act"], str):
        values["hidden_act"] = _ACTIVATIONS.get(values["hidden_act"], values["hidden_act"])
    if values.get("sharing", "all") != "all":
        values["num_hidden_groups"] = 1  # the file has one per layer, for transformers
    if family.name == "albert" and values["embedding_size"] == values["hidden_size"]:
        values["embedding_projection"] = None if values.get("embedding_projection") is False else True
    for key, value in values.items():
        if isinstance(value, int) and value > _MAX_SIZE:
            raise InvalidConfiguration(f"{path}: {key}", f"is {value}, no model has more than {_MAX_SIZE}")
    layers = values["num_hidden_layers"]
    groups = values["num_hidden_groups"]
    if type(layers) is type(groups) is int and layers >= 1 and groups >= 1 and layers % groups > 0:
        remedy = f"write num_hidden_groups {layers}, and a copy of its group's weights for each layer"
        raise InvalidConfiguration(f"{path}: num_hidden_groups", f"{groups} do not divide {layers} layers", remedy)
    config = from_json(EncoderConfig, values, str(path))
    activation = read_activation(directory, content)
    read = (*_FIELDS, *family.config.values())
    extra = {key: value for key, value in content.items() if key not in read}
    labels = extra.pop("id2label", None)
    if labels is not None:
        try:
            extra["id2label"] = {int(index): str(label) for index, label in labels.items()}
        except (AttributeError, ValueError) as error:
            raise InvalidConfiguration(f"{path}: id2label", "is not a label for each number") from error
    if extra.get("architectures"):
        extra["architectures"] = [_our_class(str(extra["architectures"][0]), family, extra)]
    if activation is not None:
        extra[ACTIVATION_KEY] = activation
    vectors = read_sentence_vectors(directory, config.hidden_size)
    if vectors is not None:
        extra[SENTENCE_KEY] = vectors
    return config, extra


def _values_of_family(content: Mapping[str, Any], family: Family) -> dict[str, Any]:
    """Our settings of a model of another family than ALBERT, by the keys of its `config.json`."""
    named = {family.config.get(name, name): name for name in _FIELDS if name not in (*_ONLY_ALBERT, "family")}
    values: dict[str, Any] = {"classifier_dropout_prob": None} | dict(family.defaults)
    values |= {ours: content[theirs] for theirs, ours in named.items() if theirs in content}
    values |= {ours: content[ours] for ours in family.aliases if ours in content}
    values |= dict(family.fixed) | {"family": family.name, "sharing": "none", "num_hidden_groups": 1}
    values["embedding_size"] = values["hidden_size"]
    if family.has_embedding_size:
        values["embedding_size"] = content.get("embedding_size", family.defaults["embedding_size"])
    if family.first_position and isinstance(values["max_position_embeddings"], int):
        values["max_position_embeddings"] -= family.first_position
    return values


def _stated_class(content: Mapping[str, Any], family: Family, path: Path) -> str | None:
    """The class in `config.json`, by our name; None if it names none."""
    names = content.get("architectures") or []
    if not isinstance(names, list):
        raise InvalidConfiguration(f"{path}: architectures", "is not a list of names")
    return family.our_class(str(names[0])) if names else None


_PRETRAINING_ALIASES = {"AlbertForNextSentencePrediction": "AlbertForPreTraining"}


def _our_class(name: str, family: Family, extra: dict[str, Any]) -> str:
    """Our name of the class in `config.json`; the objective of a sentence head is added to `extra`."""
    name = family.our_class(name).replace(_POOLED_MARK, "For", 1)
    name = _PRETRAINING_ALIASES.get(name, name)
    if name == "AlbertForPreTraining" and family.finds_replaced_tokens:
        name = "AlbertModel"
    if name == "AlbertForPreTraining" and family.sentence_head not in (None, "sop"):
        extra.setdefault(OBJECTIVE_KEY, family.sentence_head)
    return name


def with_overrides(config: EncoderConfig, overrides: Mapping[str, Any]) -> EncoderConfig:
    """The configuration with some fields replaced: dropout, number of heads or layers."""
    for key in overrides:
        if key not in _FIELDS:
            raise InvalidConfiguration(key, "is not a field of the configuration", did_you_mean(key, _FIELDS))
    return from_json(EncoderConfig, to_json(config) | dict(overrides), "overrides")
