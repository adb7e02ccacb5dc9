"""Cross-encoders of sentence-transformers: models whose one output is the score of a pair of texts.

Their files name the activation that turns the output into the score: `config.json` (`sentence_transformers` since
version 4, `sbert_ce_default_activation_function` before it) or `config_sentence_transformers.json` (version 5). Where
nothing names one it is a sigmoid, in sentence-transformers as in the pipelines of transformers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from albert.checkpoints.hub import MODULES_NAME, PROMPTS_NAME, read_modules, root_of
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.json_files import read_json_object

ACTIVATION_KEY = "score_activation"
"""Among the further keys of a configuration that `read_config` returns: a name of `ACTIVATIONS`."""
_KEY = "sentence_transformers"
_TASK_KEY = "finetuning_task"
_STS_B = ("sts-b", "stsb")
"""The regression task of GLUE, which `run_glue.py` of transformers 2 and 3 wrote without a `problem_type`."""
_OLD_KEY = "sbert_ce_default_activation_function"
ACTIVATIONS: dict[str, type[nn.Module]] = {
    "Identity": nn.Identity,
    "Sigmoid": nn.Sigmoid,
    "Tanh": nn.Tanh,
    "ReLU": nn.ReLU,
    "GELU": nn.GELU,
}
"""By the names of their classes in torch.nn."""


def activation_name(stated: object, where: str) -> str:
    """The name of an activation that is stated as a class of torch.nn.

    Raises:
        InvalidConfiguration: another class.
    """
    package, _, name = str(stated).rpartition(".")
    if name not in ACTIVATIONS or not package.startswith("torch.nn"):
        known = ", ".join(f"torch.nn.{each}" for each in ACTIVATIONS)
        raise InvalidConfiguration(where, f"is {stated!r}, which is not supported", f"supported: {known}")
    return name


def written_activation(name: str) -> str:
    """The activation as sentence-transformers writes it."""
    return f"{ACTIVATIONS[name].__module__}.{name}"


def is_cross_encoder(directory: Path) -> bool:
    """Return whether `modules.json` beside or above a model describes a cross-encoder, as version 5 writes it.

    Raises:
        InvalidConfiguration: it has other modules than a model with a head, or a prompt before every text.
    """
    root = root_of(directory)
    path = root / PROMPTS_NAME
    content = read_json_object(path) if path.is_file() else {}
    if content.get("model_type") != "CrossEncoder" or not (root / MODULES_NAME).is_file():
        return False
    kinds = [str(module.get("type", "")).rpartition(".")[2] for module in read_modules(root)]
    if kinds != ["Transformer"]:
        why = f"describes a cross-encoder of {', '.join(kinds) or 'no modules'}"
        raise InvalidConfiguration(root / MODULES_NAME, why, "a Transformer with a head for sequences is supported")
    default = content.get("default_prompt_name")
    if default is not None:
        why = f"is {default!r}: prompts of cross-encoders are not supported"
        raise InvalidConfiguration(f"{path}: default_prompt_name", why, "set it to null, and write it into the texts")
    return True


def read_activation(directory: Path, content: dict[str, Any]) -> str | None:
    """The activation of the one output of a model, None if its files name none or it has several outputs.

    Args:
        content: of `config.json`. The keys of sentence-transformers are removed; several outputs with a sigmoid are
            those of several labels, which `problem_type` says then.

    Raises:
        InvalidConfiguration: an activation or modules that are not supported.
    """
    subject = f"{directory / 'config.json'}: {_KEY}"
    new = content.pop(_KEY, None)
    stated: object = content.pop(_OLD_KEY, None)
    if isinstance(new, Mapping):
        stated = new.get("activation_fn", stated)
    if is_cross_encoder(directory):
        path = root_of(directory) / PROMPTS_NAME
        stated = read_json_object(path).get("activation_fn", stated)
        subject = f"{path}: activation_fn"
    labels = content.get("id2label")
    n_outputs = len(labels) if isinstance(labels, Mapping) and labels else content.get("num_labels", 2)
    if n_outputs == 1:
        return None if stated is None else activation_name(stated, subject)
    if str(stated).endswith(".Sigmoid") and content.get("problem_type") is None:
        content["problem_type"] = "multi_label_classification"
    return None


def activation_keys(extra: Mapping[str, Any]) -> dict[str, Any]:
    """What `config.json` says of the activation, by the further keys of a configuration."""
    name = extra.get(ACTIVATION_KEY)
    return {} if name is None else {_KEY: {"activation_fn": written_activation(name)}}


def score_activation(extra: Mapping[str, Any]) -> str:
    """The activation of the one output of a head, by the further keys of its configuration."""
    stated = extra.get(ACTIVATION_KEY)
    if stated is not None:
        return str(stated)
    is_number = extra.get("problem_type") == "regression" or extra.get(_TASK_KEY) in _STS_B
    return "Identity" if is_number else "Sigmoid"


def score_note(extra: Mapping[str, Any]) -> str:
    """A note for a head with one output whose files do not say what it means; empty for others."""
    if ACTIVATION_KEY in extra or extra.get("problem_type") is not None:
        return ""
    if extra.get(_TASK_KEY) in _STS_B:
        return f"config.json names the task {extra[_TASK_KEY]!r}: the head's output is a number"
    return (
        "config.json does not say what the head's one output means: the score is its sigmoid, as in transformers and "
        'sentence-transformers; for the number itself write "problem_type": "regression" into config.json'
    )
