"""Operations of pre-training on a GPU, counted without a GPU; nothing here has run on one.

    python dev/benchmarks/cuda_without_gpu.py --data corpus

Operations of a micro-batch of the fixed shape, and of an update, are counted on torch's meta device, where tensors have
shapes alone; not compiled: torch.compile joins most of the element-wise ones. An operation that reads a number back, or
takes an index from the CPU, would make a GPU wait. Losses and gradients are compared with those of the path of a CPU,
and graphs are counted that "aot_eager" compiles over real batches of a small model.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import harness
import torch
import torch._dynamo
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils._python_dispatch import TorchDispatchMode

from albert.model.albert import AlbertForPreTraining
from albert.model.config import AlbertConfig
from albert.optim.optimizer import OptimizerRecipe, build_optimizer
from albert.pretraining.batches import PretrainingBatches, pretraining_objective
from albert.pretraining.fixed_shape import TERMS, FixedBatches, FixedShape, PretrainingLoss, fixed_objective, shape_of
from albert.pretraining.recipe import RECIPES
from albert.pretraining.sampling import PretrainingSamples
from albert.runtime.environment import Ranks
from albert.text.shards import TokenCorpus
from albert.training.update import Sums, update_without_waiting

META = torch.device("meta")
COLUMNS = ("what", "of", "value", "note")
VIEWS = {"view", "_unsafe_view", "t", "transpose", "permute", "expand", "unsqueeze", "squeeze", "slice", "select",
         "split", "split_with_sizes", "unbind", "detach", "alias", "as_strided", "reshape", "unfold"}  # fmt: skip
READS_BACK = {"_local_scalar_dense", "item", "is_nonzero", "equal", "nonzero", "_unique2"}


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Count what a GPU would do."""

    data: Path
    """A prepared corpus."""
    recipe: str = "one-gpu"
    batch_size: int | None = None
    micro_batch_size: int | None = None
    max_length: int | None = None
    toy: bool = False
    """Two layers of 32 instead of the recipe's model, to try this script."""
    compiled_batches: int = 200
    output: Path = Path("results/benchmark-cuda-without-gpu.csv")


class Operations(TorchDispatchMode):
    """Counts dispatched kernels, numbers read back, copies from the CPU, and indices on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: Counter[str] = Counter()
        self.names: Counter[str] = Counter()
        """Names of the operations."""

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


def counted(run: Callable[[], object]) -> Operations:
    """Count the operations of a call."""
    with Operations() as operations:
        run()
    return operations


def operation_rows(
    config: AlbertConfig, fixed: FixedBatches, shape: FixedShape, clip_norm: float
) -> Iterator[dict[str, object]]:
    """Operations of a micro-batch, and of an update without micro-batches."""
    model, batch = AlbertForPreTraining(config).to(META), fixed.micro_batches(0, 0, 1)[0]
    called = PretrainingLoss(model, shape)

    def learn() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
            losses = fixed_objective(called, batch.to(META)).losses
        torch.stack(list(losses.values())).sum().backward()

    micro_batch = counted(learn)
    for what in ("operations", "read back", "copied from the CPU", "indexed from the CPU"):
        note = f"meta, not compiled, {shape.rows} rows"
        if what == "operations":
            note += ": " + ", ".join(f"{count} {operation}" for operation, count in micro_batch.names.most_common(12))
        yield {"what": f"{what}, micro-batch", "of": "after", "value": micro_batch.counted[what], "note": note}
    optimizer = build_optimizer(OptimizerRecipe(), model)
    settings = {"learning_rate": 1e-3, "clip_norm": clip_norm, "precision": "fp32", "device": META, "ranks": Ranks()}

    def step() -> None:
        update_without_waiting(called, optimizer, [batch.to(META)], fixed_objective, **settings)

    step()  # creates the moments
    full_update = counted(step)
    for what in ("operations", "read back", "indexed from the CPU"):
        extra = full_update.counted[what] - micro_batch.counted[what]
        yield {"what": f"{what}, update", "of": "clipping and LAMB", "value": extra, "note": "beside micro-batches"}


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


def losses_and_gradients(
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


def measure(args: Benchmark) -> Iterator[dict[str, object]]:
    """All rows."""
    recipe, corpus = RECIPES[args.recipe], TokenCorpus.open(args.data, "train", verify=False)
    changes = {name: getattr(args, name) for name in ("batch_size", "micro_batch_size") if getattr(args, name)}
    sequences = replace(recipe.sequences, max_length=args.max_length or recipe.sequences.max_length)
    model = replace(small(recipe.model) if args.toy else recipe.model, vocab_size=corpus.vocab_size)
    recipe = replace(recipe, model=model, sequences=sequences, **changes)
    samples = PretrainingSamples(corpus, recipe.sequences, recipe.masking, recipe.seed)
    shape = shape_of(recipe, samples, 1)
    fixed = FixedBatches(samples, recipe.batch_size, shape)
    yield {"what": "shape", "of": args.recipe, "value": f"{shape.rows} rows",
           "note": f"{shape.sequences} sequences, {shape.predictions} masked tokens"}  # fmt: skip
    yield from operation_rows(recipe.model, fixed, shape, recipe.clip_norm)
    small_recipe = replace(recipe, batch_size=16, micro_batch_size=4, model=small(recipe.model))
    tight = shape_of(small_recipe, samples, 1)
    model = AlbertForPreTraining(small_recipe.model)
    called, few = PretrainingLoss(model, tight), FixedBatches(samples, 16, tight)
    packed = PretrainingBatches(samples, 16, 4).micro_batches(0, 0, 1)
    losses, gradients = losses_and_gradients(model, pretraining_objective, model, packed)
    others, others_gradients = losses_and_gradients(model, fixed_objective, called, few.micro_batches(0, 0, 1))
    for name, difference in (
        ("losses", ((losses - others) / losses).abs().max()),
        ("gradients", (gradients - others_gradients).norm() / gradients.norm()),
    ):
        yield {"what": f"difference of {name}", "of": "fixed shape", "value": f"{float(difference):.1e}",
               "note": "float32, relative, one step, from the path of a CPU"}  # fmt: skip
    real: list[Any] = []
    while len(real) < args.compiled_batches:
        real += few.micro_batches(len(real), 0, 1)
    yield from graph_rows(called, real[: args.compiled_batches])


def small(config: AlbertConfig) -> AlbertConfig:
    """The configuration with two layers of 32, without dropout."""
    return replace(config, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                   embedding_size=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)  # fmt: skip


main = harness.script(Benchmark, COLUMNS, measure, same=("what", "of"))

if __name__ == "__main__":
    main()
