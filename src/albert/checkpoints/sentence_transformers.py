"""The files of sentence-transformers beside a model: how texts become vectors, their maximum length and prompts.

`modules.json` lists the modules (Transformer, Pooling, Dense, Normalize), each with a folder of settings, as in the
documentation of sentence-transformers' saved models. They are read into one key beside those of `config.json`, which
whatever is made from the model carries, and written as files again. A Dense module has weights, too: they stay as they
are, and are copied. Source: sentence-transformers 5 and 6."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from albert.checkpoints.cross_encoders import ACTIVATIONS, activation_name, is_cross_encoder, written_activation
from albert.checkpoints.hub import MODULES_NAME, PROMPTS_NAME, WEIGHTS_NAME, read_modules, root_of
from albert.checkpoints.loading import stored_tensors, write_tensors
from albert.runtime.errors import DamagedData, InvalidConfiguration, UsageError
from albert.runtime.json_files import from_json, read_json_object, save_json, to_json
from albert.text.tokenizer import CONFIG_NAME as TOKENIZER_CONFIG_NAME

SENTENCE_KEY = "sentence_transformers"
"""Among the further keys of a configuration that `read_config` returns."""
SETTINGS_NAME = "sentence_bert_config.json"
MAX_LENGTH = 1_000_000
_SETTINGS_NAMES = (
    SETTINGS_NAME,
    *(f"sentence_{name}_config.json" for name in ("roberta", "distilbert", "camembert", "albert", "xlm-roberta")),
)
"""In the order in which sentence-transformers looks for them."""
SentencePooling = Literal["mean", "cls", "max"]
_MODES: dict[str, SentencePooling] = {"mean": "mean", "cls": "cls", "max": "max"}
POOLED: dict[str, str] = {
    "mean": "the mean over all tokens",
    "cls": "the state of [CLS]",
    "max": "the maximum over all tokens",
}
"""The poolings in words."""
_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Keys of the settings of Pooling -> its names of the modes."""


@dataclass(frozen=True, kw_only=True)
class DenseLayer:
    """A linear map and an activation after the pooling.

    Args:
        directory: of its weights.
        activation: the name of its class in torch.nn.
    """

    directory: str
    in_features: int
    out_features: int
    bias: bool = True
    activation: str = "Tanh"


@dataclass(frozen=True, kw_only=True)
class SentenceVectors:
    """How a model's texts become vectors.

    Args:
        pooling: "mean" over all tokens, the state of [CLS], or the maximum over all tokens.
        normalize: whether vectors are scaled to length 1.
        max_length: tokens of a text, special ones included; None: as many as the model has positions.
        lower_case: whether texts are lower-cased before the tokenizer reads them.
        prompts: name -> text before every text to embed.
        default_prompt: the name of the prompt that is used when none is given.
        similarity: the function that compares vectors, by its name in sentence-transformers.
        dense: linear maps after the pooling, in their order.
        truncate_dim: the first dimensions that are kept (Matryoshka), after `normalize`; None: all.
    """

    pooling: SentencePooling = "mean"
    normalize: bool = False
    max_length: int | None = None
    lower_case: bool = False
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    similarity: str | None = None
    dense: tuple[DenseLayer, ...] = ()
    truncate_dim: int | None = None

    @property
    def description(self) -> str:
        """How a text becomes a vector, as a sentence."""
        length = "" if self.max_length is None else f" of at most {self.max_length} tokens"
        parts = [f"A vector is {POOLED[self.pooling]}{length}"]
        if self.dense:
            parts.append(f"mapped to {self.dense[-1].out_features} dimensions")
        if self.normalize:
            parts.append("scaled to length 1")
        if self.truncate_dim is not None:
            parts.append(f"cut after {self.truncate_dim} dimensions")
        if self.default_prompt is not None:
            parts.append(f"with the prompt {self.prompts[self.default_prompt]!r} before the text")
        return f"{', '.join(parts)}."

    def width(self, hidden_size: int) -> int:
        """The number of dimensions of a vector of an encoder of this width, before it is truncated."""
        return self.dense[-1].out_features if self.dense else hidden_size

    def kept_width(self, hidden_size: int) -> int:
        """The number of dimensions of a vector that are kept."""
        width = self.width(hidden_size)
        return width if self.truncate_dim is None else min(width, self.truncate_dim)

    def prompt(self, name: str | None, model: str) -> str:
        """The text of a prompt; of the default one, if the model has one, for None; `""` is no prompt."""
        if name is not None and not isinstance(name, str):
            raise UsageError("prompt", f"is {name!r}, the name of a prompt is expected")
        if name == "" or (name is None and self.default_prompt is None):
            return ""
        chosen = self.default_prompt if name is None else name
        if chosen not in self.prompts:
            known = ", ".join(self.prompts)
            remedy = f"its prompts are {known}" if known else "it has none; write the prompt into the texts"
            raise UsageError(f"prompt {chosen!r}", f"is not among those of {model}", remedy)
        return self.prompts[chosen]


def sentence_vectors_of(extra: Mapping[str, Any]) -> SentenceVectors | None:
    """The settings among the further keys of a configuration; None for a model that has none."""
    settings = extra.get(SENTENCE_KEY)
    return None if settings is None else from_json(SentenceVectors, settings, SENTENCE_KEY)


def read_sentence_vectors(directory: Path, hidden_size: int | None = None) -> dict[str, Any] | None:
    """The settings of a model directory, as plain values; None without `modules.json`, and for a cross-encoder.

    Args:
        directory: of the encoder; `modules.json` may be in the directory above, and name this one.
        hidden_size: of the encoder, to check that the first Dense module fits.

    Raises:
        DamagedData: `modules.json` is not a list of modules.
        InvalidConfiguration: a module or a pooling that is not supported, or a default prompt that does not exist.
    """
    root = root_of(directory)
    path = root / MODULES_NAME
    if not path.is_file() or is_cross_encoder(directory):
        return None
    modules = read_modules(root)
    kinds = [str(module.get("type", "")).rpartition(".")[2] for module in modules]
    known = ("Transformer", "Pooling", "Dense", "Normalize")
    for kind in kinds:
        if kind not in known:
            why = f"names a module {kind or '?'!r}, which is not supported"
            raise InvalidConfiguration(path, why, f"modules that are: {', '.join(known)}")
    n_dense = kinds.count("Dense")
    expected = ["Transformer", "Pooling", *["Dense"] * n_dense]
    if kinds not in (expected, [*expected, "Normalize"]):
        why = f"lists {', '.join(kinds) or 'no modules'}"
        order = "Transformer, Pooling, then perhaps Dense, then perhaps Normalize are expected, in this order"
        raise InvalidConfiguration(path, why, order)
    folders = [str(module.get("path") or "") for module in modules]
    for folder in folders:
        if folder and Path(folder).name != folder:
            remedy = "folders inside the directory are expected"
            raise InvalidConfiguration(path, f"names the folder {folder!r}", remedy)
    encoder = root / folders[0]
    if encoder != directory.absolute():
        why = f"has its Transformer in {folders[0]!r}, which has no config.json"
        raise InvalidConfiguration(path, why, "the folder of a model is expected")
    settings, settings_path = _settings(encoder)
    texts = read_json_object(root / PROMPTS_NAME) if (root / PROMPTS_NAME).is_file() else {}
    pooling_path = root / (folders[1] or "1_Pooling") / "config.json"
    pooling = read_json_object(pooling_path)
    vectors: dict[str, Any] = {
        "pooling": _pooling(pooling, pooling_path),
        "normalize": "Normalize" in kinds,
        "max_length": stated_length(encoder),
        "lower_case": settings.get("do_lower_case") or False,
        "prompts": texts.get("prompts") or {},
        "default_prompt": texts.get("default_prompt_name"),
        "similarity": texts.get("similarity_fn_name"),
        "truncate_dim": texts.get("truncate_dim"),
        "dense": [_dense(root / folder) for folder, kind in zip(folders, kinds, strict=True) if kind == "Dense"],
    }
    checked = from_json(SentenceVectors, vectors, f"{root}: {SENTENCE_KEY}")
    if checked.max_length is not None and checked.max_length < 3:
        subject = f"{settings_path}: max_seq_length"
        raise InvalidConfiguration(subject, f"is {checked.max_length}, at least 3 tokens are needed")
    if checked.truncate_dim is not None and checked.truncate_dim < 1:
        subject = f"{root / PROMPTS_NAME}: truncate_dim"
        raise InvalidConfiguration(subject, f"is {checked.truncate_dim}, at least 1 dimension is needed")
    if checked.default_prompt is not None and checked.default_prompt not in checked.prompts:
        subject = f"{root / PROMPTS_NAME}: default_prompt_name"
        raise InvalidConfiguration(subject, f"is {checked.default_prompt!r}, which is not among the prompts")
    if pooling.get("include_prompt") is False and any(checked.prompts.values()):
        why = "is false: prompts are left out of the pooling, which is not supported"
        raise InvalidConfiguration(f"{pooling_path}: include_prompt", why)
    width = hidden_size
    for layer in checked.dense:
        if width is not None and layer.in_features != width:
            subject = f"{Path(layer.directory) / 'config.json'}: in_features"
            raise InvalidConfiguration(subject, f"is {layer.in_features}, the vectors before it have {width}")
        width = layer.out_features
    return vectors


def stated_length(encoder: Path) -> Any:
    """The maximum length: `max_seq_length`, or where the files have none, as those of version 6, the tokenizer's."""
    settings, _ = _settings(encoder)
    stated = settings.get("max_seq_length")
    path = encoder / TOKENIZER_CONFIG_NAME
    if stated is not None or not path.is_file():
        return stated
    of_tokenizer = read_json_object(path).get("model_max_length")
    if isinstance(of_tokenizer, bool) or not isinstance(of_tokenizer, int | float):
        return None
    is_length = 3 <= of_tokenizer < MAX_LENGTH  # transformers writes 10^30 for "no maximum"
    return int(of_tokenizer) if is_length else None


def _settings(encoder: Path) -> tuple[dict[str, Any], Path]:
    """The settings of the Transformer module, and their file."""
    named = [encoder / name for name in _SETTINGS_NAMES if (encoder / name).is_file()]
    return (read_json_object(named[0]), named[0]) if named else ({}, encoder / SETTINGS_NAME)


def _dense(directory: Path) -> dict[str, Any]:
    """The settings of a Dense module; what is not a map of the pooled vector is refused."""
    path = directory / "config.json"
    settings = read_json_object(path)
    if settings.get("use_residual"):
        raise InvalidConfiguration(f"{path}: use_residual", "is true, which is not supported")
    for key in ("module_input_name", "module_output_name"):
        if settings.get(key) not in (None, "sentence_embedding"):
            why = f"is {settings[key]!r}, only the vector of the text is supported"
            raise InvalidConfiguration(f"{path}: {key}", why)
    stated = str(settings.get("activation_function", "torch.nn.modules.activation.Tanh"))
    activation = activation_name(stated, f"{path}: activation_function")
    for key in ("in_features", "out_features"):
        size = settings.get(key)
        if type(size) is not int or size < 1:
            raise InvalidConfiguration(f"{path}: {key}", f"is {size!r}, a number of dimensions is expected")
    return {
        "directory": str(directory),
        "in_features": settings["in_features"],
        "out_features": settings["out_features"],
        "bias": settings.get("bias", True),
        "activation": activation,
    }


def open_dense(vectors: SentenceVectors | None) -> nn.Sequential | None:
    """The Dense modules, whose parameters are not trained; None if there are none.

    Raises:
        MissingInput: no weights in safetensors.
        DamagedData: weights of other shapes than the settings say.
    """
    if vectors is None or not vectors.dense:
        return None
    parts: list[nn.Module] = []
    for layer in vectors.dense:
        directory = Path(layer.directory)
        stored = stored_tensors(directory)
        shapes: dict[str, tuple[int, ...]] = {"linear.weight": (layer.out_features, layer.in_features)}
        if layer.bias:
            shapes["linear.bias"] = (layer.out_features,)
        found = {name: tensor.shape for name, tensor in stored.by_name.items()}
        if found != shapes:
            why = f"has {_shapes(found)}, its config.json describes {_shapes(shapes)}"
            raise DamagedData(directory / WEIGHTS_NAME, why)
        tensors = stored.read(shapes, torch.float32)
        linear = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias)
        linear.load_state_dict({name.removeprefix("linear."): tensor for name, tensor in tensors.items()})
        parts += [linear, ACTIVATIONS[layer.activation]()]
    return nn.Sequential(*parts).requires_grad_(False).eval()


def _shapes(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items()) or "no tensors"


def _pooling(settings: Mapping[str, Any], path: Path) -> str:
    """The mode of a Pooling module, which older files state as truth values and newer ones by name or names."""
    modes: list[Any] = [mode for key, mode in _KEYS.items() if settings.get(key) is True]
    if "pooling_mode" in settings:
        stated = settings["pooling_mode"]
        modes = stated if isinstance(stated, list) else [stated]
    if len(modes) != 1 or not isinstance(modes[0], str) or modes[0] not in _MODES:
        why = f"pools by {' and '.join(map(str, modes)) or 'nothing'}"
        raise InvalidConfiguration(path, why, f"supported is one of {', '.join(_MODES)}")
    return modes[0]


def write_sentence_vectors(directory: Path, vectors: SentenceVectors, hidden_size: int) -> None:
    """Write the files into a model directory; `hidden_size` is the width of the encoder."""
    names = ["Transformer", "Pooling", *["Dense"] * len(vectors.dense), *(["Normalize"] if vectors.normalize else [])]
    paths = ["", *(f"{number}_{module}" for number, module in enumerate(names[1:], start=1))]
    for path in paths[1:]:
        (directory / path).mkdir(exist_ok=True)
    modes = {key: mode == vectors.pooling for key, mode in _KEYS.items()}
    pooling = {"word_embedding_dimension": hidden_size, **modes, "include_prompt": True}
    save_json(directory / paths[1] / "config.json", pooling)
    for layer, path in zip(vectors.dense, paths[2:], strict=False):  # Normalize has no layer
        dense = {
            "in_features": layer.in_features,
            "out_features": layer.out_features,
            "bias": layer.bias,
            "activation_function": written_activation(layer.activation),
        }
        save_json(directory / path / "config.json", dense)
        stored = stored_tensors(Path(layer.directory))
        write_tensors(directory / path / WEIGHTS_NAME, stored.read(stored.by_name))
    if vectors.normalize:
        save_json(directory / paths[-1] / "config.json", {})
    settings = {"max_seq_length": vectors.max_length, "do_lower_case": vectors.lower_case}
    save_json(directory / SETTINGS_NAME, settings)
    if vectors.prompts or vectors.default_prompt or vectors.similarity or vectors.truncate_dim:
        prompts = {
            "prompts": to_json(vectors.prompts),
            "default_prompt_name": vectors.default_prompt,
            "similarity_fn_name": vectors.similarity or "cosine",
            **({} if vectors.truncate_dim is None else {"truncate_dim": vectors.truncate_dim}),
        }
        save_json(directory / PROMPTS_NAME, prompts)
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{module}"}
        for number, (path, module) in enumerate(zip(paths, names, strict=True))
    ]
    save_json(directory / MODULES_NAME, modules)
