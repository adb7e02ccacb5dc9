"""ONNX export: a model as an ONNX graph, checked in ONNX Runtime and OpenVINO against the model's outputs.

The graph is written node by node: the files of torch.onnx and ONNX Runtime's quantisation are a third larger in int8
(results/benchmark-onnx-files.csv). Inputs and outputs are named as in transformers and Optimum. Each installed runtime
computes random batches of mixed lengths; float32 outputs must be within 1e-4 of ours or nothing is written. For int8
the difference is reported."""

import importlib.util
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from sys import float_info
from typing import Any, Literal, NamedTuple

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from albert import __version__
from albert.checkpoints.hub import find_model, name_of
from albert.checkpoints.huggingface import ARCHITECTURES, MODELS, OBJECTIVE_KEY, Kind
from albert.checkpoints.loading import QUANTIZATION_KEY
from albert.checkpoints.model_directory import (
    CARD_NAME,
    CONFIG_NAME,
    FINGERPRINT_KEY,
    model_card,
    require_matching_tokenizer,
)
from albert.inference import int8
from albert.inference.engine import INT8_MAX, quantize_matrix
from albert.inference.predictor import TrainedModel, open_trained
from albert.model.albert import BEAM, IMPOSSIBLE, AlbertModel, JointSpanHead, set_depth
from albert.model.attention import AttentionBlock
from albert.model.config import Activation
from albert.model.encoder import FeedForwardBlock
from albert.runtime.environment import lazy_import
from albert.runtime.errors import CannotCreate, CheckFailed, InvalidConfiguration
from albert.runtime.files import new_directory, new_file, write_text
from albert.runtime.json_files import read_json_object, save_json
from albert.runtime.progress import progress
from albert.text.tokenizer_loading import load_tokenizer, vocabulary_file

# --------------------------------------------------------------------------------------------------------------------
# Nodes and initialisers of an ONNX graph, products in float32 or int8.

MIN_OPSET = 17
MAX_OPSET = 24
"""LayerNormalization is an operator from 17 on; every runtime of the extra `onnx` supports opsets up to 24."""
GELU_OPSET = 20
_AXES_ARE_INPUTS = 18
_SMALLEST_SCALE = 1e-30  # Lower bound on a token's largest absolute value, so that a token of zeros has a scale
_ZERO_POINT = 128
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
    layer. In int8 they are integers with a scale per output, and activations have a scale per token, so that no result
    depends on the rest of its batch. Word embeddings are stored as rows, and transposed for the tied masked-token head.
    The inputs `ids`, `mask` and `types` are int64 [batch, sequence], padded on the right.
    """

    def __init__(self, opset: int, precision: OnnxPrecision = "fp32") -> None:
        self.opset = opset
        self._precision = precision
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

    def linear(self, value: str, name: str, weight: Tensor, bias: Tensor | None) -> str:
        """`value weightᵀ + bias`, for a value [..., inputs] and a weight [outputs, inputs]."""
        if self._is_integer(weight):
            matrix = self._initializer(f"{name}.weight.int8", lambda: quantize_matrix(weight.detach())[0].T.numpy())
            product = self._integer_product(value, matrix, self._scales(name, weight))
        else:
            product = self.node("MatMul", value, self.weight(f"{name}.weight", weight.T))
        return product if bias is None else self.node("Add", product, self.weight(f"{name}.bias", bias))

    def layer(self, value: str, name: str, layer: nn.Linear) -> str:
        return self.linear(value, name, layer.weight, layer.bias)

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

    def model(self, axes: Axes, outputs: Sequence[Output], metadata: Mapping[str, str]) -> onnx.ModelProto:
        """The finished model, after `onnx.checker`."""
        for output in outputs:
            node = helper.make_node("Identity", [output.value], [output.name], name=f"output/{output.name}")
            self._nodes.append(node)
        graph = helper.make_graph(
            self._nodes,
            "albert",
            [_value_info(name, np.int64, axes) for name in INPUTS],
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
        return self._precision == "int8" and int8.is_worth_quantizing(weight)

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


def _value_info(name: str, dtype: type[np.generic], axes: Axes) -> onnx.ValueInfoProto:
    kind: TensorProto.DataType = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))  # type: ignore[assignment]
    return helper.make_tensor_value_info(name, kind, list(axes))


# --------------------------------------------------------------------------------------------------------------------
# Embeddings and encoder as ONNX nodes: the layers are repeated, the weights that they share are not (paper §3.1).

MASKED_SCORE = -3e4
"""Added to the scores of masked tokens; representable in float16, should a runtime compute in that."""


def encoder_nodes(graph: GraphWriter, model: AlbertModel) -> str:
    """The output [batch, sequence, H] of the last layer that the model is set to run."""
    with graph.scope("embeddings"):
        hidden = _embeddings(graph, model)
    with graph.scope("seen"):
        bias = _attention_bias(graph, model.config.effective_window)
    for number, application in enumerate(model.encoder.plan):
        with graph.scope(f"layer.{number}"):
            attention = model.encoder.attentions[application.attention]
            feed_forward = model.encoder.feed_forwards[application.feed_forward]
            assert isinstance(attention, AttentionBlock) and isinstance(feed_forward, FeedForwardBlock)
            hidden = _attention(graph, attention, f"attention.{application.attention}", hidden, bias)
            name = f"feed_forward.{application.feed_forward}"
            wide = graph.layer(hidden, f"{name}.intermediate", feed_forward.intermediate)
            wide = graph.activation(wide, model.config.hidden_act)
            summed = graph.node("Add", graph.layer(wide, f"{name}.output", feed_forward.output), hidden)
            hidden = graph.layer_norm(summed, f"{name}.layer_norm", feed_forward.layer_norm)
    return hidden


def _embeddings(graph: GraphWriter, model: AlbertModel) -> str:
    embeddings = model.embeddings
    words = graph.rows(graph.ids, "embeddings.words", embeddings.word_embeddings.weight)
    type_ids = graph.types
    if embeddings.token_type_embeddings.num_embeddings == 1:  # all tokens have the same type
        type_ids = graph.node("Mul", type_ids, 0)
    types = graph.rows(type_ids, "embeddings.types", embeddings.token_type_embeddings.weight)
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


def _attention_bias(graph: GraphWriter, window: int | None) -> str:
    """0 where a token attends to another, else `MASKED_SCORE`: [batch, 1, rows or 1, columns]."""
    mask = graph.node("Unsqueeze", graph.cast(graph.mask, np.bool_), [1, 2])
    if window is not None:  # within the window, or one of them is [CLS]
        column = graph.columns()
        row = graph.node("Unsqueeze", column, [1])
        near = graph.node("LessOrEqual", graph.node("Abs", graph.node("Sub", row, column)), window)
        at_cls = graph.node("Or", graph.node("Equal", row, 0), graph.node("Equal", column, 0))
        mask = graph.node("And", mask, graph.node("Or", near, at_cls))
    return graph.node("Where", mask, 0.0, MASKED_SCORE)


def _attention(graph: GraphWriter, block: AttentionBlock, name: str, hidden: str, bias: str) -> str:
    width = block.query.out_features
    heads = block.heads
    matrices = block.matrices()
    size = width // heads
    joined = graph.linear(hidden, f"{name}.joined", matrices.joined, matrices.joined_bias)
    parts = graph.nodes("Split", 3, joined, [width] * 3, axis=-1)
    query, key, value = (graph.node("Reshape", part, [0, 0, heads, size]) for part in parts)
    query = graph.node("Mul", graph.node("Transpose", query, perm=[0, 2, 1, 3]), size**-0.5)
    scores = graph.node("MatMul", query, graph.node("Transpose", key, perm=[0, 2, 3, 1]))
    probabilities = graph.node("Softmax", graph.node("Add", scores, bias), axis=-1)
    mixed = graph.node("MatMul", probabilities, graph.node("Transpose", value, perm=[0, 2, 1, 3]))
    concatenated = graph.node("Reshape", graph.node("Transpose", mixed, perm=[0, 2, 1, 3]), [0, 0, width])
    summed = graph.node("Add", graph.layer(concatenated, f"{name}.dense", block.dense), hidden)
    return graph.layer_norm(summed, f"{name}.layer_norm", block.layer_norm)


# --------------------------------------------------------------------------------------------------------------------
# The outputs of each kind of model: names and axes are those of transformers' and Optimum's exports.

_PADDED = -1e35  # Start logit of padding: below `IMPOSSIBLE`, so that it comes last


def _encoder(graph: GraphWriter, model: Any, hidden: str) -> list[Output]:
    width = model.config.hidden_size
    outputs = [Output("last_hidden_state", hidden, ("batch", "sequence", width))]
    if model.pooler is not None:
        outputs.append(Output("pooler_output", _pooled(graph, model, hidden), ("batch", width)))
    return outputs


def _masked_lm(graph: GraphWriter, model: Any, hidden: str) -> list[Output]:
    words = model.albert.embeddings.word_embeddings.weight
    head = model.predictions
    config = model.config
    dense = graph.activation(graph.layer(hidden, "predictions.dense", head.dense), config.hidden_act)
    normal = graph.layer_norm(dense, "predictions.layer_norm", head.layer_norm)
    rows = graph.node("Reshape", normal, [-1, config.embedding_size])
    flat = graph.tied(rows, "embeddings.words", words, head.bias)
    shape = graph.node("Concat", graph.node("Shape", graph.ids), [config.vocab_size], axis=0)
    return [Output("logits", graph.node("Reshape", flat, shape), ("batch", "sequence", config.vocab_size))]


def _pretraining(graph: GraphWriter, model: Any, hidden: str) -> list[Output]:
    pooled = _pooled(graph, model.albert, hidden)
    order = graph.layer(pooled, "sop_classifier", model.sop_classifier.classifier)
    return [*_masked_lm(graph, model, hidden), Output("sentence_logits", order, ("batch", 2))]


def _classification(graph: GraphWriter, model: Any, hidden: str) -> list[Output]:
    logits = graph.layer(_read_by_head(graph, model, hidden), "classifier", model.classifier)
    return [Output("logits", logits, ("batch", model.classifier.out_features))]


def _token_classification(graph: GraphWriter, model: Any, hidden: str) -> list[Output]:
    logits = graph.layer(hidden, "classifier", model.classifier)
    return [Output("logits", logits, ("batch", "sequence", model.classifier.out_features))]


def _question_answering(graph: GraphWriter, model: Any, hidden: str) -> list[Output]:
    both = graph.layer(hidden, "qa_outputs", model.qa_outputs.outputs)
    start, end = (graph.node("Squeeze", part, [2]) for part in graph.nodes("Split", 2, both, [1, 1], axis=-1))
    axes = ("batch", "sequence")
    return [Output("start_logits", start, axes), Output("end_logits", end, axes)]


def _joint_question_answering(graph: GraphWriter, model: Any, hidden: str) -> list[Output]:
    """The joint head (SQuAD 2.0): the top starts, and for each of them a logit for every end."""
    head: JointSpanHead = model.joint_qa_outputs
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
    ranked = graph.node("Where", mask, starts, _PADDED)
    length = graph.node("Gather", graph.node("Shape", starts), [1], axis=0)
    width = graph.node("Min", [BEAM], length)
    _, positions = graph.nodes("TopK", 2, ranked, width, axis=1)
    order = graph.node("Range", 0, graph.node("Squeeze", width, [0]), 1)
    return graph.node("GatherElements", positions, graph.node("Min", order, last), axis=1)


def _pooled(graph: GraphWriter, model: Any, hidden: str) -> str:
    mapped = graph.layer(graph.node("Gather", hidden, 0, axis=1), "pooler", model.pooler)
    return graph.activation(mapped, model.config.pooler_activation)


def _read_by_head(graph: GraphWriter, model: Any, hidden: str) -> str:
    """What a head for a whole text reads (`AlbertConfig.head_pooling`): [batch, H]."""
    pooling = model.config.head_pooling
    if pooling == "pooler":
        return _pooled(graph, model.albert, hidden)
    if pooling == "cls":
        return graph.node("Gather", hidden, 0, axis=1)
    mask = graph.node("Unsqueeze", graph.mask, [2])
    if pooling == "max":
        seen = graph.node("Where", graph.cast(mask, np.bool_), hidden, _PADDED)
        return graph.node("Squeeze", graph.maximum(graph.node("Transpose", seen, perm=[0, 2, 1])), [2])
    weights = graph.cast(mask, np.float32)
    total = graph.node("ReduceSum", graph.node("Mul", hidden, weights), [1], keepdims=0)
    return graph.node("Div", total, graph.node("ReduceSum", weights, [1], keepdims=0))


HEADS: dict[Kind, Callable[[GraphWriter, Any, str], list[Output]]] = {
    "pretraining": _pretraining,
    "masked_lm": _masked_lm,
    "classification": _classification,
    "token_classification": _token_classification,
    "question_answering": _question_answering,
    "joint_question_answering": _joint_question_answering,
    "multiple_choice": _classification,
    "encoder": _encoder,
}
"""Kind of model -> function from graph, model and encoder output [batch, sequence, H] to outputs."""
_MAX_FILE = 2**31 - 2**20
"""Bytes of one protobuf message; external weights are not used, because their paths can point to other files."""


def export_graph(
    model: nn.Module, kind: Kind, precision: OnnxPrecision, opset: int, metadata: Mapping[str, str]
) -> tuple[onnx.ModelProto, dict[str, Axes]]:
    """The ONNX model with its weights, of the layers that it is set to run, and the axes of its outputs."""
    size = sum(parameter.numel() for parameter in model.parameters()) * (4 if precision == "fp32" else 1)
    if size > _MAX_FILE:
        why = f"has {size / 1e9:,.1f} GB of weights in {precision}, one ONNX file holds 2.1 GB"
        fits_in_int8 = precision == "fp32" and size / 4 < _MAX_FILE
        raise InvalidConfiguration("model", why, "take --precision int8" if fits_in_int8 else None)
    graph = GraphWriter(opset, precision)
    axes: Axes = ("batch", "sequence")
    if kind == "multiple_choice":  # [batch, choices, sequence] as [batch × choices, sequence]
        axes = ("batch", "choices", "sequence")
        shape = graph.node("Concat", [-1], graph.node("Shape", INPUTS[0], start=2, end=3), axis=0)
        graph.ids, graph.mask, graph.types = (graph.node("Reshape", name, shape) for name in INPUTS)
    encoder: Any = model if isinstance(model, AlbertModel) else model.albert
    outputs = HEADS[kind](graph, model, encoder_nodes(graph, encoder))
    if kind == "multiple_choice":
        shape = graph.node("Shape", INPUTS[0], start=0, end=2)
        outputs = [Output(output.name, graph.node("Reshape", output.value, shape), axes[:2]) for output in outputs]
    return graph.model(axes, outputs, metadata), {output.name: output.axes for output in outputs}


TOLERANCE = 1e-4  # Largest allowed difference of a float32 output from ours


class RuntimeCheck(NamedTuple):
    """Differences of a runtime's outputs from ours, over random batches of mixed lengths."""

    runtime: str
    differences: int8.OutputDifferences


@dataclass(frozen=True, kw_only=True)
class ExportReport:
    """An ONNX file that was written and checked."""

    kind: Kind
    left_out: str  # The untrained head that was left out; empty if there is none
    precision: OnnxPrecision
    opset: int
    depth: int
    window: int | None
    outputs: dict[str, Axes]
    bytes: int
    weight_bytes: int
    checks: tuple[RuntimeCheck, ...]


# --------------------------------------------------------------------------------------------------------------------
# The model card of an ONNX file: inputs, outputs, figures and limitations.

_TEXTS: dict[str, Any] = tomllib.loads((files("albert.checkpoints") / "card.toml").read_text(encoding="utf-8"))["onnx"]


def onnx_card(name: str, source: str, report: ExportReport, has_tokenizer: bool, next_sentence: bool) -> str:
    """The card as Markdown; `name` is the directory's, `source` the original model's."""
    axes = {output: "[" + ", ".join(map(str, shape)) + "]" for output, shape in report.outputs.items()}
    if "sentence_logits" in axes:
        meaning = "0 the next segment, 1 a foreign one" if next_sentence else "0 in order, 1 swapped"
        axes["sentence_logits"] += f": {meaning}"
    choices = "{key: rows[None] for key, rows in inputs.items()}"
    inputs = choices if report.kind == "multiple_choice" else "dict(inputs)"
    limits = {
        "differences": True,
        "int8": report.precision == "int8",
        "window": report.window is not None,
        "left_out": bool(report.left_out),
    }
    return model_card(
        name=name,
        architecture=ARCHITECTURES[MODELS[report.kind]],
        description=f"{source} as one ONNX file of {report.bytes / 1e6:,.1f} MB, opset {report.opset}, "
        f"{report.precision}, {report.depth} layers. Weights that layers share are stored once: in float32 its "
        f"parameters are {report.weight_bytes / 1e6:,.1f} MB.",
        recipe={"inputs": "input_ids, attention_mask, token_type_ids: int64, padded on the right", **axes},
        scores={
            f"{output} in {check.runtime}: largest difference": largest
            for check in report.checks
            for output, largest in check.differences.largest.items()
        },
        limits=tuple(_TEXTS["limits"][name].format_map(vars(report)) for name, holds in limits.items() if holds),
        tags=("onnx",),
        location="path/to/this/directory",
        use=_TEXTS["use" if has_tokenizer else "use_without_tokenizer"].replace("{inputs}", inputs),
    )


def format_differences(check: RuntimeCheck) -> str:
    """The differences of a runtime as text; those above the tolerance with the relative RMS difference."""
    differences = check.differences
    relative = {output: f" (RMS {share:.1%} of its spread)" for output, share in differences.relative.items()}
    return ", ".join(
        f"{output} {largest:.2g}{relative[output] if largest > TOLERANCE else ''}"
        for output, largest in differences.largest.items()
    )


# --------------------------------------------------------------------------------------------------------------------
# Running an ONNX file in ONNX Runtime and, if installed, OpenVINO: padded batches in, outputs per sequence.

Run = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]
_ERRORS_ONLY = 3


def runtimes(file: Path) -> Iterator[tuple[str, Run]]:
    """Names of the installed runtimes, each with a function that runs the file on the CPU."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ERRORS_ONLY
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    yield (
        f"ONNX Runtime {onnxruntime.__version__}",
        lambda inputs: dict(zip(names, session.run(names, inputs), strict=True)),  # type: ignore[arg-type]
    )
    if importlib.util.find_spec("openvino") is not None:
        openvino: Any = lazy_import("openvino")
        # by default it computes in bfloat16 where the processor can
        compiled = openvino.Core().compile_model(str(file), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})

        def run(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            outputs = compiled(inputs)
            return {name: outputs[name] for name in names}

        yield f"OpenVINO {openvino.__version__.split('-')[0]}", run


def run_unpadded(run: Run, batch: int8.SampleBatch, kind: Kind, axes: Mapping[str, Axes]) -> int8.Outputs:
    """Outputs of the file for each sequence of a padded batch, without those of padding."""
    shape = (len(batch.ids), max(map(len, batch.ids)))
    arrays = [np.zeros(shape, np.int64) for _ in INPUTS]
    for row, (ids, types) in enumerate(zip(batch.ids, batch.types, strict=True)):
        for array, values in zip(arrays, (ids, 1, types), strict=True):
            array[row, : len(ids)] = values
    if kind == "multiple_choice":
        arrays = [array.reshape(-1, 2, shape[1]) for array in arrays]
    outputs: int8.Outputs = {}
    for name, values in run(dict(zip(INPUTS, arrays, strict=True))).items():
        rows = values.reshape(-1) if "choices" in axes[name] else values
        pairs = zip(map(np.asarray, rows), batch.ids, strict=True)
        outputs[name] = [row[: len(ids)] if "sequence" in axes[name] else row for row, ids in pairs]
    return outputs


MODEL_NAME = "model.onnx"
EXPORT_KEY = "albert_onnx"  # Key in `config.json`


def export_onnx(
    source: str | Path,
    output: Path,
    *,
    precision: OnnxPrecision = "fp32",
    opset: int = 20,
    depth: int | None = None,
    revision: str | None = None,
    replace: bool = False,
) -> ExportReport:
    """Write a model as ONNX: a directory with its tokenizer and a card, or only a file if `output` ends in .onnx.

    Nothing is written if a runtime's outputs differ from ours (CheckFailed).
    """
    if not MIN_OPSET <= opset <= MAX_OPSET:
        why = f"is {opset}, supported are {MIN_OPSET} to {MAX_OPSET}"
        raise InvalidConfiguration("opset", why, "runtimes since 2024 support 20")
    if output.exists() and not replace:
        raise CannotCreate(output, "exists already", "choose another name, or add --replace")
    directory = find_model(source, revision)
    trained = open_trained(directory)
    if trained.kind == "pair_classification":
        why = "encodes the texts of a pair separately, which ONNX export does not support"
        remedy = "fine-tune with --encode-pairs together, or serve it with albert serve"
        raise InvalidConfiguration(directory, why, remedy)
    tokenizer = load_tokenizer(directory) if vocabulary_file(directory).is_file() else None
    config = trained.opened.config
    extra = trained.opened.extra
    if tokenizer is not None:
        require_matching_tokenizer(tokenizer, directory, config, extra)
    depth = config.num_hidden_layers if depth is None else depth
    set_depth(trained.opened.model, depth)
    metadata = {
        "producer": f"albert {__version__}",
        "architecture": type(trained.opened.model).__name__,
        "precision": precision,
        "layers": str(depth),
        **({} if tokenizer is None else {FINGERPRINT_KEY: tokenizer.fingerprint}),
    }
    graph, axes = export_graph(trained.opened.model, trained.kind, precision, opset, metadata)
    if output.suffix == ".onnx":
        with new_file(output) as file:
            file.write_bytes(graph.SerializeToString())
            return _checked_report(file, axes, trained, precision, opset, depth)
    with new_directory(output, replace=replace) as folder:
        file = folder / MODEL_NAME
        file.write_bytes(graph.SerializeToString())
        report = _checked_report(file, axes, trained, precision, opset, depth)
        if tokenizer is not None:
            tokenizer.save(folder)
        content = read_json_object(directory / CONFIG_NAME)
        content.pop(QUANTIZATION_KEY, None)
        save_json(folder / CONFIG_NAME, content | {EXPORT_KEY: metadata | {"opset": opset}})
        next_sentence = extra.get(OBJECTIVE_KEY) == "nsp"
        card = onnx_card(output.name, name_of(directory), report, tokenizer is not None, next_sentence)
        write_text(folder / CARD_NAME, card)
    return report


def _checked_report(
    file: Path, axes: dict[str, Axes], trained: TrainedModel, precision: OnnxPrecision, opset: int, depth: int
) -> ExportReport:
    """The report on a file that was written, after every runtime's outputs were compared with ours."""
    return ExportReport(
        kind=trained.kind,
        left_out=trained.left_out,
        precision=precision,
        opset=opset,
        depth=depth,
        window=trained.opened.config.effective_window,
        outputs=axes,
        bytes=file.stat().st_size,
        weight_bytes=4 * sum(parameter.numel() for parameter in trained.opened.model.parameters()),
        checks=tuple(_check(file, axes, trained, precision)),
    )


def _check(
    file: Path, axes: dict[str, Axes], trained: TrainedModel, precision: OnnxPrecision
) -> Iterator[RuntimeCheck]:
    batches = int8.sample_batches(trained.opened.config)
    kind = trained.kind
    with progress("Checking", total=None, unit="runtimes") as bar:
        ours = [int8.model_outputs(trained.opened.model, kind, batch) for batch in batches]
        for name, run in runtimes(file):
            theirs = [run_unpadded(run, batch, kind, axes) for batch in batches]
            bar.advance()
            differences = int8.output_differences(ours, theirs)
            for output, largest in differences.largest.items():
                if not largest <= (TOLERANCE if precision == "fp32" else float_info.max):
                    why = f"{output} differs by {largest:.3g} from albert's in {name}, {TOLERANCE} is the limit"
                    raise CheckFailed(file.name, why, "nothing was written; this is a bug, please report it")
            yield RuntimeCheck(name, differences)
