"""Our models as transformers' ALBERT and back: names of parameters and classes, old names, kinds of heads.

Four things differ in more than the name. Attention-only and feed-forward-only sharing do not exist in
transformers: the shared half is written once for each layer, and read back as one after checking that the
copies are still equal. transformers always has an embedding-to-hidden map, even when both sizes are equal:
there we write the identity. The bias of the masked-token head is written twice, as `predictions.bias` and
`predictions.decoder.bias`: transformers 4.46 ties the first to the second after it has loaded both, and without
the second makes the bias zero, without a word. And its only sentence head means sentence order: a head trained
to tell the next sentence from a foreign one is written beside a masked language model, under a name that nothing
there takes for an order, and heads that no objective trained are not written.

Source of the names: transformers 5, `models/albert/modeling_albert.py`."""

import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from albert.model.albert import (
    AlbertForJointQuestionAnswering,
    AlbertForMaskedLM,
    AlbertForMultipleChoice,
    AlbertForPairClassification,
    AlbertForPreTraining,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
    AlbertModel,
)
from albert.model.config import AlbertConfig, sharing_plan
from albert.runtime.errors import DamagedData, InvalidConfiguration

# --------------------------------------------------------------------------------------------------------------------
# Old names and extra tensors in files of earlier versions of transformers.
#
# Copies of tied tensors, buffers that were saved once, the LayerNorm's old names, an encoder without its prefix.

BACKBONE_PREFIX = "albert."
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
PREDICTIONS_BIAS, DECODER_BIAS = "predictions.bias", "predictions.decoder.bias"
_TIED = {
    "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
    DECODER_BIAS: PREDICTIONS_BIAS,
}
_OLD_LAYER_NORM = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


def current_names(names: Iterable[str], heads: Collection[str]) -> dict[str, str]:
    """Today's name of every tensor -> its name in the file. One that is there under both keeps its old name, too."""
    names = list(names)
    prefixed = any(name.startswith(BACKBONE_PREFIX) for name in names)
    found: dict[str, str] = {}
    for name in sorted(names, key=lambda name: _modern(name) != name):
        full = name if prefixed or name.split(".", 1)[0] in heads else BACKBONE_PREFIX + name
        found[full if _modern(full) in found else _modern(full)] = name
    return found


def drop_equal_ties(content: dict[str, Tensor], where: str) -> list[str]:
    """Remove copies of tied tensors from `content`; a copy without its original takes its place.

    Returns:
        the removed names, without `predictions.decoder.bias`, which every file of ours has.
    """
    copies = []
    for copy, original in _TIED.items():
        if copy not in content:
            continue
        if original not in content:
            content[original] = content.pop(copy)
            continue
        if differ(content[copy], content[original]):
            raise DamagedData(
                where,
                f"{copy} and {original} are tied in ALBERT but differ in this file",
                f"save the model again with the two tied, or remove {copy}",
            )
        del content[copy]
        if copy != DECODER_BIAS:
            copies.append(copy)
    return copies


def differ(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are not the same; of tensors on the meta device, whether they cannot be."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return True
    return not one.is_meta and not torch.equal(one, other)


def _modern(name: str) -> str:
    for old, new in _OLD_LAYER_NORM.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


_PARAMETERS = ("weight", "bias")
NAMES: dict[str, Any] = tomllib.loads((files("albert.checkpoints") / "names.toml").read_text(encoding="utf-8"))
"""Names of parameters, ours and those of others."""


def _parameters(part: str) -> dict[str, str]:
    """Our names of parameters -> transformers', of a part of the model; a module has a weight and a bias."""
    found: dict[str, str] = {}
    for ours, theirs in NAMES[part].items():
        single = ours.endswith(_PARAMETERS)
        found |= {ours: theirs} if single else {f"{ours}.{each}": f"{theirs}.{each}" for each in _PARAMETERS}
    return found


_EMBEDDINGS, _PROJECTION, _POOLER = map(_parameters, ("embeddings", "projection", "pooler"))
_ATTENTION, _FEED_FORWARD = NAMES["attention"], NAMES["feed_forward"]
HEADS = _parameters("heads")
# Next-sentence prediction has no class in transformers' ALBERT; 0 the segment follows, 1 it is a foreign one.
_NEXT_SENTENCE = {
    "nsp_classifier.classifier.weight": "sop_classifier.classifier.weight",
    "nsp_classifier.classifier.bias": "sop_classifier.classifier.bias",
}
_HEAD_PREFIXES = {name.split(".", 1)[0] for name in (*HEADS.values(), *_NEXT_SENTENCE)}
_UNTRAINED_WITHOUT_OBJECTIVE = ("sop_classifier.", BACKBONE_PREFIX + "pooler.")


@dataclass(frozen=True)
class Renamed:
    """What `from_transformers` found.

    Args:
        tensors: our name (of a model with heads, that is with `albert.` before the backbone) -> tensor.
        in_file: our name -> its name in the file, the first one where there are copies.
        unexpected: names in the file that no model of ours has.
        dropped: names that say nothing new: copies of tied tensors, saved buffers, an identity map.
    """

    tensors: dict[str, Tensor]
    in_file: dict[str, str]
    unexpected: tuple[str, ...]
    dropped: tuple[str, ...]


def exported_groups(config: AlbertConfig) -> int:
    """How many layer groups transformers needs to hold this model."""
    return config.num_hidden_groups if config.sharing == "all" else config.num_hidden_layers


def backbone_names(config: AlbertConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every name of our `AlbertModel` with the names of the copies that transformers has of it.

    The projection is among them only when our model has one.
    """
    for ours, theirs in _EMBEDDINGS.items():
        yield ours, (theirs,)
    if config.projects_embeddings:
        for ours, theirs in _PROJECTION.items():
            yield ours, (theirs,)
    attentions, feed_forwards = _places(config)
    rooms = (("attentions", attentions, _ATTENTION), ("feed_forwards", feed_forwards, _FEED_FORWARD))
    for room, blocks, parts in rooms:
        for block, places in blocks.items():
            for ours, theirs in parts.items():
                for parameter in _PARAMETERS:
                    yield (
                        f"encoder.{room}.{block}.{ours}.{parameter}",
                        tuple(f"{place}.{theirs}.{parameter}" for place in places),
                    )
    for ours, theirs in _POOLER.items():
        yield ours, (theirs,)


def to_transformers(tensors: Mapping[str, Tensor], config: AlbertConfig) -> dict[str, Tensor]:
    """Tensors under transformers' names, shared halves written out, no tensor twice in memory.

    Args:
        tensors: the state of one of our models; names of a bare `AlbertModel` have no prefix `albert.`.
    """
    bare = not any(name.startswith(BACKBONE_PREFIX) for name in tensors)
    prefix = "" if bare else BACKBONE_PREFIX
    backbone = backbone_names(config)
    table = {prefix + ours: tuple(prefix + name for name in theirs) for ours, theirs in backbone}
    table |= {ours: (theirs,) for ours, theirs in HEADS.items()}
    written: dict[str, Tensor] = {}
    for ours, tensor in tensors.items():
        for copy, theirs in enumerate(table[ours]):
            written[theirs] = tensor.clone() if copy else tensor
    if not config.projects_embeddings:
        weight, bias = (prefix + name for name in _PROJECTION.values())
        like = tensors[prefix + "embeddings.word_embeddings.weight"]
        written[weight] = torch.eye(config.hidden_size, dtype=like.dtype, device=like.device)
        written[bias] = torch.zeros(config.hidden_size, dtype=like.dtype, device=like.device)
    if PREDICTIONS_BIAS in written:
        written[DECODER_BIAS] = written[PREDICTIONS_BIAS].clone()
    return written


def with_sentence_objective(tensors: Mapping[str, Tensor], objective: str) -> dict[str, Tensor]:
    """The tensors of a pre-training model, under transformers' names, as its sentence objective lets them be written.

    Args:
        objective: "sop": as they are; "nsp": the head under a name of its own; "none": without the pooler and the
            head, which nothing has trained.
    """
    if objective == "none":
        return {name: t for name, t in tensors.items() if not name.startswith(_UNTRAINED_WITHOUT_OBJECTIVE)}
    names = {theirs: ours for ours, theirs in _NEXT_SENTENCE.items()} if objective == "nsp" else {}
    return {names.get(name, name): tensor for name, tensor in tensors.items()}


def from_transformers(tensors: Mapping[str, Tensor], config: AlbertConfig, where: str) -> Renamed:
    """Tensors under our names, copies folded together again.

    Args:
        tensors: a file's content, with or without the prefix `albert.`; of tensors on the meta device, which are
            names and shapes alone, copies are taken to be equal.
    """
    originals = current_names(tensors, _HEAD_PREFIXES)
    content = {name: tensors[original] for name, original in originals.items()}
    ties = drop_equal_ties(content, where)
    dropped = [name for name in content if name.endswith(BUFFERS)]
    if not config.projects_embeddings:
        dropped += _identity_map(content, config, where)
    for name in dropped:
        del content[name]
    dropped += ties
    found: dict[str, Tensor] = {}
    in_file: dict[str, str] = {}
    for ours, theirs in backbone_names(config):
        names = [BACKBONE_PREFIX + name for name in theirs]
        copies = {name: content.pop(name) for name in names if name in content}
        if copies:
            found[BACKBONE_PREFIX + ours] = _one_of(copies, config, where)
            in_file[BACKBONE_PREFIX + ours] = next(originals.get(name, name) for name in copies)
    heads = {theirs: ours for ours, theirs in HEADS.items()} | _NEXT_SENTENCE
    for theirs, ours in heads.items():
        if theirs in content and ours not in found:
            found[ours], in_file[ours] = content.pop(theirs), originals.get(theirs, theirs)
    return Renamed(
        tensors=found,
        in_file=in_file,
        unexpected=tuple(sorted(originals[name] for name in content)),
        dropped=tuple(sorted(originals[name] for name in dropped)),
    )


def _places(config: AlbertConfig) -> tuple[dict[int, list[str]], dict[int, list[str]]]:
    """For every attention and feed-forward block of ours, transformers' layers that hold a copy of it."""
    groups, inner = exported_groups(config), config.inner_group_num
    attentions: dict[int, list[str]] = {}
    feed_forwards: dict[int, list[str]] = {}
    for step, application in enumerate(sharing_plan(config)):
        layer, layer_of_group = divmod(step, inner)
        group = layer * groups // config.num_hidden_layers
        place = f"encoder.albert_layer_groups.{group}.albert_layers.{layer_of_group}"
        for blocks, block in ((attentions, application.attention), (feed_forwards, application.feed_forward)):
            places = blocks.setdefault(block, [])
            if place not in places:
                places.append(place)
    return attentions, feed_forwards


def _identity_map(content: Mapping[str, Tensor], config: AlbertConfig, where: str) -> list[str]:
    weight_name, bias_name = (BACKBONE_PREFIX + name for name in _PROJECTION.values())
    if weight_name not in content or bias_name not in content:
        return []
    weight, bias = content[weight_name], content[bias_name]
    width = config.hidden_size
    # On the meta device only the shape counts, and torch.eye would import torch's compiler there for a second.
    identity = weight.new_empty(width, width) if weight.is_meta else torch.eye(width, dtype=weight.dtype)
    if differ(weight, identity) or differ(bias, bias.new_zeros(width)):
        raise DamagedData(
            where,
            f'{weight_name} is not the identity map, but config.json says "embedding_projection": false',
            'set "embedding_projection": true in config.json to keep the map',
        )
    return [weight_name, bias_name]


def _one_of(copies: Mapping[str, Tensor], config: AlbertConfig, where: str) -> Tensor:
    (first, tensor), *others = copies.items()
    for name, other in others:
        if differ(tensor, other):
            raise DamagedData(
                where,
                f'{name} differs from {first}, but config.json says "sharing": "{config.sharing}"',
                'set "sharing": "none" in config.json to open it as a model whose layers are all their own',
            )
    return tensor


# --------------------------------------------------------------------------------------------------------------------
# The kinds of model: which class has which head, and what transformers calls it.

Kind = Literal[
    "pretraining",
    "masked_lm",
    "classification",
    "pair_classification",
    "token_classification",
    "question_answering",
    "joint_question_answering",
    "multiple_choice",
    "encoder",
]
MODELS: dict[Kind, type[nn.Module]] = {
    "pretraining": AlbertForPreTraining,
    "masked_lm": AlbertForMaskedLM,
    "classification": AlbertForSequenceClassification,
    "pair_classification": AlbertForPairClassification,
    "token_classification": AlbertForTokenClassification,
    "question_answering": AlbertForQuestionAnswering,
    "joint_question_answering": AlbertForJointQuestionAnswering,
    "multiple_choice": AlbertForMultipleChoice,
    "encoder": AlbertModel,
}
ARCHITECTURES: dict[type[nn.Module], str] = {model: model.__name__ for model in MODELS.values()}
KINDS: dict[str, Kind] = {model.__name__: kind for kind, model in MODELS.items()}
"""By the names in `architectures` of `config.json`: those of transformers' classes, and one that it has not."""
CLASSIFIERS = ("AlbertForSequenceClassification", "AlbertForTokenClassification", "AlbertForMultipleChoice")
"""Those whose head is a linear map called `classifier`."""
_BIAS_OF_LABELS = {
    **dict.fromkeys(CLASSIFIERS[:2], "classifier.bias"),
    "AlbertForPairClassification": "pair_classifier.bias",
}
"""Of the classes whose number of outputs is for the user to say: the tensor that shows it."""
OBJECTIVE_KEY = "sentence_objective"
_MOST_LABELS = 2**16
HeadObjective = Literal["sop", "nsp", "none"]
_OBJECTIVES = get_args(HeadObjective)


def kind_of(extra: Mapping[str, Any]) -> Kind:
    """What a model directory holds, by the `architectures` of its `config.json`; an encoder when it names none of ours.

    A model that was trained to tell the next sentence calls itself a masked language model, for transformers, and is
    one for pre-training here.
    """
    named = extra.get("architectures") or ["AlbertModel"]
    kind = KINDS.get(str(named[0]), "encoder")
    return "pretraining" if kind == "masked_lm" and extra.get(OBJECTIVE_KEY) == "nsp" else kind


def build_model(kind: Kind, config: AlbertConfig, num_labels: int | None) -> nn.Module:
    """A model of a kind, with so many outputs where that is for the user to say (None elsewhere)."""
    return MODELS[kind](config) if num_labels is None else MODELS[kind](config, num_labels)


def n_outputs(architecture: str, tensors: Mapping[str, Tensor]) -> int | None:
    """Outputs of a head whose number is for the user to say, as its tensors show it; None for other classes."""
    return tensors[_BIAS_OF_LABELS[architecture]].numel() if architecture in _BIAS_OF_LABELS else None


def labels_wanted(
    kind: Kind, asked: int | None, tensors: Mapping[str, Tensor], extra: Mapping[str, Any], new_head: bool
) -> int | None:
    """Outputs that a model of this kind gets: as asked, as many as the file's head has, or as `config.json` says; None
    for a kind where nobody chooses."""
    bias = _BIAS_OF_LABELS.get(MODELS[kind].__name__)
    if bias is None:
        return None
    if asked is not None:
        return asked
    if bias in tensors and not new_head:
        return tensors[bias].numel()
    named = extra.get("id2label")
    stated = len(named) if named else extra.get("num_labels", 2)  # transformers' default
    if not isinstance(stated, int) or not 1 <= stated <= _MOST_LABELS:
        raise InvalidConfiguration("num_labels", f"is {stated!r}, a new head has 1 to {_MOST_LABELS:,} outputs")
    return stated


def sentence_objective(extra: Mapping[str, Any]) -> HeadObjective:
    """What the sentence head of a pre-training model was trained on; what nobody wrote down is ALBERT's."""
    objective = extra.get(OBJECTIVE_KEY, "sop")
    if objective not in _OBJECTIVES:
        raise InvalidConfiguration(OBJECTIVE_KEY, f"is {objective!r}", f"known: {', '.join(_OBJECTIVES)}")
    return objective


def labels_written(architecture: str, tensors: Mapping[str, Tensor]) -> int | None:
    """Outputs whose number transformers takes from the labels; it does so for orders and answers too."""
    if architecture in ("AlbertForPreTraining", "AlbertForQuestionAnswering"):
        return 2
    return n_outputs(architecture, tensors)
