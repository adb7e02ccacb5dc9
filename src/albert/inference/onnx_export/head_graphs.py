"""What each kind of model gives, as ONNX nodes: names and axes are those of transformers' and Optimum's exports."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from albert.checkpoints.kinds import Kind
from albert.inference.onnx_export.encoder_graph import Batch, GraphTools, activation, columns, layer_norm, linear
from albert.inference.onnx_export.graph_writer import GraphWriter
from albert.model.config import AlbertConfig
from albert.model.heads import MaskedLanguageModelHead
from albert.model.joint_question_answering import BEAM, IMPOSSIBLE, JointSpanHead

_PADDED = -1e35
"""The logit of a padded place: below `IMPOSSIBLE`, so that it is no start while there is any other."""


@dataclass(frozen=True)
class Output:
    """One output of the graph.

    Args:
        name: as users ask for it.
        value: the value of the graph that it is.
        axes: names of axes of any length, and fixed lengths.
        dtype: of its numbers.
    """

    name: str
    value: str
    axes: tuple[str | int, ...]
    dtype: type[np.generic] = np.float32


Head = Callable[[GraphTools, Any, str, Batch], list[Output]]
"""From tools, a model, the encoder's output [batch, sequence, H] and the batch to outputs."""


def _encoder(tools: GraphTools, model: Any, hidden: str, batch: Batch) -> list[Output]:
    outputs = [Output("last_hidden_state", hidden, ("batch", "sequence", model.config.hidden_size))]
    if model.pooler is not None:
        pooled = _pooled(tools, model, hidden)
        outputs.append(Output("pooler_output", pooled, ("batch", model.config.hidden_size)))
    return outputs


def _masked_lm(tools: GraphTools, model: Any, hidden: str, batch: Batch) -> list[Output]:
    words = model.albert.embeddings.word_embeddings.weight.detach()
    head: MaskedLanguageModelHead = model.predictions
    config: AlbertConfig = model.config
    dense = activation(tools.graph, linear(tools, hidden, "predictions.dense", head.dense), config.hidden_act)
    normal = layer_norm(tools.graph, dense, "predictions.layer_norm", head.layer_norm)
    rows = tools.graph.reshape(normal, -1, config.embedding_size)
    flat = tools.products.tied(tools.graph, rows, "embeddings.words", words, head.bias.detach())
    shape = tools.graph.node("Shape", batch.ids)
    shape = tools.graph.node("Concat", shape, tools.graph.constant([config.vocab_size]), axis=0)
    logits = tools.graph.node("Reshape", flat, shape)
    return [Output("logits", logits, ("batch", "sequence", config.vocab_size))]


def _pretraining(tools: GraphTools, model: Any, hidden: str, batch: Batch) -> list[Output]:
    pooled = _pooled(tools, model.albert, hidden)
    order = linear(tools, pooled, "sop_classifier", model.sop_classifier.classifier)
    return [*_masked_lm(tools, model, hidden, batch), Output("sentence_logits", order, ("batch", 2))]


def _classification(tools: GraphTools, model: Any, hidden: str, batch: Batch) -> list[Output]:
    logits = linear(tools, _pooled(tools, model.albert, hidden), "classifier", model.classifier)
    return [Output("logits", logits, ("batch", model.classifier.out_features))]


def _multiple_choice(tools: GraphTools, model: Any, hidden: str, batch: Batch) -> list[Output]:
    scores = linear(tools, _pooled(tools, model.albert, hidden), "classifier", model.classifier)
    return [Output("logits", scores, ("batch", 1))]


def _token_classification(tools: GraphTools, model: Any, hidden: str, batch: Batch) -> list[Output]:
    logits = linear(tools, hidden, "classifier", model.classifier)
    return [Output("logits", logits, ("batch", "sequence", model.classifier.out_features))]


def _question_answering(tools: GraphTools, model: Any, hidden: str, batch: Batch) -> list[Output]:
    both = linear(tools, hidden, "qa_outputs", model.qa_outputs.outputs)
    parts = tools.graph.nodes("Split", 2, both, tools.graph.constant([1, 1]), axis=-1)
    start, end = (tools.graph.node("Squeeze", part, tools.graph.constant([2])) for part in parts)
    axes = ("batch", "sequence")
    return [Output("start_logits", start, axes), Output("end_logits", end, axes)]


def _joint_question_answering(tools: GraphTools, model: Any, hidden: str, batch: Batch) -> list[Output]:
    """The joint head (SQuAD 2.0): the likeliest starts, and for each of them a logit for every end."""
    graph = tools.graph
    head: JointSpanHead = model.joint_qa_outputs
    seen = graph.cast(batch.mask, np.bool_)
    place = columns(graph, batch)
    last = graph.node("Sub", graph.node("ReduceSum", batch.mask, graph.constant([1]), keepdims=1), graph.constant(1))
    at_cls = graph.node("Equal", place, graph.constant(0))
    second = graph.node("And", graph.node("Equal", batch.types, graph.constant(1)), graph.node("Less", place, last))
    passage = graph.node("And", second, graph.node("Not", at_cls))
    possible = graph.node("Or", passage, graph.node("And", at_cls, seen))
    impossible = graph.constant(IMPOSSIBLE, np.float32)

    starts = graph.node("Squeeze", linear(tools, hidden, "joint.start", head.start), graph.constant([2]))
    start_logits = graph.node("Where", possible, starts, impossible)
    share = graph.node("Unsqueeze", graph.node("Softmax", start_logits, axis=-1), graph.constant([1]))
    first = graph.node("Gather", hidden, graph.constant(0), axis=1)
    expected = graph.node("Squeeze", graph.node("MatMul", share, hidden), graph.constant([1]))
    joint = graph.node("Concat", expected, first, axis=-1)
    unanswerable = graph.node("Tanh", linear(tools, joint, "joint.answer_dense", head.answer_dense))
    unanswerable = graph.node("Squeeze", linear(tools, unanswerable, "joint.answer", head.answer), graph.constant([1]))

    beam = _beam(graph, graph.node("Where", passage, starts, impossible), seen, last)
    index = graph.node("Unsqueeze", beam, graph.constant([2]))
    index = graph.node("Expand", index, graph.constant([1, 1, model.config.hidden_size]))
    from_start = graph.node("Unsqueeze", graph.node("GatherElements", hidden, index, axis=1), graph.constant([1]))
    by_token = graph.node("Unsqueeze", hidden, graph.constant([2]))
    sizes = (
        graph.node("Shape", hidden, end=2),
        graph.node("Shape", beam, start=1),
        graph.node("Shape", hidden, start=2),
    )
    shape = graph.node("Concat", *sizes, axis=0)
    pair = [graph.node("Expand", each, shape) for each in (by_token, from_start)]
    dense = graph.node("Concat", *pair, axis=-1)
    dense = graph.node("Tanh", linear(tools, dense, "joint.end_dense", head.end_dense))
    dense = layer_norm(graph, dense, "joint.end_layer_norm", head.end_layer_norm)
    ends = graph.node("Squeeze", linear(tools, dense, "joint.end", head.end), graph.constant([3]))
    ends = graph.node("Where", graph.node("Unsqueeze", possible, graph.constant([2])), ends, impossible)
    return [
        Output("start_logits", start_logits, ("batch", "sequence")),
        Output("start_places", beam, ("batch", "beam"), np.int64),
        Output("end_logits", ends, ("batch", "sequence", "beam")),
        Output("unanswerable_logits", unanswerable, ("batch",)),
    ]


def _beam(graph: GraphWriter, starts: str, seen: str, last: str) -> str:
    """Places of the likeliest starts; where a sequence has fewer tokens than the beam, its last place again."""
    ranked = graph.node("Where", seen, starts, graph.constant(_PADDED, np.float32))
    length = graph.node("Gather", graph.node("Shape", starts), graph.constant([1]), axis=0)
    width = graph.node("Min", graph.constant([BEAM]), length)
    _, places = graph.nodes("TopK", 2, ranked, width, axis=1)
    order = graph.node("Range", graph.constant(0), graph.node("Squeeze", width, graph.constant([0])), graph.constant(1))
    return graph.node("GatherElements", places, graph.node("Min", order, last), axis=1)


def _pooled(tools: GraphTools, model: Any, hidden: str) -> str:
    pooler: nn.Linear = model.pooler
    first = tools.graph.node("Gather", hidden, tools.graph.constant(0), axis=1)
    return tools.graph.node("Tanh", linear(tools, first, "pooler", pooler))


HEADS: dict[Kind, Head] = {
    "pretraining": _pretraining,
    "masked_lm": _masked_lm,
    "classification": _classification,
    "token_classification": _token_classification,
    "question_answering": _question_answering,
    "joint_question_answering": _joint_question_answering,
    "multiple_choice": _multiple_choice,
    "encoder": _encoder,
}
