"""Pre-training steps beside transformers': same architecture, sequences, masks, precision and LAMB, in turns.

    python benchmarks/pretraining_step.py --data corpus --rounds 7
    python benchmarks/pretraining_step.py --data corpus --preset albert-base --lengths 128 512 --precisions bf16 \
        --systems sdpa eager compiled gathered

A step is forward, backward and update, on real samples with their real lengths. Ours packs sequences and computes
vocabulary logits for masked tokens alone. transformers pads a batch to its longest sequence and computes them
everywhere, as `Trainer` with its own collator does; "compiled" pads all batches to one length; "gathered" is what a
careful user makes of it, who computes logits at the masked positions alone. `ratio` is to the fastest of transformers
as it is, within a round. Rates count real tokens; `matmul_share` is the share of the measured rate of matrix products
that useful work takes (model FLOPs). Memory is measured apart: each system takes steps in a process of its own, and its
peak is the resident set beyond that of the same process with everything imported; on a GPU what the allocator had.

On a GPU, or with --fixed-shape True, ours is the path of `albert pretrain` on a GPU: micro-batches of one fixed shape,
compiled. transformers then pads all batches to one length, too, and batches lie on the device before the clock starts.
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
from albert.model.config import AlbertConfig
from albert.model.cost import pretraining_flops
from albert.optim.optimizer import OptimizerRecipe, build_optimizer
from albert.pretraining.batches import collate, pretraining_objective
from albert.pretraining.fixed_shape import FixedBatches, PretrainingLoss, choose_shape, fixed_objective
from albert.pretraining.masking import MaskingRecipe
from albert.pretraining.sampling import PretrainingSamples, Sample, SequenceRecipe
from albert.pretraining.segments import NO_LABEL
from albert.runtime.devices import autocast, measured_matmul_rate, pick_device
from albert.runtime.environment import Precision
from albert.runtime.errors import UsageError
from albert.text.shards import TokenCorpus
from albert.training.update import Sums

SLOTS = 4096  # tokens that a batch would have without short sequences
MEMORY_STEPS = 3
OURS, GRAPHS, GATHERED = "albert", "cuda-graphs", "gathered"
PADDED = ("sdpa", "eager", "compiled")
"""transformers as it is, by how it computes attention; compiled: the whole model."""
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
    """What `albert prepare` wrote; the model has its vocabulary."""
    lengths: tuple[int, ...] = (128,)
    batch_size: int | None = None
    """Sequences of a step; None: 4096 / length."""
    rounds: int = 7
    """Steps of each system, taken in turns, after one that warms up (on a GPU three)."""
    precisions: tuple[Precision, ...] = ("fp32", "bf16")
    systems: tuple[Literal["sdpa", "eager", "compiled", "gathered", "cuda-graphs"], ...] = ("sdpa",)
    """What ours is compared with; compiling takes minutes and a C++ compiler. cuda-graphs is ours with CUDA graphs."""
    device: Literal["auto", "cpu", "cuda"] = "cpu"
    fixed_shape: bool | None = None
    """Ours as on a GPU; None: where there is one."""
    compiler: str = "inductor"
    """Backend of torch.compile; "none": nothing is compiled."""
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
    device: torch.device
    is_fixed: bool
    compiler: str

    def samples(self) -> PretrainingSamples:
        """Of the corpus, at most so long."""
        corpus = TokenCorpus.open(self.data, "train", verify=False)
        return PretrainingSamples(corpus, SequenceRecipe(max_length=self.length), MaskingRecipe(), 0)

    def batch(self, number: int) -> list[Sample]:
        """Samples of step number `number`."""
        samples = self.samples()
        return [samples.sample(number * self.batch_size + i) for i in range(self.batch_size)]


def measure(asked: Benchmark) -> Iterator[list[object]]:
    """A row for each length and precision."""
    device = pick_device(asked.device)
    config = asked.config(vocab_size=TokenCorpus.open(asked.data, "train", verify=False).vocab_size)
    is_fixed = device.type == "cuda" if asked.fixed_shape is None else asked.fixed_shape
    if GRAPHS in asked.systems and device.type != "cuda":
        raise UsageError(f"--systems {GRAPHS}", "needs a GPU", "give --device cuda, or leave it out")
    for length in asked.lengths:
        for precision in asked.precisions:
            batch_size = asked.batch_size or max(1, SLOTS // length)
            yield _row(Case(asked.data, config, length, batch_size, precision, device, is_fixed, asked.compiler), asked)


def _row(case: Case, asked: Benchmark) -> list[object]:
    names, warm_up = (OURS, *asked.systems), 3 if case.device.type == "cuda" else 1
    found = harness.each_in_a_process(partial(peak, case), names) if asked.memory else ()
    peaks = dict(zip(names, found, strict=True)) if asked.memory else {}
    matmul_rate = measured_matmul_rate(case.device, case.precision)
    steps = {name: partial(_seconds, case, build(name, case)) for name in names}
    spent = harness.take_turns(steps, asked.rounds, lambda number: number, warm_up)
    batches = [case.batch(number) for number in range(warm_up, warm_up + asked.rounds)]
    lengths = [[len(sample.token_ids) for sample in batch] for batch in batches]
    tokens = [sum(each) for each in lengths]
    flops = [
        pretraining_flops(case.config, each, sum(len(sample.masked_labels) for sample in batch))
        for each, batch in zip(lengths, batches, strict=True)
    ]
    rates = {name: harness.ratio(tokens, spent[name]) for name in names}
    fastest = max((name for name in names if name in PADDED), key=rates.__getitem__, default="")

    def rate(name: str) -> object:
        return round(rates[name]) if name in rates else ""

    def times(name: str) -> str:
        return f"{harness.ratio(spent[name], spent[OURS]):.2f}" if name in spent else ""

    size = f"H{case.config.hidden_size} L{case.config.num_hidden_layers}"
    return [
        f"{size} length {case.length} batch {case.batch_size}", case.precision, rate(OURS),
        rate(fastest), times(fastest), fastest, rate(GATHERED), times(GATHERED),
        f"{statistics.mean(tokens) / (case.batch_size * case.length):.2f}",
        f"{harness.ratio(flops, spent[OURS]) / matmul_rate:.2f}",
        *(f"{peaks[name] / 1e6:.0f}" if name in peaks else "" for name in (OURS, fastest, GATHERED)),
        f"{peaks[OURS] / peaks[fastest]:.2f}" if fastest in peaks else "", asked.rounds, rate(GRAPHS),
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
    """Bytes by which the resident set grew at the most; on a GPU, the most that was allocated."""
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
    """A model that learns."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    prepare: Callable[[int], Sequence[Any]]
    """The micro-batches of a step."""
    loss: Callable[[Any], Tensor]

    def step(self, inputs: Sequence[Any], case: Case) -> None:
        """Forward, backward, clipping, update."""
        for each in inputs:
            with autocast(case.device, case.precision):
                loss = self.loss(each)
            loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def build(name: str, case: Case) -> System:
    """One of them, with weights of its own.

    Args:
        name: "albert", "cuda-graphs", "sdpa", "eager", "compiled" or "gathered".
        case: what it computes.
    """
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

    def loss(given: Any) -> Tensor:
        rows = given if case.is_fixed else padded(given, length)
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
    """Samples as transformers takes them, one row each; None: as long as the longest."""
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
    return {name: torch.from_numpy(some) for name, some in rows.items()}


main = harness.script(Benchmark, COLUMNS, measure)

if __name__ == "__main__":
    main()
