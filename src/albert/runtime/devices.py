"""Which device computes, at which precision, and what machine that is."""

import os
import platform
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Literal

import torch

from albert.runtime.errors import InvalidConfiguration, Unavailable
from albert.runtime.randomness import stream_key

Precision = Literal["fp32", "bf16"]
PrecisionChoice = Literal["auto", "fp32", "bf16"]


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


def fastest_precision(device: torch.device) -> Precision:
    """bf16 where this device multiplies matrices faster in it by a clear margin, else fp32.

    It is measured, in milliseconds: a processor that lacks the instructions computes bf16 all the same, but slowly.
    """
    seconds = {}
    for dtype in (torch.float32, torch.bfloat16):
        left, right = (torch.ones(512, 512, dtype=dtype, device=device) for _ in range(2))
        seconds[dtype] = min(_seconds_of_product(left, right) for _ in range(9))
    return "bf16" if seconds[torch.bfloat16] < 0.8 * seconds[torch.float32] else "fp32"


def _seconds_of_product(left: torch.Tensor, right: torch.Tensor) -> float:
    started = time.perf_counter()
    float((left @ right)[0, 0])  # reading a number waits for the device
    return time.perf_counter() - started


def seed_torch(name: str, seed: int, *position: int) -> None:
    """Seed torch's generators as a pure function of the arguments (dropout, initial values)."""
    torch.manual_seed(stream_key(name, seed, *position) & 0x7FFF_FFFF_FFFF_FFFF)


def describe_machine() -> dict[str, str | int]:
    """What a figure was measured on: processor, cores, threads, torch."""
    description: dict[str, str | int] = {
        "processor": processor_name(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    if torch.cuda.is_available():
        description["gpu"] = torch.cuda.get_device_name()
    return description


def processor_name() -> str:
    """What the processor is called by the system."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
