"""Pre-training on one GPU beside transformers': tokens a second, share of the card's rate, memory; then one hour of it.

All systems have the same architecture, samples of the same corpus and the same LAMB, in turns in one process. Ours is
the path of `albert pretrain` on a GPU: micro-batches of one fixed shape, compiled. transformers pads each batch to the
longest length that samples may have, so that its model sees one shape alone: compiled as a whole with attention by
`scaled_dot_product_attention`, and as it is with that and with eager attention. Batches lie on the device before the
clock starts, and all systems have taken some steps by then. FLOPs are those of real tokens, of which the masked ones
alone pass the vocabulary head; the card's rate is the fastest matrix product measured on it.

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
from typing import Any, Literal, NamedTuple

import torch
from pretraining_systems import padded
from rich.console import Console
from rich.table import Table
from transformers import AlbertConfig as TheirConfig
from transformers import AlbertForPreTraining as TheirModel

from albert.cli import training as pretrain_command
from albert.cli.options import parse
from albert.model.albert import AlbertForPreTraining
from albert.model.config import PRESETS, AlbertConfig
from albert.model.cost import pretraining_flops
from albert.optim.optimizer import OptimizerRecipe, build_optimizer
from albert.pretraining.fixed_shape import FixedBatch, FixedBatches, PretrainingLoss, choose_shape, fixed_objective
from albert.pretraining.masking import MaskingRecipe
from albert.pretraining.sampling import PretrainingSamples, SequenceRecipe
from albert.runtime.devices import autocast, describe_machine, measured_matmul_rate, pick_device
from albert.runtime.environment import Precision
from albert.runtime.progress import progress
from albert.text.shards import TokenCorpus
from albert.training.run_folder import RunFolder

BATCH_SIZES = {"albert-base": 64, "albert-large": 32, "albert-xlarge": 16, "albert-xxlarge": 8}
COLUMNS = ("model", "length", "batch_size", "precision", "system", "tokens_per_second", "matmul_share", "peak_gb",
           "times_transformers", "least", "most")  # fmt: skip
Form = Literal["compiled", "sdpa", "eager"]


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Compare pre-training on a GPU.

    Example: python benchmarks/gpu_pretraining.py --data corpus --models albert-large --batch-size 64
    """

    data: Path
    """What `albert prepare` wrote."""
    models: tuple[str, ...] = tuple(BATCH_SIZES)
    """Presets; their vocabulary is that of the corpus."""
    layers: int | None = None
    """In place of the preset's: to try this script."""
    hidden_size: int | None = None
    """In place of the preset's, with heads of 64: to try this script."""
    max_length: int = 512
    batch_size: int | None = None
    """Sequences of a step, which is one micro-batch; by default what 80 GB hold of the padded system."""
    systems: tuple[Form, ...] = ("compiled", "sdpa", "eager")
    """Forms of transformers' model."""
    cuda_graphs: bool = False
    """Measure ours with CUDA graphs too."""
    rounds: int = 10
    """Steps of each system, taken in turns, after those that warm up."""
    skipped_steps: int = 3
    """Steps that warm up."""
    precision: Precision = "bf16"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    compiler: str = "inductor"
    """Backend of torch.compile for both; "none": neither is compiled."""
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
            config = replace(config, num_hidden_layers=asked.layers or config.num_hidden_layers)
            if asked.hidden_size:
                heads, inner = max(1, asked.hidden_size // 64), 4 * asked.hidden_size
                config = replace(config, hidden_size=asked.hidden_size, num_attention_heads=heads,
                                 intermediate_size=inner)  # fmt: skip
            batch_size = asked.batch_size or BATCH_SIZES.get(name, 8)
            steps = measure(config, samples, batch_size, asked, device)
            rows += [[name, asked.max_length, batch_size, asked.precision, *row] for row in _rows(steps, rate)]
            bar.advance()
    _report(asked.output, rows)
    if asked.run_minutes is not None:
        pretrain_command.pretrain_main([asked.run_recipe, "--data", str(asked.data), "--output", str(asked.run_folder),
                               "--device", asked.device, "--max-minutes", str(asked.run_minutes)])  # fmt: skip
        keep_curve(RunFolder(asked.run_folder).journal_path, asked.curve)


def measure(
    config: AlbertConfig, samples: PretrainingSamples, batch_size: int, asked: Benchmark, device: torch.device
) -> Mapping[str, Sequence[Step]]:
    """Steps of all systems in turns over the same samples."""
    systems = {"albert": _ours(config, samples, batch_size, asked, device)}
    if asked.cuda_graphs:
        systems["albert, CUDA graphs"] = _ours(config, samples, batch_size, asked, device, "reduce-overhead")
    for form in asked.systems:
        systems[f"transformers, {form}"] = _theirs(config, samples, batch_size, form, asked, device)
    found: dict[str, list[Step]] = {name: [] for name in systems}
    for number in range(asked.skipped_steps + asked.rounds):
        batch = [samples.numbered(number * batch_size + i) for i in range(batch_size)]
        lengths = [len(sample.token_ids) for sample in batch]
        flops = pretraining_flops(config, lengths, sum(len(sample.masked_labels) for sample in batch))
        for name in sorted(systems, reverse=bool(number % 2)):
            system, before = systems[name], _allocated(device)
            inputs = system.prepare(number)
            _wait(device)
            started = time.perf_counter()
            for each in inputs:
                with autocast(device, asked.precision):
                    loss = system.loss(each)
                loss.backward()
            torch.nn.utils.clip_grad_norm_(system.model.parameters(), 1.0)
            system.optimizer.step()
            system.optimizer.zero_grad(set_to_none=True)
            _wait(device)
            seconds = time.perf_counter() - started
            peak = system.held_bytes() + torch.cuda.max_memory_allocated(device) - before if before else None
            if number >= asked.skipped_steps:
                found[name].append(Step(seconds, peak, sum(lengths), flops))
    return found


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@dataclass(frozen=True)
class System:
    """A model that learns."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    prepare: Callable[[int], Sequence[Any]]
    """The micro-batches of a step, on the device."""
    loss: Callable[[Any], torch.Tensor]

    def held_bytes(self) -> int:
        """Bytes of weights and moments, which stay between steps."""
        states = (value for state in self.optimizer.state.values() for value in state.values())
        tensors = [*self.model.parameters(), *(value for value in states if isinstance(value, torch.Tensor))]
        return sum(tensor.nbytes for tensor in tensors)


def _ours(
    config: AlbertConfig,
    samples: PretrainingSamples,
    batch_size: int,
    asked: Benchmark,
    device: torch.device,
    mode: str | None = None,
) -> System:
    model = AlbertForPreTraining(config).train().to(device)
    shape = choose_shape(samples, MaskingRecipe().budgets, batch_size, batch_size, 1, asked.max_length)
    called, batches = PretrainingLoss(model, shape), FixedBatches(samples, batch_size, shape)
    if asked.compiler != "none":
        called.compile_graph(asked.compiler, mode)

    def prepare(number: int) -> Sequence[FixedBatch]:
        return [batch.to(device) for batch in batches.micro_batches(number, 0, 1)]

    def loss(batch: FixedBatch) -> torch.Tensor:
        sums = fixed_objective(called, batch)
        return torch.stack([sums.losses[name] / max(1, batch.counts[name]) for name in sums.losses]).sum()

    return System(model, build_optimizer(OptimizerRecipe(), model), prepare, loss)


def _theirs(
    config: AlbertConfig,
    samples: PretrainingSamples,
    batch_size: int,
    form: Form,
    asked: Benchmark,
    device: torch.device,
) -> System:
    same = ("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
            "intermediate_size", "max_position_embeddings", "hidden_act", "hidden_dropout_prob",
            "attention_probs_dropout_prob")  # fmt: skip
    model = TheirModel._from_config(
        TheirConfig(**{name: getattr(config, name) for name in same}),
        attn_implementation="eager" if form == "eager" else "sdpa",
    )
    model.train().to(device)
    is_compiled = form == "compiled" and asked.compiler != "none"
    called = torch.compile(model, backend=asked.compiler) if is_compiled else model

    def prepare(number: int) -> Sequence[dict[str, torch.Tensor]]:
        batch = [samples.numbered(number * batch_size + i) for i in range(batch_size)]
        return [{name: rows.to(device) for name, rows in padded(batch, asked.max_length).items()}]

    return System(model, build_optimizer(OptimizerRecipe(), model), prepare, lambda rows: called(**rows).loss)


def _allocated(device: torch.device) -> int:
    """Bytes in use on a GPU, from where its peak is counted anew; 0 elsewhere."""
    if device.type != "cuda":
        return 0
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def _rows(steps: Mapping[str, Sequence[Step]], rate: float) -> list[list[object]]:
    """One row a system; of transformers', how many times faster ours is."""
    rows = []
    for name, taken in steps.items():
        speed = statistics.median(step.tokens / step.seconds for step in taken)
        share = statistics.median(step.flops / step.seconds / rate for step in taken)
        peaks = [step.peak for step in taken if step.peak is not None]
        ratios = sorted(theirs.seconds / ours.seconds for ours, theirs in zip(steps["albert"], taken, strict=True))
        beside = [f"{ratio:.2f}" for ratio in (statistics.median(ratios), ratios[0], ratios[-1])]
        rows.append([name, f"{speed:.0f}", f"{share:.3f}", f"{max(peaks) / 1e9:.2f}" if peaks else "",
                     *(beside if name.startswith("transformers") else ("", "", ""))])  # fmt: skip
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
