"""At which precision a trained model computes its answers, and which of them this machine is made for."""

from typing import Literal

import torch

from albert.runtime.devices import default_precision, multiplies_int8
from albert.runtime.errors import Unavailable

InferencePrecision = Literal["fp32", "bf16", "int8"]
PrecisionAsked = Literal["auto", "fp32", "bf16", "int8"]


def choose_precision(asked: PrecisionAsked, device: torch.device) -> InferencePrecision:
    """What was asked for; "auto" is bf16 where the device multiplies such numbers in hardware, else fp32.

    "auto" is never int8, which can move scores: `albert evaluate --precision fp32 int8` tells by how much.

    Raises:
        Unavailable: int8 where it cannot be had (see `check_int8`).
    """
    if asked == "int8":
        check_int8(device)
    if asked != "auto":
        return asked
    return default_precision(device)


def check_int8(device: torch.device) -> None:
    """Raises Unavailable where products of 8-bit integers are not computed, or not exactly.

    x86 without VNNI adds pairs of products in 16 bits, which overflow: it would be slower, and wrong.
    """
    if device.type != "cpu":
        raise Unavailable("precision int8", f"is made for CPUs, not for {device.type}", "use bf16, or --device cpu")
    if not torch.backends.mkldnn.is_available():
        raise Unavailable(
            "precision int8", "this build of torch has no oneDNN, which multiplies it", "use bf16 or fp32"
        )
    if not multiplies_int8(device):
        raise Unavailable("precision int8", "this processor has no instructions for it (VNNI, AMX)", "use fp32")
