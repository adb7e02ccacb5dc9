"""At which precision a trained model computes its answers, and which of them this machine is made for."""

from typing import Literal

import torch

from albert.runtime.errors import Unavailable

InferencePrecision = Literal["fp32", "bf16", "int8"]
PrecisionAsked = Literal["auto", "fp32", "bf16", "int8"]
_BF16_PRODUCTS = ("avx512_bf16", "amx_bf16", "bf16")
"""What processors call the instructions that multiply bfloat16 numbers: x86, x86 and Arm."""

_INT8_PRODUCTS = ("avx512_vnni", "avx_vnni", "amx_int8")
"""And those that multiply 8-bit integers and add up in 32 bits."""


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
    return "bf16" if multiplies_bf16(device) else "fp32"


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
    capabilities = torch.cpu.get_capabilities()
    if not any(capabilities.get(name) for name in _INT8_PRODUCTS):
        raise Unavailable("precision int8", "this processor has no instructions for it (VNNI, AMX)", "use fp32")


def multiplies_bf16(device: torch.device) -> bool:
    """Whether the device has instructions for products of bfloat16 numbers; without them they are slower than fp32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name) for name in _BF16_PRODUCTS)
