"""One table from the variables of Google's ALBERT to transformers' names, and what else such a checkpoint may hold.

A `kernel` is [in, out] in TensorFlow and is transposed; embeddings, biases, layer norms and `output_weights` are not.
TF-Hub puts `module/` in front. Source of the names: google-research/albert, `modeling.py`, `run_pretraining.py`,
`classifier_utils.py`, `squad_utils.py`, `lamb_optimizer.py`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from albert.runtime.errors import DamagedData


@dataclass(frozen=True)
class Place:
    """Where a variable goes: transformers' name, and whether its two axes change places."""

    name: str
    transposed: bool = False


def _dense(variable: str, module: str) -> dict[str, Place]:
    return {
        f"{variable}/kernel": Place(f"{module}.weight", transposed=True),
        f"{variable}/bias": Place(f"{module}.bias"),
    }


def _norm(variable: str, module: str) -> dict[str, Place]:
    return {f"{variable}/gamma": Place(f"{module}.weight"), f"{variable}/beta": Place(f"{module}.bias")}


def _output(scope: str, module: str) -> dict[str, Place]:
    return {f"{scope}output_weights": Place(f"{module}.weight"), f"{scope}output_bias": Place(f"{module}.bias")}


_BACKBONE = {
    "embeddings/word_embeddings": Place("embeddings.word_embeddings.weight"),
    "embeddings/position_embeddings": Place("embeddings.position_embeddings.weight"),
    "embeddings/token_type_embeddings": Place("embeddings.token_type_embeddings.weight"),
    **_norm("embeddings/LayerNorm", "embeddings.LayerNorm"),
    **_dense("encoder/embedding_hidden_mapping_in", "encoder.embedding_hidden_mapping_in"),
    **_dense("pooler/dense", "pooler"),
}
_LAYER = {
    **_dense("attention_1/self/query", "attention.query"),
    **_dense("attention_1/self/key", "attention.key"),
    **_dense("attention_1/self/value", "attention.value"),
    **_dense("attention_1/output/dense", "attention.dense"),
    **_norm("LayerNorm", "attention.LayerNorm"),
    **_dense("ffn_1/intermediate/dense", "ffn"),
    **_dense("ffn_1/intermediate/output/dense", "ffn_output"),
    **_norm("LayerNorm_1", "full_layer_layer_norm"),
}
_HEADS = {
    **_dense("cls/predictions/transform/dense", "predictions.dense"),
    **_norm("cls/predictions/transform/LayerNorm", "predictions.LayerNorm"),
    "cls/predictions/output_bias": Place("predictions.bias"),
    **_output("cls/seq_relationship/", "sop_classifier.classifier"),
    **_output("cls/squad/", "qa_outputs"),
    **_output("", "classifier"),
}

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
    """What becomes of every variable of a checkpoint.

    Args:
        placed: those that a model has a place for.
        dropped: what an optimiser keeps: moments, steps, the scale of the loss.
        unexpected: the others, each with the reason.
    """

    placed: dict[str, Place]
    dropped: tuple[str, ...]
    unexpected: dict[str, str]


def sort_names(names: Iterable[str], where: str) -> SortedNames:
    """Find every variable's place.

    Args:
        names: of the variables.
        where: how to call the checkpoint in an error.

    Raises:
        DamagedData: they are those of another model, or two variables have the same place.
    """
    placed: dict[str, Place] = {}
    dropped, unexpected = [], {}
    for name in names:
        if _OPTIMIZER.search(name):
            dropped.append(name)
        elif place := place_of(name):
            placed[name] = place
        else:
            unexpected[name] = _why_unexpected(name)
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


def _why_unexpected(name: str) -> str:
    if _JOINT_ANSWER_HEAD.match(name):
        return "belongs to the joint head of SQuAD 2.0, for which no model here has a place yet"
    return "is no variable of an ALBERT"


def _refuse_other_models(placed: Mapping[str, Place], unexpected: Mapping[str, str], where: str) -> None:
    for pattern, why, remedy in _OTHER_MODELS:
        if any(pattern.search(name) for name in unexpected):
            raise DamagedData(where, why, remedy)
    if not any(place.name.startswith("albert.") for place in placed.values()):
        names = sorted({**unexpected, **placed})
        shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        raise DamagedData(where, f"holds no ALBERT: its variables are {shown}" if names else "holds no variables")
