"""A model as an ONNX graph: nodes and initialisers, encoder, heads, products in float32 or int8.

Inputs and outputs have the names that users of transformers and Optimum know."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from albert.checkpoints.huggingface import Kind
from albert.inference.engine import LARGEST, quantize_matrix
from albert.inference.int8 import is_worth_quantizing
from albert.model.albert import BEAM, IMPOSSIBLE, AlbertModel, JointSpanHead
from albert.model.attention import AttentionBlock
from albert.model.config import Activation, AlbertConfig
from albert.model.encoder import FeedForwardBlock
from albert.model.heads import MaskedLanguageModelHead
from albert.runtime.errors import InvalidConfiguration

# --------------------------------------------------------------------------------------------------------------------
# Nodes and initialisers of an ONNX graph; an initialiser of a name, or a constant of a value, is stored once.

LOWEST_OPSET, HIGHEST_OPSET = 17, 24
"""LayerNormalization is an operator from 17 on; every runtime of the extra `onnx` knows those up to 24."""
ONE_OPERATOR_GELU = 20
_AXES_ARE_INPUTS = 18


class GraphWriter:
    """An ONNX graph under construction; values are known by their names.

    Args:
        opset: the version of the operators.
    """

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: dict[str, onnx.TensorProto] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._scope: list[str] = []

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Names of what the block writes begin with this one."""
        self._scope.append(name)
        try:
            yield
        finally:
            self._scope.pop()

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Write a node with one output, and return the output's name."""
        return self.nodes(operator, 1, *inputs, **attributes)[0]

    def nodes(self, operator: str, outputs: int, *inputs: str, **attributes: Any) -> list[str]:
        """Write a node with several outputs."""
        name = "/".join([*self._scope, f"{operator}_{len(self._nodes)}"])
        names = [name] if outputs == 1 else [f"{name}.{number}" for number in range(outputs)]
        self._nodes.append(helper.make_node(operator, list(inputs), names, name=name, **attributes))
        return names

    def weight(self, name: str, make: Callable[[], np.ndarray]) -> str:
        """The initialiser of a name, made the first time it is asked for."""
        if name not in self._initializers:
            self._initializers[name] = numpy_helper.from_array(np.asarray(make(), order="C"), name)
        return name

    def constant(self, value: Any, dtype: type[np.generic] = np.int64) -> str:
        """A small initialiser, known by its value."""
        array = np.array(value, dtype=dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self.weight(f"constant_{len(self._constants)}", lambda: array)
        return self._constants[key]

    def cast(self, value: str, dtype: type[np.generic]) -> str:
        """The same numbers in another type."""
        return self.node("Cast", value, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def reshape(self, value: str, *shape: int) -> str:
        """Another shape: 0 keeps an axis, -1 is what is left."""
        return self.node("Reshape", value, self.constant(shape))

    def largest(self, value: str, axis: int) -> str:
        """The maximum along an axis, which stays with length 1."""
        if self.opset < _AXES_ARE_INPUTS:
            return self.node("ReduceMax", value, axes=[axis], keepdims=1)
        return self.node("ReduceMax", value, self.constant([axis]), keepdims=1)

    def model(
        self,
        inputs: Sequence[tuple[str, type[np.generic], Sequence[str | int]]],
        outputs: Sequence[tuple[str, str, type[np.generic], Sequence[str | int]]],
        metadata: dict[str, str],
    ) -> onnx.ModelProto:
        """The finished model, checked by the rules of the format.

        Args:
            inputs: name, type and axes of each; an axis that has a name in place of a length may have any.
            outputs: name, the value it is, type and axes of each.
            metadata: what the file says about itself.
        """
        for name, value, _, _ in outputs:
            self._nodes.append(helper.make_node("Identity", [value], [name], name=f"output/{name}"))
        graph = helper.make_graph(
            self._nodes,
            "albert",
            [_described(name, dtype, axes) for name, dtype, axes in inputs],
            [_described(name, dtype, axes) for name, _, dtype, axes in outputs],
            list(self._initializers.values()),
        )
        opset = [helper.make_opsetid("", self.opset)]
        version = helper.find_min_ir_version_for(opset)
        made = helper.make_model(graph, opset_imports=opset, ir_version=version, producer_name="albert")
        helper.set_model_props(made, metadata)
        onnx.checker.check_model(made)
        return made


def _described(name: str, dtype: type[np.generic], axes: Sequence[str | int]) -> onnx.ValueInfoProto:
    kind: TensorProto.DataType = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))  # type: ignore[assignment]
    return helper.make_tensor_value_info(name, kind, list(axes))


# --------------------------------------------------------------------------------------------------------------------
# How a product with a weight is written: in float32, or in 8-bit integers.
#
# Weights lie in the file as MatMul takes them, [inputs, outputs], so that no runtime transposes a copy for every
# layer that applies them. Word embeddings are looked up by row, and multiply the other way round where they are
# tied to the head of masked words: they lie there once, as rows.

_SMALLEST_SCALE = 1e-30
"""Of a token whose numbers are all zero."""
_ZERO = 128


@runtime_checkable
class Products(Protocol):
    """One way of writing products; weights are [outputs, inputs], as in torch."""

    def linear(self, graph: GraphWriter, value: str, name: str, weight: Tensor, bias: Tensor | None) -> str:
        """`value weightᵀ + bias`, for a value [..., inputs]."""
        ...

    def rows(self, graph: GraphWriter, places: str, name: str, table: Tensor) -> str:
        """Rows of a table [rows, width] at integer places [...]: [..., width]."""
        ...

    def tied(self, graph: GraphWriter, value: str, name: str, table: Tensor, bias: Tensor) -> str:
        """`linear` with the table of `rows`, for a value [tokens, width]."""
        ...


class Float32Products:
    """Weights as they are."""

    def linear(self, graph: GraphWriter, value: str, name: str, weight: Tensor, bias: Tensor | None) -> str:
        """A MatMul."""
        matrix = graph.weight(f"{name}.weight", lambda: weight.T.numpy())
        return _plus(graph, graph.node("MatMul", value, matrix), name, bias)

    def rows(self, graph: GraphWriter, places: str, name: str, table: Tensor) -> str:
        """A Gather."""
        return graph.node("Gather", graph.weight(f"{name}.weight", lambda: table.numpy()), places, axis=0)

    def tied(self, graph: GraphWriter, value: str, name: str, table: Tensor, bias: Tensor) -> str:
        """A Gemm, which takes the rows as they lie."""
        rows = graph.weight(f"{name}.weight", lambda: table.numpy())
        return graph.node("Gemm", value, rows, graph.weight(f"{name}.output_bias", lambda: bias.numpy()), transB=1)


class Int8Products:
    """Weights as integers with a scale for each output, and each token's numbers as integers with a scale of its own.

    The scale of a token does not depend on what it shares a batch with, nor do the answers then. What has fewer than
    16 rows or columns stays as it is.
    """

    def linear(self, graph: GraphWriter, value: str, name: str, weight: Tensor, bias: Tensor | None) -> str:
        """A MatMulInteger between two changes of type."""
        if not is_worth_quantizing(weight):
            return _FLOAT32.linear(graph, value, name, weight, bias)
        matrix = graph.weight(f"{name}.weight.int8", lambda: quantize_matrix(weight)[0].T.numpy())
        scales = graph.weight(f"{name}.weight.scale", lambda: quantize_matrix(weight)[1].numpy())
        return _plus(graph, _integer_product(graph, value, matrix, scales), name, bias)

    def rows(self, graph: GraphWriter, places: str, name: str, table: Tensor) -> str:
        """Rows and their scales."""
        if not is_worth_quantizing(table):
            return _FLOAT32.rows(graph, places, name, table)
        integers, scales = self._table(graph, name, table)
        found = graph.cast(graph.node("Gather", integers, places, axis=0), np.float32)
        column = graph.node("Unsqueeze", graph.node("Gather", scales, places, axis=0), graph.constant([-1]))
        return graph.node("Mul", found, column)

    def tied(self, graph: GraphWriter, value: str, name: str, table: Tensor, bias: Tensor) -> str:
        """A MatMulInteger with the table, transposed when the file is opened."""
        if not is_worth_quantizing(table):
            return _FLOAT32.tied(graph, value, name, table, bias)
        integers, scales = self._table(graph, name, table)
        product = _integer_product(graph, value, graph.node("Transpose", integers, perm=[1, 0]), scales)
        return graph.node("Add", product, graph.weight(f"{name}.output_bias", lambda: bias.numpy()))

    def _table(self, graph: GraphWriter, name: str, table: Tensor) -> tuple[str, str]:
        return (
            graph.weight(f"{name}.weight.int8", lambda: quantize_matrix(table)[0].numpy()),
            graph.weight(f"{name}.weight.scale", lambda: quantize_matrix(table)[1].numpy()),
        )


_FLOAT32 = Float32Products()


def _plus(graph: GraphWriter, value: str, name: str, bias: Tensor | None) -> str:
    return value if bias is None else graph.node("Add", value, graph.weight(f"{name}.bias", lambda: bias.numpy()))


def _integer_product(graph: GraphWriter, value: str, matrix: str, scales: str) -> str:
    """Each token's numbers are symmetric around 128: runtimes' products of unsigned with signed are their fast ones."""
    largest = graph.node(
        "Max", graph.largest(graph.node("Abs", value), -1), graph.constant(_SMALLEST_SCALE, np.float32)
    )
    scale = graph.node("Div", largest, graph.constant(LARGEST, np.float32))
    rounded = graph.node("Round", graph.node("Div", value, scale))
    integers = graph.cast(graph.node("Add", rounded, graph.constant(_ZERO, np.float32)), np.uint8)
    product = graph.node("MatMulInteger", integers, matrix, graph.constant(_ZERO, np.uint8))
    return graph.node("Mul", graph.node("Mul", graph.cast(product, np.float32), scale), scales)


# --------------------------------------------------------------------------------------------------------------------
# Embeddings and encoder as ONNX nodes: the layers are repeated, the blocks that they share are not (paper §3.1).
#
# A batch is a rectangle [batch, sequence], as other runtimes' users hand it over; sequences stand on the left and
# the rest is padding, which no token sees.

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


# --------------------------------------------------------------------------------------------------------------------
# What each kind of model gives, as ONNX nodes: names and axes are those of transformers' and Optimum's exports.

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


OnnxPrecision = Literal["fp32", "int8"]
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_PRODUCTS: dict[OnnxPrecision, type[Products]] = {"fp32": Float32Products, "int8": Int8Products}
_LARGEST_FILE = 2**31 - 2**20
"""Bytes of one protobuf message; weights in a file beside it are a door to other files, and are not written."""


@dataclass(frozen=True)
class ExportedGraph:
    """A model in the ONNX format.

    Args:
        model: the whole of it, weights included.
        outputs: name -> axes, in order.
    """

    model: onnx.ModelProto
    outputs: dict[str, tuple[str | int, ...]]


def export_graph(
    model: nn.Module, kind: Kind, precision: OnnxPrecision, opset: int, metadata: Mapping[str, str]
) -> ExportedGraph:
    """A model's graph, with the layers that it is set to run.

    Args:
        model: one of the model classes, on the CPU, in float32.
        kind: which one; of an encoder without a pooler there is one output.
        precision: of products with weights.
        opset: the version of ONNX's operators.
        metadata: what the file says about itself.

    Raises:
        InvalidConfiguration: it does not fit a file of 2 GB.
    """
    graph = GraphWriter(opset)
    tools = GraphTools(graph, _PRODUCTS[precision]())
    _refuse_what_is_too_large(model, precision)
    axes = ("batch", "choices", "sequence") if kind == "multiple_choice" else ("batch", "sequence")
    batch = Batch(*INPUTS)
    if kind == "multiple_choice":
        batch = Batch(*(_rows_of_choices(graph, name) for name in INPUTS))
    encoder: Any = model if isinstance(model, AlbertModel) else model.albert
    outputs = HEADS[kind](tools, model, encoder_nodes(tools, encoder, batch), batch)
    if kind == "multiple_choice":
        outputs = [_by_question(graph, output) for output in outputs]
    made = graph.model(
        [(name, np.int64, axes) for name in INPUTS],
        [(output.name, output.value, output.dtype, output.axes) for output in outputs],
        dict(metadata),
    )
    return ExportedGraph(made, {output.name: output.axes for output in outputs})


def _rows_of_choices(graph: GraphWriter, name: str) -> str:
    """[batch, choices, sequence] as [batch × choices, sequence]."""
    sequence = graph.node("Shape", name, start=2, end=3)
    return graph.node("Reshape", name, graph.node("Concat", graph.constant([-1]), sequence, axis=0))


def _by_question(graph: GraphWriter, output: Output) -> Output:
    shape = graph.node("Shape", INPUTS[0], start=0, end=2)
    return Output(output.name, graph.node("Reshape", output.value, shape), ("batch", "choices"))


def _refuse_what_is_too_large(model: nn.Module, precision: OnnxPrecision) -> None:
    size = sum(parameter.numel() for parameter in model.parameters()) * (4 if precision == "fp32" else 1)
    if size > _LARGEST_FILE:
        remedy = "take --precision int8" if precision == "fp32" and size / 4 < _LARGEST_FILE else None
        raise InvalidConfiguration(
            "model", f"has {size / 1e9:,.1f} GB of weights in {precision}, one ONNX file holds 2.1 GB", remedy
        )
