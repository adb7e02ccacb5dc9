"""Google's TensorFlow checkpoints of ALBERT and BERT: files, configuration, names of variables in transformers."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from albert.checkpoints.tensor_bundle import INDEX_SUFFIX, is_table
from albert.recipes.architecture import EncoderConfig
from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput
from albert.runtime.json_files import from_json, read_json_object
from albert.runtime.manifest import open_input

# --------------------------------------------------------------------------------------------------------------------
# `albert_config.json`, which must match the shapes of the tensors. The number of layers and heads and the activation do
# not follow from shapes: they must be in the file or on the command line.

CONFIG_NAME = "albert_config.json"
_NOT_IN_SHAPES = ("num_hidden_layers", "num_attention_heads", "hidden_act")
_ONLY_OURS = (
    "sharing",
    "embedding_projection",
    "layer_norm_eps",
    "classifier_dropout_prob",
    "family",
    "head_pooling",
    "segment_types",
)
_KNOWN = tuple(field.name for field in fields(EncoderConfig) if field.name not in _ONLY_OURS)
_ACTIVATIONS = {"gelu": "gelu_new", "gelu_new": "gelu_new", "relu": "relu", "tanh": "tanh"}
"""The reference's "gelu" is the tanh form in every release; transformers' "gelu" is the exact one."""
_FIRST = "albert.encoder.albert_layer_groups.0.albert_layers.0"
_PROJECTION = "albert.encoder.embedding_hidden_mapping_in.weight"
Shapes = Mapping[str, tuple[int, ...]]
_BERT_LAYER_NAME = re.compile(r"bert\.encoder\.layer\.(\d+)\.")


def is_bert(shapes: Shapes) -> bool:
    """Return whether tensors are those of Google's BERT, by their names in transformers."""
    return any(_BERT_LAYER_NAME.match(name) for name in shapes)


def bert_sizes_from_shapes(shapes: Shapes, where: str) -> dict[str, Any]:
    """The fields of a BERT's `EncoderConfig` that follow from the shapes of tensors."""
    V, H = _matrix(shapes, "bert.embeddings.word_embeddings.weight", where)
    positions, _ = _matrix(shapes, "bert.embeddings.position_embeddings.weight", where)
    types, _ = _matrix(shapes, "bert.embeddings.token_type_embeddings.weight", where)
    F, _ = _matrix(shapes, "bert.encoder.layer.0.intermediate.dense.weight", where)
    layers = {int(match[1]) for name in shapes if (match := _BERT_LAYER_NAME.match(name))}
    if layers != set(range(len(layers))):
        raise DamagedData(where, f"has {len(layers)} layers up to number {max(layers)}: some are missing")
    return {
        "vocab_size": V,
        "hidden_size": H,
        "num_hidden_layers": len(layers),
        "intermediate_size": F,
        "max_position_embeddings": positions,
        "type_vocab_size": types,
    }


def sizes_from_shapes(shapes: Shapes, where: str) -> dict[str, int]:
    """The fields of `EncoderConfig` that follow from the shapes of tensors."""
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
    """The settings in the file that the reference's code reads, and the keys that it ignores."""
    content = read_json_object(path) if path is not None else {}
    settings = {key: value for key, value in content.items() if key in _KNOWN}
    return settings, tuple(sorted(set(content) - set(settings)))


def config_of(
    settings: Mapping[str, Any], shapes: Shapes, overrides: Mapping[str, Any], file: Path | None, where: str
) -> EncoderConfig:
    """The configuration of a checkpoint."""
    subject = str(file) if file is not None else where
    of_bert = is_bert(shapes)
    sizes: dict[str, Any] = bert_sizes_from_shapes(shapes, where) if of_bert else sizes_from_shapes(shapes, where)
    values = dict(settings)
    if of_bert:
        values["num_hidden_layers"] = sizes["num_hidden_layers"]
    if "hidden_act" in values and "hidden_act" not in overrides:
        values["hidden_act"] = _activation(values["hidden_act"], subject, of_bert)
    values |= overrides
    missing = [key for key in _NOT_IN_SHAPES if key not in values]
    if missing:
        if file is not None:
            why = "lacks"
        else:
            why = f"there is no {'bert_config.json' if of_bert else CONFIG_NAME} beside it with"
        flags = " ".join("--" + key.replace("_", "-") for key in missing)
        raise MissingInput(subject, f"{why} {', '.join(missing)}, which the tensors do not show", f"add {flags}")
    for key, size in sizes.items():
        if key in settings and settings[key] != size:
            why = f"is {settings[key]!r}, the tensors of {where} have {size}"
            raise InvalidConfiguration(f"{subject}: {key}", why, "use the configuration of this checkpoint")
    if of_bert:
        sizes |= {"embedding_size": sizes["hidden_size"], "family": "bert", "sharing": "none"}
    elif sizes["embedding_size"] == sizes["hidden_size"] and _PROJECTION in shapes:
        values["embedding_projection"] = True
    config = from_json(EncoderConfig, values | sizes, subject)
    # The reference divides by the number of layers first and then rounds down: wrong for 44 layers in 22 groups.
    L = config.num_hidden_layers
    G = config.num_hidden_groups
    moved = [layer for layer in range(L) if int(layer / L * G) != layer * G // L]
    if moved:
        why = f"{G} groups in {L} layers: the reference's rounding puts layer {moved[0]} into the previous group"
        raise InvalidConfiguration(f"{subject}: num_hidden_groups", why, "such models are not supported")
    return config


def _matrix(shapes: Shapes, name: str, where: str) -> tuple[int, int]:
    shape = shapes.get(name)
    if shape is None or len(shape) != 2:
        why = f"lacks {name}" if shape is None else f"{name} has shape {shape}, a matrix is expected"
        raise DamagedData(where, why)
    return shape


def _activation(name: Any, subject: str, of_bert: bool) -> str:
    """Our name of the reference's activation, which is case-insensitive; BERT's "gelu" is the exact one."""
    activation = _ACTIVATIONS.get(name.lower()) if isinstance(name, str) else None
    if of_bert and activation == "gelu_new" and name.lower() == "gelu":
        activation = "gelu"
    if activation is None:
        remedy = f"known: {', '.join(_ACTIVATIONS)}; set another with --hidden-act"
        raise InvalidConfiguration(f"{subject}: hidden_act", f"is {name!r}", remedy)
    return activation


# --------------------------------------------------------------------------------------------------------------------
# The files of a TensorFlow checkpoint: a release (`model.ckpt-best.*`, `albert_config.json`, `30k-clean.model` or
# `vocab_chinese.txt`), a TF-Hub module or SavedModel (`variables/`, `assets/`), a training run (`checkpoint` names the
# newest of many), or one prefix.

STATE_NAME = "checkpoint"
CONFIG_PATTERNS = ("*bert_config*.json",)  # albert_config.json, too
TOKENIZER_PATTERNS = ("*.model", "vocab*.txt")
_PART = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")
_NEWEST = re.compile(r'^model_checkpoint_path: *"(.+)"\s*$', re.MULTILINE)
_KERAS = b"\x89HDF\r\n\x1a\n"


@dataclass(frozen=True)
class CheckpointFiles:
    """The result of `find_checkpoint`."""

    prefix: Path
    config: Path | None
    folders: tuple[Path, ...]
    """Where configuration and vocabulary may be, the nearest first."""
    steps: int = 1

    def tokenizer(self) -> Path | None:
        """The vocabulary beside the checkpoint; `MissingInput` if there are several."""
        return _only_match(self.folders, TOKENIZER_PATTERNS, "vocabularies", "--tokenizer")


def holds_tensorflow(path: Path) -> bool:
    """Return whether the path is a checkpoint, a part of one, or an old format, which `find_checkpoint` refuses."""
    if path.is_dir():
        return bool(_prefixes(path) or _old_checkpoints(path))
    return _index_of(path).is_file() or (path.is_file() and _old_format(path) is not None)


def find_checkpoint(path: Path, config: Path | None = None) -> CheckpointFiles:
    """The files of a checkpoint, given by its directory, prefix or one file."""
    if path.is_dir():
        prefixes = _prefixes(path)
        if not prefixes:
            for file in _old_checkpoints(path):
                _refuse_old_format(file)
            raise MissingInput(path, "holds no TensorFlow checkpoint", "it needs a file that ends with .index")
    elif _index_of(path).is_file():
        prefixes = [_without_part(path)]
    else:
        if path.is_file():
            _refuse_old_format(path)
        if path.exists():
            raise MissingInput(path, "is not part of a TensorFlow checkpoint", "name its directory, or its .index file")
        raise MissingInput(_index_of(path), "no such file")
    prefix = prefixes[0] if len(prefixes) == 1 else _newest(prefixes)
    if prefix is None:
        names = ", ".join(sorted(str(each.relative_to(path)) for each in prefixes))
        raise MissingInput(path, f"holds {len(prefixes)} checkpoints: {names}", "name one of them")
    parents = [prefix.parent]
    if prefix.parent.name == "variables" or prefix.parent.parent == path:
        parents.append(prefix.parent.parent)
    folders = tuple(folder for parent in parents for folder in (parent, parent / "assets") if folder.is_dir())
    if config is None:
        config = _only_match(folders, CONFIG_PATTERNS, "configurations", "--config")
    return CheckpointFiles(prefix, config, folders, len(prefixes))


def _prefixes(directory: Path) -> list[Path]:
    """The prefixes of checkpoints in a directory, in its `variables`, or in a directory inside it, as in archives."""
    for pattern in ("*", "variables/*", "*/*", "*/variables/*"):
        prefixes = [_without_part(file) for file in _visible(directory.glob(pattern + INDEX_SUFFIX))]
        if prefixes:
            return sorted(prefixes)
    return []


def _newest(prefixes: Iterable[Path]) -> Path | None:
    """The newest checkpoint according to the state file, of whose path only the name counts, as runs are moved."""
    for directory in {prefix.parent for prefix in prefixes}:
        state = directory / STATE_NAME
        if not state.is_file():
            continue
        newest = _NEWEST.search(state.read_text(encoding="utf-8", errors="replace"))
        if newest is not None:
            name = re.split(r"[/\\]", newest[1])[-1]
            return next((prefix for prefix in prefixes if prefix == directory / name), None)
    return None


def _without_part(path: Path) -> Path:
    return path.with_name(_PART.sub("", path.name))


def _index_of(path: Path) -> Path:
    prefix = _without_part(path)
    return prefix.with_name(prefix.name + INDEX_SUFFIX)


def _old_checkpoints(directory: Path) -> list[Path]:
    candidates = [*directory.glob("*ckpt*"), *directory.glob("*.h5"), *directory.glob("*.hdf5")]
    return sorted(file for file in _visible(candidates) if file.is_file() and _old_format(file))


def _old_format(file: Path) -> tuple[str, str] | None:
    """Why a file cannot be read, and what to do, if it has an older format."""
    with open_input(file) as stream:
        if stream.read(len(_KERAS)) == _KERAS:
            why = "is an HDF5 file of Keras, not a TensorFlow checkpoint"
            return why, "use the .index and .data files of the release"
    if is_table(file) and not _PART.search(file.name):
        why = "is a checkpoint of TensorFlow's first format, which is not supported"
        return why, "save it with tf.compat.v1.train.Saver().save(...) of TensorFlow 0.12 or later"
    return None


def _refuse_old_format(file: Path) -> None:
    old = _old_format(file)
    if old is not None:
        raise DamagedData(file, *old)


def _only_match(folders: Iterable[Path], patterns: Iterable[str], what: str, flag: str) -> Path | None:
    for folder in folders:
        for pattern in patterns:
            files = sorted(file for file in _visible(folder.glob(pattern)) if file.is_file())
            if len(files) > 1:
                names = ", ".join(file.name for file in files)
                raise MissingInput(folder, f"holds {len(files)} {what}: {names}", f"choose with {flag}")
            if files:
                return files[0]
    return None


def _visible(files: Iterable[Path]) -> list[Path]:
    """Without hidden files, such as the `._` files in archives from a Mac."""
    return [file for file in files if not file.name.startswith(".")]


# --------------------------------------------------------------------------------------------------------------------
# The variables of Google's models and their names in transformers (`tensorflow.toml`). TF-Hub adds `module/` before.


@dataclass(frozen=True)
class Target:
    """The tensor of a variable: its name in transformers, and whether the matrix is transposed."""

    name: str
    transposed: bool = False


_NAMES = tomllib.loads((files("albert.checkpoints") / "tensorflow.toml").read_text(encoding="utf-8"))
_PARTS = {
    "plain": {"": ("", False)},
    "dense": {"/kernel": (".weight", True), "/bias": (".bias", False)},
    "norm": {"/gamma": (".weight", False), "/beta": (".bias", False)},
    "output": {"output_weights": (".weight", False), "output_bias": (".bias", False)},
}


def _targets(part: str) -> dict[str, Target]:
    """The variables of a part of the model in `tensorflow.toml` -> their targets."""
    targets = {}
    for kind, modules in _NAMES[part].items():
        for variable, module in modules.items():
            for ending, (parameter, transposed) in _PARTS[kind].items():
                targets[variable + ending] = Target(module + parameter, transposed)
    return targets


_BACKBONE, _LAYER, _HEADS = map(_targets, ("backbone", "layer", "heads"))
_BERT_BACKBONE, _BERT_LAYER, _BERT_HEADS = map(_targets, ("bert_backbone", "bert_layer", "bert_heads"))
_HUB = re.compile(r"^module(_\d+)?/")
_SCOPE = re.compile(r"^(bert|albert)/")
_IN_GROUP = re.compile(r"^encoder/transformer/group_(\d{1,4})/inner_group_(\d{1,4})/(.+)$")
_IN_LAYER = re.compile(r"^encoder/layer_(\d{1,4})/(.+)$")
_OPTIMIZER = re.compile(
    r"(^|/)((adam|lamb)_[mv]|(Adam|AdamWeightDecayOptimizer|LAMBOptimizer)(_1)?|Momentum)$"
    r"|(^|/)(global_step|beta[12]_power|(current_)?loss_scale|good_steps)$"
)
_JOINT_ANSWER_HEAD = re.compile(r"^(start_logits|end_logits|answer_class)/")
_OTHER_MODELS = (
    (
        re.compile(r"/encoder/layer_shared/|/word_embeddings_2$"),
        "is one of brightmart's first albert_zh models, a different network (word_embeddings_2, layer_shared)",
        "use one of Google's albert_*_zh, or of brightmart's *_zh_google",
    ),
    (
        re.compile(r"/\.ATTRIBUTES/|^_CHECKPOINTABLE_OBJECT_GRAPH$"),
        "is a checkpoint of Keras objects, without names of variables",
        "use the release of google-research/albert, or the Hugging Face repository of this model",
    ),
)


@dataclass(frozen=True)
class MappedVariables:
    """The result of `map_variables`; `unexpected` has the reason for each variable."""

    mapped: dict[str, Target]
    dropped: tuple[str, ...]
    unexpected: dict[str, str]


def map_variables(names: Iterable[str], where: str) -> MappedVariables:
    """Find the target of every variable."""
    mapped: dict[str, Target] = {}
    dropped = []
    unexpected = {}
    names = list(names)
    of_bert = any(_IN_LAYER.match(_SCOPE.sub("", _HUB.sub("", name))) for name in names)
    for name in names:
        if _OPTIMIZER.search(name):
            dropped.append(name)
            continue
        target = target_of(name, of_bert)
        if target:
            mapped[name] = target
        elif _JOINT_ANSWER_HEAD.match(name):
            unexpected[name] = "belongs to the joint head of SQuAD 2.0, whose conversion is not supported"
        else:
            unexpected[name] = f"is not a variable of {'BERT' if of_bert else 'ALBERT'}"
    for pattern, why, remedy in _OTHER_MODELS:
        if any(pattern.search(name) for name in unexpected):
            raise DamagedData(where, why, remedy)
    if not any(target.name.startswith(("albert.", "bert.")) for target in mapped.values()):
        found = sorted({**unexpected, **mapped})
        shown = ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")
        raise DamagedData(where, f"holds no ALBERT: its variables are {shown}" if found else "holds no variables")
    first: dict[str, str] = {}
    for name, target in mapped.items():
        other = first.setdefault(target.name, name)
        if other != name:
            raise DamagedData(where, f"holds {target.name} twice: as {other} and as {name}")
    return MappedVariables(mapped, tuple(dropped), unexpected)


def target_of(variable: str, of_bert: bool = False) -> Target | None:
    """The target of a variable of ALBERT, or of BERT; None for others."""
    name = _HUB.sub("", variable)
    scope = _SCOPE.match(name)
    if scope is None:
        return (_BERT_HEADS if of_bert else _HEADS).get(name)
    name = name[scope.end() :]
    if of_bert:
        prefix = "bert."
        target = _BERT_BACKBONE.get(name)
        match = _IN_LAYER.match(name)
        if match:
            prefix += f"encoder.layer.{int(match[1])}."
            target = _BERT_LAYER.get(match[2])
        return target and replace(target, name=prefix + target.name)
    prefix = "albert."
    target = _BACKBONE.get(name)
    match = _IN_GROUP.match(name)
    if match:
        prefix += f"encoder.albert_layer_groups.{int(match[1])}.albert_layers.{int(match[2])}."
        target = _LAYER.get(match[3])
    return target and replace(target, name=prefix + target.name)
