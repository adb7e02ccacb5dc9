"""One step of LAMB for all tensors of a model, compared with other implementations and with plain copies.

    pip install --target peers --no-deps timm pytorch_optimizer
    PYTHONPATH=peers python dev/benchmarks/lamb_step.py

A step of LAMB needs at least two passes over memory: 40 bytes a parameter (w, g, m, v read and m, v written;
then w, m, v read and w written). `copy 40` and `copy 28` are copies of so many bytes per parameter, in the same rounds;
28 bytes are what AdamW moves, whose fused step is added as a reference. All systems use the same memory for weights,
gradients and moments. Peers that are not installed are named and left out.
"""

import importlib
import importlib.util
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import harness
import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from albert.model.albert import AlbertForPreTraining
from albert.optim.optimizer import OptimizerRecipe, build_optimizer, parameter_groups
from albert.recipes.architecture import PRESETS
from albert.runtime.devices import pick_device

OURS, BOUND, ADAMW_BOUND = "albert", "copy 40", "copy 28"
LEARNING_RATE = 1e-6
MAX_COPY = 1 << 26  # numbers in a copy: far more than any cache holds; longer copies are several
COLUMNS = ("model", "parameters", "system", "milliseconds", "lowest",
           "highest", "times_copy_40", "times_copy_28", "times_albert")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Compare steps of LAMB."""

    models: tuple[str, ...] = ("albert-base", "albert-xxlarge")
    """Presets."""
    rounds: int = 15
    """Steps of each system."""
    device: Literal["auto", "cpu", "cuda"] = "cpu"
    output: Path = Path("results/benchmark-lamb-step.csv")


def measure(args: Benchmark) -> Iterator[list[object]]:
    """A row for each system, the fastest first."""
    device = pick_device(args.device)

    def run(step: Callable[[], object]) -> None:
        step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    for name, config in zip(args.models, harness.select("--models", args.models, PRESETS), strict=True):
        torch.manual_seed(0)
        model = AlbertForPreTraining(config).to(device)
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter).mul_(1e-3)
        size = sum(parameter.numel() for parameter in model.parameters())
        optimizers = dict(_with_shared_moments(_optimizers(model)))
        steps = {BOUND: _copy(40 * size, device), ADAMW_BOUND: _copy(28 * size, device)}
        steps |= {system: optimizer.step for system, optimizer in optimizers.items()}
        seconds = harness.interleave({system: partial(run, step) for system, step in steps.items()}, args.rounds)
        for system, times in sorted(seconds.items(), key=lambda item: statistics.median(item[1])):
            ratios = [f"{harness.ratio(times, seconds[other]):.2f}" for other in (BOUND, ADAMW_BOUND, OURS)]
            yield [name, size, system, *harness.spread([1000 * value for value in times], ".1f"), *ratios]


def _copy(bytes_moved: int, device: torch.device) -> Callable[[], object]:
    """Copies that read half of the bytes and write the other half."""
    numbers = bytes_moved // 8
    source, target = torch.ones((2, min(numbers, MAX_COPY)), device=device)

    def copy() -> None:
        for begin in range(0, numbers, MAX_COPY):
            size = min(numbers - begin, MAX_COPY)
            target[:size].copy_(source[:size])

    return copy


def _optimizers(model: nn.Module) -> Iterator[tuple[str, Optimizer]]:
    yield OURS, build_optimizer(OptimizerRecipe(learning_rate=LEARNING_RATE), model)
    yield "torch, fused AdamW", AdamW(_groups(model), lr=LEARNING_RATE, fused=True)
    # Both peers may clip the global norm inside the step; disabled, as the others clip before it.
    if (timm := _lamb_of_timm()) is not None:
        yield "timm", timm.Lamb(_groups(model), lr=LEARNING_RATE, max_grad_norm=None)
    if _is_installed("pytorch_optimizer"):
        peer = importlib.import_module("pytorch_optimizer")
        yield "pytorch_optimizer", peer.Lamb(_groups(model), lr=LEARNING_RATE, max_grad_norm=0.0)


def _groups(model: nn.Module) -> list[dict[str, Any]]:
    return [{key: group[key] for key in ("params", "weight_decay")} for group in parameter_groups(model, 0.01)]


def _is_installed(name: str) -> bool:
    installed = importlib.util.find_spec(name) is not None
    if not installed:
        print(f"{name} is not installed: left out", file=sys.stderr)
    return installed


def _lamb_of_timm() -> ModuleType | None:
    """Import the optimizer's file alone: the whole of timm needs torchvision."""
    if not _is_installed("timm"):
        return None
    spec = importlib.util.find_spec("timm")
    assert spec is not None and spec.submodule_search_locations
    package = ModuleType("timm_optim")
    package.__path__ = [str(Path(spec.submodule_search_locations[0]) / "optim")]
    sys.modules[package.__name__] = package
    return importlib.import_module("timm_optim.lamb")


def _with_shared_moments(optimizers: Iterator[tuple[str, Optimizer]]) -> Iterator[tuple[str, Optimizer]]:
    """Let all share the moments of the first: four copies for 223 M parameters would not fit into memory."""
    shared: dict[Tensor, dict[str, Tensor]] = {}
    for name, optimizer in optimizers:
        optimizer.step()
        for parameter, state in optimizer.state.items():
            moments = shared.setdefault(parameter, {key: state[key] for key in ("exp_avg", "exp_avg_sq")})
            state.update(moments)
        yield name, optimizer


main = harness.script(Benchmark, COLUMNS, measure)

if __name__ == "__main__":
    main()
