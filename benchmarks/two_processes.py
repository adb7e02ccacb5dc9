"""One process against two that share the same batches: are they the same training, and how much faster is it?

Each round trains the same recipe afresh three times, in turn: one process with one thread, one with two threads, and
two processes with one thread each under torchrun. Compares the losses of every update, and the rate of tokens over the
updates after the first few. Prints the largest relative difference of losses and the median ratios, and appends a row
to a CSV.

    python benchmarks/two_processes.py --data corpus --rounds 3
"""

import albert  # noqa: F401 (before torch, which reads how its threads wait when it is loaded)

# isort: split
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness import append_rows, in_turn, ratio

from albert.cli.options import parse
from albert.model.config import AlbertConfig
from albert.optim.recipe import ScheduleRecipe
from albert.pretraining.recipe import PretrainingRecipe
from albert.pretraining.sampling import SequenceRecipe
from albert.runtime.environment import Precision
from albert.runtime.json_files import read_journal, save_json
from albert.runtime.progress import progress

WARM_UP = 3
"""Updates that are not timed."""
WORLDS = {"one thread": (1, 1), "two threads": (1, 2), "two processes": (2, 1)}
"""Processes, and threads of each."""


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Compare one process with two.

    Example: python benchmarks/two_processes.py --data corpus --hidden-size 256 --layers 4
    """

    data: Path
    """What `albert prepare` wrote."""
    hidden_size: int = 256
    layers: int = 4
    max_length: int = 128
    batch_size: int = 32
    micro_batch_size: int = 16
    steps: int = 15
    rounds: int = 3
    """Times that each world trains."""
    precision: Precision = "fp32"
    parallelism: Literal["data", "sharded"] = "data"
    output: Path = Path("results/benchmark-two-processes.csv")


def main(arguments: list[str]) -> None:
    """Run and report."""
    asked = parse(Benchmark, arguments, "two_processes.py")
    losses: dict[str, list[float]] = {}
    rates: dict[str, list[float]] = {name: [] for name in WORLDS}
    with tempfile.TemporaryDirectory() as place, progress("Training", asked.rounds * len(WORLDS), "runs") as bar:
        recipe = Path(place) / "recipe.json"
        save_json(recipe, _recipe(asked))
        for number in range(asked.rounds):
            for name in in_turn(list(WORLDS), number):
                processes, threads = WORLDS[name]
                run = Path(place) / f"{number} {name}"
                _train([str(recipe), "--data", str(asked.data), "--output", str(run)], processes, threads)
                told = [line for line in read_journal(run / "journal.jsonl") if line["event"] == "train"]
                losses[name] = [line["loss"] for line in told]
                rates[name].append(statistics.median(line["tokens_per_second"] for line in told[WARM_UP:]))
                bar.advance()
    _report(asked, losses, rates)


def _recipe(asked: Benchmark) -> PretrainingRecipe:
    model = AlbertConfig(
        hidden_size=asked.hidden_size,
        num_hidden_layers=asked.layers,
        num_attention_heads=max(1, asked.hidden_size // 64),
        intermediate_size=4 * asked.hidden_size,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return PretrainingRecipe(
        model=model,
        sequences=SequenceRecipe(max_length=asked.max_length),
        schedule=ScheduleRecipe(total_steps=asked.steps, warmup_steps=WARM_UP),
        batch_size=asked.batch_size,
        micro_batch_size=asked.micro_batch_size,
        precision=asked.precision,
        parallelism=asked.parallelism,
        log_every=1,
        evaluation_sequences=1,
    )


def _train(words: list[str], processes: int, threads: int) -> None:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    subprocess.run(
        [sys.executable, *(launcher if processes > 1 else []), "-m", "albert", "pretrain", *words, "--device", "cpu"],
        env={**os.environ, "OMP_NUM_THREADS": str(threads), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
        check=True,
        capture_output=True,
    )


def _report(asked: Benchmark, losses: dict[str, list[float]], rates: dict[str, list[float]]) -> None:
    alone, together = losses["one thread"], losses["two processes"]
    difference = max(abs(a - b) / a for a, b in zip(alone, together, strict=True))
    median = {name: statistics.median(found) for name, found in rates.items()}
    times = {name: ratio(rates["two processes"], rates[name]) for name in ("one thread", "two threads")}
    print(f"{len(alone)} updates, largest relative difference of losses {difference:.1e}")
    for name, rate in median.items():
        print(f"{name}: {rate:,.0f} tokens/s")
    print(f"two processes: {times['one thread']:.2f} × one thread, {times['two threads']:.2f} × two threads")
    shape = f"H{asked.hidden_size} L{asked.layers} length {asked.max_length} batch {asked.batch_size}"
    rates_of = {f"{name.replace(' ', '_')}_tokens_per_second": round(median[name]) for name in WORLDS}
    ratios = {f"ratio_to_{name.replace(' ', '_')}": round(each, 2) for name, each in times.items()}
    row = {"shape": shape, "precision": asked.precision, "parallelism": asked.parallelism, "updates": len(alone)}
    row |= {"rounds": asked.rounds, "largest_relative_difference": f"{difference:.1e}", **rates_of, **ratios}
    append_rows(asked.output, list(row), [row])


if __name__ == "__main__":
    main(sys.argv[1:])
