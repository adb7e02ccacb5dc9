"""What an export came to."""

from dataclasses import dataclass

from albert.checkpoints.kinds import Kind
from albert.inference.onnx_export.model_graph import OnnxPrecision
from albert.inference.sample_outputs import OutputDifferences

TOLERANCE = 1e-4
"""The largest difference of a float32 output from ours."""


@dataclass(frozen=True)
class Checked:
    """What a runtime gave beside what we give, over random batches of mixed lengths."""

    runtime: str
    differences: OutputDifferences


@dataclass(frozen=True, kw_only=True)
class Exported:
    """An ONNX file that was written and checked.

    Args:
        kind: which head it has.
        left_out: the head that is not in it because nobody trained it; empty when there is none.
        precision: of products with weights.
        opset: the version of ONNX's operators.
        depth: layers that are applied.
        window: tokens to either side that a token sees, where that is not all of them.
        outputs: name -> axes.
        bytes: of the file.
        weight_bytes: of the parameters in float32.
        checks: one for each runtime that was there.
    """

    kind: Kind
    left_out: str
    precision: OnnxPrecision
    opset: int
    depth: int
    window: int | None
    outputs: dict[str, tuple[str | int, ...]]
    bytes: int
    weight_bytes: int
    checks: tuple[Checked, ...]
