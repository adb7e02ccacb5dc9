"""Devices: which one computes, precision, fast linear maps on a CPU, matrix-multiply speed, free memory, workers."""

import ctypes
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from functools import cache, lru_cache
from pathlib import Path
from threading import Barrier, Event
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from albert.runtime.environment import Precision
from albert.runtime.errors import InvalidConfiguration, Unavailable
from albert.runtime.random_streams import stream_key

# --------------------------------------------------------------------------------------------------------------------
# Linear maps, in float32 through oneDNN where torch's own library leaves half of the processor unused.
#
# torch multiplies float32 matrices on x86 with MKL, which has AVX-512 kernels and does not use them on every
# processor that has AVX-512: the same product takes oneDNN less than half of the time there. Where MKL does use
# them it is the faster one, by up to a factor of two with gradients. Both count in float32. Which one it is follows
# from what processor and MKL can do, so a run that goes on on the same machine multiplies as it did before;
# `fp32_library` names it.


def linear(
    rows: Float[Tensor, "rows inputs"], weight: Float[Tensor, "outputs inputs"], bias: Float[Tensor, " outputs"]
) -> Float[Tensor, "rows outputs"]:
    """rows weightᵀ + bias, as `functional.linear`."""
    if _is_onednns(rows, weight):
        return _OneDnnLinear.apply(rows, weight, bias)
    return functional.linear(rows, weight, bias)


def product(
    rows: Float[Tensor, "rows inputs"], weight: Float[Tensor, "outputs inputs"], bias: Tensor | None = None
) -> Float[Tensor, "rows outputs"]:
    """The same where gradients are written out; each operand may be a transposed view."""
    if _is_onednns(rows, weight):
        return torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
    return functional.linear(rows, weight, bias)


@cache
def onednn_is_faster() -> bool:
    """Whether products in float32 are oneDNN's: where torch has MKL, the processor AVX-512, and MKL does not use it."""
    both = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    return both and torch.backends.cpu.get_cpu_capability() == "AVX512" and not mkl_uses_every_kernel()


@cache
def mkl_uses_every_kernel() -> bool:
    """Whether MKL takes its fastest kernels on this processor, as it says itself; True where it cannot be asked.

    `mkl_serv_intel_cpu_true` is the function by which MKL decides; torch's wheels hold MKL in libtorch_cpu.
    """
    for library in (Path(torch.__file__).parent / "lib" / "libtorch_cpu.so", None):
        try:
            return bool(ctypes.CDLL(None if library is None else str(library)).mkl_serv_intel_cpu_true())
        except (OSError, AttributeError):
            continue
    return True


def fp32_library() -> str:
    """Which library multiplies float32 matrices on the CPU in training: "oneDNN", "MKL", or torch's "BLAS"."""
    if onednn_is_faster():
        return "oneDNN"
    return "MKL" if torch.backends.mkl.is_available() else "BLAS"


def _is_onednns(rows: Tensor, weight: Tensor) -> bool:
    return (
        rows.device.type == "cpu"
        and not torch.compiler.is_compiling()  # which asks no library what it can do
        and len(rows) > 0  # oneDNN knows no product of nothing
        and rows.dtype is torch.float32 is weight.dtype
        and not torch.is_autocast_enabled("cpu")
        and onednn_is_faster()
    )


class _OneDnnLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(rows, weight)
        return product(rows, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        (of_result,) = gradients
        rows, weight = ctx.saved_tensors
        of_rows, of_weight, of_bias = ctx.needs_input_grad
        return (
            product(of_result, weight.t()) if of_rows else None,
            product(of_result.t(), rows.t()) if of_weight else None,
            of_result.sum(0) if of_bias else None,
        )


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


def finetuning_precision(device: torch.device) -> Precision:
    """What fine-tuning computes in when nothing is said: bf16 on a GPU that multiplies it, else fp32."""
    return default_precision(device) if device.type == "cuda" else "fp32"


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


def slower_in_int8(device: torch.device) -> bool:
    """Whether models answer more slowly in int8 than in bf16: on a CPU with AMX-BF16 (docs/performance.md)."""
    return device.type == "cpu" and multiplies_bf16(device) and _has_any(("amx_bf16",))


def _has_any(instructions: tuple[str, ...]) -> bool:
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name) for name in instructions)


@contextmanager
def deterministic_kernels(device: torch.device, wanted: bool) -> Iterator[None]:
    """Within it a GPU adds up in a fixed order, which is slower; on a CPU it always does.

    cuBLAS reads its setting when it is first used, so enter this before anything is computed on the GPU.
    """
    if not wanted or device.type != "cuda":
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def seed_torch(name: str, seed: int, *position: int) -> None:
    """Seed torch's generators as a pure function of the arguments (dropout, initial values)."""
    torch.manual_seed(stream_key(name, seed, *position) & 0x7FFF_FFFF_FFFF_FFFF)


# --------------------------------------------------------------------------------------------------------------------
# Dropout. Workers that train at the same time each draw from a generator of their own: the order in which threads reach
# torch's global generator is another in every run.

_GENERATOR: ContextVar[torch.Generator | None] = ContextVar("dropout_generator", default=None)


@contextmanager
def dropout_generator(seed: int) -> Iterator[None]:
    """Within it this thread's dropout draws from a generator with this seed, elsewhere from torch's global one."""
    before = _GENERATOR.set(torch.Generator().manual_seed(seed))
    try:
        yield
    finally:
        _GENERATOR.reset(before)


def keep_mask(like: Tensor, p: float) -> Bool[Tensor, "..."]:
    """Which elements dropout keeps: each with probability 1 − p. Shaped as `like`."""
    return torch.empty_like(like, dtype=torch.bool).bernoulli_(1 - p, generator=_GENERATOR.get())


def dropout(tensor: Tensor, p: float, training: bool) -> Tensor:
    """`functional.dropout`, with this thread's generator."""
    generator = None if torch.compiler.is_compiling() else _GENERATOR.get()
    if generator is None or not training or not 0 < p < 1:
        return functional.dropout(tensor, p, training)
    return tensor * torch.empty_like(tensor).bernoulli_(1 - p, generator=generator).div_(1 - p)


class Dropout(nn.Dropout):
    """torch's dropout, with this thread's generator."""

    def forward(self, input: Tensor) -> Tensor:
        """Drop elements while training."""
        return dropout(input, self.p, self.training)


def checkpoint_context() -> tuple[AbstractContextManager, AbstractContextManager]:
    """The `context_fn` of activation checkpointing: torch itself takes care of its global generator only."""
    generator = _GENERATOR.get()
    return nullcontext(), nullcontext() if generator is None else _from_state(generator, generator.get_state())


@contextmanager
def _from_state(generator: torch.Generator, state: Tensor) -> Iterator[None]:
    later = generator.get_state()
    generator.set_state(state)
    try:
        yield
    finally:
        generator.set_state(later)


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


# --------------------------------------------------------------------------------------------------------------------
# How fast a device multiplies matrices: what the speed of training is compared with, on the machine it runs on.
#
# Peak figures of data sheets count instructions that no product of these shapes reaches; this one is measured.

_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_WEIGHTS = {"cpu": ((768, 3072), (1024, 4096)), "cuda": ((1024, 4096), (4096, 16384))}
"""Feed-forward weights of ALBERT-base and -large, of -large and -xxlarge; a processor gains nothing by wider ones."""
_ROWS = (64, 512, 4096, 16384)
_LONG_ENOUGH = 0.02
"""Seconds: a product that takes as long is not followed by one of more rows, so that slow devices are done soon."""
_REPEATS = 12
_SECONDS = 0.1
"""After which a product is not repeated any more; the first one, which warms up, never stands alone."""


@cache
def measured_matmul_rate(device: torch.device, precision: Precision) -> float:
    """FLOP/s of the fastest of a few matrix products, by the library that multiplies in the model.

    A multiplication with its addition counts 2. Measured once a process, in less than a second. Others that compute at
    the same time make it smaller.
    """
    rates = []
    for inner, outer in _WEIGHTS["cuda" if device.type == "cuda" else "cpu"]:
        weight = torch.randn(outer, inner, device=device).to(_TYPES[precision])
        for height in _ROWS:
            rows = torch.randn(height, inner, device=device).to(weight.dtype)
            seconds = _fewest_seconds(rows, weight)
            rates.append(2 * height * inner * outer / seconds)
            if seconds > _LONG_ENOUGH:
                break
    return max(rates)


def _fewest_seconds(rows: Tensor, weight: Tensor) -> float:
    seconds: list[float] = []
    while len(seconds) < 2 or (len(seconds) < _REPEATS and sum(seconds) < _SECONDS):
        started = time.perf_counter()
        float(product(rows, weight)[0, 0])  # reading a number waits for the device
        seconds.append(time.perf_counter() - started)
    return min(seconds)


# --------------------------------------------------------------------------------------------------------------------
# How much memory can still be had: of the device, and of what a container or a batch system grants.

ROOT = Path("/")


def free_memory(device: torch.device) -> int | None:
    """Bytes that can still be had on a device; None where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return min((*_left_on_the_machine(), *_left_to_the_group()), default=None)


def _left_on_the_machine() -> Iterator[int]:
    kibibytes = _named_numbers(ROOT / "proc/meminfo").get("MemAvailable:")
    if kibibytes is not None:
        yield 1024 * kibibytes


def _left_to_the_group() -> Iterator[int]:
    """By the control groups (version 2) that this process is in; what they hold of files is given back on demand."""
    own = ROOT / "proc/self/cgroup"
    names = own.read_text(encoding="utf-8").splitlines() if own.is_file() else []
    for name in (line.removeprefix("0::/") for line in names if line.startswith("0::/")):
        for group in (Path(name), *Path(name).parents):
            folder = ROOT / "sys/fs/cgroup" / group
            limit, used = folder / "memory.max", folder / "memory.current"
            if limit.is_file() and used.is_file() and (most := limit.read_text(encoding="utf-8").strip()) != "max":
                files = _named_numbers(folder / "memory.stat").get("inactive_file", 0)
                yield max(0, int(most) - int(used.read_text(encoding="utf-8")) + files)


def _named_numbers(table: Path) -> dict[str, int]:
    """The lines "name number …" of a table of the system; nothing where it is not there."""
    if not table.is_file():
        return {}
    lines = (line.split() for line in table.read_text(encoding="utf-8").splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}


# --------------------------------------------------------------------------------------------------------------------
# Workers of one thread: independent pieces of work dealt out to the cores of this process.
#
# torch splits every operation over its threads and waits for the slowest of them, some hundreds of times in a batch.
# When another process takes one of the cores, every wait is for a thread that does not run. Here the threads meet once,
# at the end of all pieces. torch releases the interpreter's lock inside its operations, so the pieces run at the same
# time.

Item = TypeVar("Item")
Result = TypeVar("Result")


def parallel_map(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """`[work(item) for item in items]`, by as many workers as torch has threads; each takes the next item when free.

    Context variables have the caller's values; torch's modes (`inference_mode`) belong to a thread, so `work` sets
    them. What a worker raises is raised here, once the others have finished what they hold; nothing further is begun.
    """
    workers = torch.get_num_threads()
    if workers == 1:
        return [work(item) for item in items]
    done: dict[int, Result] = {}
    failed = Event()
    waiting = iter(list(enumerate(items)))  # two threads never get the same element of a list's iterator

    def take() -> None:
        for number, item in waiting:
            if failed.is_set():
                return
            try:
                done[number] = work(item)
            except BaseException:
                failed.set()
                raise

    pool = _pool(workers)
    taken = [pool.submit(copy_context().run, take) for _ in range(min(workers, len(items)))]
    try:
        wait(taken)
    finally:  # also where a signal interrupts the waiting: nobody computes behind the caller's back
        failed.set()
        wait(taken)
    for future in taken:
        future.result()
    return [done[number] for number in range(len(items))]


def in_one_thread(work: Callable[[], Result]) -> Result:
    """`work()`, by a worker: torch computes it with one thread."""
    future = _pool(torch.get_num_threads()).submit(copy_context().run, work)
    try:
        wait([future])
    finally:  # as `parallel_map`
        wait([future])
    return future.result()


@lru_cache(maxsize=1)
def _pool(workers: int) -> ThreadPoolExecutor:
    everyone = Barrier(workers)

    def begin(_: int) -> None:
        torch.get_num_threads()  # a thread's first question sets its number to the default; so ask before setting it
        torch.set_num_threads(1)  # the number of this thread, and the default of those to come
        everyone.wait()

    pool = ThreadPoolExecutor(workers, "albert-worker")
    list(pool.map(begin, range(workers)))
    torch.set_num_threads(workers)  # the default again
    return pool


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork
