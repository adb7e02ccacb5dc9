"""Pre-training on one GPU beside transformers': tokens a second, share of the card's rate, memory; then one hour of it.

Both systems have the same architecture, samples of the same corpus and the same LAMB, in turns within one process. Ours
packs sequences; transformers pads each batch to the longest length that samples may have, so that its model, compiled
as a whole with attention by `scaled_dot_product_attention`, sees one shape alone. FLOPs are those of real tokens, of
which the masked ones alone pass the vocabulary head; the card's rate is the fastest matrix product measured on it.

With --run-minutes `albert pretrain` runs for so long afterwards, and the curve of its journal is kept.

    python benchmarks/gpu_pretraining.py --data corpus --run-minutes 60

The same code runs on a CPU, which is how it is tested:

    python benchmarks/gpu_pretraining.py --data corpus --device cpu --models albert-base-E64 --batch-size 1 --rounds 1
"""

import csv
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from pretraining_systems import padded
from rich.console import Console
from rich.table import Table
from transformers import AlbertConfig as TheirConfig
from transformers import AlbertForPreTraining as TheirModel

from albert.cli import pretrain as pretrain_command
from albert.cli.options import parse
from albert.model.albert import AlbertForPreTraining
from albert.model.config import PRESETS, AlbertConfig
from albert.model.cost import pretraining_flops
from albert.optim.optimizer import OptimizerRecipe, build_optimizer
from albert.pretraining.batches import collate, pretraining_objective
from albert.pretraining.masking import MaskingRecipe
from albert.pretraining.sampling import PretrainingSamples, Sample, SequenceRecipe
from albert.runtime.devices import autocast, describe_machine, measured_matmul_rate, pick_device
from albert.runtime.environment import Precision
from albert.runtime.progress import progress
from albert.text.shards import TokenCorpus
from albert.training.run_folder import RunFolder

BATCH_SIZES = {"albert-base": 64, "albert-large": 32, "albert-xlarge": 16, "albert-xxlarge": 8}
COLUMNS = ("model", "length", "batch_size", "precision", "system", "tokens_per_second", "matmul_share", "peak_gb",
           "times_transformers", "least", "most")  # fmt: skip
SYSTEMS = ("albert", "transformers")


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Compare pre-training on a GPU.

    Example: python benchmarks/gpu_pretraining.py --data corpus --models albert-large --batch-size 64
    """

    data: Path
    """What `albert prepare` wrote."""
    models: tuple[str, ...] = tuple(BATCH_SIZES)
    """Presets; their vocabulary is that of the corpus."""
    max_length: int = 512
    batch_size: int | None = None
    """Sequences of a step, which is one micro-batch; by default what 80 GB hold of the padded system."""
    rounds: int = 10
    """Steps of each system, taken in turns, after two that warm up."""
    precision: Precision = "bf16"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    compiler: str = "inductor"
    """Backend of torch.compile for transformers."""
    output: Path = Path("results/benchmark-gpu-pretraining.csv")
    run_minutes: float | None = None
    """Pre-train for so long at the end."""
    run_recipe: str = "one-gpu"
    run_folder: Path = Path("runs/gpu")
    curve: Path = Path("results/benchmark-gpu-pretraining-curve.csv")


class Step(NamedTuple):
    """One measured step."""

    seconds: float
    peak: int | None
    """Bytes of the system at its peak, on a GPU; None elsewhere."""
    tokens: int
    flops: int


def main(arguments: list[str]) -> None:
    """Run and report."""
    asked = parse(Benchmark, arguments, "gpu_pretraining.py")
    device = pick_device(asked.device)
    corpus = TokenCorpus.open(asked.data, "train", verify=False)
    samples = PretrainingSamples(corpus, SequenceRecipe(max_length=asked.max_length), MaskingRecipe(), 0)
    rate = measured_matmul_rate(device, asked.precision)
    rows = []
    with progress("Measuring", len(asked.models), "models") as bar:
        for name in asked.models:
            config = replace(PRESETS[name], vocab_size=corpus.vocab_size)
            batch_size = asked.batch_size or BATCH_SIZES.get(name, 8)
            steps = measure(config, samples, batch_size, asked, device)
            rows += [[name, asked.max_length, batch_size, asked.precision, *row] for row in _rows(steps, rate)]
            bar.advance()
    _report(asked.output, rows)
    if asked.run_minutes is not None:
        pretrain_command.main([asked.run_recipe, "--data", str(asked.data), "--output", str(asked.run_folder),
                               "--device", asked.device, "--max-minutes", str(asked.run_minutes)])  # fmt: skip
        keep_curve(RunFolder(asked.run_folder).journal_path, asked.curve)


def measure(
    config: AlbertConfig, samples: PretrainingSamples, batch_size: int, asked: Benchmark, device: torch.device
) -> Mapping[str, Sequence[Step]]:
    """Steps of both systems in turns over the same samples."""
    systems = {"albert": _ours(config, device), "transformers": _theirs(config, asked, device)}
    found: dict[str, list[Step]] = {name: [] for name in systems}
    warm_up = 2
    for number in range(warm_up + asked.rounds):
        batch = [samples.numbered(number * batch_size + i) for i in range(batch_size)]
        lengths = [len(sample.token_ids) for sample in batch]
        flops = pretraining_flops(config, lengths, sum(len(sample.masked_labels) for sample in batch))
        for name in sorted(systems, reverse=bool(number % 2)):
            system, before = systems[name], _allocated(device)
            started = time.perf_counter()
            with autocast(device, asked.precision):
                loss = system.loss(batch)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(system.model.parameters(), 1.0)
            system.optimizer.step()
            system.optimizer.zero_grad(set_to_none=True)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            seconds = time.perf_counter() - started
            peak = system.held_bytes() + torch.cuda.max_memory_allocated(device) - before if before else None
            if number >= warm_up:
                found[name].append(Step(seconds, peak, sum(lengths), flops))
    return found


@dataclass(frozen=True)
class System:
    """A model that learns."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    loss: Callable[[Sequence[Sample]], torch.Tensor]

    def held_bytes(self) -> int:
        """Bytes of weights and moments, which stay between steps."""
        states = (value for state in self.optimizer.state.values() for value in state.values())
        tensors = [*self.model.parameters(), *(value for value in states if isinstance(value, torch.Tensor))]
        return sum(tensor.nbytes for tensor in tensors)


def _ours(config: AlbertConfig, device: torch.device) -> System:
    model = AlbertForPreTraining(config).train().to(device)

    def loss(samples: Sequence[Sample]) -> torch.Tensor:
        batch = collate(samples)
        sums = pretraining_objective(model, batch.to(device))
        return torch.stack([sums.losses[name] / max(1, batch.counts[name]) for name in sums.losses]).sum()

    return System(model, build_optimizer(OptimizerRecipe(), model), loss)


def _theirs(config: AlbertConfig, asked: Benchmark, device: torch.device) -> System:
    same = ("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
            "intermediate_size", "max_position_embeddings", "hidden_act", "hidden_dropout_prob",
            "attention_probs_dropout_prob")  # fmt: skip
    model = TheirModel._from_config(
        TheirConfig(**{name: getattr(config, name) for name in same}), attn_implementation="sdpa"
    )
    model.train().to(device)
    compiled = torch.compile(model, backend=asked.compiler)

    def loss(samples: Sequence[Sample]) -> torch.Tensor:
        return compiled(**{name: rows.to(device) for name, rows in padded(samples, asked.max_length).items()}).loss

    return System(model, build_optimizer(OptimizerRecipe(), model), loss)


def _allocated(device: torch.device) -> int:
    """Bytes in use on a GPU, from where its peak is counted anew; 0 elsewhere."""
    if device.type != "cuda":
        return 0
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def _rows(steps: Mapping[str, Sequence[Step]], rate: float) -> list[list[object]]:
    ratios = sorted(
        theirs.seconds / ours.seconds for ours, theirs in zip(*(steps[name] for name in SYSTEMS), strict=True)
    )
    rows = []
    for name in SYSTEMS:
        speed = statistics.median(step.tokens / step.seconds for step in steps[name])
        share = statistics.median(step.flops / step.seconds / rate for step in steps[name])
        peaks = [step.peak for step in steps[name] if step.peak is not None]
        beside = [f"{ratio:.2f}" for ratio in (statistics.median(ratios), ratios[0], ratios[-1])]
        rows.append([name, f"{speed:.0f}", f"{share:.3f}", f"{max(peaks) / 1e9:.2f}" if peaks else "",
                     *(beside if name == "albert" else ("", "", ""))])  # fmt: skip
    return rows


def keep_curve(journal: Path, curve: Path) -> None:
    """The training lines of a journal as a table."""
    lines = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
    lines = [line for line in lines if line["event"] == "train"]
    with open(curve, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, sorted(set().union(*lines)), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def _report(output: Path, rows: list[list[object]]) -> None:
    machine = describe_machine()
    table = Table(*COLUMNS, box=None)
    for row in rows:
        table.add_row(*map(str, row))
    Console(width=160).print(table)
    where = [time.strftime("%Y-%m-%d"), machine.get("gpu", machine["processor"]), machine["torch"]]
    with open(output, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["date", "processor", "torch", *COLUMNS])
        writer.writerows([*where, *row] for row in rows)


if __name__ == "__main__":
    main(sys.argv[1:])
