"""Which device computes, at which precision, and what machine that is."""

import os
import platform
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch

from albert.runtime.errors import InvalidConfiguration, Unavailable
from albert.runtime.linear_product import fp32_library
from albert.runtime.precisions import Precision
from albert.runtime.randomness import stream_key

_BF16_PRODUCTS = ("avx512_bf16", "amx_bf16", "bf16")
"""Instructions that multiply bfloat16 numbers, as torch names them: on x86 (two), on Arm."""
_INT8_PRODUCTS = ("avx512_vnni", "avx_vnni", "amx_int8")
"""Instructions that multiply 8-bit integers and add up in 32 bits."""


def pick_device(name: str = "auto", local_rank: int = 0) -> torch.device:
    """The device for a name: "auto" is the GPU where there is one, else the CPU.

    Raises:
        Unavailable: a GPU is asked for and there is none.
        InvalidConfiguration: an unknown name.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cpu":
        return torch.device("cpu")
    if name == "cuda":
        if not torch.cuda.is_available():
            raise Unavailable("device cuda", "this machine or this build of torch has none", "use --device cpu")
        return torch.device("cuda", local_rank)
    raise InvalidConfiguration(f"device {name}", "unknown", "use auto, cpu or cuda")


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager:
    """Mixed precision: matrix products in bfloat16, weights, LayerNorm and losses in float32; or nothing for "fp32"."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


def default_precision(device: torch.device) -> Precision:
    """What "auto" means everywhere: bf16 where the device has instructions for its products, else fp32.

    It follows from the processor or GPU and the build of torch, never from a measurement: a busy machine decides alike.
    """
    return "bf16" if multiplies_bf16(device) else "fp32"


def multiplies_bf16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 numbers in hardware; without that they are slower than float32.

    Of a GPU its compute capability tells (8.0 or above), of a CPU its instructions (AVX512-BF16, AMX-BF16, Arm's BF16),
    which torch uses through oneDNN.
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.backends.mkldnn.is_available() and _has_any(_BF16_PRODUCTS)


def multiplies_int8(device: torch.device) -> bool:
    """Whether the device is a CPU that multiplies 8-bit integers and adds up in 32 bits (VNNI, AMX-INT8)."""
    return device.type == "cpu" and _has_any(_INT8_PRODUCTS)


def _has_any(instructions: tuple[str, ...]) -> bool:
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name) for name in instructions)


def seed_torch(name: str, seed: int, *position: int) -> None:
    """Seed torch's generators as a pure function of the arguments (dropout, initial values)."""
    torch.manual_seed(stream_key(name, seed, *position) & 0x7FFF_FFFF_FFFF_FFFF)


def describe_machine() -> dict[str, str | int]:
    """What a figure was measured on: processor, what it can do, how fp32 is multiplied, cores, threads, torch."""
    description: dict[str, str | int] = {
        "processor": processor_name(),
        "capabilities": processor_capabilities(),
        "fp32_products": fp32_library(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    if torch.cuda.is_available():
        description["gpu"] = torch.cuda.get_device_name()
    return description


def processor_capabilities() -> str:
    """What of the processor decides precision and kernels: torch's vector instructions, and those of products."""
    capabilities = torch.cpu.get_capabilities()
    products = [name for name in (*_BF16_PRODUCTS, *_INT8_PRODUCTS) if capabilities.get(name)]
    return " ".join([torch.backends.cpu.get_cpu_capability(), *products])


def processor_name() -> str:
    """What the processor is called by the system."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
