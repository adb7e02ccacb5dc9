"""Google's TensorFlow checkpoints of ALBERT: finding the files, the configuration, and the names of variables.

The result is tensors under transformers' names, with every variable accounted for."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from albert.checkpoints.huggingface import NAMES
from albert.checkpoints.tensor_bundle import INDEX_SUFFIX, is_table
from albert.model.config import AlbertConfig
from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput
from albert.runtime.json_files import from_json, read_json_object
from albert.runtime.manifest import open_input

# --------------------------------------------------------------------------------------------------------------------
# `albert_config.json`, held against the tensors beside it.
#
# What the tensors show must be what the file says. They do not show how often a layer is applied, the number of
# heads and the activation: those must be said, by the file or by whoever converts.

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
    """The sizes that the tensors of an encoder show, by the names of `AlbertConfig`."""
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


def read_albert_config(path: Path | None) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What the file says under keys that the reference's code reads, and the keys that it ignores."""
    content = read_json_object(path) if path is not None else {}
    said = {key: value for key, value in content.items() if key in _KNOWN}
    return said, tuple(sorted(set(content) - set(said)))


def config_of(
    said: Mapping[str, Any], shapes: Shapes, overrides: Mapping[str, Any], file: Path | None, where: str
) -> AlbertConfig:
    """The configuration of a checkpoint."""
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
        raise InvalidConfiguration(f"{subject}: num_hidden_groups", why, "such models are not supported")


# --------------------------------------------------------------------------------------------------------------------
# Where the files of a TensorFlow checkpoint are, in all the ways in which people have them.
#
# A release (`model.ckpt-best.*`, `albert_config.json`, `30k-clean.model` or `vocab_chinese.txt`), a TF-Hub module
# or SavedModel (`variables/`, `assets/`), a training run (`checkpoint` names the newest of many), or one prefix.

STATE_NAME = "checkpoint"
CONFIG_PATTERNS = ("*albert_config*.json",)
TOKENIZER_PATTERNS = ("*.model", "vocab*.txt")
_PART = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")
_NEWEST = re.compile(r'^model_checkpoint_path: *"(.+)"\s*$', re.MULTILINE)
_KERAS = b"\x89HDF\r\n\x1a\n"


@dataclass(frozen=True)
class CheckpointFiles:
    """What was found."""

    prefix: Path
    config: Path | None
    places: tuple[Path, ...]
    """Directories where configuration and vocabulary may be, the nearest first."""
    steps: int = 1

    def tokenizer(self) -> Path | None:
        """The vocabulary beside the checkpoint.

        Raises:
            MissingInput: there are several.
        """
        return _only(self.places, TOKENIZER_PATTERNS, "vocabularies", "--tokenizer")


def holds_tensorflow(path: Path) -> bool:
    """Whether `find_checkpoint` has something to look at: a checkpoint, a part of one, or one of an old format."""
    if path.is_dir():
        return bool(_prefixes(path)) or bool(_old_checkpoints(path))
    return _index_of(path).is_file() or (path.is_file() and _is_old(path))


def find_checkpoint(path: Path, config: Path | None = None) -> CheckpointFiles:
    """The files of the checkpoint that a path means."""
    prefix, steps = _in_directory(path) if path.is_dir() else (_prefix_of(path), 1)
    here = prefix.parent
    beside = here.name == "variables" or here.parent == path
    folders = (here, here / "assets", *((here.parent, here.parent / "assets") if beside else ()))
    places = tuple(folder for folder in folders if folder.is_dir())
    if config is None:
        config = _only(places, CONFIG_PATTERNS, "configurations", "--config")
    return CheckpointFiles(prefix, config, places, steps)


def _in_directory(directory: Path) -> tuple[Path, int]:
    prefixes = _prefixes(directory)
    if not prefixes:
        for file in _old_checkpoints(directory):
            _refuse_old(file)
        raise MissingInput(directory, "holds no TensorFlow checkpoint", "it needs a file that ends with .index")
    if len(prefixes) == 1:
        return prefixes[0], 1
    chosen = _chosen_by_state_file(prefixes)
    if chosen is None:
        names = ", ".join(sorted(str(prefix.relative_to(directory)) for prefix in prefixes))
        raise MissingInput(directory, f"holds {len(prefixes)} checkpoints: {names}", "name one of them")
    return chosen, len(prefixes)


def _prefixes(directory: Path) -> list[Path]:
    """Of the checkpoints in a directory, in its `variables`, or in what an archive unpacked into it."""
    for pattern in ("*", "variables/*", "*/*", "*/variables/*"):
        found = [_without_part(file) for file in _visible(directory.glob(pattern + INDEX_SUFFIX))]
        if found:
            return sorted(found)
    return []


def _chosen_by_state_file(prefixes: Iterable[Path]) -> Path | None:
    """What the state file beside the checkpoints calls the newest; only its last name counts, for runs are moved."""
    for directory in {prefix.parent for prefix in prefixes}:
        state = directory / STATE_NAME
        if state.is_file() and (newest := _NEWEST.search(state.read_text(encoding="utf-8", errors="replace"))):
            name = re.split(r"[/\\]", newest[1])[-1]
            return next((prefix for prefix in prefixes if prefix == directory / name), None)
    return None


def _prefix_of(path: Path) -> Path:
    if _index_of(path).is_file():
        return _without_part(path)
    if path.is_file():
        _refuse_old(path)
    if path.exists():
        raise MissingInput(path, "is not part of a TensorFlow checkpoint", "name its directory, or its .index file")
    raise MissingInput(_index_of(path), "no such file")


def _without_part(path: Path) -> Path:
    return path.with_name(_PART.sub("", path.name))


def _index_of(path: Path) -> Path:
    prefix = _without_part(path)
    return prefix.with_name(prefix.name + INDEX_SUFFIX)


def _old_checkpoints(directory: Path) -> list[Path]:
    candidates = [*directory.glob("*ckpt*"), *directory.glob("*.h5"), *directory.glob("*.hdf5")]
    return sorted(file for file in _visible(candidates) if file.is_file() and _is_old(file))


def _is_old(file: Path) -> bool:
    return is_table(file) or _is_keras(file)


def _is_keras(file: Path) -> bool:
    with open_input(file) as stream:
        return stream.read(len(_KERAS)) == _KERAS


def _refuse_old(file: Path) -> None:
    if _is_keras(file):
        why = "is an HDF5 file of Keras, not a TensorFlow checkpoint"
        raise DamagedData(file, why, "take the .index and .data files of the release")
    if not _PART.search(file.name) and is_table(file):
        raise DamagedData(
            file,
            "is a checkpoint of TensorFlow's first format, which is not read here",
            "tf.compat.v1.train.Saver().save(...) of any TensorFlow since 0.12 writes the second one",
        )


def _only(places: Iterable[Path], patterns: Iterable[str], what: str, flag: str) -> Path | None:
    for place in places:
        for pattern in patterns:
            found = sorted(file for file in _visible(place.glob(pattern)) if file.is_file())
            if len(found) > 1:
                names = ", ".join(file.name for file in found)
                raise MissingInput(place, f"holds {len(found)} {what}: {names}", f"choose with {flag}")
            if found:
                return found[0]
    return None


def _visible(files: Iterable[Path]) -> list[Path]:
    """Without the `._` files that archives of a Mac bring."""
    return [file for file in files if not file.name.startswith(".")]


# --------------------------------------------------------------------------------------------------------------------
# From the variables of Google's ALBERT to transformers' names (`names.toml`), and what else such a checkpoint may hold.
# TF-Hub puts `module/` in front.


@dataclass(frozen=True)
class Place:
    """Where a variable goes: transformers' name, and whether its two axes change places."""

    name: str
    transposed: bool = False


_PARTS = {
    "plain": {"": ("", False)},
    "dense": {"/kernel": (".weight", True), "/bias": (".bias", False)},
    "norm": {"/gamma": (".weight", False), "/beta": (".bias", False)},
    "output": {"output_weights": (".weight", False), "output_bias": (".bias", False)},
}


def _places(part: str) -> dict[str, Place]:
    """The variables of a part of the model, as `names.toml` has them, and where each goes."""
    return {
        variable + ending: Place(module + parameter, transposed)
        for kind, modules in NAMES["tensorflow"][part].items()
        for variable, module in modules.items()
        for ending, (parameter, transposed) in _PARTS[kind].items()
    }


_BACKBONE, _LAYER, _HEADS = map(_places, ("backbone", "layer", "heads"))
_HUB = re.compile(r"^module(_\d+)?/")
_SCOPE = re.compile(r"^(bert|albert)/")
_IN_GROUP = re.compile(r"^encoder/transformer/group_(\d{1,4})/inner_group_(\d{1,4})/(.+)$")
_OPTIMIZER = re.compile(
    r"(^|/)((adam|lamb)_[mv]|(Adam|AdamWeightDecayOptimizer|LAMBOptimizer)(_1)?|Momentum)$"
    r"|(^|/)(global_step|beta[12]_power|(current_)?loss_scale|good_steps)$"
)
_JOINT_ANSWER_HEAD = re.compile(r"^(start_logits|end_logits|answer_class)/")
_OTHER_MODELS = (
    (
        re.compile(r"/encoder/layer_shared/|/word_embeddings_2$"),
        "has the layout of brightmart's first albert_zh models, a network of another design (word_embeddings_2, "
        "layer_shared)",
        "take one of Google's albert_*_zh, or of brightmart's *_zh_google",
    ),
    (
        re.compile(r"/encoder/layer_\d+/attention/"),
        "holds a BERT, whose layers are all their own (encoder/layer_0, ...), not an ALBERT",
        "name an ALBERT checkpoint",
    ),
    (
        re.compile(r"/\.ATTRIBUTES/|^_CHECKPOINTABLE_OBJECT_GRAPH$"),
        "is a checkpoint of Keras objects, which has no names of variables",
        "take the release of google-research/albert, or the Hugging Face repository of this model",
    ),
)


@dataclass(frozen=True)
class SortedNames:
    """What becomes of every variable of a checkpoint."""

    placed: dict[str, Place]
    dropped: tuple[str, ...]
    unexpected: dict[str, str]


def sort_names(names: Iterable[str], where: str) -> SortedNames:
    """Find every variable's place."""
    placed: dict[str, Place] = {}
    dropped, unexpected = [], {}
    for name in names:
        if _OPTIMIZER.search(name):
            dropped.append(name)
        elif place := place_of(name):
            placed[name] = place
        elif _JOINT_ANSWER_HEAD.match(name):
            unexpected[name] = "belongs to the joint head of SQuAD 2.0, for which no model here has a place yet"
        else:
            unexpected[name] = "is not a variable of ALBERT"
    _refuse_other_models(placed, unexpected, where)
    first: dict[str, str] = {}
    for name, place in placed.items():
        if (other := first.setdefault(place.name, name)) != name:
            raise DamagedData(where, f"holds {place.name} twice: as {other} and as {name}")
    return SortedNames(placed, tuple(dropped), unexpected)


def place_of(variable: str) -> Place | None:
    """The place of one variable, None when it has none."""
    inside = _HUB.sub("", variable)
    scope = _SCOPE.match(inside)
    if scope is None:
        return _HEADS.get(inside)
    name, within = inside[scope.end() :], "albert."
    place = _BACKBONE.get(name)
    if found := _IN_GROUP.match(name):
        within += f"encoder.albert_layer_groups.{int(found[1])}.albert_layers.{int(found[2])}."
        place = _LAYER.get(found[3])
    return place and replace(place, name=within + place.name)


def _refuse_other_models(placed: Mapping[str, Place], unexpected: Mapping[str, str], where: str) -> None:
    for pattern, why, remedy in _OTHER_MODELS:
        if any(pattern.search(name) for name in unexpected):
            raise DamagedData(where, why, remedy)
    if not any(place.name.startswith("albert.") for place in placed.values()):
        names = sorted({**unexpected, **placed})
        shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        raise DamagedData(where, f"holds no ALBERT: its variables are {shown}" if names else "holds no variables")
