"""Hugging Face model directories: writing, opening and checking them, with their configuration and tokenizer.

They hold `config.json`, `model.safetensors`, the tokenizer's files and `README.md`; `save_model_directory` adds
`MANIFEST.json`, against which `open_model` checks every file, and `examples.json` if there are examples."""

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from albert.checkpoints.card import CARD_NAME, BaseModel, Card, WrittenModel, model_card
from albert.checkpoints.config_keys import NOT_CARRIED, require_needed_values
from albert.checkpoints.cross_encoders import (
    ACTIVATION_KEY,
    activation_keys,
    read_activation,
    score_note,
)
from albert.checkpoints.families import FAMILIES, OTHER_FAMILIES, Family, family_of
from albert.checkpoints.hub import EXAMPLES_NAME, find_model
from albert.checkpoints.huggingface import (
    ARCHITECTURES,
    BACKBONE_PREFIX,
    CLASSIFIERS,
    MODELS,
    OBJECTIVE_KEY,
    Kind,
    RenamedTensors,
    build_model,
    exported_groups,
    from_transformers,
    kind_of,
    n_outputs,
    resolve_num_labels,
    sentence_objective,
    to_transformers,
    with_sentence_objective,
    written_num_labels,
)
from albert.checkpoints.loading import (
    QUANTIZATION_KEY,
    WEIGHTS_NAME,
    LoadingReport,
    StoredTensors,
    checkpoint_warnings,
    fill_model,
    fit_tensors,
    quantization_notes,
    stored_input_scales,
    stored_tensors,
    write_tensors,
)
from albert.checkpoints.sentence_transformers import (
    SENTENCE_KEY,
    read_sentence_vectors,
    sentence_vectors_of,
    write_sentence_vectors,
)
from albert.model.albert import AlbertForPreTraining
from albert.model.encoder import on_meta_device
from albert.recipes.architecture import AlbertConfig
from albert.runtime.errors import DamagedData, InvalidConfiguration, did_you_mean
from albert.runtime.files import final_path, new_directory, write_text
from albert.runtime.json_files import from_json, read_json_object, save_json, to_json
from albert.runtime.manifest import MANIFEST_NAME, verify_directory
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_loading import gives_token_types, load_tokenizer, vocabulary_file

# --------------------------------------------------------------------------------------------------------------------
# config.json: our configuration under the keys of transformers' AlbertConfig. All keys are written, because its
# defaults are the sizes of xxlarge. A model with a match embedding is written as another model type: transformers
# refuses it, instead of computing without.

CONFIG_NAME = "config.json"
_FIELDS = tuple(f.name for f in fields(AlbertConfig))
# transformers' other names of the same functions.
_ACTIVATIONS = {"gelu_pytorch_tanh": "gelu_new", "gelu_fast": "gelu_new", "gelu_python": "gelu"}
# Far beyond any model; without limits a damaged number could fill the memory before it is compared with the weights.
_MAX_SIZE = 2**24
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
    config: AlbertConfig, architecture: str, dtype: torch.dtype, num_labels: int | None, extra: Mapping[str, Any]
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


def written_class(architecture: str, config: AlbertConfig) -> str:
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


def read_config(directory: Path) -> tuple[AlbertConfig, dict[str, Any]]:
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
    config = from_json(AlbertConfig, values, str(path))
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
    if name == "AlbertForPreTraining" and family.name == "electra":  # finds replaced tokens
        name = "AlbertModel"
    if name == "AlbertForPreTraining" and family.sentence_head not in (None, "sop"):
        extra.setdefault(OBJECTIVE_KEY, family.sentence_head)
    return name


def with_overrides(config: AlbertConfig, overrides: Mapping[str, Any]) -> AlbertConfig:
    """The configuration with some fields replaced: dropout, number of heads or layers."""
    for key in overrides:
        if key not in _FIELDS:
            raise InvalidConfiguration(key, "is not a field of the configuration", did_you_mean(key, _FIELDS))
    return from_json(AlbertConfig, to_json(config) | dict(overrides), "overrides")


# --------------------------------------------------------------------------------------------------------------------
# Model directories.

FINGERPRINT_KEY = "tokenizer_fingerprint"


@dataclass(frozen=True, kw_only=True)
class OpenedModel:
    """A model in evaluation mode on the CPU, with its configuration and loading report."""

    model: nn.Module
    config: AlbertConfig
    extra: dict[str, Any]
    loading_report: LoadingReport
    directory: Path


def write_model(
    directory: Path,
    model: nn.Module,
    tokenizer_directory: str | Path | None,
    *,
    extra: Mapping[str, Any] | None = None,
    card: Card | None = None,
) -> None:
    """Write a model into an existing directory, with `extra` keys in `config.json`.

    With `sentence_objective` "nsp" or "none" in `extra` a pre-training model is written as a masked language model,
    which transformers can represent exactly.
    """
    config = getattr(model, "config", None)
    if not isinstance(config, AlbertConfig) or type(model) not in ARCHITECTURES:
        raise TypeError(f"{type(model).__name__} is not one of the model classes")
    keys = dict(extra or {})
    architecture = ARCHITECTURES[type(model)]
    family = family_of(config)
    written_as = architecture
    if isinstance(model, AlbertForPreTraining):
        # The pre-training class of transformers has one sentence head: ALBERT's of order, BERT's of the next sentence.
        objective = sentence_objective(keys)
        written_as = architecture if objective == family.sentence_head else "AlbertForMaskedLM"
        if written_as != architecture:
            keys[OBJECTIVE_KEY] = objective
    tokenizer = None
    if tokenizer_directory is not None:
        tokenizer = load_tokenizer(Path(tokenizer_directory))
        require_matching_tokenizer(tokenizer, Path(tokenizer_directory), config, {})
    tensors = to_transformers(model.state_dict(), config, written_as)
    if isinstance(model, AlbertForPreTraining):
        tensors = with_sentence_objective(tensors, sentence_objective(keys), config)
    outputs = written_num_labels(architecture, model.state_dict())
    card = card or short_card(final_path(directory).name, model.state_dict())
    write_files(directory, tensors, config, written_as, outputs, tokenizer, extra=keys, card=card)


def write_files(
    directory: Path,
    tensors: Mapping[str, Tensor],
    config: AlbertConfig,
    architecture: str,
    num_labels: int | None,
    tokenizer: Tokenizer | None,
    *,
    extra: Mapping[str, Any],
    card: Card | str,
) -> dict[str, Any]:
    """Write tensors under transformers' names with all other files; returns the content of `config.json`.

    Args:
        card: what is known of the model, or the text of a card that it has already.
    """
    # The widest one, so that opening it in this type is lossless.
    dtype = reduce(torch.promote_types, (tensor.dtype for tensor in tensors.values()))
    keys = dict(extra)
    if tokenizer is not None:
        ids = {"pad_token_id": tokenizer.pad_id, "bos_token_id": tokenizer.cls_id, "eos_token_id": tokenizer.sep_id}
        keys |= {FINGERPRINT_KEY: tokenizer.fingerprint, **ids}
    content = config_to_json(config, architecture, dtype, num_labels, keys)
    if tokenizer is not None:
        tokenizer.save(directory)
    save_json(directory / CONFIG_NAME, content)
    vectors = sentence_vectors_of(extra)
    if vectors is not None:
        write_sentence_vectors(directory, vectors, config.hidden_size)
    write_tensors(directory / WEIGHTS_NAME, tensors)
    if isinstance(card, Card):
        card = model_card(card, written_model(architecture, config, num_labels, tokenizer, keys))
    write_text(directory / CARD_NAME, card)
    return content


def written_model(
    architecture: str,
    config: AlbertConfig,
    num_labels: int | None,
    tokenizer: Tokenizer | None,
    extra: Mapping[str, Any],
) -> WrittenModel:
    """What a card needs to know of a model and its tokenizer."""
    return WrittenModel(
        architecture=architecture,
        config=config,
        extra=extra,
        num_labels=num_labels,
        mask_piece=None if tokenizer is None else tokenizer.piece(tokenizer.mask_id),
    )


def save_model_directory(
    path: str | Path,
    model: nn.Module,
    tokenizer_directory: str | Path | None,
    *,
    extra: Mapping[str, Any] | None = None,
    card: Card | None = None,
    examples: Sequence[Mapping[str, str]] = (),
    replace: bool = False,
) -> None:
    """`write_model` into a new directory, atomically, with a manifest of every file.

    Raises:
        CannotCreate: `path` exists and `replace` is false.
        WriteFailed: the disk is full or failed; nothing is left behind.
    """
    with new_directory(Path(path), replace=replace) as directory:
        write_model(directory, model, tokenizer_directory, extra=extra, card=card)
        if examples:
            save_json(directory / EXAMPLES_NAME, {"examples": examples})


def open_model(
    path_or_id: str | Path,
    kind: Kind,
    num_labels: int | None = None,
    *,
    new_head: bool = False,
    overrides: Mapping[str, Any] | None = None,
    dtype: torch.dtype | None = torch.float32,
    verify: bool = True,
) -> OpenedModel:
    """Open a model directory, or download one from the Hugging Face Hub.

    Args:
        path_or_id: a directory, or a Hub id such as `albert/albert-base-v2`.
        kind: the head; if the file lacks it, it is newly initialised and reported.
        num_labels: outputs of a (token) classification head; None: as in the file.
        new_head: do not load the file's head, for training another task.
        dtype: of the parameters; None: as in the file.

    Raises:
        MissingInput: no such directory, or no weights in safetensors.
        Unavailable: the Hub does not have it, or cannot be reached.
        DamagedData: a file is damaged, or the weights do not match `config.json`.
        InvalidConfiguration: a shape or a setting does not fit.
    """
    described = describe_model(path_or_id, overrides, verify)
    config = described.config
    extra = described.extra
    stored = described.stored
    renamed = described.renamed
    own_kind = kind_of(extra)  # a `classifier` of another kind has the same name but another purpose
    classes = {MODELS[kind].__name__, MODELS[own_kind].__name__}
    new_head = new_head or (kind != own_kind and classes <= set(CLASSIFIERS))
    with on_meta_device():
        model = build_model(kind, config, resolve_num_labels(kind, num_labels, renamed.tensors, extra, new_head))
    loaded, report = fit_tensors(model, renamed, config, stored.source, new_head)  # checks before allocation
    tensors = described.read(renamed.unexpected, dtype).tensors
    fill_model(model, {ours: tensors[name] for name, ours in loaded.items()}, config.initializer_range, dtype)
    backbone: Any = getattr(model, "albert", model)
    backbone.encoder.input_scales = stored_input_scales(extra, described.directory)
    dtypes = {tensor.dtype for tensor in stored.by_name.values() if tensor.dtype.is_floating_point}
    wider = sorted(str(wide) for wide in dtypes if dtype and torch.promote_types(wide, dtype) != dtype)
    narrowed = (f"{wide} in the file, {dtype} in memory: precision is lost" for wide in wider)
    return OpenedModel(
        model=model.eval(),
        config=config,
        extra=extra,
        loading_report=replace(report, verified=described.verified, notes=(*described.notes, *narrowed)),
        directory=described.directory,
    )


@dataclass(frozen=True, kw_only=True)
class DescribedModel:
    """The configuration and tensors of a model directory; `renamed` has them under our names, on the meta device."""

    directory: Path
    config: AlbertConfig
    extra: dict[str, Any]
    stored: StoredTensors
    renamed: RenamedTensors
    notes: tuple[str, ...]
    verified: bool

    def read(self, excluded: Collection[str], dtype: torch.dtype | None) -> RenamedTensors:
        """Read the tensors under our names; `excluded` are names in the file."""
        tensors = self.stored.read([name for name in self.stored.by_name if name not in excluded], dtype)
        return from_transformers(tensors, self.config, self.stored.source)


def describe_model(
    path_or_id: str | Path, overrides: Mapping[str, Any] | None = None, verify: bool = True
) -> DescribedModel:
    """Find a model and read everything except its weights; for arguments and errors see `open_model`."""
    directory = find_model(path_or_id)
    verified = verify and (directory / MANIFEST_NAME).is_file()
    if verified:
        verify_directory(directory)
    config, extra = read_config(directory)
    config = with_overrides(config, overrides or {})
    stored = stored_tensors(directory)
    notes = [*checkpoint_warnings(config, extra), *quantization_notes(extra, directory)]
    renamed = from_transformers(stored.on_meta(), config, stored.source)
    if kind_of(extra) == "classification" and n_outputs("AlbertForSequenceClassification", renamed.tensors) == 1:
        notes += filter(None, (score_note(extra),))
    return DescribedModel(
        directory=directory,
        config=config,
        extra=extra,
        stored=stored,
        renamed=renamed,
        notes=tuple(notes),
        verified=verified,
    )


def parameters_by_part(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Number of parameters by parts of the model, of tensors under our names."""
    counts: Counter[str] = Counter()
    for name, tensor in tensors.items():
        part, *inside = name.removeprefix(BACKBONE_PREFIX).split(".")
        counts[f"{part} {inside[0]}" if part == "encoder" else part] += tensor.numel()
    return dict(counts)


def short_card(name: str, tensors: Mapping[str, Tensor], description: str = "", base: BaseModel | None = None) -> Card:
    """A model card with the number of parameters by parts."""
    parameters = parameters_by_part(tensors)
    return Card(
        name=name,
        description=description,
        parameters={**parameters, "all": sum(parameters.values())},
        base=base or BaseModel(),
    )


def tokenizer_of(opened: OpenedModel) -> Tokenizer:
    """Load the tokenizer in the directory of an opened model."""
    tokenizer = load_tokenizer(opened.directory)
    require_matching_tokenizer(tokenizer, opened.directory, opened.config, opened.extra)
    return tokenizer


def require_matching_tokenizer(
    tokenizer: Tokenizer, directory: Path, config: AlbertConfig, extra: Mapping[str, Any]
) -> None:
    """Check that the model was trained with this tokenizer."""
    path = vocabulary_file(directory)
    trained_with = extra.get(FINGERPRINT_KEY)
    if trained_with is not None and tokenizer.fingerprint != trained_with:
        why = f"has fingerprint {tokenizer.fingerprint[:12]}, the model was trained with {str(trained_with)[:12]}"
        raise DamagedData(path, why, "put the tokenizer of the training run beside the model")
    if tokenizer.vocab_size > config.vocab_size:
        why = f"has {tokenizer.vocab_size} pieces, the model has {config.vocab_size} embeddings"
        raise DamagedData(path, why, "use the tokenizer that the model was trained with")


def weights_fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over the bytes of all tensors in order, in hexadecimal."""
    digest = hashlib.sha256()
    for tensor in tensors.values():
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
