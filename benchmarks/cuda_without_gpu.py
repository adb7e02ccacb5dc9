"""What can be known of pre-training on a GPU without one, counted; nothing here has run on a GPU.

Operations of a micro-batch, and of an update, are counted on torch's meta device, where tensors have shapes alone:
before is the path of a CPU on such a device (groups of like length, the streamed vocabulary loss), after is the fixed
shape, not compiled: torch.compile joins most of its element-wise operations. An operation that reads a number back, or
takes an index from the CPU, would make a GPU wait. Graphs are compiled by "aot_eager", over real batches of a small
model, and by "inductor" for the CPU, whose losses and gradients are compared. The rate of the pipeline is that of
batches alone, without a model, in processor seconds of one process and by the clock. The share of the data sheet's
rate (MFU) is an estimate from a formula, which `estimated_mfu` spells out.

    python benchmarks/cuda_without_gpu.py --data corpus
"""

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from harness import append_rows
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils._python_dispatch import TorchDispatchMode

from albert.cli.options import parse
from albert.model.albert import AlbertForPreTraining
from albert.model.attention import AttentionBlock
from albert.model.config import AlbertConfig
from albert.model.cost import pretraining_flops
from albert.model.packing import AttentionGroup, PackedSequences
from albert.optim.optimizer import OptimizerRecipe, build_optimizer
from albert.pretraining.batches import PretrainingBatch, PretrainingBatches, pretraining_objective
from albert.pretraining.fixed_shape import (
    PLANNED_SEQUENCES,
    TERMS,
    FixedBatches,
    FixedShape,
    PretrainingLoss,
    fixed_objective,
    shape_of,
)
from albert.pretraining.recipe import RECIPES, PretrainingRecipe
from albert.pretraining.sampling import PretrainingSamples
from albert.runtime.environment import Ranks
from albert.text.shards import TokenCorpus
from albert.training.loop import load_batches
from albert.training.update import Sums, update_without_waiting

META = torch.device("meta")
COLUMNS = ("what", "of", "value", "note")
VIEWS = {"view", "_unsafe_view", "t", "transpose", "permute", "expand", "unsqueeze", "squeeze", "slice", "select",
         "split", "split_with_sizes", "unbind", "detach", "alias", "as_strided", "reshape", "unfold"}  # fmt: skip
READS_BACK = {"_local_scalar_dense", "item", "is_nonzero", "equal", "nonzero", "_unique2"}
PEAK_FLOPS, MEMORY_RATE = 989e12, 4.8e12
"""Of an H200 by its data sheet: dense products in bfloat16, and bytes a second."""


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Count what a GPU would do.

    Example: python benchmarks/cuda_without_gpu.py --data corpus
    """

    data: Path
    """What `albert prepare` wrote."""
    recipe: str = "one-gpu"
    batch_size: int | None = None
    micro_batch_size: int | None = None
    max_length: int | None = None
    toy: bool = False
    """Two layers of 32 in place of the recipe's model: to try this script."""
    compiled_batches: int = 200
    inductor_batches: int = 40
    """So many go through machine code as well, which takes a C++ compiler and minutes; 0: none."""
    pipeline_steps: int = 64
    """Steps whose rows are counted, behind those that the shape was chosen from, and whose rate is measured."""
    workers: tuple[int, ...] = (1, 2)
    output: Path = Path("results/benchmark-cuda-without-gpu.csv")


class Operations(TorchDispatchMode):
    """Counts what is dispatched: kernels, numbers read back, copies from the CPU, and indices that lie there."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: Counter[str] = Counter()
        self.names: Counter[str] = Counter()
        """Of those that are counted as operations."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.split("::")[1]
        flat = torch.utils._pytree.tree_leaves((args, kwargs or {}))
        devices = {tensor.device.type for tensor in flat if isinstance(tensor, Tensor) and tensor.dim()}
        if name in READS_BACK:
            self.counted["read back"] += 1
        elif name in ("_to_copy", "copy_") and "cpu" in devices and ("meta" in devices or _goes_to_meta(kwargs)):
            self.counted["copied from the CPU"] += 1
        elif {"cpu", "meta"} <= devices:
            self.counted["indexed from the CPU"] += 1
        elif "meta" in devices and name not in VIEWS:
            self.counted["operations"] += 1
            self.names[name.removesuffix("_")] += 1
        return func(*args, **(kwargs or {}))


def _goes_to_meta(kwargs: Any) -> bool:
    return (kwargs or {}).get("device") == META


class _OneKernel(torch.autograd.Function):
    """What stands for torch's attention, which a GPU computes as one operation forwards and one backwards."""

    @staticmethod
    def forward(ctx: Any, *operands: Tensor) -> Tensor:
        return operands[0].exp()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        of_query = gradients[0].exp()
        return of_query, of_query.new_empty(of_query.shape), of_query.new_empty(of_query.shape)


@contextmanager
def attention_as_one_kernel() -> Iterator[None]:
    """Attention of the groups is counted as on a GPU."""
    before = AttentionBlock._dense
    AttentionBlock._dense = lambda self, query, key, value, mask: _OneKernel.apply(query, key, value)  # type: ignore
    try:
        yield
    finally:
        AttentionBlock._dense = before


def with_groups_on_meta(batch: PretrainingBatch) -> PretrainingBatch:
    """A packed batch as the path of groups needs it on a device."""
    packed = batch.packed
    groups = tuple(
        AttentionGroup(group.positions.to(META), None if group.padded is None else group.padded.to(META))
        for group in packed.groups
    )
    names = ("token_ids", "token_type_ids", "position_ids", "first_positions", "cells", "boundaries")
    moved = PackedSequences(lengths=packed.lengths, groups=groups, longest=packed.longest,
                            **{name: getattr(packed, name).to(META) for name in names})  # fmt: skip
    rest = {name: getattr(batch, name).to(META) for name in ("masked_positions", "masked_labels", "order_labels")}
    return replace(batch, packed=moved, **rest)


def counted(run: Callable[[], object]) -> Operations:
    """What a call dispatches."""
    with Operations() as operations:
        run()
    return operations


def operation_rows(config: AlbertConfig, packed: PretrainingBatch, fixed: FixedBatches, shape: FixedShape,
                   clip_norm: float) -> Iterator[dict[str, object]]:  # fmt: skip
    """Operations of a micro-batch before and after, and of an update without micro-batches."""
    model = AlbertForPreTraining(config).to(META)
    called = PretrainingLoss(model, shape)

    def learn(objective: Callable[..., Sums], module: nn.Module, make: Callable[[], Any]) -> Callable[[], object]:
        def run() -> None:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
                losses = objective(module, make()).losses
            torch.stack(list(losses.values())).sum().backward()

        return run

    batch = fixed.micro_batches(0, 0, 1)[0]
    with attention_as_one_kernel():
        before = counted(learn(pretraining_objective, model, lambda: with_groups_on_meta(packed)))
    model.zero_grad()
    after = counted(learn(fixed_objective, called, lambda: batch.to(META)))
    for name, found, rows in (("before", before, packed.n_tokens), ("after", after, shape.rows)):
        for what in ("operations", "read back", "copied from the CPU", "indexed from the CPU"):
            note = f"meta, not compiled, {rows} rows"
            if what == "operations":
                note += ": " + ", ".join(f"{count} {operation}" for operation, count in found.names.most_common(12))
            yield {"what": f"{what}, micro-batch", "of": name, "value": found.counted[what], "note": note}
    optimizer = build_optimizer(OptimizerRecipe(), model)
    settings = {"learning_rate": 1e-3, "clip_norm": clip_norm, "precision": "fp32", "device": META, "ranks": Ranks()}

    def step() -> None:
        update_without_waiting(called, optimizer, [batch.to(META)], fixed_objective, **settings)

    step()  # which makes the moments
    whole = counted(step)
    for what in ("operations", "read back", "indexed from the CPU"):
        beside = whole.counted[what] - after.counted[what]
        yield {"what": f"{what}, update", "of": "clipping and LAMB", "value": beside, "note": "beside micro-batches"}


def graph_rows(called: PretrainingLoss, batches: Sequence[Any]) -> Iterator[dict[str, object]]:
    """Graphs, breaks and recompilations over real batches."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    counter = CompileCounterWithBackend("aot_eager")
    called.compile_graph(counter)
    for batch in batches:
        losses, _ = called(batch.buffer)
        losses.sum().backward()
    rows = {
        "graphs": counter.frame_count,
        "graph breaks": sum(torch._dynamo.utils.counters["graph_break"].values()),
        "recompilations": int(counter.frame_count) - 1,
    }
    note = f"{len(batches)} real batches of {len({b.lengths for b in batches})} different lengths, aot_eager"
    for name, value in rows.items():
        yield {"what": name, "of": "loss", "value": value, "note": note}


def learned(
    model: AlbertForPreTraining, objective: Callable[..., Sums], module: nn.Module, batches: Sequence[Any]
) -> tuple[Tensor, Tensor]:
    """Sums of both losses, and all gradients as one vector."""
    model.zero_grad()
    total = torch.zeros(2, dtype=torch.float64)
    for batch in batches:
        losses = objective(module, batch).losses
        sums = torch.stack([losses[name] for name in TERMS])
        sums.sum().backward()
        total += sums.detach().double()
    return total, torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def difference_rows(of: str, expected: Sequence[Tensor], found: Sequence[Tensor], note: str) -> Iterator[dict]:
    """Relative differences of losses and gradients."""
    (losses, gradients), (others, others_gradients) = expected, found
    apart = {
        "losses": float(((losses - others) / losses).abs().max()),
        "gradients": float((gradients - others_gradients).norm() / gradients.norm()),
    }
    for name, value in apart.items():
        yield {"what": f"difference of {name}", "of": of, "value": f"{value:.1e}", "note": f"float32, relative, {note}"}


def inductor_rows(
    model: AlbertForPreTraining, called: PretrainingLoss, batches: Sequence[Any]
) -> Iterator[dict[str, object]]:
    """What machine code of torch.compile's own backend, made for this CPU, gives; it needs a C++ compiler."""
    expected = learned(model, fixed_objective, called, batches)
    torch._dynamo.reset()
    called.compile_graph("inductor")
    found = learned(model, fixed_objective, called, batches)
    yield from difference_rows("inductor on a CPU", expected, found, f"{len(batches)} batches, from not compiled")


def pipeline_rows(fixed: FixedBatches, steps: int, workers: Sequence[int]) -> Iterator[dict[str, object]]:
    """Tokens a second without a model."""
    list(load_batches(fixed, Ranks(), range(1), 0))
    started = time.process_time()
    tokens = sum(b.n_tokens for made in load_batches(fixed, Ranks(), range(steps), 0) for b in made)
    rate = tokens / (time.process_time() - started)
    note = f"{steps} steps; processor time of one process"
    yield {"what": "pipeline, tokens a second", "of": "1 core", "value": f"{rate:.0f}", "note": note}
    for count in workers:
        made = iter(load_batches(fixed, Ranks(), range(2 * count + steps * count), count))
        for _ in range(2 * count):
            next(made)
        started = time.perf_counter()
        tokens = sum(batch.n_tokens for some in made for batch in some)
        rate = tokens / (time.perf_counter() - started)
        yield {"what": "pipeline, tokens a second", "of": f"{count} workers", "value": f"{rate:.0f}",
               "note": f"by the clock, once under way; load of the machine {os.getloadavg()[0]:.1f}"}  # fmt: skip


def estimated_mfu(config: AlbertConfig, lengths: Sequence[int], n_masked: int, filling: float) -> float:
    """Useful operations over those that the data sheet's rate could do in the estimated time of a micro-batch.

    Assumed: weight products at 70 % of the sheet's rate, the products of attention at 45 %, four passes forwards and
    eight backwards over [tokens, H], and two and three over [tokens, F], at 80 % of the memory's rate, in bfloat16;
    half a millisecond of gaps in each micro-batch; empty rows cost what full ones do; the rest costs nothing.
    """
    tokens, h, f = sum(lengths), config.hidden_size, config.intermediate_size
    useful = pretraining_flops(config, lengths, n_masked)
    scores = 3 * config.num_hidden_layers * 4 * h * sum(length**2 for length in lengths)
    moved = 2 * tokens * config.num_hidden_layers * (12 * h + 5 * f)
    products, attention = (useful - scores) / 0.7, scores * 7 / 6 / 0.45  # attention computes its scores once more
    seconds = (products + attention) / PEAK_FLOPS + moved / (0.8 * MEMORY_RATE) + 0.5e-3
    return useful / (seconds / filling) / PEAK_FLOPS


def measure(asked: Benchmark, recipe: PretrainingRecipe, samples: PretrainingSamples) -> Iterator[dict[str, object]]:
    """All rows."""
    shape = shape_of(recipe, samples, 1)
    packed = PretrainingBatches(samples, recipe.batch_size, recipe.micro_batch_size)
    fixed = FixedBatches(samples, recipe.batch_size, shape)
    yield {"what": "shape", "of": asked.recipe, "value": f"{shape.rows} rows",
           "note": f"{shape.sequences} sequences, {shape.predictions} masked tokens"}  # fmt: skip
    behind = -(-PLANNED_SEQUENCES // recipe.batch_size)
    steps = [fixed.micro_batches(step, 0, 1) for step in range(behind, behind + asked.pipeline_steps)]
    batches = [batch for step in steps for batch in step]
    filling = sum(batch.n_tokens for batch in batches) / (shape.rows * len(batches))
    note = f"{len(batches)} micro-batches of {len(steps)} steps that the shape was not chosen from"
    yield {"what": "filled rows", "of": asked.recipe, "value": f"{filling:.4f}", "note": note}
    yield from operation_rows(recipe.model, packed.micro_batches(0, 0, 1)[0], fixed, shape, recipe.clip_norm)
    lengths, masked = batches[0].lengths, batches[0].counts["masked_tokens"]
    for length, share in ((None, filling), (recipe.sequences.max_length, 1.0)):
        like = lengths if length is None else (length,) * (shape.rows // length)
        mfu = estimated_mfu(recipe.model, like, masked, share)
        yield {"what": "MFU, estimated", "of": f"{asked.recipe}, {'real' if length is None else 'full'} lengths",
               "value": f"{mfu:.2f}", "note": "H200, bf16; a formula, not measured"}  # fmt: skip
    small = _small(recipe.model)
    little = replace(recipe, batch_size=16, micro_batch_size=4, model=small)
    tight = shape_of(little, samples, 1)
    model = AlbertForPreTraining(small)
    called, few = PretrainingLoss(model, tight), FixedBatches(samples, 16, tight)
    alike = PretrainingBatches(samples, 16, 4).micro_batches(0, 0, 1)
    expected = learned(model, pretraining_objective, model, alike)
    found = learned(model, fixed_objective, called, few.micro_batches(0, 0, 1))
    yield from difference_rows("fixed shape", expected, found, "one step, from the path of a CPU")
    real: list[Any] = []
    while len(real) < asked.compiled_batches:
        real += few.micro_batches(len(real), 0, 1)
    if asked.inductor_batches:
        yield from inductor_rows(model, PretrainingLoss(model, tight), real[: asked.inductor_batches])
    yield from graph_rows(called, real[: asked.compiled_batches])
    yield from pipeline_rows(fixed, asked.pipeline_steps, asked.workers)


def _small(config: AlbertConfig) -> AlbertConfig:
    return replace(config, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                   embedding_size=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)  # fmt: skip


def main(arguments: list[str]) -> None:
    """Run and report."""
    asked = parse(Benchmark, arguments, "cuda_without_gpu.py")
    recipe, corpus = RECIPES[asked.recipe], TokenCorpus.open(asked.data, "train", verify=False)
    changes = {name: getattr(asked, name) for name in ("batch_size", "micro_batch_size") if getattr(asked, name)}
    sequences = replace(recipe.sequences, max_length=asked.max_length or recipe.sequences.max_length)
    model = replace(_small(recipe.model) if asked.toy else recipe.model, vocab_size=corpus.vocab_size)
    recipe = replace(recipe, model=model, sequences=sequences, **changes)
    rows = list(measure(asked, recipe, PretrainingSamples(corpus, recipe.sequences, recipe.masking, recipe.seed)))
    for row in rows:
        print(*(f"{row[name]!s:<28}" for name in COLUMNS))
    append_rows(asked.output, COLUMNS, rows, same=("what", "of"))


if __name__ == "__main__":
    main(sys.argv[1:])
