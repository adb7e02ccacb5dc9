"""Pre-training steps compared with transformers: same architecture, sequences, masks, precision and LAMB.

    python dev/benchmarks/pretraining_step.py --data corpus --rounds 7
    python dev/benchmarks/pretraining_step.py --data corpus --preset albert-base --lengths 128 512 --precisions bf16 \
        --systems sdpa eager compiled gathered

A step is forward, backward and update, on real samples with their real lengths. Ours packs sequences and computes
vocabulary logits for masked tokens alone. transformers pads a batch to its longest sequence and computes them
everywhere, as `Trainer` with its own collator does; "compiled" pads all batches to one length; "gathered" is modified
to compute logits at the masked positions alone. `ratio` is to the fastest unmodified transformers, within a round.
Rates count real tokens; `matmul_share` is the share of the measured rate of matrix products that is used (model
FLOPs). Memory is measured separately: each system runs in its own process, and its peak is the resident set beyond that
of the same process with everything imported; on a GPU the peak of the allocator.

On a GPU, or with --fixed-shape=true, ours computes as `albert pretrain` on a GPU: compiled micro-batches of one shape.
transformers then also pads all batches to one length, and batches are on the device before the clock starts.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import harness
import numpy as np
import torch
from harness import ModelSize
from torch import Tensor, nn
from torch.nn import functional
from transformers import AlbertConfig as TheirConfig
from transformers import AlbertForPreTraining as TheirModel

from albert.model.albert import AlbertForPreTraining
from albert.model.cost import pretraining_flops
from albert.optim.optimizer import OptimizerRecipe, build_optimizer
from albert.pretraining.batches import Sample, collate, pretraining_objective
from albert.pretraining.fixed_shape import FixedBatches, PretrainingLoss, choose_shape, fixed_objective
from albert.pretraining.sampling import PretrainingSamples
from albert.pretraining.segments import NO_LABEL
from albert.recipes.architecture import EncoderConfig
from albert.recipes.pretraining import MaskingRecipe, SequenceRecipe
from albert.runtime.devices import autocast, measured_matmul_rate, pick_device
from albert.runtime.environment import Precision
from albert.runtime.errors import UsageError
from albert.text.shards import TokenCorpus
from albert.training.update import Sums

SLOTS = 4096  # tokens that a batch would have without short sequences
MEMORY_STEPS = 3
OURS, GRAPHS, GATHERED = "albert", "cuda-graphs", "gathered"
PADDED = ("sdpa", "eager", "compiled")
"""Unmodified transformers, by its attention; compiled: the whole model."""
COLUMNS = (
    "shape", "precision", "albert_tokens_per_second", "transformers_tokens_per_second",
    "ratio", "fastest", "gathered_tokens_per_second", "gathered_ratio", "real_tokens_share", "matmul_share",
    "albert_peak_mb", "transformers_peak_mb", "gathered_peak_mb", "peak_ratio", "rounds",
    "cuda_graphs_tokens_per_second",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Benchmark(ModelSize):
    """Compare pre-training steps."""

    data: Path
    """A prepared corpus; the model has its vocabulary."""
    lengths: tuple[int, ...] = (128,)
    batch_size: int | None = None
    """Sequences of a step; None: 4096 / length."""
    rounds: int = 7
    """Measured steps of each system, after one that warms up (on a GPU three)."""
    precisions: tuple[Precision, ...] = ("fp32", "bf16")
    systems: tuple[Literal["sdpa", "eager", "compiled", "gathered", "cuda-graphs"], ...] = ("sdpa",)
    """Systems to compare; compiling needs minutes and a C++ compiler. cuda-graphs is ours with CUDA graphs."""
    device: Literal["auto", "cpu", "cuda"] = "cpu"
    fixed_shape: bool | None = None
    """Ours as on a GPU; None: if there is one."""
    compiler: str = "inductor"
    """Backend of torch.compile; "none": nothing is compiled."""
    memory: bool = True
    """Also measure peak memory."""
    output: Path = Path("results/benchmark-pretraining-step.csv")


class Case(NamedTuple):
    """One measurement."""

    data: Path
    config: EncoderConfig
    length: int
    batch_size: int
    precision: Precision
    device: torch.device
    is_fixed: bool
    compiler: str

    def samples(self) -> PretrainingSamples:
        """Samples of the corpus."""
        corpus = TokenCorpus.open(self.data, "train", verify=False)
        return PretrainingSamples(corpus, SequenceRecipe(max_length=self.length), MaskingRecipe(), 0)

    def batch(self, number: int) -> list[Sample]:
        """Samples of step number `number`."""
        samples = self.samples()
        return [samples.sample(number * self.batch_size + i) for i in range(self.batch_size)]


def measure(args: Benchmark) -> Iterator[list[object]]:
    """A row for each length and precision."""
    device = pick_device(args.device)
    config = args.config(vocab_size=TokenCorpus.open(args.data, "train", verify=False).vocab_size)
    is_fixed = device.type == "cuda" if args.fixed_shape is None else args.fixed_shape
    if GRAPHS in args.systems and device.type != "cuda":
        raise UsageError(f"--systems {GRAPHS}", "needs a GPU", "give --device cuda, or leave it out")
    for length in args.lengths:
        for precision in args.precisions:
            batch_size = args.batch_size or max(1, SLOTS // length)
            yield _row(Case(args.data, config, length, batch_size, precision, device, is_fixed, args.compiler), args)


def _row(case: Case, args: Benchmark) -> list[object]:
    names, warm_up = (OURS, *args.systems), 3 if case.device.type == "cuda" else 1
    sizes = harness.in_new_processes(partial(peak, case), names) if args.memory else ()
    peaks = dict(zip(names, sizes, strict=True)) if args.memory else {}
    matmul_rate = measured_matmul_rate(case.device, case.precision)
    steps = {name: partial(_seconds, case, build(name, case)) for name in names}
    seconds = harness.alternate(steps, args.rounds, lambda number: number, warm_up)
    batches = [case.batch(number) for number in range(warm_up, warm_up + args.rounds)]
    lengths = [[len(sample.token_ids) for sample in batch] for batch in batches]
    tokens = [sum(some) for some in lengths]
    flops = [
        pretraining_flops(case.config, some, sum(len(sample.masked_labels) for sample in batch))
        for some, batch in zip(lengths, batches, strict=True)
    ]
    rates = {name: harness.ratio(tokens, seconds[name]) for name in names}
    fastest = max((name for name in names if name in PADDED), key=rates.__getitem__, default="")

    def rate(name: str) -> object:
        return round(rates[name]) if name in rates else ""

    def times(name: str) -> str:
        return f"{harness.ratio(seconds[name], seconds[OURS]):.2f}" if name in seconds else ""

    size = f"H{case.config.hidden_size} L{case.config.num_hidden_layers}"
    return [
        f"{size} length {case.length} batch {case.batch_size}", case.precision, rate(OURS),
        rate(fastest), times(fastest), fastest, rate(GATHERED), times(GATHERED),
        f"{statistics.mean(tokens) / (case.batch_size * case.length):.2f}",
        f"{harness.ratio(flops, seconds[OURS]) / matmul_rate:.2f}",
        *(f"{peaks[name] / 1e6:.0f}" if name in peaks else "" for name in (OURS, fastest, GATHERED)),
        f"{peaks[OURS] / peaks[fastest]:.2f}" if fastest in peaks else "", args.rounds, rate(GRAPHS),
    ]  # fmt: skip


def _seconds(case: Case, system: "System", number: int) -> float:
    inputs = system.prepare(number)
    _wait(case.device)
    started = time.perf_counter()
    system.step(inputs, case)
    _wait(case.device)
    return time.perf_counter() - started


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak(case: Case, name: str) -> int:
    """The largest growth of the resident set in bytes; on a GPU the peak of the allocator."""
    small = replace(case.config, hidden_size=64, num_hidden_layers=1, num_attention_heads=1, intermediate_size=64)

    def steps(case: Case, count: int) -> None:
        system = build(name, case)
        for number in range(count):
            system.step(system.prepare(number), case)

    few = case._replace(config=small, length=16, batch_size=1, is_fixed=False, compiler="none")
    grown = harness.memory_growth(partial(steps, few, 1), partial(steps, case, MEMORY_STEPS))
    return torch.cuda.max_memory_allocated(case.device) if case.device.type == "cuda" else grown


# --------------------------------------------------------------------------------------------------------------------
# The systems.


class System(NamedTuple):
    """A model with its optimizer, batches and loss."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    prepare: Callable[[int], Sequence[Any]]
    """The micro-batches of a step."""
    loss: Callable[[Any], Tensor]

    def step(self, inputs: Sequence[Any], case: Case) -> None:
        """Forward, backward, clipping, update."""
        for batch in inputs:
            with autocast(case.device, case.precision):
                loss = self.loss(batch)
            loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def build(name: str, case: Case) -> System:
    """Build a system by its name, with weights of its own."""
    if name in (OURS, GRAPHS):
        ours = AlbertForPreTraining(case.config).train().to(case.device)

        def our_loss(samples: Sequence[Sample]) -> Tensor:
            batch = collate(samples)
            return _mean(pretraining_objective(ours, batch), batch.counts)

        system = System(ours, build_optimizer(OptimizerRecipe(), ours), lambda n: [case.batch(n)], our_loss)
        mode = "reduce-overhead" if name == GRAPHS else None
        return _with_fixed_shape(system, case, mode) if case.is_fixed else system
    fields = ("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
              "intermediate_size", "max_position_embeddings", "hidden_act", "hidden_dropout_prob",
              "attention_probs_dropout_prob", "classifier_dropout_prob")  # fmt: skip
    their_config = TheirConfig(**{field: getattr(case.config, field) for field in fields})
    attention = "eager" if name == "eager" else "sdpa"
    theirs = TheirModel._from_config(their_config, attn_implementation=attention).train().to(case.device)
    is_compiled = name == "compiled" and case.compiler != "none"
    called = torch.compile(theirs, backend=case.compiler) if is_compiled else theirs
    length = case.length if name == "compiled" or case.is_fixed else None

    def prepare(number: int) -> Sequence[Any]:
        batch = case.batch(number)
        if case.is_fixed:
            return [{name: rows.to(case.device) for name, rows in padded(batch, length).items()}]
        return [batch]

    def loss(batch: Any) -> Tensor:
        rows = batch if case.is_fixed else padded(batch, length)
        return _gathered_loss(theirs, rows) if name == GATHERED else called(**rows).loss

    return System(theirs, build_optimizer(OptimizerRecipe(), theirs), prepare, loss)


def _with_fixed_shape(system: System, case: Case, mode: str | None) -> System:
    samples = case.samples()
    shape = choose_shape(samples, MaskingRecipe().budgets, case.batch_size, case.batch_size, 1, case.length)
    called, batches = PretrainingLoss(system.model, shape), FixedBatches(samples, case.batch_size, shape)
    if case.compiler != "none":
        called.compile_graph(case.compiler, mode)
    return system._replace(
        prepare=lambda number: [batch.to(case.device) for batch in batches.micro_batches(number, 0, 1)],
        loss=lambda batch: _mean(fixed_objective(called, batch), batch.counts),
    )


def _mean(sums: Sums, counts: Mapping[str, int]) -> Tensor:
    return torch.stack([sums.losses[name] / max(1, counts[name]) for name in sums.losses]).sum()


def _gathered_loss(model: TheirModel, rows: dict[str, Tensor]) -> Tensor:
    rows = dict(rows)
    labels, orders = rows.pop("labels"), rows.pop("sentence_order_label")
    hidden, pooled = model.albert(**rows)[:2]
    masked = labels != NO_LABEL
    tokens = functional.cross_entropy(model.predictions(hidden[masked]), labels[masked])
    return tokens + functional.cross_entropy(model.sop_classifier(pooled), orders)


def padded(samples: Sequence[Sample], length: int | None) -> dict[str, Tensor]:
    """Samples as padded inputs of transformers; None: as long as the longest."""
    names = ("input_ids", "token_type_ids", "attention_mask", "labels")
    columns = length or max(len(sample.token_ids) for sample in samples)
    rows = {name: np.zeros((len(samples), columns), dtype=np.int64) for name in names}
    rows["labels"][:] = NO_LABEL
    for row, sample in enumerate(samples):
        real = slice(len(sample.token_ids))
        rows["input_ids"][row, real] = sample.token_ids
        rows["token_type_ids"][row, real] = sample.token_type_ids
        rows["attention_mask"][row, real] = 1
        rows["labels"][row, sample.masked_positions] = sample.masked_labels
    rows["sentence_order_label"] = np.array([sample.order_label for sample in samples])
    return {name: torch.from_numpy(array) for name, array in rows.items()}


main = harness.script(Benchmark, COLUMNS, measure)

if __name__ == "__main__":
    main()
