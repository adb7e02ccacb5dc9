"""Embeddings and encoder as ONNX nodes: the layers are repeated, the blocks that they share are not (paper §3.1).

A batch is a rectangle [batch, sequence], as other runtimes' users hand it over; sequences stand on the left and the
rest is padding, which no token sees.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from albert.inference.onnx_export.graph_writer import ONE_OPERATOR_GELU, GraphWriter
from albert.inference.onnx_export.products import Products
from albert.model.albert import AlbertModel
from albert.model.attention import AttentionBlock
from albert.model.config import Activation
from albert.model.feed_forward import FeedForwardBlock

UNSEEN = -3e4
"""What is added to the score of a token that may not be seen; float16 has it too, should a runtime compute in that."""


class Batch(NamedTuple):
    """Names of what goes into the graph: int64 [batch, sequence]."""

    ids: str
    mask: str
    types: str


class GraphTools(NamedTuple):
    """Where nodes go, and how products are written."""

    graph: GraphWriter
    products: Products


def encoder_nodes(tools: GraphTools, model: AlbertModel, batch: Batch) -> str:
    """The output [batch, sequence, H] of the last layer that the model is set to run."""
    graph = tools.graph
    with graph.scope("embeddings"):
        hidden = _embeddings(tools, model, batch)
    with graph.scope("seen"):
        bias = _attention_bias(graph, batch, model.config.effective_window)
    for number, application in enumerate(model.encoder.plan):
        with graph.scope(f"layer.{number}"):
            attention = model.encoder.attentions[application.attention]
            feed_forward = model.encoder.feed_forwards[application.feed_forward]
            assert isinstance(attention, AttentionBlock) and isinstance(feed_forward, FeedForwardBlock)
            hidden = _attention(tools, attention, f"attention.{application.attention}", hidden, bias)
            hidden = _feed_forward(
                tools, feed_forward, f"feed_forward.{application.feed_forward}", hidden, model.config.hidden_act
            )
    return hidden


def layer_norm(graph: GraphWriter, value: str, name: str, norm: nn.LayerNorm) -> str:
    """LayerNorm of the last axis."""
    weight = graph.weight(f"{name}.weight", lambda: norm.weight.detach().numpy())
    bias = graph.weight(f"{name}.bias", lambda: norm.bias.detach().numpy())
    return graph.node("LayerNormalization", value, weight, bias, axis=-1, epsilon=norm.eps)


def linear(tools: GraphTools, value: str, name: str, layer: nn.Linear) -> str:
    """A linear map of the last axis."""
    bias = None if layer.bias is None else layer.bias.detach()
    return tools.products.linear(tools.graph, value, name, layer.weight.detach(), bias)


def activation(graph: GraphWriter, value: str, name: Activation) -> str:
    """The function of that name, as one operator where the opset has it."""
    if name == "relu" or name == "tanh":
        return graph.node("Relu" if name == "relu" else "Tanh", value)
    if graph.opset >= ONE_OPERATOR_GELU:
        return graph.node("Gelu", value, approximate="tanh" if name == "gelu_new" else "none")
    if name == "gelu_new":
        cubed = graph.node("Mul", graph.node("Mul", value, value), value)
        inner = graph.node("Add", value, graph.node("Mul", cubed, graph.constant(0.044715, np.float32)))
        curve = graph.node("Tanh", graph.node("Mul", inner, graph.constant(np.sqrt(2 / np.pi), np.float32)))
    else:
        curve = graph.node("Erf", graph.node("Div", value, graph.constant(np.sqrt(2), np.float32)))
    half = graph.node("Mul", value, graph.constant(0.5, np.float32))
    return graph.node("Mul", half, graph.node("Add", curve, graph.constant(1, np.float32)))


def columns(graph: GraphWriter, batch: Batch) -> str:
    """0, 1, 2, … along the sequence axis, [sequence]."""
    return graph.node("Range", graph.constant(0), _length(graph, batch), graph.constant(1))


def _length(graph: GraphWriter, batch: Batch) -> str:
    shape = graph.node("Shape", batch.ids)
    return graph.node("Gather", shape, graph.constant(1), axis=0)


def _embeddings(tools: GraphTools, model: AlbertModel, batch: Batch) -> str:
    graph, parts = tools.graph, model.embeddings
    words = tools.products.rows(graph, batch.ids, "embeddings.words", parts.word_embeddings.weight.detach())
    types = tools.products.rows(graph, batch.types, "embeddings.types", parts.token_type_embeddings.weight.detach())
    places = tools.products.rows(
        graph, columns(graph, batch), "embeddings.places", parts.position_embeddings.weight.detach()
    )
    summed = graph.node("Add", graph.node("Add", words, places), types)
    normal = layer_norm(graph, summed, "embeddings.layer_norm", parts.layer_norm)
    return normal if parts.projection is None else linear(tools, normal, "embeddings.projection", parts.projection)


def _attention_bias(graph: GraphWriter, batch: Batch, window: int | None) -> str:
    """0 where a token may be seen, else `UNSEEN`: [batch, 1, rows or 1, columns]."""
    seen = graph.node("Unsqueeze", graph.cast(batch.mask, np.bool_), graph.constant([1, 2]))
    if window is not None:
        seen = graph.node("And", seen, _within(graph, batch, window))
    return graph.node("Where", seen, graph.constant(0, np.float32), graph.constant(UNSEEN, np.float32))


def _within(graph: GraphWriter, batch: Batch, window: int) -> str:
    """Whether a row sees a column: near enough, or one of them is [CLS]."""
    column = columns(graph, batch)
    row = graph.node("Unsqueeze", column, graph.constant([1]))
    near = graph.node("LessOrEqual", graph.node("Abs", graph.node("Sub", row, column)), graph.constant(window))
    first = graph.constant(0)
    at_cls = graph.node("Or", graph.node("Equal", row, first), graph.node("Equal", column, first))
    return graph.node("Or", near, at_cls)


def _attention(tools: GraphTools, block: AttentionBlock, name: str, hidden: str, bias: str) -> str:
    graph = tools.graph
    width = block.query.out_features
    size = width // block.heads
    maps = (block.query, block.key, block.value)
    weight, joined_bias = (torch.cat([getattr(part, kind).detach() for part in maps]) for kind in ("weight", "bias"))
    joined = tools.products.linear(graph, hidden, f"{name}.joined", weight, joined_bias)
    parts = graph.nodes("Split", 3, joined, graph.constant([width] * 3), axis=-1)
    query, key, value = (graph.reshape(part, 0, 0, block.heads, size) for part in parts)
    query = graph.node("Mul", graph.node("Transpose", query, perm=[0, 2, 1, 3]), graph.constant(size**-0.5, np.float32))
    scores = graph.node("MatMul", query, graph.node("Transpose", key, perm=[0, 2, 3, 1]))
    probabilities = graph.node("Softmax", graph.node("Add", scores, bias), axis=-1)
    mixed = graph.node("MatMul", probabilities, graph.node("Transpose", value, perm=[0, 2, 1, 3]))
    together = graph.reshape(graph.node("Transpose", mixed, perm=[0, 2, 1, 3]), 0, 0, width)
    summed = graph.node("Add", linear(tools, together, f"{name}.dense", block.dense), hidden)
    return layer_norm(graph, summed, f"{name}.layer_norm", block.layer_norm)


def _feed_forward(tools: GraphTools, block: FeedForwardBlock, name: str, hidden: str, function: Activation) -> str:
    wide = activation(tools.graph, linear(tools, hidden, f"{name}.intermediate", block.intermediate), function)
    summed = tools.graph.node("Add", linear(tools, wide, f"{name}.output", block.output), hidden)
    return layer_norm(tools.graph, summed, f"{name}.layer_norm", block.layer_norm)
