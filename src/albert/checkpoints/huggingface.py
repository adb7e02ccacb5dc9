"""Conversion between our models and transformers': names of parameters and classes, old names, kinds of heads.

The names of each family (ALBERT, BERT, DistilBERT, RoBERTa, XLM-R, ELECTRA) are one table, read in both directions
(`albert.model.families`). What differs in more than the name:
- transformers has no sharing of attention or feed-forward blocks alone: the shared block is written once for each
  layer, and read back as one block after checking that the copies are equal.
- transformers' ALBERT always has an embedding-to-hidden map: if both sizes are equal and we have none, the identity is
  written.
- The bias of the masked-token head is written twice, as `predictions.bias` and `predictions.decoder.bias`:
  transformers 4.46 ties the first to the second after loading, and sets both to zero if the second is missing.
- ALBERT's only sentence head is sentence order, BERT's is next-sentence prediction, the others have none. Another
  objective's head is written beside a masked language model under another name; sentence heads without a training
  objective are not written.
- RoBERTa's positions begin in row 2 of its table; the rows before are not read, and written as zeros.
- DistilBERT has no token types: they are zeros here, and added to the positions when it is written."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
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
from albert.model.families import FAMILIES, OWN_PREFIX, Family, family_of
from albert.model.sharing import sharing_plan
from albert.recipes.architecture import EncoderConfig
from albert.runtime.errors import DamagedData, InvalidConfiguration

# --------------------------------------------------------------------------------------------------------------------
# Files of earlier versions of transformers: copies of tied tensors, saved buffers, old names of LayerNorm, an encoder
# without its prefix.

BACKBONE_PREFIX = OWN_PREFIX
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
_OLD_LAYER_NORM = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


def current_names(names: Iterable[str], family: Family) -> dict[str, str]:
    """Current name of every tensor -> its name in the file. A tensor that has both names keeps the old one, too."""
    names = list(names)
    heads: Collection[str] = family.head_prefixes()
    is_prefixed = any(name.startswith(family.prefix) for name in names)
    in_file: dict[str, str] = {}
    for name in sorted(names, key=lambda name: _current(name) != name):
        full = name if is_prefixed or name.split(".", 1)[0] in heads else family.prefix + name
        in_file[full if _current(full) in in_file else _current(full)] = name
    return in_file


def drop_equal_ties(content: dict[str, Tensor], family: Family, where: str) -> list[str]:
    """Remove copies of tied tensors from `content`, or rename them if the original is missing.

    Returns the removed names, without the copy of the bias, which every file of ours has.
    """
    copies = []
    for copy, original in family.copies.items():
        if copy not in content:
            continue
        if original not in content:
            content[original] = content.pop(copy)
            continue
        if differ(content[copy], content[original]):
            why = (
                f"{copy} and {original} differ in this file; heads for masked tokens are supported if the two are tied"
            )
            remedy = (
                "for the encoder alone save AutoModel.from_pretrained(...) of transformers, and name that directory"
            )
            raise DamagedData(where, why, remedy)
        del content[copy]
        if not copy.endswith("bias"):
            copies.append(copy)
    return copies


def differ(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors differ; on the meta device, whether shape or dtype differ."""
    return a.shape != b.shape or a.dtype != b.dtype or (not a.is_meta and not torch.equal(a, b))


def _current(name: str) -> str:
    for old, new in _OLD_LAYER_NORM.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


_PROJECTION = tuple(f"embeddings.projection.{parameter}" for parameter in ("weight", "bias"))
_WORDS = "embeddings.word_embeddings.weight"
_POSITIONS = "embeddings.position_embeddings.weight"
_TYPES = "embeddings.token_type_embeddings.weight"
PREDICTIONS_BIAS = "predictions.bias"
HEADS = FAMILIES["albert"].heads
"""Our names of the tensors of heads -> those of transformers' ALBERT."""


@dataclass(frozen=True)
class RenamedTensors:
    """The result of `from_transformers`.

    Args:
        tensors: our name, with `albert.` before the backbone's -> tensor.
        in_file: our name -> its name in the file, the first one of copies.
        unexpected: names in the file that no model of ours has.
        dropped: names of redundant tensors: copies of tied ones, saved buffers.
        identity_map: names of the identity map that transformers needs and we do not.
        family: whose names the file has.
    """

    tensors: dict[str, Tensor]
    in_file: dict[str, str]
    unexpected: tuple[str, ...]
    dropped: tuple[str, ...]
    identity_map: tuple[str, ...] = ()
    family: Family = FAMILIES["albert"]

    def head_names(self) -> dict[str, str]:
        """Our names -> the same, but a sentence head that is not the family's own is called `nsp_classifier`.

        The class of transformers to which the tensors belong depends on that (`albert.checkpoints.loading`).
        """
        names = {}
        for ours, theirs in self.in_file.items():
            is_other = ours.startswith("sop_classifier.") and theirs != self.family.heads[ours]
            no_own = ours.startswith("sop_classifier.") and self.family.sentence_head is None
            names[ours] = ours.replace("sop_classifier.", "nsp_classifier.", 1) if is_other or no_own else ours
        return names


def exported_groups(config: EncoderConfig) -> int:
    """Number of layer groups that transformers' ALBERT needs for this model."""
    return config.num_hidden_groups if config.sharing == "all" else config.num_hidden_layers


def backbone_names(config: EncoderConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every parameter name of our `AlbertModel` with the names of its copies in transformers, without prefixes."""
    family = family_of(config)
    pooler = {}
    for ours, theirs in family.names.items():
        if ours.startswith("pooler."):
            pooler[ours] = theirs
        elif ours not in _PROJECTION or config.projects_embeddings:
            yield ours, (theirs,)
    attentions, feed_forwards = _layers_of_blocks(config, family)
    for kind, blocks in (("attention", attentions), ("feed_forward", feed_forwards)):
        names = {ours: theirs for ours, theirs in family.layer.items() if ours.startswith(f"{kind}.")}
        for block, layers in blocks.items():
            for ours, theirs in names.items():
                inside = ours.removeprefix(f"{kind}.")
                yield f"encoder.{kind}s.{block}.{inside}", tuple(layer + theirs for layer in layers)
    for ours, theirs in pooler.items():
        yield ours, (theirs,)


def to_transformers(
    tensors: Mapping[str, Tensor], config: EncoderConfig, architecture: str = "AlbertModel"
) -> dict[str, Tensor]:
    """Tensors of one of our models under transformers' names, with separate copies of shared blocks.

    `architecture` is the class as which they are written, by our name.
    """
    family = family_of(config)
    bare = not any(name.startswith(BACKBONE_PREFIX) for name in tensors)
    own_prefix, prefix = ("", "") if bare else (BACKBONE_PREFIX, family.prefix)
    backbone = backbone_names(config)
    table = {own_prefix + ours: tuple(prefix + name for name in theirs) for ours, theirs in backbone}
    table |= {ours: (theirs,) for ours, theirs in family.heads_written(architecture, config).items()}
    tensors = dict(tensors)
    positions = tensors[own_prefix + _POSITIONS]
    if not family.has_token_types:  # the only token type is part of the positions
        positions = positions + tensors.pop(own_prefix + _TYPES)[0]
    if family.first_position:  # unused rows come first
        unused = positions.new_zeros(family.first_position, positions.shape[1])
        positions = torch.cat((unused, positions))
    tensors[own_prefix + _POSITIONS] = positions
    if not family.has_pooler and architecture == "AlbertModel":
        tensors = {ours: tensor for ours, tensor in tensors.items() if not ours.startswith(f"{own_prefix}pooler.")}
    renamed: dict[str, Tensor] = {}
    for ours, tensor in tensors.items():
        for copy, theirs in enumerate(table[ours]):
            renamed[theirs] = tensor.clone() if copy else tensor
    if family.name == "albert" and not config.projects_embeddings:
        weight, bias = (prefix + family.names[name] for name in _PROJECTION)
        like = tensors[own_prefix + _WORDS]
        renamed[weight] = torch.eye(config.hidden_size, dtype=like.dtype, device=like.device)
        renamed[bias] = torch.zeros(config.hidden_size, dtype=like.dtype, device=like.device)
    for copy, original in family.copies.items():
        if copy.endswith("bias") and original in renamed:
            renamed[copy] = renamed[original].clone()
    return renamed


def with_sentence_objective(tensors: Mapping[str, Tensor], objective: str, config: EncoderConfig) -> dict[str, Tensor]:
    """Tensors of a pre-training model, under transformers' names, as written for its sentence objective.

    The family's own objective: unchanged; another one: the sentence head under a name of its own; "none": without the
    untrained head and pooler.
    """
    family = family_of(config)
    theirs = {family.heads[ours]: ours for ours in family.heads if ours.startswith("sop_classifier.")}
    if objective == "none":
        poolers = tuple(prefix + family.names["pooler.weight"] for prefix in ("", family.prefix))
        untrained = {*theirs, *poolers, *(name.removesuffix("weight") + "bias" for name in poolers)}
        return {name: tensor for name, tensor in tensors.items() if name not in untrained}
    if objective == family.sentence_head:
        return dict(tensors)
    names = {name: ours.replace("sop_classifier", f"{objective}_classifier", 1) for name, ours in theirs.items()}
    return {names.get(name, name): tensor for name, tensor in tensors.items()}


def from_transformers(tensors: Mapping[str, Tensor], config: EncoderConfig, where: str) -> RenamedTensors:
    """A file's tensors under our names, with copies of shared blocks merged; on the meta device copies count as equal.

    Names may lack the family's prefix; `where` is the subject of errors.
    """
    family = family_of(config)
    originals = current_names(tensors, family)
    content = {name: tensors[original] for name, original in originals.items()}
    ties = drop_equal_ties(content, family, where)
    dropped = [name for name in content if name.endswith(BUFFERS)]
    identity_map: list[str] = []
    if family.name == "albert" and not config.projects_embeddings:
        identity_map = _identity_map(content, config, where)
    for name in (*dropped, *identity_map):
        del content[name]
    dropped += ties
    renamed: dict[str, Tensor] = {}
    in_file: dict[str, str] = {}
    heads = family.heads_read()
    for ours, theirs in backbone_names(config):
        names = [family.prefix + name for name in theirs]
        if ours.startswith("pooler."):  # which may belong to a head there
            names = [theirs for theirs in content if heads.get(theirs) == BACKBONE_PREFIX + ours] or names
        copies = {name: content.pop(name) for name in names if name in content}
        if copies:
            renamed[BACKBONE_PREFIX + ours] = _merge(copies, config, where)
            in_file[BACKBONE_PREFIX + ours] = next(originals.get(name, name) for name in copies)
    for theirs, ours in heads.items():
        if theirs in content and ours not in renamed:
            renamed[ours] = content.pop(theirs)
            in_file[ours] = originals.get(theirs, theirs)
    _take_our_tables(renamed, in_file, config, family, where)
    return RenamedTensors(
        tensors=renamed,
        in_file=in_file,
        unexpected=tuple(sorted(originals[name] for name in content)),
        dropped=tuple(sorted(originals[name] for name in dropped)),
        identity_map=tuple(sorted(originals[name] for name in identity_map)),
        family=family,
    )


def _take_our_tables(
    renamed: dict[str, Tensor], in_file: dict[str, str], config: EncoderConfig, family: Family, where: str
) -> None:
    """The position table without unused rows, and zeros for token types that the family does not have."""
    positions = renamed.get(BACKBONE_PREFIX + _POSITIONS)
    if positions is not None and family.first_position:
        if len(positions) <= family.first_position:
            why = f"has {len(positions)} rows of positions, of which {family.first_position} are unused"
            raise DamagedData(where, why)
        renamed[BACKBONE_PREFIX + _POSITIONS] = positions[family.first_position :]
    words = renamed.get(BACKBONE_PREFIX + _WORDS)
    if words is not None and not family.has_token_types:
        renamed[BACKBONE_PREFIX + _TYPES] = words.new_zeros(config.type_vocab_size, words.shape[-1])
        in_file[BACKBONE_PREFIX + _TYPES] = BACKBONE_PREFIX + _TYPES


def _layers_of_blocks(config: EncoderConfig, family: Family) -> tuple[dict[int, list[str]], dict[int, list[str]]]:
    """For every attention and feed-forward block of ours, transformers' layers with a copy of it."""
    groups = exported_groups(config)
    inner = config.inner_group_num
    attentions: dict[int, list[str]] = {}
    feed_forwards: dict[int, list[str]] = {}
    for step, application in enumerate(sharing_plan(config)):
        layer, layer_of_group = divmod(step, inner)
        group = layer * groups // config.num_hidden_layers
        in_albert = family.name == "albert"
        name = family.layer_prefix.format(group=group, layer=layer_of_group if in_albert else layer)
        for blocks, block in ((attentions, application.attention), (feed_forwards, application.feed_forward)):
            layers = blocks.setdefault(block, [])
            if name not in layers:
                layers.append(name)
    return attentions, feed_forwards


def _identity_map(content: Mapping[str, Tensor], config: EncoderConfig, where: str) -> list[str]:
    """The names of the embedding-to-hidden map in a file, which must be the identity."""
    weight_name, bias_name = (BACKBONE_PREFIX + FAMILIES["albert"].names[name] for name in _PROJECTION)
    if weight_name not in content or bias_name not in content:
        return []
    weight = content[weight_name]
    bias = content[bias_name]
    width = config.hidden_size
    # On the meta device only the shape matters, and torch.eye would import torch's compiler, which takes a second.
    identity = weight.new_empty(width, width) if weight.is_meta else torch.eye(width, dtype=weight.dtype, device="cpu")
    if differ(weight, identity) or differ(bias, bias.new_zeros(width)):
        why = f'{weight_name} is not the identity map, but config.json says "embedding_projection": false'
        raise DamagedData(where, why, 'set "embedding_projection": true in config.json to keep the map')
    return [weight_name, bias_name]


def _merge(copies: Mapping[str, Tensor], config: EncoderConfig, where: str) -> Tensor:
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
_MAX_LABELS = 2**16
HeadObjective = Literal["sop", "nsp", "none"]
_OBJECTIVES = get_args(HeadObjective)


def kind_of(extra: Mapping[str, Any]) -> Kind:
    """The kind of a model directory by `architectures` in its `config.json`; "encoder" if the class is unknown.

    A model with a sentence head that the class of transformers lacks is written as a masked language model.
    """
    architectures = extra.get("architectures") or ["AlbertModel"]
    kind = KINDS.get(str(architectures[0]), "encoder")
    return "pretraining" if kind == "masked_lm" and extra.get(OBJECTIVE_KEY) in ("sop", "nsp") else kind


def build_model(kind: Kind, config: EncoderConfig, num_labels: int | None) -> nn.Module:
    """A model of a kind; `num_labels` is None for kinds with a fixed number of outputs."""
    return MODELS[kind](config) if num_labels is None else MODELS[kind](config, num_labels)


def n_outputs(architecture: str, tensors: Mapping[str, Tensor]) -> int | None:
    """Number of outputs of a head according to its tensors, by our names; None for classes with a fixed number."""
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
    if isinstance(count, bool) or not isinstance(count, SupportsIndex) or not 1 <= index(count) <= _MAX_LABELS:
        raise InvalidConfiguration("num_labels", f"is {count!r}, a new head has 1 to {_MAX_LABELS:,} outputs")
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


_HEADS_OF = {
    "AlbertForJointQuestionAnswering": ("joint_qa_outputs",),
    "AlbertForPairClassification": ("pair_classifier",),
    "AlbertForQuestionAnswering": ("qa_outputs",),
    **dict.fromkeys(CLASSIFIERS, ("classifier",)),
    "AlbertForPreTraining": ("predictions", "sop_classifier"),
    "AlbertForMaskedLM": ("predictions",),
    "AlbertModel": (),
}
"""The heads of each class; a task's head takes precedence over those of pre-training."""


def architecture_of(names: Iterable[str], stated: str | None = None) -> str:
    """The class to which tensors belong, by their heads.

    `stated` is the class in `config.json`, which decides between the classes with a `classifier`.
    """
    heads = {name.split(".", 1)[0] for name in names}
    architecture = next(name for name, parts in _HEADS_OF.items() if heads.issuperset(parts))
    return stated if stated in CLASSIFIERS and architecture in CLASSIFIERS else architecture


def belongs_to(name: str, architecture: str) -> bool:
    """Return whether a class has this tensor. A masked language model keeps its pooler, as in published models."""
    part, _, inside = name.partition(".")
    if architecture.endswith("QuestionAnswering") and inside.startswith("pooler."):
        return False
    next_sentence = architecture == "AlbertForMaskedLM" and part == "nsp_classifier"
    return name.startswith(BACKBONE_PREFIX) or part in _HEADS_OF[architecture] or next_sentence
