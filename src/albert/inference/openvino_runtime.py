"""OpenVINO, in float32: left to itself it computes in bfloat16 where the processor can."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import openvino

PRECISION = {"INFERENCE_PRECISION_HINT": "f32"}


def opened(file: Path, outputs: Sequence[str]) -> tuple[str, "OpenVinoRun"]:
    """The runtime's name, and the file with these outputs opened in it."""
    version = openvino.__version__.split("-")[0]
    return f"OpenVINO {version}", OpenVinoRun(file, outputs)


class OpenVinoRun:
    """The file on the CPU; call it with inputs by name."""

    def __init__(self, file: Path, outputs: Sequence[str]) -> None:
        self._outputs = outputs
        self._compiled = openvino.Core().compile_model(str(file), "CPU", PRECISION)

    def __call__(self, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name."""
        found = self._compiled(given)
        return {name: found[name] for name in self._outputs}
