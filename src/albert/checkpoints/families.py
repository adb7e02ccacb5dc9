"""The families of models that are a BERT inside, and their names of tensors, classes and settings (`names.toml`)."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal

from albert.recipes.architecture import AlbertConfig
from albert.recipes.architecture import Family as FamilyName

NAMES: dict[str, Any] = tomllib.loads((files("albert.checkpoints") / "names.toml").read_text(encoding="utf-8"))
"""Names of parameters, ours and those of others."""
OTHER_FAMILIES: dict[str, str] = NAMES["other_families"]
"""`model_type` in transformers of encoders that are not a BERT inside -> what they are."""
POOLED_CLASSIFIER = "pooled_classifier"
"""In files, the classifier that reads a mean, [CLS] or a maximum: transformers' classes would read the pooler."""
OWN_PREFIX = "albert."
"""Before our names of the encoder's tensors, whatever the family."""
_PARAMETERS = ("weight", "bias")


@dataclass(frozen=True, kw_only=True)
class Family:
    """One family; tables go from our names to those of transformers, and hold every parameter.

    Args:
        name: `model_type` in transformers.
        classes: how the names of its classes begin.
        prefix: before the encoder's tensors.
        layer_prefix: before the tensors of a layer; with the fields `group` and `layer`.
        names: of the encoder outside of its layers.
        layer: of a layer; our names begin with `attention.` or `feed_forward.`.
        heads: of all heads.
        heads_of: by class, the names that are other ones there.
        copies: tensors that are written twice -> the tensor that they equal.
        sentence_head: what the sentence head of its pre-training class predicts; None: it has none.
        has_pooler: whether its class without a head has one.
        has_embedding_size: whether its embeddings may have another width than its layers.
        first_position: rows of the position table before the first position.
        config: our keys of `config.json` -> its own.
        aliases: our keys that its class takes, too, and prefers to its own.
        defaults: what its configuration takes where `config.json` says nothing.
        fixed: our settings that its `config.json` does not have.
        written: keys of `config.json` with a fixed value.
    """

    name: FamilyName
    title: str
    classes: str
    prefix: str
    layer_prefix: str
    names: Mapping[str, str]
    layer: Mapping[str, str]
    heads: Mapping[str, str]
    heads_of: Mapping[str, Mapping[str, str]]
    copies: Mapping[str, str]
    sentence_head: Literal["sop", "nsp"] | None = None
    has_pooler: bool = True
    has_embedding_size: bool = False
    first_position: int = 0
    config: Mapping[str, str] = field(default_factory=dict)
    aliases: Sequence[str] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    written: Mapping[str, Any] = field(default_factory=dict)

    def class_name(self, architecture: str) -> str:
        """The name of one of our classes in this family: `AlbertForMaskedLM` -> `BertForMaskedLM`."""
        return self.classes + architecture.removeprefix("Albert")

    def our_class(self, class_name: str) -> str:
        """Our name of a class; names of other families stay."""
        return "Albert" + class_name.removeprefix(self.classes) if class_name.startswith(self.classes) else class_name

    def heads_written(self, architecture: str, config: AlbertConfig) -> dict[str, str]:
        """Our names -> those in a file of this class; also of a pooler that belongs to the head there."""
        names = dict(self.heads) | dict(self.heads_of.get(architecture, {}))
        if config.head_pooling != "pooler":
            names |= {f"classifier.{p}": f"{POOLED_CLASSIFIER}.{p}" for p in _PARAMETERS}
        return names

    def heads_read(self) -> dict[str, str]:
        """Every name of a tensor of a head in a file -> ours."""
        names: dict[str, str] = {}
        for table in (*self.heads_of.values(), self.heads):
            names |= {theirs: ours for ours, theirs in table.items()}
        names |= {f"{POOLED_CLASSIFIER}.{p}": f"classifier.{p}" for p in _PARAMETERS}
        names |= {
            f"{own}.classifier.{p}": f"sop_classifier.classifier.{p}" for own in _OWN_SENTENCE for p in _PARAMETERS
        }
        return names

    def head_prefixes(self) -> frozenset[str]:
        """How the names of heads begin in files, up to the first dot."""
        return frozenset(name.split(".", 1)[0] for name in (*self.heads_read(), *self.copies))


_OWN_SENTENCE = ("sop_classifier", "nsp_classifier")
"""The names of a sentence head in a family whose classes have none, or one that predicts something else."""


def _parameters(names: Mapping[str, str]) -> dict[str, str]:
    """The names of all parameters; a module stands for its weight and its bias."""
    result: dict[str, str] = {}
    for ours, theirs in names.items():
        is_parameter = ours.endswith(_PARAMETERS)
        result |= {ours: theirs} if is_parameter else {f"{ours}.{p}": f"{theirs}.{p}" for p in _PARAMETERS}
    return result


def _family(name: str) -> Family:
    table: dict[str, Any] = dict(NAMES["families"][name])
    if "like" in table:
        base = NAMES["families"][table.pop("like")]
        table = base | table | {"defaults": base["defaults"] | table.get("defaults", {})}
    heads = _parameters(table.pop("heads")) | _parameters(NAMES["own_heads"])
    sentence = "sop_classifier.classifier"
    for parameter in _PARAMETERS:
        heads.setdefault(f"{sentence}.{parameter}", f"{sentence}.{parameter}")
    return Family(
        name=name,  # type: ignore[arg-type]
        names=_parameters(table.pop("names")),
        layer=_parameters(table.pop("layer")),
        heads=heads,
        heads_of={architecture: _parameters(names) for architecture, names in table.pop("heads_of", {}).items()},
        **table,
    )


FAMILIES: dict[str, Family] = {name: _family(name) for name in NAMES["families"]}
"""By `model_type`."""


def family_of(config: AlbertConfig) -> Family:
    """The family of a configuration."""
    return FAMILIES[config.family]
