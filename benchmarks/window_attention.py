"""Attention in a window beside dense attention and transformers' Longformer, over lengths: time and memory of a step.

All have the same width, depth, heads and feed-forward block, and take forward and backward over one sequence. A window
is told as tokens to either side; Longformer, whose `attention_window` is the sum of both sides, gets twice as much, and
[CLS] as its global token, for which it has projections of its own. The systems take turns, and ratios are taken within
a round. Memory is measured in a process of its own for each, as the resident set at its highest less the one after a
step over a short sequence; on a GPU it is what the allocator had at most.

    python benchmarks/window_attention.py --rounds 5
"""

import albert  # noqa: F401 (before torch, which reads how its threads wait when it is loaded)

# isort: split
import gc
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from harness import each_in_a_process, forget_peak, interleave, peak_bytes, report
from torch import nn
from transformers import LongformerConfig, LongformerModel

from albert.cli.options import parse
from albert.model.albert import AlbertModel
from albert.model.config import AlbertConfig, seen_pairs
from albert.model.packing import pack
from albert.runtime.devices import autocast, pick_device
from albert.runtime.environment import Precision

VOCABULARY = 100
COLUMNS = ("shape", "precision", "clock", "length", "system", "window", "seconds", "times_dense", "least", "most",
           "peak_mb", "seen_share")  # fmt: skip
Name = Literal["albert", "longformer"]
Clock = Literal["wall", "cpu"]
CLOCKS: dict[Clock, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Compare attention over long sequences.

    Example: python benchmarks/window_attention.py --lengths 1024 4096 --windows 128 --precision fp32
    """

    lengths: tuple[int, ...] = (512, 1024, 2048, 4096)
    windows: tuple[int, ...] = (128, 256)
    hidden_size: int = 256
    layers: int = 2
    rounds: int = 5
    """Steps of each system, taken in turns, after one that warms up."""
    precision: Precision = "bf16"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    clock: Clock = "wall"
    """cpu: what the processor spends on it, for one thread (OMP_NUM_THREADS=1) of a machine that others use too."""
    output: Path = Path("results/benchmark-window-attention.csv")


class System(NamedTuple):
    """What is measured: a model and its window, None for dense attention."""

    name: Name
    window: int | None


class Case(NamedTuple):
    """One system at one length."""

    system: System
    length: int
    hidden_size: int
    layers: int
    precision: Precision
    device: str


def main(arguments: list[str]) -> None:
    """Run and report."""
    asked = parse(Benchmark, arguments, "window_attention.py")
    device = pick_device(asked.device)
    dense = System("albert", None)
    names: tuple[Name, ...] = ("albert", "longformer")
    systems = [dense, *(System(name, window) for name in names for window in asked.windows)]
    shape = (asked.hidden_size, asked.layers, asked.precision, device.type)
    cases = [Case(system, length, *shape) for length in asked.lengths for system in systems]
    peaks = measured_peaks(cases)
    rows = []
    for length in asked.lengths:
        steps = {system: step(Case(system, length, *shape)) for system in systems}
        seconds = interleave(steps, asked.rounds, device=device, clock=CLOCKS[asked.clock])
        for system in systems:
            case = Case(system, length, *shape)
            rows.append(_row(case, asked.clock, seconds[system], seconds[dense], peaks[case]))
        del steps
        gc.collect()
    report(asked.output, COLUMNS, rows, same=COLUMNS[:6])


def step(case: Case) -> Callable[[], None]:
    """Forward and backward of a new model over one sequence."""
    device = torch.device(case.device)
    ids = np.random.default_rng(0).integers(5, VOCABULARY, case.length)
    model = (_albert if case.system.name == "albert" else _longformer)(case).to(device).train()
    if case.system.name == "albert":
        packed = pack([ids], [np.zeros_like(ids)]).to(device)

        def forward() -> torch.Tensor:
            return model(packed)
    else:
        tokens = torch.from_numpy(ids)[None].to(device)
        is_global = (torch.arange(case.length, device=device) == 0)[None].long()

        def forward() -> torch.Tensor:
            return model(input_ids=tokens, global_attention_mask=is_global).last_hidden_state

    def run() -> None:
        with autocast(device, case.precision):
            hidden = forward()
        hidden.float().square().mean().backward()
        model.zero_grad(set_to_none=True)

    return run


def _albert(case: Case) -> nn.Module:
    config = AlbertConfig(
        vocab_size=VOCABULARY,
        hidden_size=case.hidden_size,
        num_hidden_layers=case.layers,
        num_attention_heads=case.hidden_size // 64,
        intermediate_size=4 * case.hidden_size,
        max_position_embeddings=case.length,
        attention_window=case.system.window,
    )
    return AlbertModel(config, with_pooler=False)


def _longformer(case: Case) -> nn.Module:
    assert case.system.window is not None
    config = LongformerConfig(
        vocab_size=VOCABULARY,
        hidden_size=case.hidden_size,
        num_hidden_layers=case.layers,
        num_attention_heads=case.hidden_size // 64,
        intermediate_size=4 * case.hidden_size,
        max_position_embeddings=case.length + 2,  # it counts from behind the pad piece
        attention_window=[2 * case.system.window] * case.layers,
        hidden_act="gelu_new",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=1,
    )
    return LongformerModel(config, add_pooling_layer=False)


def measured_peaks(cases: Sequence[Case]) -> dict[Case, int]:
    """Bytes that each case takes at its highest, one process after the other."""
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"  # freed memory goes back at once, so that what is resident is in use
    servers = multiprocessing.get_context("forkserver")  # every process begins with the same libraries, loaded once
    servers.set_forkserver_preload(["albert.model.albert", "transformers.models.longformer.modeling_longformer"])
    found = dict(zip(cases, each_in_a_process(peak_of, cases, servers), strict=True))
    del os.environ["MALLOC_MMAP_THRESHOLD_"]
    return found


def peak_of(case: Case) -> int:
    """Bytes by which this process grows at the most in a step."""
    step(case._replace(length=16))()
    gc.collect()
    if case.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        step(case)()
        return torch.cuda.max_memory_allocated()
    idle = forget_peak()
    run = step(case)
    run()
    run()
    return peak_bytes() - idle


def _row(case: Case, clock: Clock, seconds: list[float], of_dense: list[float], peak: int) -> list[object]:
    ratios = sorted(mine / dense for mine, dense in zip(seconds, of_dense, strict=True))
    spread = [f"{ratio:.3f}" for ratio in (statistics.median(ratios), ratios[0], ratios[-1])]
    system, length = case.system, case.length
    share = seen_pairs(length, system.window) / length**2
    shape = f"H{case.hidden_size} L{case.layers}"
    window = "" if system.window is None else system.window
    took = f"{statistics.median(seconds):.4f}"
    memory = f"{peak / 1e6:.1f}"
    return [shape, case.precision, clock, length, system.name, window, took, *spread, memory, f"{share:.3f}"]


if __name__ == "__main__":
    main(sys.argv[1:])
