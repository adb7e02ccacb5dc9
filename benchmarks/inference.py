"""Answers on a CPU beside transformers, ONNX Runtime and OpenVINO: same weights, all systems in turns in one run.

Loads: 32 sentences of mixed lengths as they come; the same sorted into four batches of like length; 32 × 128 tokens
without a gap; one sentence of 32, and of 128 tokens. Systems take turns in an order that is drawn anew each round, and
ratios are taken within a round: `times_ours` is to ours of the same precision. Rates count real tokens; the share of
the measured rate of matrix products counts work that is of use. The error is that of the states against ours in fp32;
of random weights it says whether a system computes the same, and nothing about scores.

Memory is the most that a process which holds only that system had in it, libraries included. Start-up is a process from
nothing to its first answer. Both are measured one process after the other.

    python benchmarks/inference.py --rounds 7
    python benchmarks/inference.py --rounds 7 --busy --no-memory
    python benchmarks/inference.py --model runs/sst-2 --systems "albert bf16" "openvino bf16"
"""

import albert  # noqa: F401 (before torch, which reads how its threads wait when it is loaded)

# isort: split
import multiprocessing
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from harness import append_rows, forget_peak, peak_bytes, spinning_process
from inference_systems import COMPILED, CPU, OURS, RUNTIMES, TRANSFORMERS, Batch, Run, build, needed_files
from rich.console import Console
from rich.table import Table

from albert.checkpoints.model_directory import read_config, save_model_directory
from albert.cli.options import parse
from albert.model.albert import AlbertModel
from albert.model.config import AlbertConfig
from albert.model.cost import count_flops
from albert.runtime.devices import measured_matmul_rate
from albert.runtime.progress import progress

SPREAD = 0.05
"""Standard deviation of random matrices: large enough that attention is not uniform."""
LOADS = ("mixed", "sorted", "fixed", "single-32", "single-128")
COLUMNS = (
    "model", "load", "system", "busy", "clock", "rounds", "milliseconds", "least", "most", "sequences_per_second",
    "tokens_per_second", "times_ours", "matmul_share", "relative_error", "peak_mb", "start_seconds",
)  # fmt: skip
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
START_OURS = """
import albert, sys, numpy, torch
from albert.checkpoints.model_directory import open_model
from albert.inference.engine import PackedModel
model = PackedModel(open_model(sys.argv[1], "encoder").model, torch.device("cpu"), precision=sys.argv[2])
print(model.rows([numpy.arange(5, 37)], [numpy.zeros(32, numpy.int64)])[0][0, 0])
"""
START_THEIRS = """
import sys, torch
from transformers import AlbertModel
dtype = torch.bfloat16 if sys.argv[2] == "bf16" else torch.float32
model = AlbertModel.from_pretrained(sys.argv[1], dtype=dtype).eval()
with torch.inference_mode():
    print(model(torch.arange(5, 37)[None]).last_hidden_state[0, 0, 0])
"""


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Compare encoders on a CPU.

    Example: python benchmarks/inference.py --hidden-size 64 --layers 2 --rounds 2 --no-memory
    """

    model: Path | None = None
    """A model directory; None: random weights, N(0, 0.05), of the sizes below."""
    hidden_size: int = 768
    layers: int = 12
    loads: tuple[Literal["mixed", "sorted", "fixed", "single-32", "single-128"], ...] = LOADS
    systems: tuple[str, ...] = (*OURS, *TRANSFORMERS, *RUNTIMES)
    compiled: bool = False
    """Also transformers compiled by torch, anew for each load's shapes; needs a C++ compiler and minutes."""
    rounds: int = 5
    """Of all systems in turns, after one that warms up."""
    clock: Literal["wall", "cpu"] = "wall"
    """cpu: what the processor spends on it, for one thread (OMP_NUM_THREADS=1) of a machine that others use too."""
    busy: bool = False
    """While another process computes all the time on one of the cores."""
    memory: bool = True
    """Measure peak memory and start-up, too."""
    output: Path = Path("results/benchmark-inference.csv")


def main(arguments: list[str]) -> None:
    """Run and report."""
    asked = parse(Benchmark, arguments, "inference.py")
    names = (*asked.systems, *(COMPILED if asked.compiled else ()))
    unknown = set(names) - {*OURS, *TRANSFORMERS, *COMPILED, *RUNTIMES}
    if unknown:
        raise SystemExit(f"--systems {sorted(unknown)[0]}: unknown; there are {', '.join((*OURS, *TRANSFORMERS))}, ...")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        directory = asked.model or _random_model(folder / "model", asked)
        config, _ = read_config(directory)
        loads = {load: batches_of(load, config.vocab_size) for load in asked.loads}
        needed_files(
            names, directory, folder, [ids for batch in batches_of("mixed", config.vocab_size, 1) for ids in batch]
        )
        peaks, starts = _in_processes(names, directory, folder, config) if asked.memory else ({}, {})
        systems = {name: build(name, directory, folder) for name in names}
        rows = []
        for load, batches in loads.items():
            errors = _errors(systems, batches)
            with spinning_process() if asked.busy else nullcontext():
                seconds = _measure(systems, batches, asked, load)
            rows += _rows(asked, load, batches, config, seconds, errors, peaks, starts)
    _report(asked.output, rows)


def batches_of(load: str, vocab_size: int, seed: int = 0) -> list[Batch]:
    """The calls of a load, in order.

    Lengths of mixed ones are log-normal, as sentences' are: half of them have 36 tokens at most, none more than 128.
    """
    draws = np.random.default_rng(seed)
    if load in ("mixed", "sorted"):
        lengths = np.clip(np.exp(draws.normal(np.log(36), 0.6, 32)).astype(int), 6, 128)
        if load == "sorted":
            lengths = np.sort(lengths)
    else:
        lengths = {"fixed": np.full(32, 128), "single-32": np.array([32]), "single-128": np.array([128])}[load]
    sequences = [draws.integers(5, vocab_size, length) for length in lengths]
    each = 8 if load == "sorted" else len(sequences)
    return [sequences[first : first + each] for first in range(0, len(sequences), each)]


def _random_model(directory: Path, asked: Benchmark) -> Path:
    config = AlbertConfig(
        hidden_size=asked.hidden_size,
        num_hidden_layers=asked.layers,
        num_attention_heads=max(1, asked.hidden_size // 64),
        intermediate_size=4 * asked.hidden_size,
    )
    torch.manual_seed(0)
    save_model_directory(directory, AlbertModel(replace(config, initializer_range=SPREAD)), None)
    return directory


def _errors(systems: Mapping[str, Run], batches: Sequence[Batch]) -> dict[str, float]:
    """Of each system against ours in fp32, as the norm of the difference over the norm; this warms up, too."""
    states = {name: np.concatenate([row for batch in batches for row in run(batch)]) for name, run in systems.items()}
    exact = states.get(OURS[0])
    if exact is None:
        return {}
    return {name: float(np.linalg.norm(each - exact) / np.linalg.norm(exact)) for name, each in states.items()}


def _measure(
    systems: Mapping[str, Run], batches: Sequence[Batch], asked: Benchmark, load: str
) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    clock, order = CLOCKS[asked.clock], random.Random(0)
    with progress(f"Measuring {load}", asked.rounds * len(systems), "calls") as bar:
        for _ in range(asked.rounds):
            for name in order.sample(list(systems), len(systems)):
                started = clock()
                for batch in batches:
                    systems[name](batch)
                seconds[name].append(clock() - started)
                bar.advance()
    return seconds


def _in_processes(
    names: Sequence[str], model: Path, folder: Path, config: AlbertConfig
) -> tuple[dict[str, int], dict[str, float]]:
    """Peak bytes of each system, and seconds from nothing to the first answer, of ours and transformers'."""
    spawn = multiprocessing.get_context("spawn")
    peaks, starts = {}, {}
    with progress("Measuring memory", len(names), "processes") as bar:
        for name in names:
            with ProcessPoolExecutor(1, mp_context=spawn) as process:
                peaks[name] = process.submit(_peak, name, model, folder, config.vocab_size).result()
            bar.advance()
    started = {**dict.fromkeys(OURS, START_OURS), **dict.fromkeys(TRANSFORMERS[2:], START_THEIRS)}
    commands = {
        name: [sys.executable, "-c", code, str(model), name.split()[-1]]
        for name, code in started.items()
        if name in names
    }
    with progress("Measuring start-up", 3 * len(commands), "processes") as bar:
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(3):
            for name, command in commands.items():
                begun = time.perf_counter()
                subprocess.run(command, check=True, capture_output=True)
                seconds[name].append(time.perf_counter() - begun)
                bar.advance()
    starts = {name: statistics.median(each) for name, each in seconds.items()}
    return peaks, starts


def _peak(name: str, model: Path, folder: Path, vocab_size: int) -> int:
    """Most bytes in this process while it opens the system and answers 32 × 128 tokens twice."""
    forget_peak()
    run = build(name, model, folder)
    for _ in range(2):
        for batch in batches_of("fixed", vocab_size):
            run(batch)
    return peak_bytes()


def useful_flops(config: AlbertConfig, lengths: Sequence[int]) -> int:
    """Of matrix products over real tokens."""
    return sum(n * length * count_flops(config, length).forward for length, n in Counter(lengths).items())


def _rows(
    asked: Benchmark,
    load: str,
    batches: Sequence[Batch],
    config: AlbertConfig,
    seconds: Mapping[str, list[float]],
    errors: Mapping[str, float],
    peaks: Mapping[str, int],
    starts: Mapping[str, float],
) -> list[dict[str, object]]:
    lengths = [len(ids) for batch in batches for ids in batch]
    flops = useful_flops(config, lengths)
    rows = []
    for name, each in seconds.items():
        precision, took = name.split()[-1], statistics.median(each)
        ours = seconds.get(f"albert {precision}")
        times = "" if ours is None else statistics.median(a / b for a, b in zip(each, ours, strict=True))
        share: object = ""
        if precision in ("fp32", "bf16"):
            share = f"{flops / took / measured_matmul_rate(CPU, precision):.2f}"
        rows.append(
            {
                "model": asked.model.name
                if asked.model
                else f"H{config.hidden_size} L{config.num_hidden_layers} random",
                "load": load,
                "system": name,
                "busy": "one core taken" if asked.busy else "",
                "clock": asked.clock,
                "rounds": asked.rounds,
                "milliseconds": f"{took * 1000:.1f}",
                "least": f"{min(each) * 1000:.1f}",
                "most": f"{max(each) * 1000:.1f}",
                "sequences_per_second": f"{len(lengths) / took:.1f}",
                "tokens_per_second": f"{sum(lengths) / took:.0f}",
                "times_ours": times if times == "" else f"{times:.2f}",
                "matmul_share": share,
                "relative_error": f"{errors[name]:.1e}" if name in errors else "",
                "peak_mb": f"{peaks[name] / 1e6:.0f}" if name in peaks else "",
                "start_seconds": f"{starts[name]:.2f}" if name in starts else "",
            }
        )
    return rows


def _report(output: Path, rows: Sequence[Mapping[str, object]]) -> None:
    shown = [column for column in COLUMNS if column not in ("model", "clock", "rounds")]
    table = Table(*shown, box=None)
    for row in rows:
        table.add_row(*(str(row[column]) for column in shown))
    Console(width=170).print(table)
    append_rows(output, COLUMNS, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
