"""Nodes and initialisers of an ONNX graph; an initialiser of a name, or a constant of a value, is stored once."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

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
