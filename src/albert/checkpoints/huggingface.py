"""One table of names between our modules and transformers' ALBERT, read in both directions.

Four things differ in more than the name. Attention-only and feed-forward-only sharing do not exist in
transformers: the shared half is written once for each layer, and read back as one after checking that the
copies are still equal. transformers always has an embedding-to-hidden map, even when both sizes are equal:
there we write the identity. The bias of the masked-token head is written twice, as `predictions.bias` and
`predictions.decoder.bias`: transformers 4.46 ties the first to the second after it has loaded both, and without
the second makes the bias zero, without a word. And its only sentence head means sentence order: a head trained
to tell the next sentence from a foreign one is written beside a masked language model, under a name that nothing
there takes for an order, and heads that no objective trained are not written.

Source of the names: transformers 5, `models/albert/modeling_albert.py`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from albert.checkpoints.file_relics import (
    BACKBONE_PREFIX,
    BUFFERS,
    DECODER_BIAS,
    PREDICTIONS_BIAS,
    current_names,
    differ,
    drop_equal_ties,
)
from albert.model.config import AlbertConfig
from albert.model.parameter_sharing import sharing_plan
from albert.runtime.errors import DamagedData

_PARAMETERS = ("weight", "bias")
_EMBEDDINGS = {
    "embeddings.word_embeddings.weight": "embeddings.word_embeddings.weight",
    "embeddings.position_embeddings.weight": "embeddings.position_embeddings.weight",
    "embeddings.token_type_embeddings.weight": "embeddings.token_type_embeddings.weight",
    "embeddings.layer_norm.weight": "embeddings.LayerNorm.weight",
    "embeddings.layer_norm.bias": "embeddings.LayerNorm.bias",
}
_PROJECTION = {
    "embeddings.projection.weight": "encoder.embedding_hidden_mapping_in.weight",
    "embeddings.projection.bias": "encoder.embedding_hidden_mapping_in.bias",
}
_ATTENTION = {
    "query": "attention.query",
    "key": "attention.key",
    "value": "attention.value",
    "dense": "attention.dense",
    "layer_norm": "attention.LayerNorm",
}
_FEED_FORWARD = {"intermediate": "ffn", "output": "ffn_output", "layer_norm": "full_layer_layer_norm"}
_POOLER = {"pooler.weight": "pooler.weight", "pooler.bias": "pooler.bias"}
HEADS = {
    "predictions.dense.weight": "predictions.dense.weight",
    "predictions.dense.bias": "predictions.dense.bias",
    "predictions.layer_norm.weight": "predictions.LayerNorm.weight",
    "predictions.layer_norm.bias": "predictions.LayerNorm.bias",
    "predictions.bias": "predictions.bias",
    "sop_classifier.classifier.weight": "sop_classifier.classifier.weight",
    "sop_classifier.classifier.bias": "sop_classifier.classifier.bias",
    "classifier.weight": "classifier.weight",
    "classifier.bias": "classifier.bias",
    "qa_outputs.outputs.weight": "qa_outputs.weight",
    "qa_outputs.outputs.bias": "qa_outputs.bias",
    **{
        name: name  # transformers has no such head
        for name in (
            "joint_qa_outputs.start.weight",
            "joint_qa_outputs.start.bias",
            "joint_qa_outputs.end_dense.weight",
            "joint_qa_outputs.end_dense.bias",
            "joint_qa_outputs.end_layer_norm.weight",
            "joint_qa_outputs.end_layer_norm.bias",
            "joint_qa_outputs.end.weight",
            "joint_qa_outputs.end.bias",
            "joint_qa_outputs.answer_dense.weight",
            "joint_qa_outputs.answer_dense.bias",
            "joint_qa_outputs.answer.weight",
        )
    },
}
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
        config: its configuration.

    Raises:
        KeyError: a name that is not in the table (a fault of the program).
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
        tensors: what `to_transformers` gave for an `AlbertForPreTraining`.
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
        config: the configuration beside it.
        where: how to call the file in an error.

    Raises:
        DamagedData: copies that ought to be equal are not: of a shared block, of a tied tensor, or a map
            that ought to be the identity is another one.
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
