"""What is done with each key of `config.json` that transformers' classes of our families have or read.

A key is followed (`followed_keys`), changes no answer (`WITHOUT_EFFECT`), or must have the value that is computed with
here (`NEEDED`): another one would give other answers than in transformers, and is refused by its name. A test walks
through the configuration classes and the code of the models, and fails for a key that is not listed."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from albert.checkpoints.families import Family
from albert.recipes.architecture import AlbertConfig
from albert.runtime.errors import InvalidConfiguration

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
"""Key -> why the answers are the same with any value, unless the key is in `NEEDED` for the family."""

_FOLLOWED = ("architectures", "model_type", "id2label", "num_labels", "problem_type")
"""Beside the fields of `AlbertConfig`."""


@dataclass(frozen=True, kw_only=True)
class Needed:
    """The values of a key that mean what is computed here.

    Attributes:
        values: the others are refused; a missing key has the first one in transformers.
        why: what another value means.
        families: None: every one.
        architecture: the class, by our name, that reads the key; None: every one.
    """

    key: str
    values: tuple[Any, ...]
    why: str
    families: tuple[str, ...] | None = None
    architecture: str | None = None


_AFTER_PADDING = ("roberta", "xlm-roberta", "camembert")
_SUMMARY: dict[str, Any] = {"families": ("electra",), "architecture": "AlbertForMultipleChoice"}

NEEDED: tuple[Needed, ...] = (
    Needed(key="position_embedding_type", values=("absolute", None), why="positions are absolute here"),
    Needed(key="is_encoder_decoder", values=(False, None), why="the model is no encoder alone"),
    Needed(key="is_decoder", values=(False, None), why="the model is a decoder"),
    Needed(key="add_cross_attention", values=(False, None), why="the model is a decoder"),
    Needed(key="pruned_heads", values=({}, None), why="heads that were removed are not supported"),
    Needed(key="per_layer_config", values=({}, None), why="layers of different settings are not supported"),
    Needed(key="quantization_config", values=({}, None), why="quantised weights of others cannot be read"),
    Needed(
        key="pad_token_id",
        values=(1,),
        why="positions begin after it, at 2 in the models here",
        families=_AFTER_PADDING,
    ),
    Needed(
        key="hidden_act",
        values=("gelu", "gelu_python"),
        why="the heads of this family have gelu",
        families=(*_AFTER_PADDING, "electra"),
    ),
    Needed(key="summary_type", values=("first",), why="the state at [CLS] is read here", **_SUMMARY),
    Needed(key="summary_use_proj", values=(True,), why="there is a map before the classifier here", **_SUMMARY),
    Needed(key="summary_proj_to_labels", values=(False, None), why="that map keeps the width here", **_SUMMARY),
    Needed(key="summary_activation", values=("gelu", "gelu_python"), why="that map is followed by gelu", **_SUMMARY),
)

NOT_CARRIED = frozenset(needed.key for needed in NEEDED if needed.architecture is not None)
"""Keys that a model of another class may have with any value, so that they are not copied into a new one."""


def followed_keys(family: Family) -> frozenset[str]:
    """The keys of a family's `config.json` that are read."""
    own = (family.config.get(field.name, field.name) for field in fields(AlbertConfig))
    return frozenset({*own, *family.aliases, *_FOLLOWED})


def require_needed_values(content: Mapping[str, Any], family: Family, architecture: str | None, path: Path) -> None:
    """Raise InvalidConfiguration for a key of `config.json` with which transformers computes something else.

    Args:
        architecture: the class in the file, by our name.
    """
    for needed in NEEDED:
        if needed.families is not None and family.name not in needed.families:
            continue
        if needed.architecture is not None and needed.architecture != architecture:
            continue
        if needed.key in content and content[needed.key] not in needed.values:
            usual = json.dumps(needed.values[0])
            why = f"is {json.dumps(content[needed.key])[:60]}: {needed.why}"
            raise InvalidConfiguration(f"{path}: {needed.key}", why, f"{family.title} opens with {usual}")
