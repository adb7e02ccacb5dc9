"""The names of the precisions at which models are trained."""

from typing import Literal

Precision = Literal["fp32", "bf16"]
PrecisionChoice = Literal["auto", "fp32", "bf16"]
