"""Pre-training steps beside transformers': same architecture, sequences, masks and precision, interleaved in one run.

A step is forward, backward and an update by LAMB, on real samples with their real lengths. Ours packs sequences and
computes vocabulary logits for masked tokens alone; what it is compared with says pretraining_systems.py. Ratios are
taken within a round; the one in the column `ratio` is to the fastest of transformers as it is. Rates count real tokens,
the share of the measured rate of matrix products counts work that is of use (model FLOPs). Memory is measured apart:
each system takes steps in a process of its own, and its peak is the resident set beyond that of the same process with
everything imported.

    python benchmarks/pretraining_step.py --data corpus --rounds 7
    python benchmarks/pretraining_step.py --data corpus --preset albert-base --lengths 128 512 --precisions bf16 \
        --systems sdpa eager compiled gathered
"""

import albert  # noqa: F401 (before torch, which reads how its threads wait when it is loaded)

# isort: split
import gc
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from harness import each_in_a_process, forget_peak, in_turn, peak_bytes, ratio, report, seconds
from pretraining_systems import CPU, GATHERED, OURS, PADDED, build

from albert.cli.options import parse
from albert.model.config import PRESETS, AlbertConfig
from albert.model.cost import pretraining_flops
from albert.pretraining.masking import MaskingRecipe
from albert.pretraining.sampling import PretrainingSamples, Sample, SequenceRecipe
from albert.runtime.devices import measured_matmul_rate
from albert.runtime.environment import Precision
from albert.runtime.progress import progress
from albert.text.shards import TokenCorpus

SLOTS = 4096
"""Tokens that a batch would have without short sequences."""
MEMORY_STEPS = 3
COLUMNS = (
    "shape", "precision", "albert_tokens_per_second", "transformers_tokens_per_second",
    "ratio", "fastest", "gathered_tokens_per_second", "gathered_ratio", "real_tokens_share", "matmul_share",
    "albert_peak_mb", "transformers_peak_mb", "gathered_peak_mb", "peak_ratio", "rounds",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Compare pre-training steps.

    Example: python benchmarks/pretraining_step.py --data corpus --hidden-size 256 --layers 4
    """

    data: Path
    """What `albert prepare` wrote."""
    preset: str | None = None
    """Sizes of a preset, with the corpus's vocabulary, in place of hidden_size and layers."""
    hidden_size: int = 256
    layers: int = 4
    lengths: tuple[int, ...] = (128,)
    batch_size: int | None = None
    """Sequences of a step; None: 4096 / length."""
    rounds: int = 7
    """Steps of each system, taken in turns, after one that warms up."""
    precisions: tuple[Precision, ...] = ("fp32", "bf16")
    systems: tuple[Literal["sdpa", "eager", "compiled", "gathered"], ...] = ("sdpa",)
    """What ours is compared with; compiling takes minutes and a C++ compiler."""
    memory: bool = True
    """Measure peak memory, too."""
    output: Path = Path("results/benchmark-pretraining-step.csv")


class Case(NamedTuple):
    """What is measured at a time."""

    data: Path
    config: AlbertConfig
    length: int
    batch_size: int
    precision: Precision

    def batch(self, number: int) -> list[Sample]:
        """Samples of step number `number`."""
        corpus = TokenCorpus.open(self.data, "train", verify=False)
        samples = PretrainingSamples(corpus, SequenceRecipe(max_length=self.length), MaskingRecipe(), 0)
        return [samples.numbered(number * self.batch_size + i) for i in range(self.batch_size)]


def main(arguments: list[str]) -> None:
    """Run and report."""
    asked = parse(Benchmark, arguments, "pretraining_step.py")
    vocab_size = TokenCorpus.open(asked.data, "train", verify=False).vocab_size
    config = AlbertConfig(
        hidden_size=asked.hidden_size,
        num_hidden_layers=asked.layers,
        num_attention_heads=max(1, asked.hidden_size // 64),
        intermediate_size=4 * asked.hidden_size,
    )
    config = replace(PRESETS[asked.preset] if asked.preset else config, vocab_size=vocab_size)
    cases = [
        Case(asked.data, config, length, asked.batch_size or max(1, SLOTS // length), precision)
        for length in asked.lengths
        for precision in asked.precisions
    ]
    report(asked.output, COLUMNS, [_row(case, asked) for case in cases])


def _row(case: Case, asked: Benchmark) -> list[object]:
    names = (OURS, *asked.systems)
    peaks = dict(zip(names, each_in_a_process(partial(_peak, case), names), strict=True)) if asked.memory else {}
    spent, tokens, flops = _measure(case, names, asked.rounds)
    rates = {name: statistics.median(n / took for n, took in zip(tokens, spent[name], strict=True)) for name in names}
    fastest = max((name for name in names if name in PADDED), key=rates.__getitem__, default="")

    def times(name: str) -> str:
        if name not in spent:
            return ""
        return f"{ratio(spent[name], spent[OURS]):.2f}"

    speed = statistics.median(work / took for work, took in zip(flops, spent[OURS], strict=True))
    slots = case.batch_size * case.length
    size = f"H{case.config.hidden_size} L{case.config.num_hidden_layers}"
    shape = f"{size} length {case.length} batch {case.batch_size}"
    return [
        shape, case.precision, round(rates[OURS]),
        round(rates[fastest]) if fastest else "", times(fastest), fastest,
        round(rates[GATHERED]) if GATHERED in rates else "", times(GATHERED),
        f"{statistics.mean(tokens) / slots:.2f}", f"{speed / measured_matmul_rate(CPU, case.precision):.2f}",
        *(f"{peaks[name] / 1e6:.0f}" if name in peaks else "" for name in (OURS, fastest, GATHERED)),
        f"{peaks[OURS] / peaks[fastest]:.2f}" if fastest in peaks else "", asked.rounds,
    ]  # fmt: skip


def _measure(
    case: Case, names: Sequence[str], rounds: int
) -> tuple[Mapping[str, Sequence[float]], Sequence[int], Sequence[int]]:
    """Seconds of each system's steps, and their tokens and work."""
    measured_matmul_rate(CPU, case.precision)
    systems = {name: build(name, case.config, case.length) for name in names}
    found: dict[str, list[float]] = {name: [] for name in names}
    tokens, flops = [], []
    with progress("Measuring", (rounds + 1) * len(names), "steps") as bar:
        for number in range(rounds + 1):
            batch = case.batch(number)
            lengths = [len(sample.token_ids) for sample in batch]
            for name in in_turn(names, number):
                took = seconds(partial(systems[name].step, batch, case.precision))
                if number:
                    found[name].append(took)
                bar.advance()
            if number:
                tokens.append(sum(lengths))
                masked = sum(len(sample.masked_labels) for sample in batch)
                flops.append(pretraining_flops(case.config, lengths, masked))
    return found, tokens, flops


def _peak(case: Case, name: str) -> int:
    """Bytes by which the resident set grew at the most; threads and libraries are there before."""
    small = replace(case.config, vocab_size=case.config.vocab_size, hidden_size=64, num_hidden_layers=1,
                    num_attention_heads=1, intermediate_size=64)  # fmt: skip
    build(name, small, 16).step(case._replace(length=16, batch_size=1).batch(0), case.precision)
    gc.collect()
    idle = forget_peak()
    system = build(name, case.config, case.length)
    for number in range(MEMORY_STEPS):
        system.step(case.batch(number), case.precision)
    return peak_bytes() - idle


if __name__ == "__main__":
    main(sys.argv[1:])
