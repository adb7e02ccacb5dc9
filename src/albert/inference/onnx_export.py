"""ONNX export: a model written as a graph, and only when ONNX Runtime and OpenVINO give the model's outputs.

The graph is written node by node: what torch.onnx and ONNX Runtime's quantisation make of the same model is a third
larger in int8 (results/benchmark-onnx-files.csv). Inputs and outputs have the names that users of transformers and
Optimum know. Each runtime that is installed computes random batches of mixed lengths; float32 outputs must be within
1e-4 of ours or nothing is written. For int8 the difference is reported."""

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
from albert.checkpoints.hub import find_model
from albert.checkpoints.huggingface import ARCHITECTURES, MODELS, OBJECTIVE_KEY, Kind
from albert.checkpoints.loading import QUANTIZATION_KEY
from albert.checkpoints.model_directory import (
    CARD_NAME,
    CONFIG_NAME,
    FINGERPRINT_KEY,
    ModelCard,
    refuse_foreign_tokenizer,
)
from albert.inference import int8
from albert.inference.engine import LARGEST, quantize_matrix
from albert.inference.predictor import TrainedModel, open_trained
from albert.model.albert import BEAM, IMPOSSIBLE, AlbertModel, JointSpanHead, run_to_depth
from albert.model.attention import AttentionBlock
from albert.model.config import Activation
from albert.model.encoder import FeedForwardBlock
from albert.runtime.environment import load_by_name
from albert.runtime.errors import CannotCreate, CheckFailed, InvalidConfiguration
from albert.runtime.files import new_directory, new_file, note_written, write_text
from albert.runtime.json_files import read_json_object, save_json
from albert.runtime.progress import progress
from albert.text.tokenizer_loading import load_tokenizer, vocabulary_file

# --------------------------------------------------------------------------------------------------------------------
# Nodes and initialisers of an ONNX graph, products in float32 or int8.

LOWEST_OPSET, HIGHEST_OPSET = 17, 24
"""LayerNormalization is an operator from 17 on; every runtime of the extra `onnx` knows those up to 24."""
ONE_OPERATOR_GELU = 20
_AXES_ARE_INPUTS = 18
_SMALLEST_SCALE = 1e-30
"""Of a token whose numbers are all zero."""
_ZERO = 128
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OnnxPrecision = Literal["fp32", "int8"]
Axes = tuple[str | int, ...]
"""Names of axes of any length, and fixed lengths."""


class Output(NamedTuple):
    """One output of the graph: its name, the value of the graph that it is, its axes, the type of its numbers."""

    name: str
    value: str
    axes: Axes
    dtype: type[np.generic] = np.float32


class GraphWriter:
    """An ONNX graph under construction; values are known by their names.

    Weights are stored once under their name, [inputs, outputs] as MatMul takes them, so that no runtime transposes a
    copy for every layer. In int8 they are integers with a scale for each output, and each token's numbers get a scale
    of their own, so that no answer depends on what shares a batch. Word embeddings are stored as rows and multiply the
    other way round where they are tied to the head of masked words.

    Attributes:
        ids, mask, types: the inputs, int64 [batch, sequence], padded on the right.
    """

    def __init__(self, opset: int, precision: OnnxPrecision = "fp32") -> None:
        self.opset, self._precision = opset, precision
        self.ids, self.mask, self.types = INPUTS
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: dict[str, onnx.TensorProto] = {}
        self._scope: list[str] = []

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """The names of nodes written in the block begin with this one."""
        self._scope.append(name)
        try:
            yield
        finally:
            self._scope.pop()

    def node(self, operator: str, *inputs: str | float | Sequence[int], **attributes: Any) -> str:
        """Write a node with one output, and return the output's name.

        Args:
            inputs: names of values; whole numbers and lists of them are int64 constants, other numbers float32.
        """
        return self.nodes(operator, 1, *inputs, **attributes)[0]

    def nodes(self, operator: str, outputs: int, *inputs: str | float | Sequence[int], **attributes: Any) -> list[str]:
        name = "/".join([*self._scope, f"{operator}_{len(self._nodes)}"])
        names = [name] if outputs == 1 else [f"{name}.{number}" for number in range(outputs)]
        values = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        self._nodes.append(helper.make_node(operator, values, names, name=name, **attributes))
        return names

    def constant(self, value: float | Sequence[int], dtype: type[np.generic] | None = None) -> str:
        """A small initialiser, stored once for each value; float32 or int64 if no type is given."""
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
        """`linear` of a module."""
        return self.linear(value, name, layer.weight, layer.bias)

    def rows(self, places: str, name: str, table: Tensor) -> str:
        """Rows of a table [rows, width] at integer places [...]: [..., width]."""
        if not self._is_integer(table):
            return self.node("Gather", self.weight(f"{name}.weight", table), places, axis=0)
        integers = self.cast(self.node("Gather", self._integers(name, table), places, axis=0), np.float32)
        scales = self.node("Gather", self._scales(name, table), places, axis=0)
        return self.node("Mul", integers, self.node("Unsqueeze", scales, [-1]))

    def tied(self, value: str, name: str, table: Tensor, bias: Tensor) -> str:
        """`linear` with the table of `rows`, for a value [tokens, width]."""
        added = self.weight(f"{name}.output_bias", bias)
        if not self._is_integer(table):
            return self.node("Gemm", value, self.weight(f"{name}.weight", table), added, transB=1)
        columns = self.node("Transpose", self._integers(name, table), perm=[1, 0])
        return self.node("Add", self._integer_product(value, columns, self._scales(name, table)), added)

    def layer_norm(self, value: str, name: str, norm: nn.LayerNorm) -> str:
        """LayerNorm of the last axis."""
        parts = (self.weight(f"{name}.weight", norm.weight), self.weight(f"{name}.bias", norm.bias))
        return self.node("LayerNormalization", value, *parts, axis=-1, epsilon=norm.eps)

    def activation(self, value: str, name: Activation) -> str:
        """The function of that name, as one operator where the opset has it."""
        if name == "relu" or name == "tanh":
            return self.node(name.title(), value)
        if self.opset >= ONE_OPERATOR_GELU:
            return self.node("Gelu", value, approximate="tanh" if name == "gelu_new" else "none")
        if name == "gelu_new":
            cubed = self.node("Mul", self.node("Mul", value, value), value)
            inner = self.node("Add", value, self.node("Mul", cubed, 0.044715))
            curve = self.node("Tanh", self.node("Mul", inner, (2 / np.pi) ** 0.5))
        else:
            curve = self.node("Erf", self.node("Div", value, 2**0.5))
        return self.node("Mul", self.node("Mul", value, 0.5), self.node("Add", curve, 1.0))

    def model(self, axes: Axes, outputs: Sequence[Output], metadata: Mapping[str, str]) -> onnx.ModelProto:
        """The finished model, checked by the rules of the format."""
        for output in outputs:
            node = helper.make_node("Identity", [output.value], [output.name], name=f"output/{output.name}")
            self._nodes.append(node)
        graph = helper.make_graph(
            self._nodes,
            "albert",
            [_described(name, np.int64, axes) for name in INPUTS],
            [_described(output.name, output.dtype, output.axes) for output in outputs],
            list(self._initializers.values()),
        )
        opset = [helper.make_opsetid("", self.opset)]
        version = helper.find_min_ir_version_for(opset)
        made = helper.make_model(graph, opset_imports=opset, ir_version=version, producer_name="albert")
        helper.set_model_props(made, dict(metadata))
        onnx.checker.check_model(made)
        return made

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
        """Each token's numbers are symmetric around 128: runtimes are fast for products of unsigned with signed."""
        absolute = self.node("Abs", value)
        if self.opset < _AXES_ARE_INPUTS:
            largest = self.node("ReduceMax", absolute, axes=[-1], keepdims=1)
        else:
            largest = self.node("ReduceMax", absolute, [-1], keepdims=1)
        scale = self.node("Div", self.node("Max", largest, _SMALLEST_SCALE), float(LARGEST))
        rounded = self.node("Round", self.node("Div", value, scale))
        integers = self.cast(self.node("Add", rounded, float(_ZERO)), np.uint8)
        product = self.node("MatMulInteger", integers, matrix, self.constant(_ZERO, np.uint8))
        return self.node("Mul", self.node("Mul", self.cast(product, np.float32), scale), scales)


def _described(name: str, dtype: type[np.generic], axes: Axes) -> onnx.ValueInfoProto:
    kind: TensorProto.DataType = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))  # type: ignore[assignment]
    return helper.make_tensor_value_info(name, kind, list(axes))


# --------------------------------------------------------------------------------------------------------------------
# Embeddings and encoder as ONNX nodes: the layers are repeated, the blocks that they share are not (paper §3.1).

UNSEEN = -3e4
"""What is added to the score of a token that may not be seen; float16 has it too, should a runtime compute in that."""


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
    parts = model.embeddings
    words = graph.rows(graph.ids, "embeddings.words", parts.word_embeddings.weight)
    types = graph.rows(graph.types, "embeddings.types", parts.token_type_embeddings.weight)
    places = graph.rows(graph.columns(), "embeddings.places", parts.position_embeddings.weight)
    summed = graph.node("Add", graph.node("Add", words, places), types)
    normal = graph.layer_norm(summed, "embeddings.layer_norm", parts.layer_norm)
    return normal if parts.projection is None else graph.layer(normal, "embeddings.projection", parts.projection)


def _attention_bias(graph: GraphWriter, window: int | None) -> str:
    """0 where a token may be seen, else `UNSEEN`: [batch, 1, rows or 1, columns]."""
    seen = graph.node("Unsqueeze", graph.cast(graph.mask, np.bool_), [1, 2])
    if window is not None:  # near enough, or one of them is [CLS]
        column = graph.columns()
        row = graph.node("Unsqueeze", column, [1])
        near = graph.node("LessOrEqual", graph.node("Abs", graph.node("Sub", row, column)), window)
        at_cls = graph.node("Or", graph.node("Equal", row, 0), graph.node("Equal", column, 0))
        seen = graph.node("And", seen, graph.node("Or", near, at_cls))
    return graph.node("Where", seen, 0.0, UNSEEN)


def _attention(graph: GraphWriter, block: AttentionBlock, name: str, hidden: str, bias: str) -> str:
    width, heads, matrices = block.query.out_features, block.heads, block.matrices()
    size = width // heads
    joined = graph.linear(hidden, f"{name}.joined", matrices.joined, matrices.joined_bias)
    parts = graph.nodes("Split", 3, joined, [width] * 3, axis=-1)
    query, key, value = (graph.node("Reshape", part, [0, 0, heads, size]) for part in parts)
    query = graph.node("Mul", graph.node("Transpose", query, perm=[0, 2, 1, 3]), size**-0.5)
    scores = graph.node("MatMul", query, graph.node("Transpose", key, perm=[0, 2, 3, 1]))
    probabilities = graph.node("Softmax", graph.node("Add", scores, bias), axis=-1)
    mixed = graph.node("MatMul", probabilities, graph.node("Transpose", value, perm=[0, 2, 1, 3]))
    together = graph.node("Reshape", graph.node("Transpose", mixed, perm=[0, 2, 1, 3]), [0, 0, width])
    summed = graph.node("Add", graph.layer(together, f"{name}.dense", block.dense), hidden)
    return graph.layer_norm(summed, f"{name}.layer_norm", block.layer_norm)


# --------------------------------------------------------------------------------------------------------------------
# The outputs of each kind of model: names and axes are those of transformers' and Optimum's exports.

_PADDED = -1e35
"""The logit of a padded place: below `IMPOSSIBLE`, so that it is never a start while there is any other."""


def _encoder(graph: GraphWriter, model: Any, hidden: str) -> list[Output]:
    width = model.config.hidden_size
    outputs = [Output("last_hidden_state", hidden, ("batch", "sequence", width))]
    if model.pooler is not None:
        outputs.append(Output("pooler_output", _pooled(graph, model, hidden), ("batch", width)))
    return outputs


def _masked_lm(graph: GraphWriter, model: Any, hidden: str) -> list[Output]:
    words, head, config = model.albert.embeddings.word_embeddings.weight, model.predictions, model.config
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
    logits = graph.layer(_pooled(graph, model.albert, hidden), "classifier", model.classifier)
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
    """The joint head (SQuAD 2.0): the likeliest starts, and for each of them a logit for every end."""
    head: JointSpanHead = model.joint_qa_outputs
    seen, place = graph.cast(graph.mask, np.bool_), graph.columns()
    last = graph.node("Sub", graph.node("ReduceSum", graph.mask, [1], keepdims=1), 1)
    at_cls = graph.node("Equal", place, 0)
    second = graph.node("And", graph.node("Equal", graph.types, 1), graph.node("Less", place, last))
    passage = graph.node("And", second, graph.node("Not", at_cls))
    possible = graph.node("Or", passage, graph.node("And", at_cls, seen))

    starts = graph.node("Squeeze", graph.layer(hidden, "joint.start", head.start), [2])
    start_logits = graph.node("Where", possible, starts, IMPOSSIBLE)
    share = graph.node("Unsqueeze", graph.node("Softmax", start_logits, axis=-1), [1])
    first = graph.node("Gather", hidden, 0, axis=1)
    expected = graph.node("Squeeze", graph.node("MatMul", share, hidden), [1])
    joint = graph.node("Concat", expected, first, axis=-1)
    joint = graph.node("Tanh", graph.layer(joint, "joint.answer_dense", head.answer_dense))
    unanswerable = graph.node("Squeeze", graph.layer(joint, "joint.answer", head.answer), [1])

    beam = _beam(graph, graph.node("Where", passage, starts, IMPOSSIBLE), seen, last)
    index = graph.node("Expand", graph.node("Unsqueeze", beam, [2]), [1, 1, model.config.hidden_size])
    from_start = graph.node("Unsqueeze", graph.node("GatherElements", hidden, index, axis=1), [1])
    by_token = graph.node("Unsqueeze", hidden, [2])
    bounds = ((hidden, {"end": 2}), (beam, {"start": 1}), (hidden, {"start": 2}))
    shape = graph.node("Concat", *(graph.node("Shape", value, **part) for value, part in bounds), axis=0)
    pair = [graph.node("Expand", each, shape) for each in (by_token, from_start)]
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


def _beam(graph: GraphWriter, starts: str, seen: str, last: str) -> str:
    """Places of the likeliest starts; where a sequence has fewer tokens than the beam, its last place again."""
    ranked = graph.node("Where", seen, starts, _PADDED)
    length = graph.node("Gather", graph.node("Shape", starts), [1], axis=0)
    width = graph.node("Min", [BEAM], length)
    _, places = graph.nodes("TopK", 2, ranked, width, axis=1)
    order = graph.node("Range", 0, graph.node("Squeeze", width, [0]), 1)
    return graph.node("GatherElements", places, graph.node("Min", order, last), axis=1)


def _pooled(graph: GraphWriter, model: Any, hidden: str) -> str:
    return graph.node("Tanh", graph.layer(graph.node("Gather", hidden, 0, axis=1), "pooler", model.pooler))


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
"""From a model and its encoder's output [batch, sequence, H] to outputs."""
_LARGEST_FILE = 2**31 - 2**20
"""Bytes of one protobuf message; weights in a file beside it are a door to other files, and are not written."""


def export_graph(
    model: nn.Module, kind: Kind, precision: OnnxPrecision, opset: int, metadata: Mapping[str, str]
) -> tuple[onnx.ModelProto, dict[str, Axes]]:
    """A model, with the layers that it is set to run, in the ONNX format, weights included; and its outputs' axes.

    Raises:
        InvalidConfiguration: it does not fit a file of 2 GB.
    """
    size = sum(parameter.numel() for parameter in model.parameters()) * (4 if precision == "fp32" else 1)
    if size > _LARGEST_FILE:
        why = f"has {size / 1e9:,.1f} GB of weights in {precision}, one ONNX file holds 2.1 GB"
        fits_in_int8 = precision == "fp32" and size / 4 < _LARGEST_FILE
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
        outputs = [Output(each.name, graph.node("Reshape", each.value, shape), axes[:2]) for each in outputs]
    return graph.model(axes, outputs, metadata), {output.name: output.axes for output in outputs}


TOLERANCE = 1e-4
"""The largest difference of a float32 output from ours."""


class Checked(NamedTuple):
    """What a runtime gave beside what we give, over random batches of mixed lengths."""

    runtime: str
    differences: int8.OutputDifferences


@dataclass(frozen=True, kw_only=True)
class Exported:
    """An ONNX file that was written and checked.

    Args:
        left_out: the head that is not in it because nobody trained it; empty when there is none.
        window: tokens to either side that a token sees, where that is not all of them.
    """

    kind: Kind
    left_out: str
    precision: OnnxPrecision
    opset: int
    depth: int
    window: int | None
    outputs: dict[str, Axes]
    bytes: int
    weight_bytes: int
    checks: tuple[Checked, ...]


# --------------------------------------------------------------------------------------------------------------------
# The card beside an ONNX file: what goes in and comes out, its figures, and what a user has to know.

_TEXTS: dict[str, Any] = tomllib.loads((files("albert.checkpoints") / "card.toml").read_text(encoding="utf-8"))["onnx"]


def onnx_card(name: str, source: str, report: Exported, has_tokenizer: bool, next_sentence: bool) -> str:
    """The card as Markdown, of a directory and the model that it was made of."""
    axes = {output: "[" + ", ".join(map(str, shape)) + "]" for output, shape in report.outputs.items()}
    if "sentence_logits" in axes:
        meaning = "0 the next segment, 1 a foreign one" if next_sentence else "0 in order, 1 swapped"
        axes["sentence_logits"] += f": {meaning}"
    choices = "{key: rows[None] for key, rows in inputs.items()}"
    given = choices if report.kind == "multiple_choice" else "dict(inputs)"
    limits = {
        "differences": True,
        "int8": report.precision == "int8",
        "window": report.window is not None,
        "left_out": bool(report.left_out),
    }
    return ModelCard(
        name=name,
        architecture=ARCHITECTURES[MODELS[report.kind]],
        description=f"{source} as one ONNX file of {report.bytes / 1e6:,.1f} MB, opset {report.opset}, "
        f"{report.precision}, {report.depth} layers. What layers share stands in it once: in float32 its parameters "
        f"are {report.weight_bytes / 1e6:,.1f} MB.",
        recipe={"inputs": "input_ids, attention_mask, token_type_ids: int64, padded on the right", **axes},
        scores={
            f"{output} in {check.runtime}: largest difference": largest
            for check in report.checks
            for output, largest in check.differences.largest.items()
        },
        limits=tuple(_TEXTS["limits"][name].format_map(vars(report)) for name, holds in limits.items() if holds),
        tags=("onnx",),
        location="path/to/this/directory",
        use=_TEXTS["use" if has_tokenizer else "use_without_tokenizer"].replace("{inputs}", given),
    ).render()


def usual_differences(check: Checked) -> str:
    """The differences of a runtime in words."""
    found = check.differences
    usual = {output: f" ({share:.1%} of its spread as a rule)" for output, share in found.relative.items()}
    return ", ".join(
        f"{output} {largest:.2g}{usual[output] if largest > TOLERANCE else ''}"
        for output, largest in found.largest.items()
    )


# --------------------------------------------------------------------------------------------------------------------
# An ONNX file in ONNX Runtime and, where it is installed, in OpenVINO: padded batches in, one output a sequence.

Run = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]
_ERRORS_ONLY = 3


def runtimes(file: Path) -> Iterator[tuple[str, Run]]:
    """The runtimes that are installed, by name, each with the file opened on the CPU."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ERRORS_ONLY
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    yield (
        f"ONNX Runtime {onnxruntime.__version__}",
        lambda given: dict(zip(names, session.run(names, given), strict=True)),  # type: ignore[arg-type]
    )
    if importlib.util.find_spec("openvino") is not None:
        openvino: Any = load_by_name("openvino")
        # left to itself it computes in bfloat16 where the processor can
        compiled = openvino.Core().compile_model(str(file), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})

        def run(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            found = compiled(given)
            return {name: found[name] for name in names}

        yield f"OpenVINO {openvino.__version__.split('-')[0]}", run


def run_unpadded(run: Run, batch: int8.SampleBatch, kind: Kind, axes: Mapping[str, Axes]) -> int8.Outputs:
    """What the file gives for each sequence: padded with zeros that the mask leaves out, and without their outputs."""
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
EXPORT_KEY = "albert_onnx"
"""In `config.json`."""


@dataclass(frozen=True, kw_only=True)
class ExportSettings:
    """What is written."""

    precision: OnnxPrecision = "fp32"
    opset: int = 20
    depth: int | None = None


def export_onnx(
    source: str | Path,
    output: Path,
    settings: ExportSettings,
    *,
    revision: str | None = None,
    replace: bool = False,
) -> Exported:
    """Write a model as ONNX: a directory with its tokenizer and a card, or a file alone when `output` ends in .onnx.

    Raises:
        MissingInput, Unavailable, DamagedData, InvalidConfiguration: the model cannot be opened, or not be written so.
        CheckFailed: a runtime gives other numbers than we do; nothing is written.
        CannotCreate: the output exists.
    """
    if not LOWEST_OPSET <= settings.opset <= HIGHEST_OPSET:
        why = f"is {settings.opset}, operators of {LOWEST_OPSET} to {HIGHEST_OPSET} are written"
        raise InvalidConfiguration("opset", why, "20 is what runtimes since 2024 open")
    if output.exists() and not replace:
        raise CannotCreate(output, "exists already", "choose another name, or add --replace")
    directory = find_model(source, revision)
    trained = open_trained(directory)
    if trained.kind == "pair_classification":
        why = "reads the texts of a pair separately, a graph here reads one sequence"
        raise InvalidConfiguration(
            directory, why, "fine-tune with --encode-pairs together, or serve it with albert serve"
        )
    tokenizer = load_tokenizer(directory) if vocabulary_file(directory).is_file() else None
    config, extra = trained.opened.config, trained.opened.extra
    if tokenizer is not None:
        refuse_foreign_tokenizer(tokenizer, directory, config, extra)
    depth = config.num_hidden_layers if settings.depth is None else settings.depth
    run_to_depth(trained.opened.model, depth)
    told = {
        "producer": f"albert {__version__}",
        "architecture": type(trained.opened.model).__name__,
        "precision": settings.precision,
        "layers": str(depth),
        **({} if tokenizer is None else {FINGERPRINT_KEY: tokenizer.fingerprint}),
    }
    graph, axes = export_graph(trained.opened.model, trained.kind, settings.precision, settings.opset, told)

    def written(file: Path) -> Exported:
        file.write_bytes(graph.SerializeToString())
        note_written(file)
        return Exported(
            kind=trained.kind,
            left_out=trained.left_out,
            precision=settings.precision,
            opset=settings.opset,
            depth=depth,
            window=config.effective_window,
            outputs=axes,
            bytes=file.stat().st_size,
            weight_bytes=4 * sum(parameter.numel() for parameter in trained.opened.model.parameters()),
            checks=tuple(_check(file, axes, trained, settings.precision)),
        )

    if output.suffix == ".onnx":
        with new_file(output) as file:
            return written(file)
    with new_directory(output, replace=replace) as made:
        report = written(made / MODEL_NAME)
        if tokenizer is not None:
            tokenizer.save(made)
        content = read_json_object(directory / CONFIG_NAME)
        content.pop(QUANTIZATION_KEY, None)
        save_json(made / CONFIG_NAME, content | {EXPORT_KEY: told | {"opset": settings.opset}})
        card = onnx_card(output.name, directory.name, report, tokenizer is not None, extra.get(OBJECTIVE_KEY) == "nsp")
        write_text(made / CARD_NAME, card)
    return report


def _check(file: Path, axes: dict[str, Axes], trained: TrainedModel, precision: OnnxPrecision) -> Iterator[Checked]:
    batches, kind = int8.sample_batches(trained.opened.config), trained.kind
    with progress("Checking", total=None, unit="batches") as bar:

        def counted(found: int8.Outputs) -> int8.Outputs:
            bar.advance()
            return found

        ours = [counted(int8.model_outputs(trained.opened.model, kind, batch)) for batch in batches]
        for name, run in runtimes(file):
            found = int8.output_differences(ours, [counted(run_unpadded(run, batch, kind, axes)) for batch in batches])
            for output, largest in found.largest.items():
                if not largest <= (TOLERANCE if precision == "fp32" else float_info.max):
                    why = f"{output} differs by {largest:.3g} from albert's in {name}, {TOLERANCE} is the limit"
                    raise CheckFailed(file.name, why, "nothing was written; this is a bug, please report it")
            yield Checked(name, found)
