"""The files of sentence-transformers beside a model: how texts become vectors, their maximum length and prompts.

`modules.json` lists the modules (Transformer, Pooling, Normalize), each with a folder of settings, as in the
documentation of sentence-transformers' saved models. They are read into one key beside those of `config.json`, which
whatever is made from the model carries, and written as files again. Source: sentence-transformers 5."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from albert.runtime.errors import DamagedData, InvalidConfiguration, UsageError
from albert.runtime.json_files import from_json, read_json_object, save_json, to_json
from albert.runtime.manifest import read_input

SENTENCE_KEY = "sentence_transformers"
"""Among the further keys of a configuration that `read_config` returns."""
MODULES_NAME = "modules.json"
SETTINGS_NAME = "sentence_bert_config.json"
PROMPTS_NAME = "config_sentence_transformers.json"
SentencePooling = Literal["mean", "cls", "max"]
_MODES: dict[str, SentencePooling] = {"mean": "mean", "cls": "cls", "max": "max"}
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
    """

    pooling: SentencePooling = "mean"
    normalize: bool = False
    max_length: int | None = None
    lower_case: bool = False
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    similarity: str | None = None

    def prompt(self, name: str | None, model: str) -> str:
        """The text of a prompt; of the default one, if the model has one, for None; `""` is no prompt."""
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


def read_sentence_vectors(directory: Path) -> dict[str, Any] | None:
    """The settings of a model directory, as plain values; None if it has no `modules.json`.

    Raises:
        InvalidConfiguration: a module or a pooling that is not supported, or a default prompt that does not exist.
    """
    path = directory / MODULES_NAME
    if not path.is_file():
        return None
    try:
        modules = json.loads(read_input(path))
    except (ValueError, RecursionError) as error:
        raise DamagedData(path, f"is not JSON ({error})") from error
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise DamagedData(path, "is not a list of modules")
    kinds = [str(module.get("type", "")).rpartition(".")[2] for module in modules]
    for kind in kinds:
        if kind not in ("Transformer", "Pooling", "Normalize"):
            why = f"names a module {kind or '?'!r}, which is not supported"
            raise InvalidConfiguration(path, why, "modules that are: Transformer, Pooling, Normalize")
    if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in ([], ["Normalize"]):
        why = f"lists {', '.join(kinds) or 'no modules'}"
        raise InvalidConfiguration(path, why, "Transformer, Pooling and perhaps Normalize are expected, in this order")
    if modules[0].get("path") not in ("", None):
        why = f"has its Transformer in {modules[0]['path']!r}"
        raise InvalidConfiguration(path, why, f"name that directory, {directory / str(modules[0]['path'])}")
    pooling_path = directory / str(modules[1].get("path", "1_Pooling")) / "config.json"
    settings = read_json_object(directory / SETTINGS_NAME) if (directory / SETTINGS_NAME).is_file() else {}
    texts = read_json_object(directory / PROMPTS_NAME) if (directory / PROMPTS_NAME).is_file() else {}
    pooling = read_json_object(pooling_path)
    max_length = settings.get("max_seq_length")
    vectors: dict[str, Any] = {
        "pooling": _pooling(pooling, pooling_path),
        "normalize": "Normalize" in kinds,
        "max_length": max_length,
        "lower_case": settings.get("do_lower_case") or False,
        "prompts": texts.get("prompts") or {},
        "default_prompt": texts.get("default_prompt_name"),
        "similarity": texts.get("similarity_fn_name"),
    }
    checked = from_json(SentenceVectors, vectors, f"{directory}: {SENTENCE_KEY}")
    if checked.max_length is not None and checked.max_length < 3:
        subject = f"{directory / SETTINGS_NAME}: max_seq_length"
        raise InvalidConfiguration(subject, f"is {checked.max_length}, at least 3 tokens are needed")
    if checked.default_prompt is not None and checked.default_prompt not in checked.prompts:
        subject = f"{directory / PROMPTS_NAME}: default_prompt_name"
        raise InvalidConfiguration(subject, f"is {checked.default_prompt!r}, which is not among the prompts")
    if pooling.get("include_prompt") is False and any(checked.prompts.values()):
        why = "is false: prompts are left out of the pooling, which is not supported"
        raise InvalidConfiguration(f"{pooling_path}: include_prompt", why)
    return vectors


def _pooling(settings: Mapping[str, Any], path: Path) -> str:
    """The mode of a Pooling module, which older files state as truth values and newer ones by name."""
    stated = settings.get("pooling_mode")
    chosen = [mode for key, mode in _KEYS.items() if settings.get(key) is True]
    modes = [stated] if isinstance(stated, str) else chosen
    if len(modes) != 1 or modes[0] not in _MODES:
        why = f"pools by {' and '.join(map(str, modes)) or 'nothing'}"
        raise InvalidConfiguration(path, why, f"supported is one of {', '.join(_MODES)}")
    return modes[0]


def write_sentence_vectors(directory: Path, vectors: SentenceVectors, width: int) -> None:
    """Write the files into a model directory; `width` is the number of dimensions of a vector."""
    names = ["Transformer", "Pooling", *(["Normalize"] if vectors.normalize else [])]
    paths = ["", *(f"{number}_{module}" for number, module in enumerate(names[1:], start=1))]
    for path in paths[1:]:
        (directory / path).mkdir(exist_ok=True)
    modes = {key: mode == vectors.pooling for key, mode in _KEYS.items()}
    save_json(
        directory / paths[1] / "config.json", {"word_embedding_dimension": width, **modes, "include_prompt": True}
    )
    if vectors.normalize:
        save_json(directory / paths[2] / "config.json", {})
    settings = {"max_seq_length": vectors.max_length, "do_lower_case": vectors.lower_case}
    save_json(directory / SETTINGS_NAME, settings)
    if vectors.prompts or vectors.default_prompt or vectors.similarity:
        prompts = {
            "prompts": to_json(vectors.prompts),
            "default_prompt_name": vectors.default_prompt,
            "similarity_fn_name": vectors.similarity or "cosine",
        }
        save_json(directory / PROMPTS_NAME, prompts)
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{module}"}
        for number, (path, module) in enumerate(zip(paths, names, strict=True))
    ]
    save_json(directory / MODULES_NAME, modules)
