"""Conversion between our models and transformers' ALBERT: names of parameters and classes, old names, kinds of heads.

Four things differ in more than the name:
- transformers has no sharing of attention or feed-forward blocks alone: the shared block is written once for each
  layer, and read back as one block after checking that the copies are equal.
- transformers always has an embedding-to-hidden map: if both sizes are equal and we have none, the identity is written.
- The bias of the masked-token head is written twice, as `predictions.bias` and `predictions.decoder.bias`:
  transformers 4.46 ties the first to the second after loading, and sets both to zero if the second is missing.
- Its only sentence head is sentence order. A head for next-sentence prediction is written beside a masked language
  model under another name; sentence heads without a training objective are not written.

Source of the names: transformers 5, `models/albert/modeling_albert.py`."""

import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from operator import index
from typing import Any, Literal, SupportsIndex, get_args

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
# Files of earlier versions of transformers: copies of tied tensors, saved buffers, old names of LayerNorm, an encoder
# without its prefix.

BACKBONE_PREFIX = "albert."
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
PREDICTIONS_BIAS, DECODER_BIAS = "predictions.bias", "predictions.decoder.bias"
_TIED = {"predictions.decoder.weight": "albert.embeddings.word_embeddings.weight", DECODER_BIAS: PREDICTIONS_BIAS}
_OLD_LAYER_NORM = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


def current_names(names: Iterable[str], heads: Collection[str]) -> dict[str, str]:
    """Current name of every tensor -> its name in the file. A tensor that has both names keeps the old one, too."""
    names = list(names)
    is_prefixed = any(name.startswith(BACKBONE_PREFIX) for name in names)
    in_file: dict[str, str] = {}
    for name in sorted(names, key=lambda name: _current(name) != name):
        full = name if is_prefixed or name.split(".", 1)[0] in heads else BACKBONE_PREFIX + name
        in_file[full if _current(full) in in_file else _current(full)] = name
    return in_file


def drop_equal_ties(content: dict[str, Tensor], where: str) -> list[str]:
    """Remove copies of tied tensors from `content`, or rename them if the original is missing.

    Returns the removed names, without `predictions.decoder.bias`, which every file of ours has.
    """
    copies = []
    for copy, original in _TIED.items():
        if copy not in content:
            continue
        if original not in content:
            content[original] = content.pop(copy)
            continue
        if differ(content[copy], content[original]):
            why = f"{copy} and {original} are tied in ALBERT but differ in this file"
            raise DamagedData(where, why, f"save the model again with the two tied, or remove {copy}")
        del content[copy]
        if copy != DECODER_BIAS:
            copies.append(copy)
    return copies


def differ(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors differ; on the meta device, whether shape or dtype differ."""
    return a.shape != b.shape or a.dtype != b.dtype or (not a.is_meta and not torch.equal(a, b))


def _current(name: str) -> str:
    for old, new in _OLD_LAYER_NORM.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


_PARAMETERS = ("weight", "bias")
NAMES: dict[str, Any] = tomllib.loads((files("albert.checkpoints") / "names.toml").read_text(encoding="utf-8"))
"""Names of parameters, ours and those of others."""


def _parameters(part: str) -> dict[str, str]:
    """Our names of parameters -> transformers', for a part of the model; a module has a weight and a bias."""
    names: dict[str, str] = {}
    for ours, theirs in NAMES[part].items():
        is_parameter = ours.endswith(_PARAMETERS)
        names |= {ours: theirs} if is_parameter else {f"{ours}.{p}": f"{theirs}.{p}" for p in _PARAMETERS}
    return names


_EMBEDDINGS, _PROJECTION, _POOLER = map(_parameters, ("embeddings", "projection", "pooler"))
_ATTENTION, _FEED_FORWARD = NAMES["attention"], NAMES["feed_forward"]
HEADS = _parameters("heads")
# transformers' ALBERT has no class for next-sentence prediction. Label 0: the segment follows; 1: it is random.
_NEXT_SENTENCE = {
    "nsp_classifier.classifier.weight": "sop_classifier.classifier.weight",
    "nsp_classifier.classifier.bias": "sop_classifier.classifier.bias",
}
_HEAD_PREFIXES = {name.split(".", 1)[0] for name in (*HEADS.values(), *_NEXT_SENTENCE)}
_UNTRAINED_WITHOUT_OBJECTIVE = ("sop_classifier.", BACKBONE_PREFIX + "pooler.")


@dataclass(frozen=True)
class RenamedTensors:
    """The result of `from_transformers`.

    Args:
        tensors: our name, with `albert.` before the backbone's -> tensor.
        in_file: our name -> its name in the file, the first one of copies.
        unexpected: names in the file that no model of ours has.
        dropped: names of redundant tensors: copies of tied ones, saved buffers, an identity map.
    """

    tensors: dict[str, Tensor]
    in_file: dict[str, str]
    unexpected: tuple[str, ...]
    dropped: tuple[str, ...]


def exported_groups(config: AlbertConfig) -> int:
    """Number of layer groups that transformers needs for this model."""
    return config.num_hidden_groups if config.sharing == "all" else config.num_hidden_layers


def backbone_names(config: AlbertConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every parameter name of our `AlbertModel` with the names of its copies in transformers."""
    for ours, theirs in _EMBEDDINGS.items():
        yield ours, (theirs,)
    if config.projects_embeddings:
        for ours, theirs in _PROJECTION.items():
            yield ours, (theirs,)
    attentions, feed_forwards = _layers_of_blocks(config)
    kinds = (("attentions", attentions, _ATTENTION), ("feed_forwards", feed_forwards, _FEED_FORWARD))
    for kind, blocks, modules in kinds:
        for block, layers in blocks.items():
            for ours, theirs in modules.items():
                for parameter in _PARAMETERS:
                    copies = tuple(f"{layer}.{theirs}.{parameter}" for layer in layers)
                    yield f"encoder.{kind}.{block}.{ours}.{parameter}", copies
    for ours, theirs in _POOLER.items():
        yield ours, (theirs,)


def to_transformers(tensors: Mapping[str, Tensor], config: AlbertConfig) -> dict[str, Tensor]:
    """Tensors of one of our models under transformers' names, with separate copies of shared blocks."""
    bare = not any(name.startswith(BACKBONE_PREFIX) for name in tensors)
    prefix = "" if bare else BACKBONE_PREFIX
    backbone = backbone_names(config)
    table = {prefix + ours: tuple(prefix + name for name in theirs) for ours, theirs in backbone}
    table |= {ours: (theirs,) for ours, theirs in HEADS.items()}
    renamed: dict[str, Tensor] = {}
    for ours, tensor in tensors.items():
        for copy, theirs in enumerate(table[ours]):
            renamed[theirs] = tensor.clone() if copy else tensor
    if not config.projects_embeddings:
        weight, bias = (prefix + name for name in _PROJECTION.values())
        like = tensors[prefix + "embeddings.word_embeddings.weight"]
        renamed[weight] = torch.eye(config.hidden_size, dtype=like.dtype, device=like.device)
        renamed[bias] = torch.zeros(config.hidden_size, dtype=like.dtype, device=like.device)
    if PREDICTIONS_BIAS in renamed:
        renamed[DECODER_BIAS] = renamed[PREDICTIONS_BIAS].clone()
    return renamed


def with_sentence_objective(tensors: Mapping[str, Tensor], objective: str) -> dict[str, Tensor]:
    """Tensors of a pre-training model, under transformers' names, as written for its sentence objective.

    "sop": unchanged; "nsp": the sentence head under a name of its own; "none": without the untrained head and pooler.
    """
    if objective == "none":
        return {name: t for name, t in tensors.items() if not name.startswith(_UNTRAINED_WITHOUT_OBJECTIVE)}
    names = {theirs: ours for ours, theirs in _NEXT_SENTENCE.items()} if objective == "nsp" else {}
    return {names.get(name, name): tensor for name, tensor in tensors.items()}


def from_transformers(tensors: Mapping[str, Tensor], config: AlbertConfig, where: str) -> RenamedTensors:
    """A file's tensors under our names, with copies of shared blocks merged; on the meta device copies count as equal.

    Names may lack the prefix `albert.`; `where` is the subject of errors.
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
    renamed: dict[str, Tensor] = {}
    in_file: dict[str, str] = {}
    for ours, theirs in backbone_names(config):
        names = [BACKBONE_PREFIX + name for name in theirs]
        copies = {name: content.pop(name) for name in names if name in content}
        if copies:
            renamed[BACKBONE_PREFIX + ours] = _merge(copies, config, where)
            in_file[BACKBONE_PREFIX + ours] = next(originals.get(name, name) for name in copies)
    heads = {theirs: ours for ours, theirs in HEADS.items()} | _NEXT_SENTENCE
    for theirs, ours in heads.items():
        if theirs in content and ours not in renamed:
            renamed[ours], in_file[ours] = content.pop(theirs), originals.get(theirs, theirs)
    return RenamedTensors(
        tensors=renamed,
        in_file=in_file,
        unexpected=tuple(sorted(originals[name] for name in content)),
        dropped=tuple(sorted(originals[name] for name in dropped)),
    )


def _layers_of_blocks(config: AlbertConfig) -> tuple[dict[int, list[str]], dict[int, list[str]]]:
    """For every attention and feed-forward block of ours, transformers' layers with a copy of it."""
    groups, inner = exported_groups(config), config.inner_group_num
    attentions: dict[int, list[str]] = {}
    feed_forwards: dict[int, list[str]] = {}
    for step, application in enumerate(sharing_plan(config)):
        layer, layer_of_group = divmod(step, inner)
        group = layer * groups // config.num_hidden_layers
        name = f"encoder.albert_layer_groups.{group}.albert_layers.{layer_of_group}"
        for blocks, block in ((attentions, application.attention), (feed_forwards, application.feed_forward)):
            layers = blocks.setdefault(block, [])
            if name not in layers:
                layers.append(name)
    return attentions, feed_forwards


def _identity_map(content: Mapping[str, Tensor], config: AlbertConfig, where: str) -> list[str]:
    """The names of the embedding-to-hidden map in a file, which must be the identity."""
    weight_name, bias_name = (BACKBONE_PREFIX + name for name in _PROJECTION.values())
    if weight_name not in content or bias_name not in content:
        return []
    weight, bias = content[weight_name], content[bias_name]
    width = config.hidden_size
    # On the meta device only the shape matters, and torch.eye would import torch's compiler, which takes a second.
    identity = weight.new_empty(width, width) if weight.is_meta else torch.eye(width, dtype=weight.dtype, device="cpu")
    if differ(weight, identity) or differ(bias, bias.new_zeros(width)):
        why = f'{weight_name} is not the identity map, but config.json says "embedding_projection": false'
        raise DamagedData(where, why, 'set "embedding_projection": true in config.json to keep the map')
    return [weight_name, bias_name]


def _merge(copies: Mapping[str, Tensor], config: AlbertConfig, where: str) -> Tensor:
    (first, tensor), *others = copies.items()
    for name, other in others:
        if differ(tensor, other):
            why = f'{name} differs from {first}, but config.json says "sharing": "{config.sharing}"'
            raise DamagedData(where, why, 'set "sharing": "none" in config.json to open it with separate layers')
    return tensor


# --------------------------------------------------------------------------------------------------------------------
# The kinds of model, their classes and heads.

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
"""By the names in `architectures` of `config.json`."""
CLASSIFIERS = ("AlbertForSequenceClassification", "AlbertForTokenClassification", "AlbertForMultipleChoice")
"""Classes whose head is a linear map called `classifier`."""
_LABELS_BIAS = {
    **dict.fromkeys(CLASSIFIERS[:2], "classifier.bias"),
    "AlbertForPairClassification": "pair_classifier.bias",
}
"""For the classes whose number of outputs the user chooses: the tensor with that length."""
OBJECTIVE_KEY = "sentence_objective"
_MOST_LABELS = 2**16
HeadObjective = Literal["sop", "nsp", "none"]
_OBJECTIVES = get_args(HeadObjective)


def kind_of(extra: Mapping[str, Any]) -> Kind:
    """The kind of a model directory by `architectures` in its `config.json`; "encoder" if the class is unknown.

    A model trained with next-sentence prediction is written as a masked language model, for transformers.
    """
    architectures = extra.get("architectures") or ["AlbertModel"]
    kind = KINDS.get(str(architectures[0]), "encoder")
    return "pretraining" if kind == "masked_lm" and extra.get(OBJECTIVE_KEY) == "nsp" else kind


def build_model(kind: Kind, config: AlbertConfig, num_labels: int | None) -> nn.Module:
    """A model of a kind; `num_labels` is None for kinds with a fixed number of outputs."""
    return MODELS[kind](config) if num_labels is None else MODELS[kind](config, num_labels)


def n_outputs(architecture: str, tensors: Mapping[str, Tensor]) -> int | None:
    """Number of outputs of a head according to its tensors; None for classes with a fixed number."""
    return tensors[_LABELS_BIAS[architecture]].numel() if architecture in _LABELS_BIAS else None


def resolve_num_labels(
    kind: Kind, num_labels: int | None, tensors: Mapping[str, Tensor], extra: Mapping[str, Any], new_head: bool
) -> int | None:
    """Number of outputs of a model: as given, else as in the file's head, else as in `config.json`; None for kinds with
    a fixed number."""
    bias = _LABELS_BIAS.get(MODELS[kind].__name__)
    if bias is None:
        return None
    if num_labels is None and bias in tensors and not new_head:
        return tensors[bias].numel()
    labels = extra.get("id2label")
    stated = len(labels) if labels else extra.get("num_labels", 2)  # transformers' default
    count = stated if num_labels is None else num_labels
    if isinstance(count, bool) or not isinstance(count, SupportsIndex) or not 1 <= index(count) <= _MOST_LABELS:
        raise InvalidConfiguration("num_labels", f"is {count!r}, a new head has 1 to {_MOST_LABELS:,} outputs")
    return index(count)


def sentence_objective(extra: Mapping[str, Any]) -> HeadObjective:
    """The objective of the sentence head of a pre-training model; "sop" by default."""
    objective = extra.get(OBJECTIVE_KEY, "sop")
    if objective not in _OBJECTIVES:
        raise InvalidConfiguration(OBJECTIVE_KEY, f"is {objective!r}", f"known: {', '.join(_OBJECTIVES)}")
    return objective


def written_num_labels(architecture: str, tensors: Mapping[str, Tensor]) -> int | None:
    """Number of labels to write into `config.json`; transformers needs 2 for sentence order and question answering."""
    if architecture in ("AlbertForPreTraining", "AlbertForQuestionAnswering"):
        return 2
    return n_outputs(architecture, tensors)
