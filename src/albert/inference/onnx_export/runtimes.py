"""An ONNX file in ONNX Runtime and, where it is installed, in OpenVINO: padded batches in, one output a sequence."""

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnxruntime

from albert.checkpoints.kinds import Kind
from albert.inference.onnx_export.model_graph import INPUTS
from albert.inference.sample_outputs import Outputs, SampleBatch
from albert.runtime.late_modules import load_by_name

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
        yield load_by_name("albert.inference.onnx_export.openvino_runtime").opened(file, names)


def padded(batch: SampleBatch, kind: Kind) -> dict[str, np.ndarray]:
    """A batch as the inputs of the file: rectangles, filled up with zeros that the mask leaves out."""
    shape = (len(batch.ids), max(map(len, batch.ids)))
    arrays = [np.zeros(shape, np.int64) for _ in INPUTS]
    for row, (ids, types) in enumerate(zip(batch.ids, batch.types, strict=True)):
        for array, values in zip(arrays, (ids, 1, types), strict=True):
            array[row, : len(ids)] = values
    if kind == "multiple_choice":
        arrays = [array.reshape(-1, 2, shape[1]) for array in arrays]
    return dict(zip(INPUTS, arrays, strict=True))


def by_sequence(
    given: Mapping[str, np.ndarray], axes: Mapping[str, tuple[str | int, ...]], lengths: Sequence[int]
) -> Outputs:
    """What the file gave for each sequence, without what it gave for padding.

    Args:
        given: its outputs.
        axes: of each output.
        lengths: tokens of each sequence.
    """
    outputs: Outputs = {}
    for name, values in given.items():
        rows = values.reshape(-1) if "choices" in axes[name] else values
        pairs = zip(map(np.asarray, rows), lengths, strict=True)
        per_token = "sequence" in axes[name]
        outputs[name] = [row[:length] if per_token else row for row, length in pairs]
    return outputs
