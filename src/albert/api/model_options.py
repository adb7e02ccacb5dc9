"""The options of `albert predict` and `albert serve` for the model that answers."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """How a model is opened; the fields are keywords of `albert.inference.predictor.Predictor.open`."""

    revision: str | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "fp32", "bf16", "int8"] = "auto"
    """Precision of the encoder's matrix products; auto is bf16 if the machine supports it in hardware, otherwise fp32.
    int8 can change answers, and is slower than bf16 on a processor with AMX."""
    depth: int | None = None
    """Number of layers to apply; a shared layer can be applied any number of times."""
    patience: int | None = None
    """Early exit: stop as soon as this many depths in a row agree; the model must be trained for it (--exits)."""
    threshold: float | None = None
    """Several labels per text: the probability from which on a label is predicted; the model's own when not set."""


AS_SAVED = ModelOptions()
