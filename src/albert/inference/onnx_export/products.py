"""How a product with a weight is written: in float32, or in 8-bit integers.

Weights lie in the file as MatMul takes them, [inputs, outputs], so that no runtime transposes a copy for every layer
that applies them. Word embeddings are looked up by row, and multiply the other way round where they are tied to
the head of masked words: they lie there once, as rows.
"""

from typing import Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from albert.inference.int8_matrices import LARGEST, quantize_matrix
from albert.inference.onnx_export.graph_writer import GraphWriter
from albert.inference.quantized_directory import is_worth_quantizing

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
