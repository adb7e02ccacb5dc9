"""The graph of an ONNX file, written node by node: products in float32 or int8, embeddings, encoder and pooling.

The files of torch.onnx and ONNX Runtime's quantisation are a third larger in int8.
What a head adds to the graph is in the file of its pipeline; the joint head of questions is here."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from albert.inference.linears import INT8_MAX, is_worth_quantizing, quantize_matrix
from albert.model.albert import BEAM, IMPOSSIBLE, AlbertModel
from albert.model.attention import AttentionBlock
from albert.model.encoder import FeedForwardBlock, InputScale, LayerScales
from albert.model.families import family_of
from albert.recipes.architecture import Activation
from albert.runtime.errors import InvalidConfiguration

MIN_OPSET = 17
MAX_OPSET = 24
"""LayerNormalization is an operator from 17 on; every runtime of the extra `onnx` supports opsets up to 24."""
GELU_OPSET = 20
_AXES_ARE_INPUTS = 18
_SMALLEST_SCALE = 1e-30  # Lower bound on a token's largest absolute value, so that a token of zeros has a scale
_ZERO_POINT = 128
PADDED = -1e35
"""A score of padding: below `albert.model.albert.IMPOSSIBLE`, so that it comes last."""
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OnnxPrecision = Literal["fp32", "int8"]
Axes = tuple[str | int, ...]  # Names of dynamic axes, and fixed lengths


class Output(NamedTuple):
    """An output of the graph: its name, its value in the graph, its axes, its dtype."""

    name: str
    value: str
    axes: Axes
    dtype: type[np.generic] = np.float32


class GraphWriter:
    """An ONNX graph under construction; values are referred to by name.

    Weights are stored once, [inputs, outputs] as MatMul takes them, so that no runtime transposes a copy for every
    layer. In int8 they are integers with a scale per output, and activations have a scale fixed by calibration or one
    per token, so that no result depends on the rest of its batch. Word embeddings are stored as rows, and transposed
    for the tied masked-token head.
    The inputs `ids`, `mask` and `types` are int64 [batch, sequence], padded on the right; an input that no node reads
    is left out.
    """

    def __init__(self, opset: int, precision: OnnxPrecision = "fp32") -> None:
        self.opset = opset
        self._precision = precision
        self.input_ids = INPUTS[0]
        self.ids, self.mask, self.types = INPUTS
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: dict[str, onnx.TensorProto] = {}
        self._scope: list[str] = []

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Prefix the names of nodes written in the block."""
        self._scope.append(name)
        try:
            yield
        finally:
            self._scope.pop()

    def node(self, operator: str, *inputs: str | float | Sequence[int], **attributes: Any) -> str:
        """Add a node with one output, and return the output's name; see `nodes`."""
        return self.nodes(operator, 1, *inputs, **attributes)[0]

    def nodes(self, operator: str, outputs: int, *inputs: str | float | Sequence[int], **attributes: Any) -> list[str]:
        """Add a node. Inputs are names of values; integers become int64 constants, floats float32."""
        name = "/".join([*self._scope, f"{operator}_{len(self._nodes)}"])
        names = [name] if outputs == 1 else [f"{name}.{number}" for number in range(outputs)]
        values = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        self._nodes.append(helper.make_node(operator, values, names, name=name, **attributes))
        return names

    def constant(self, value: float | Sequence[int], dtype: type[np.generic] | None = None) -> str:
        """A small initialiser, stored once per value; by default float32 for floats, else int64."""
        array = np.array(value, dtype or (np.float32 if isinstance(value, float) else np.int64))
        return self._initializer(f"constant_{array.dtype}_{array.tolist()}".replace(" ", ""), lambda: array)

    def weight(self, name: str, tensor: Tensor) -> str:
        return self._initializer(name, tensor.detach().numpy)

    def cast(self, value: str, dtype: type[np.generic]) -> str:
        return self.node("Cast", value, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def columns(self) -> str:
        """0, 1, 2, … along the sequence axis, [sequence]."""
        return self.node("Range", 0, self.node("Gather", self.node("Shape", self.ids), 1, axis=0), 1)

    def linear(
        self, value: str, name: str, weight: Tensor, bias: Tensor | None, scale: InputScale | None = None
    ) -> str:
        """`value weightᵀ + bias`, for a value [..., inputs] and a weight [outputs, inputs].

        Args:
            scale: of the value in int8; None: each token has its own.
        """
        if self._is_integer(weight):
            matrix = self._initializer(f"{name}.weight.int8", lambda: quantize_matrix(weight.detach())[0].T.numpy())
            if scale is None:
                product = self._integer_product(value, matrix, self._scales(name, weight))
            else:
                product = self._fixed_product(value, matrix, name, weight, scale)
        else:
            product = self.node("MatMul", value, self.weight(f"{name}.weight", weight.T))
        return product if bias is None else self.node("Add", product, self.weight(f"{name}.bias", bias))

    def layer(self, value: str, name: str, layer: nn.Linear, scale: InputScale | None = None) -> str:
        return self.linear(value, name, layer.weight, layer.bias, scale)

    def rows(self, indices: str, name: str, table: Tensor) -> str:
        """Rows of a table [rows, width] at integer indices [...]: [..., width]."""
        if not self._is_integer(table):
            return self.node("Gather", self.weight(f"{name}.weight", table), indices, axis=0)
        integers = self.cast(self.node("Gather", self._integers(name, table), indices, axis=0), np.float32)
        scales = self.node("Gather", self._scales(name, table), indices, axis=0)
        return self.node("Mul", integers, self.node("Unsqueeze", scales, [-1]))

    def tied(self, value: str, name: str, table: Tensor, bias: Tensor) -> str:
        """`linear` with the table of `rows`, for a value [tokens, width]."""
        output_bias = self.weight(f"{name}.output_bias", bias)
        if not self._is_integer(table):
            return self.node("Gemm", value, self.weight(f"{name}.weight", table), output_bias, transB=1)
        columns = self.node("Transpose", self._integers(name, table), perm=[1, 0])
        return self.node("Add", self._integer_product(value, columns, self._scales(name, table)), output_bias)

    def layer_norm(self, value: str, name: str, norm: nn.LayerNorm) -> str:
        parts = (self.weight(f"{name}.weight", norm.weight), self.weight(f"{name}.bias", norm.bias))
        return self.node("LayerNormalization", value, *parts, axis=-1, epsilon=norm.eps)

    def activation(self, value: str, name: Activation) -> str:
        """The activation of that name, as one operator if the opset has it."""
        if name == "relu" or name == "tanh":
            return self.node(name.title(), value)
        if self.opset >= GELU_OPSET:
            return self.node("Gelu", value, approximate="tanh" if name == "gelu_new" else "none")
        if name == "gelu_new":
            cubed = self.node("Mul", self.node("Mul", value, value), value)
            inner = self.node("Add", value, self.node("Mul", cubed, 0.044715))
            curve = self.node("Tanh", self.node("Mul", inner, (2 / np.pi) ** 0.5))
        else:
            curve = self.node("Erf", self.node("Div", value, 2**0.5))
        return self.node("Mul", self.node("Mul", value, 0.5), self.node("Add", curve, 1.0))

    def maximum(self, value: str) -> str:
        """The largest value along the last axis, which is kept."""
        inputs, attributes = ([[-1]], {}) if self.opset >= _AXES_ARE_INPUTS else ([], {"axes": [-1]})
        return self.node("ReduceMax", value, *inputs, **attributes, keepdims=1)

    def output(self, name: str, value: str, axes: Axes, dtype: type[np.generic] = np.float32) -> Output:
        """An output of the graph."""
        return Output(name, value, axes, dtype)

    def pooled(self, model: Any, hidden: str) -> str:
        """The state at [CLS] through the pooler: [batch, H]."""
        mapped = self.layer(self.node("Gather", hidden, 0, axis=1), "pooler", model.pooler)
        return self.activation(mapped, family_of(model.config).pooler_activation)

    def read_by_head(self, model: Any, hidden: str) -> str:
        """What a head for a whole text reads (`EncoderConfig.head_pooling`): [batch, H]."""
        pooling = model.config.head_pooling
        if pooling == "pooler":
            return self.pooled(model.albert, hidden)
        if pooling == "cls":
            return self.node("Gather", hidden, 0, axis=1)
        mask = self.node("Unsqueeze", self.mask, [2])
        if pooling == "max":
            seen = self.node("Where", self.cast(mask, np.bool_), hidden, PADDED)
            return self.node("Squeeze", self.maximum(self.node("Transpose", seen, perm=[0, 2, 1])), [2])
        weights = self.cast(mask, np.float32)
        total = self.node("ReduceSum", self.node("Mul", hidden, weights), [1], keepdims=0)
        return self.node("Div", total, self.node("ReduceSum", weights, [1], keepdims=0))

    def joint_span_outputs(self, model: Any, hidden: str) -> list[Output]:
        """Those of a joint head (SQuAD 2.0): the top starts, and for each of them a logit for every end."""
        return _joint_span_outputs(self, model, hidden)

    def model(self, axes: Axes, outputs: Sequence[Output], metadata: Mapping[str, str]) -> onnx.ModelProto:
        """The finished model, after `onnx.checker`."""
        for output in outputs:
            node = helper.make_node("Identity", [output.value], [output.name], name=f"output/{output.name}")
            self._nodes.append(node)
        used = {name for node in self._nodes for name in node.input}
        graph = helper.make_graph(
            self._nodes,
            "albert",
            [_value_info(name, np.int64, axes) for name in INPUTS if name in used],
            [_value_info(output.name, output.dtype, output.axes) for output in outputs],
            list(self._initializers.values()),
        )
        opset = [helper.make_opsetid("", self.opset)]
        version = helper.find_min_ir_version_for(opset)
        model = helper.make_model(graph, opset_imports=opset, ir_version=version, producer_name="albert")
        helper.set_model_props(model, dict(metadata))
        onnx.checker.check_model(model)
        return model

    def _initializer(self, name: str, make: Callable[[], np.ndarray]) -> str:
        if name not in self._initializers:
            self._initializers[name] = numpy_helper.from_array(np.asarray(make(), order="C"), name)
        return name

    def _is_integer(self, weight: Tensor) -> bool:
        return self._precision == "int8" and is_worth_quantizing(weight)

    def _integers(self, name: str, table: Tensor) -> str:
        return self._initializer(f"{name}.weight.int8", lambda: quantize_matrix(table.detach())[0].numpy())

    def _scales(self, name: str, weight: Tensor) -> str:
        return self._initializer(f"{name}.weight.scale", lambda: quantize_matrix(weight.detach())[1].numpy())

    def _integer_product(self, value: str, matrix: str, scales: str) -> str:
        """Activations are unsigned with zero point 128: runtimes are fast for unsigned times signed integers."""
        largest = self.maximum(self.node("Abs", value))
        scale = self.node("Div", self.node("Max", largest, _SMALLEST_SCALE), float(INT8_MAX))
        rounded = self.node("Round", self.node("Div", value, scale))
        integers = self.cast(self.node("Add", rounded, float(_ZERO_POINT)), np.uint8)
        product = self.node("MatMulInteger", integers, matrix, self.constant(_ZERO_POINT, np.uint8))
        return self.node("Mul", self.node("Mul", self.cast(product, np.float32), scale), scales)

    def _fixed_product(self, value: str, matrix: str, name: str, weight: Tensor, scale: InputScale) -> str:
        """The product of inputs with one scale; an application of a shared weight has scales of its own."""
        zero_point = self.constant(scale.zero_point, np.uint8)
        integers = self.node("QuantizeLinear", value, scale.scale, zero_point)
        product = self.cast(self.node("MatMulInteger", integers, matrix, zero_point), np.float32)
        weight_scales = quantize_matrix(weight.detach())[1]
        steps = self._initializer(f"{name}.scale.{scale.scale}", lambda: (weight_scales * scale.scale).numpy())
        return self.node("Mul", product, steps)


def _value_info(name: str, dtype: type[np.generic], axes: Axes) -> onnx.ValueInfoProto:
    kind: TensorProto.DataType = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))  # type: ignore[assignment]
    return helper.make_tensor_value_info(name, kind, list(axes))


# --------------------------------------------------------------------------------------------------------------------
# Embeddings and encoder as ONNX nodes: the layers are repeated, the weights that they share are not (paper §3.1).

MASKED_SCORE = -3e4
"""Added to the scores of masked tokens; representable in float16, should a runtime compute in that."""


def encoder_nodes(graph: GraphWriter, model: AlbertModel) -> str:
    """The output [batch, sequence, H] of the last layer that the model is set to run."""
    if model.encoder.position_bias is not None:
        title = family_of(model.config).title
        raise InvalidConfiguration("onnx", f"positions in the attention of {title} are not exported", "use the model")
    with graph.scope("embeddings"):
        hidden = _embeddings(graph, model)
    with graph.scope("seen"):
        bias = _attention_bias(graph)
    input_scales = model.encoder.input_scales or ()
    for number, application in enumerate(model.encoder.plan):
        scales = input_scales[number] if number < len(input_scales) else LayerScales()
        with graph.scope(f"layer.{number}"):
            attention = model.encoder.attentions[application.attention]
            feed_forward = model.encoder.feed_forwards[application.feed_forward]
            assert isinstance(attention, AttentionBlock) and isinstance(feed_forward, FeedForwardBlock)
            hidden = _attention(graph, attention, f"attention.{application.attention}", hidden, bias, scales)
            name = f"feed_forward.{application.feed_forward}"
            wide = graph.layer(hidden, f"{name}.intermediate", feed_forward.intermediate, scales.intermediate)
            wide = graph.activation(wide, model.config.hidden_act)
            narrow = graph.layer(wide, f"{name}.output", feed_forward.output, scales.output)
            summed = graph.node("Add", narrow, hidden)
            hidden = graph.layer_norm(summed, f"{name}.layer_norm", feed_forward.layer_norm)
    return hidden


def _embeddings(graph: GraphWriter, model: AlbertModel) -> str:
    embeddings = model.embeddings
    words = graph.rows(graph.ids, "embeddings.words", embeddings.word_embeddings.weight)
    table = embeddings.token_type_embeddings.weight
    if embeddings.has_types:
        types = graph.rows(graph.types, "embeddings.types", table)
    else:  # all tokens have the same type: the file has no input for it, as those of transformers
        types = graph.weight("embeddings.type.weight", table[0])
    positions = graph.rows(graph.columns(), "embeddings.places", embeddings.position_embeddings.weight)
    summed = graph.node("Add", graph.node("Add", words, positions), types)
    if model.config.match_embedding:
        mark = graph.weight("embeddings.match.weight", embeddings.token_type_embeddings.weight[-1])
        ids, types = (
            graph.node("Equal", graph.node("Unsqueeze", value, [2]), graph.node("Unsqueeze", value, [1]))
            for value in (graph.ids, graph.types)
        )
        seen = graph.node("Unsqueeze", graph.cast(graph.mask, np.bool_), [1])
        matches = graph.node("And", graph.node("And", ids, graph.node("Not", types)), seen)
        # 1 for tokens that occur in the other segment, else 0: [batch, sequence, 1]
        occurs = graph.maximum(graph.cast(matches, np.float32))
        summed = graph.node("Add", summed, graph.node("Mul", occurs, mark))
    normal = graph.layer_norm(summed, "embeddings.layer_norm", embeddings.layer_norm)
    projection = embeddings.projection
    return normal if projection is None else graph.layer(normal, "embeddings.projection", projection)


def _attention_bias(graph: GraphWriter) -> str:
    """0 for tokens, `MASKED_SCORE` for padding: [batch, 1, 1, columns]."""
    mask = graph.node("Unsqueeze", graph.cast(graph.mask, np.bool_), [1, 2])
    return graph.node("Where", mask, 0.0, MASKED_SCORE)


def _attention(
    graph: GraphWriter, block: AttentionBlock, name: str, hidden: str, bias: str, scales: LayerScales
) -> str:
    width = block.query.out_features
    heads = block.heads
    matrices = block.matrices()
    size = width // heads
    qkv = graph.linear(hidden, f"{name}.joined", matrices.qkv, matrices.qkv_bias, scales.qkv)
    parts = graph.nodes("Split", 3, qkv, [width] * 3, axis=-1)
    query, key, value = (graph.node("Reshape", part, [0, 0, heads, size]) for part in parts)
    query = graph.node("Mul", graph.node("Transpose", query, perm=[0, 2, 1, 3]), size**-0.5)
    scores = graph.node("MatMul", query, graph.node("Transpose", key, perm=[0, 2, 3, 1]))
    probabilities = graph.node("Softmax", graph.node("Add", scores, bias), axis=-1)
    mixed = graph.node("MatMul", probabilities, graph.node("Transpose", value, perm=[0, 2, 1, 3]))
    concatenated = graph.node("Reshape", graph.node("Transpose", mixed, perm=[0, 2, 1, 3]), [0, 0, width])
    summed = graph.node("Add", graph.layer(concatenated, f"{name}.dense", block.dense, scales.dense), hidden)
    return graph.layer_norm(summed, f"{name}.layer_norm", block.layer_norm)


# --------------------------------------------------------------------------------------------------------------------
# The joint head of questions that may have no answer.


def _joint_span_outputs(graph: GraphWriter, model: Any, hidden: str) -> list[Output]:
    """The joint head (SQuAD 2.0): the top starts, and for each of them a logit for every end."""
    head = model.joint_qa_outputs
    mask = graph.cast(graph.mask, np.bool_)
    position = graph.columns()
    last = graph.node("Sub", graph.node("ReduceSum", graph.mask, [1], keepdims=1), 1)
    at_cls = graph.node("Equal", position, 0)
    second = graph.node("And", graph.node("Equal", graph.types, 1), graph.node("Less", position, last))
    passage = graph.node("And", second, graph.node("Not", at_cls))
    possible = graph.node("Or", passage, graph.node("And", at_cls, mask))

    starts = graph.node("Squeeze", graph.layer(hidden, "joint.start", head.start), [2])
    start_logits = graph.node("Where", possible, starts, IMPOSSIBLE)
    weights = graph.node("Unsqueeze", graph.node("Softmax", start_logits, axis=-1), [1])
    first = graph.node("Gather", hidden, 0, axis=1)
    expected = graph.node("Squeeze", graph.node("MatMul", weights, hidden), [1])
    joint = graph.node("Concat", expected, first, axis=-1)
    joint = graph.node("Tanh", graph.layer(joint, "joint.answer_dense", head.answer_dense))
    unanswerable = graph.node("Squeeze", graph.layer(joint, "joint.answer", head.answer), [1])

    beam = _beam(graph, graph.node("Where", passage, starts, IMPOSSIBLE), mask, last)
    index = graph.node("Expand", graph.node("Unsqueeze", beam, [2]), [1, 1, model.config.hidden_size])
    from_start = graph.node("Unsqueeze", graph.node("GatherElements", hidden, index, axis=1), [1])
    by_token = graph.node("Unsqueeze", hidden, [2])
    bounds = ((hidden, {"end": 2}), (beam, {"start": 1}), (hidden, {"start": 2}))
    shape = graph.node("Concat", *(graph.node("Shape", value, **part) for value, part in bounds), axis=0)
    pair = [graph.node("Expand", state, shape) for state in (by_token, from_start)]
    dense = graph.layer(graph.node("Concat", *pair, axis=-1), "joint.end_dense", head.end_dense)
    dense = graph.layer_norm(graph.node("Tanh", dense), "joint.end_layer_norm", head.end_layer_norm)
    ends = graph.node("Squeeze", graph.layer(dense, "joint.end", head.end), [3])
    ends = graph.node("Where", graph.node("Unsqueeze", possible, [2]), ends, IMPOSSIBLE)
    return [
        Output("start_logits", start_logits, ("batch", "sequence")),
        Output("start_places", beam, ("batch", "beam"), np.int64),
        Output("end_logits", ends, ("batch", "sequence", "beam")),
        Output("unanswerable_logits", unanswerable, ("batch",)),
    ]


def _beam(graph: GraphWriter, starts: str, mask: str, last: str) -> str:
    """Positions of the top starts; a sequence with fewer tokens than the beam repeats its last position."""
    ranked = graph.node("Where", mask, starts, PADDED)
    length = graph.node("Gather", graph.node("Shape", starts), [1], axis=0)
    width = graph.node("Min", [BEAM], length)
    _, positions = graph.nodes("TopK", 2, ranked, width, axis=1)
    order = graph.node("Range", 0, graph.node("Squeeze", width, [0]), 1)
    return graph.node("GatherElements", positions, graph.node("Min", order, last), axis=1)
