"""A model as an ONNX graph: inputs and outputs under the names that transformers' and Optimum's users know."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx
from torch import nn

from albert.checkpoints.kinds import Kind
from albert.inference.onnx_export.encoder_graph import Batch, GraphTools, encoder_nodes
from albert.inference.onnx_export.graph_writer import GraphWriter
from albert.inference.onnx_export.head_graphs import HEADS, Output
from albert.inference.onnx_export.products import Float32Products, Int8Products, Products
from albert.model.albert import AlbertModel
from albert.runtime.errors import InvalidConfiguration

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
