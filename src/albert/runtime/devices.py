"""Devices: choice, precision, linear maps, dropout, matrix-multiply speed, free memory, worker threads."""

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
# Linear maps, in float32 through oneDNN where MKL does not use AVX-512.
#
# torch multiplies float32 matrices on x86 with MKL, whose AVX-512 kernels are not used on every processor that has
# AVX-512: there oneDNN takes less than half of the time. Where MKL uses them it is faster, by up to a factor of two
# with gradients. Both compute in float32. The choice depends only on the processor and MKL, so a run that is resumed
# on the same machine uses the same library; `fp32_library` names it.


def linear(
    rows: Float[Tensor, "rows inputs"], weight: Float[Tensor, "outputs inputs"], bias: Float[Tensor, " outputs"]
) -> Float[Tensor, "rows outputs"]:
    """rows weightᵀ + bias, as `functional.linear`."""
    if _uses_onednn(rows, weight):
        return _OneDnnLinear.apply(rows, weight, bias)
    return functional.linear(rows, weight, bias)


def product(
    rows: Float[Tensor, "rows inputs"], weight: Float[Tensor, "outputs inputs"], bias: Tensor | None = None
) -> Float[Tensor, "rows outputs"]:
    """`linear` without autograd; each operand may be a transposed view."""
    if _uses_onednn(rows, weight):
        return torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
    return functional.linear(rows, weight, bias)


@cache
def onednn_is_faster() -> bool:
    """Return whether oneDNN computes products in float32: torch has MKL, the CPU AVX-512, and MKL does not use it."""
    both = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    return both and torch.backends.cpu.get_cpu_capability() == "AVX512" and not mkl_uses_every_kernel()


@cache
def mkl_uses_every_kernel() -> bool:
    """Return whether MKL uses its fastest kernels on this processor; True if unknown.

    MKL decides by its function `mkl_serv_intel_cpu_true`; torch's wheels contain MKL in libtorch_cpu.
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


def _uses_onednn(rows: Tensor, weight: Tensor) -> bool:
    return (
        rows.device.type == "cpu"
        and not torch.compiler.is_compiling()  # it cannot trace the calls below
        and len(rows) > 0  # oneDNN refuses empty products
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
        (grad,) = gradients
        rows, weight = ctx.saved_tensors
        rows_needed, weight_needed, bias_needed = ctx.needs_input_grad
        return (
            product(grad, weight.t()) if rows_needed else None,
            product(grad.t(), rows.t()) if weight_needed else None,
            grad.sum(0) if bias_needed else None,
        )


_BF16_PRODUCTS = ("avx512_bf16", "amx_bf16", "bf16")
"""torch's names of instructions that multiply bfloat16 numbers: two on x86, one on Arm."""
_INT8_PRODUCTS = ("avx512_vnni", "avx_vnni", "amx_int8")
"""torch's names of instructions that multiply 8-bit integers and add in 32 bits."""
_ISAS_WITHOUT_INT8 = ("SSE41", "AVX", "AVX2", "AVX512_CORE")
"""oneDNN's names of the sets of instructions that lack them."""


def pick_device(name: str | torch.device = "auto", local_rank: int = 0) -> torch.device:
    """The device for a name: "auto" is the GPU if there is one, else the CPU; "cuda:1" is the second GPU.

    Raises:
        InvalidConfiguration: there is no such name.
        Unavailable: there is no such GPU.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    kind, colon, index = str(name).partition(":")
    if kind == "cpu" and not colon:
        return torch.device("cpu")
    if kind != "cuda" or (colon and not index.isdecimal()):
        raise InvalidConfiguration(f"device {name}", "unknown", "use auto, cpu, cuda or cuda:0")
    if torch.cuda._is_in_bad_fork():
        why = "cannot be used in a process that was forked after its first use"
        remedy = "start processes with multiprocessing's method spawn, or use --device cpu"
        raise Unavailable(f"device {name}", why, remedy)
    if not torch.cuda.is_available():
        raise Unavailable(f"device {name}", "this machine or this build of torch has none", "use --device cpu")
    if colon and int(index) >= torch.cuda.device_count():
        raise Unavailable(f"device {name}", f"this machine has {torch.cuda.device_count()} GPUs, counted from 0")
    return torch.device("cuda", int(index) if colon else local_rank)


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager:
    """Mixed precision: matrix products in bfloat16, weights, LayerNorm and losses in float32; no-op for "fp32"."""
    return nullcontext() if precision == "fp32" else torch.autocast(device.type, dtype=torch.bfloat16)


def default_precision(device: torch.device) -> Precision:
    """The default precision of answers and of fine-tuning: fp32 on every CPU, so that all give the same answer; bf16 on
    a GPU with instructions for it."""
    return fastest_precision(device) if device.type == "cuda" else "fp32"


def fastest_precision(device: torch.device) -> Precision:
    """The precision "auto" of pre-training: bf16 if the device has instructions for its products, else fp32.

    It depends on the processor or GPU and the build of torch, never on a measurement.
    """
    return "bf16" if multiplies_bf16(device) else "fp32"


def multiplies_bf16(device: torch.device) -> bool:
    """Return whether the device multiplies bfloat16 numbers in hardware; without it bfloat16 is slower than float32.

    A GPU of compute capability 8.0 or above; a CPU with AVX512-BF16, AMX-BF16 or Arm's BF16 and a torch with oneDNN.
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.backends.mkldnn.is_available() and _has_any(_BF16_PRODUCTS)


def multiplies_int8(device: torch.device) -> bool:
    """Return whether the device is a CPU that multiplies 8-bit integers and adds in 32 bits (VNNI, AMX-INT8), and
    oneDNN may use it: an environment variable of oneDNN can hide instructions."""
    is_hidden = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper() in _ISAS_WITHOUT_INT8
    return device.type == "cpu" and _has_any(_INT8_PRODUCTS) and not is_hidden


def slower_in_int8(device: torch.device) -> bool:
    """Return whether inference is slower in int8 than in bf16: on a CPU with AMX-BF16 (docs/performance.md)."""
    return device.type == "cpu" and multiplies_bf16(device) and _has_any(("amx_bf16",))


_MEASURED_GAINS = {"amx_bf16": ("2.0 to 4.8", "1.9 to 3.4"), "avx512_bf16": ("1.6 to 2.0", "1.7 to 2.6")}
"""Instructions -> how many times as fast as in fp32 ALBERT-base answered in bf16 and in int8, on an Intel Xeon with AMX
and on an AMD EPYC, both quiet (results/benchmark-inference-amx.csv and benchmark-inference.csv)."""


def precision_advice(device: torch.device) -> str | None:
    """What bf16 and int8 would gain on this CPU, in one line; None where it has no instructions for them."""
    if device.type != "cpu":
        return None
    faster = "--precision bf16" if multiplies_bf16(device) else None
    for instruction, (in_bf16, in_int8) in _MEASURED_GAINS.items():
        if faster and _has_any((instruction,)):
            faster = f"{faster} ({in_bf16} times as fast for ALBERT-base with {instruction})"
            if multiplies_int8(device):
                return f"{faster} or int8 ({in_int8} times); answers change a little"
            return f"{faster}; answers change a little"
    if multiplies_int8(device):
        faster = "--precision int8" if faster is None else f"{faster} or int8"
    return None if faster is None else f"{faster}, which this processor has instructions for; answers change a little"


def multiplies_faster_by_mkl() -> bool:
    """Return whether MKL multiplies float32 faster than oneDNN: on a CPU with AVX2 but without AVX-512."""
    has_avx512 = _has_any(("avx512_f",))
    return torch.backends.mkl.is_available() and _has_any(("avx2",)) and not has_avx512


def _has_any(instructions: tuple[str, ...]) -> bool:
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name) for name in instructions)


@contextmanager
def deterministic_kernels(device: torch.device, enabled: bool) -> Iterator[None]:
    """Use slower GPU kernels that sum in a fixed order, as those of a CPU always do.

    Enter this before the first computation on the GPU, because cuBLAS reads its setting then.
    """
    before = torch.are_deterministic_algorithms_enabled()
    if enabled and device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def seed_torch(name: str, seed: int, *position: int) -> None:
    """Seed torch's generators as a pure function of the arguments (dropout, initial values)."""
    key = stream_key(name, seed, *position) & 0x7FFF_FFFF_FFFF_FFFF
    # `torch.manual_seed` does the same, but formats the stack at each call as long as CUDA is not initialised.
    torch.default_generator.manual_seed(key)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(key)


# --------------------------------------------------------------------------------------------------------------------
# Dropout. Each worker thread draws from a generator of its own, because the order in which threads use torch's global
# generator differs between runs.

_GENERATOR: ContextVar[torch.Generator | None] = ContextVar("dropout_generator", default=None)


@contextmanager
def dropout_generator(seed: int) -> Iterator[None]:
    """Within the block, dropout of this thread draws from a generator with this seed, not from torch's global one."""
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
    """The `context_fn` of activation checkpointing: torch itself restores only its global generator."""
    generator = _GENERATOR.get()
    return nullcontext(), nullcontext() if generator is None else _generator_state(generator, generator.get_state())


@contextmanager
def _generator_state(generator: torch.Generator, state: Tensor) -> Iterator[None]:
    before = generator.get_state()
    generator.set_state(state)
    try:
        yield
    finally:
        generator.set_state(before)


def describe_machine() -> dict[str, str | int]:
    """The machine of a measurement: processor, its instructions, library of fp32 products, cores, threads, versions."""
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
    """The instructions that decide precision and kernels: torch's vector instructions, bfloat16 and int8 products."""
    capabilities = torch.cpu.get_capabilities()
    products = [name for name in (*_BF16_PRODUCTS, *_INT8_PRODUCTS) if capabilities.get(name)]
    return " ".join([torch.backends.cpu.get_cpu_capability(), *products])


def processor_name() -> str:
    """The processor's name according to the system."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


# --------------------------------------------------------------------------------------------------------------------
# Speed of matrix multiplication, with which the speed of training is compared. It is measured, because no product of
# these shapes reaches the peak of data sheets.

_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_WEIGHTS = {"cpu": ((768, 3072), (1024, 4096)), "cuda": ((1024, 4096), (4096, 16384))}
"""Feed-forward weights of ALBERT-base and -large, of -large and -xxlarge; wider ones are no faster on a CPU."""
_ROWS = (64, 512, 4096, 16384)
_LONG_ENOUGH = 0.02
"""Seconds: no product of more rows is measured after one that takes as long."""
_REPEATS = 12
_SECONDS = 0.1
"""After this time a product is not repeated; at least two are measured, because the first one warms up."""


@cache
def measured_matmul_rate(device: torch.device, precision: Precision) -> float:
    """FLOP/s of the fastest of a few matrix products, computed as in the model.

    A multiplication and its addition count 2. Measured once per process, in less than a second.
    """
    rates = []
    for inner, outer in _WEIGHTS["cuda" if device.type == "cuda" else "cpu"]:
        weight = torch.randn(outer, inner, device=device).to(_TYPES[precision])
        for height in _ROWS:
            rows = torch.randn(height, inner, device=device).to(weight.dtype)
            seconds = _min_seconds(rows, weight)
            rates.append(2 * height * inner * outer / seconds)
            if seconds > _LONG_ENOUGH:
                break
    return max(rates)


def _min_seconds(rows: Tensor, weight: Tensor) -> float:
    seconds: list[float] = []
    while len(seconds) < 2 or (len(seconds) < _REPEATS and sum(seconds) < _SECONDS):
        started = time.perf_counter()
        float(product(rows, weight)[0, 0])  # reading a number waits for the device
        seconds.append(time.perf_counter() - started)
    return min(seconds)


# --------------------------------------------------------------------------------------------------------------------
# Free memory of the device, or of the limit of a container or batch system.

ROOT = Path("/")


def free_memory(device: torch.device) -> int | None:
    """Free bytes of a device; None if unknown."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    free = list(_free_in_cgroups())
    kibibytes = _read_table(ROOT / "proc/meminfo").get("MemAvailable:")
    if kibibytes is not None:
        free.append(1024 * kibibytes)
    return min(free, default=None)


def _free_in_cgroups() -> Iterator[int]:
    """Free bytes of each control group (version 2) of this process; cached files (inactive_file) count as free."""
    own = ROOT / "proc/self/cgroup"
    names = own.read_text(encoding="utf-8").splitlines() if own.is_file() else []
    for name in (line.removeprefix("0::/") for line in names if line.startswith("0::/")):
        for group in (Path(name), *Path(name).parents):
            folder = ROOT / "sys/fs/cgroup" / group
            limit = folder / "memory.max"
            used = folder / "memory.current"
            if not (limit.is_file() and used.is_file()):
                continue
            most = limit.read_text(encoding="utf-8").strip()
            if most != "max":
                cached = _read_table(folder / "memory.stat").get("inactive_file", 0)
                yield max(0, int(most) - int(used.read_text(encoding="utf-8")) + cached)


def _read_table(table: Path) -> dict[str, int]:
    """The lines "name number …" of a system file; empty if it is missing."""
    if not table.is_file():
        return {}
    lines = (line.split() for line in table.read_text(encoding="utf-8").splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}


# --------------------------------------------------------------------------------------------------------------------
# Worker threads, each computing with one thread of torch.
#
# torch splits every operation over its threads and waits for the slowest, some hundreds of times in a batch. When
# another process uses one of the cores, every such wait is long. Here threads wait for each other once, after all
# items. torch releases the interpreter's lock inside its operations, so the workers run in parallel.

Item = TypeVar("Item")
Result = TypeVar("Result")


def parallel_map(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """`[work(item) for item in items]`, computed by as many worker threads as torch has threads.

    Context variables have the caller's values; torch's modes (`inference_mode`) are per thread, so `work` must set
    them. An exception of a worker is raised after the other workers have finished their items; no further item starts.
    """
    workers = torch.get_num_threads()
    if workers == 1:
        return [work(item) for item in items]
    results: dict[int, Result] = {}
    stop = Event()
    queue = iter(list(enumerate(items)))  # two threads never get the same element of a list's iterator

    def run_worker() -> None:
        for index, item in queue:
            if stop.is_set():
                return
            try:
                results[index] = work(item)
            except BaseException:
                stop.set()
                raise

    pool = _pool(workers)
    futures = [pool.submit(copy_context().run, run_worker) for _ in range(min(workers, len(items)))]
    try:
        while wait(futures, timeout=0.1).not_done:  # in pieces: a signal to another thread does not end a wait
            pass
    finally:  # also when a signal interrupts the waiting: no worker may go on after this function has ended
        stop.set()
        wait(futures)
    for future in futures:
        future.result()
    return [results[index] for index in range(len(items))]


def in_one_thread(work: Callable[[], Result]) -> Result:
    """`work()`, computed by a worker thread with one thread of torch."""
    return parallel_map(lambda _: work(), [None])[0]


@lru_cache(maxsize=1)
def _pool(workers: int) -> ThreadPoolExecutor:
    barrier = Barrier(workers)

    def initialize(_: int) -> None:
        torch.get_num_threads()  # the first call in a thread sets its number to the default, so call it before setting
        torch.set_num_threads(1)  # for this thread, and the default of later threads
        barrier.wait()

    pool = ThreadPoolExecutor(workers, "albert-worker")
    list(pool.map(initialize, range(workers)))
    torch.set_num_threads(workers)  # the default again
    return pool


# --------------------------------------------------------------------------------------------------------------------
# After a fork. The threads of OpenMP do not exist in the new process, but its records of them do, so the first
# operation on several threads would wait for them for ever. A forked process computes with one thread, as those of
# torch's DataLoader do.

_forked = False


def _use_one_thread() -> None:
    global _forked
    _forked = True
    _pool.cache_clear()
    torch.set_num_threads(1)  # for this thread, and the default of later threads


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_use_one_thread)


def set_threads(number: int) -> None:
    """Set torch's number of threads; raises Unavailable for more than one in a forked process, which would hang."""
    if _forked and number > 1:
        why = "a forked process computes with one thread"
        raise Unavailable(f"{number} threads", why, "start it with multiprocessing's method spawn, or use one thread")
    torch.set_num_threads(number)
