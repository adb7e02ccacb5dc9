"""One step of LAMB for all tensors of a model: ours beside its peers, and beside plain copies of as many bytes.

A step of LAMB cannot do with less than two passes over memory: 40 bytes a parameter (w, g, m, v read and m, v written;
then w, m, v read and w written). `copy 40` and `copy 28` are copies that read and write so many bytes, in the same
rounds; 28 bytes are what AdamW moves, whose fused step stands here for reference. Weights, gradients and moments are
the same memory for all. Peers that are not installed are named and left out:

    pip install --target peers --no-deps timm pytorch_optimizer
    PYTHONPATH=peers python benchmarks/lamb_step.py --compiled

--compiled adds the formula in two passes as torch.compile makes it, for which a C++ compiler is needed.
"""

import albert  # noqa: F401 (before torch, which reads how its threads wait when it is loaded)

# isort: split
import importlib
import importlib.util
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from harness import interleave, ratio, report
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from albert.cli.options import parse
from albert.model.albert import AlbertForPreTraining
from albert.model.config import PRESETS
from albert.optim.optimizer import OptimizerRecipe, build_optimizer, parameter_groups

OURS, BOUND, ADAMW_BOUND = "albert", "copy 40", "copy 28"
LEARNING_RATE = 1e-6
LARGEST_COPY = 1 << 26
"""Numbers in a copy: far more than any cache holds; longer copies are several."""
COLUMNS = ("model", "parameters", "system", "milliseconds", "lowest",
           "highest", "times_copy_40", "times_copy_28", "times_albert")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Compare steps of LAMB.

    Example: python benchmarks/lamb_step.py --models albert-base --rounds 31
    """

    models: tuple[str, ...] = ("albert-base", "albert-xxlarge")
    """Presets whose tensors take the step."""
    rounds: int = 15
    """Steps of each system, taken in turns."""
    compiled: bool = False
    """Beside the formula in two passes, compiled."""
    output: Path = Path("results/benchmark-lamb-step.csv")


def main(arguments: list[str]) -> None:
    """Run and report."""
    asked = parse(Benchmark, arguments, "lamb_step.py")
    for name in asked.models:
        torch.manual_seed(0)
        model = AlbertForPreTraining(PRESETS[name])
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter).mul_(1e-3)
        optimizers = dict(_with_shared_moments(_optimizers(model)))
        steps = {
            BOUND: _copy(model, 40),
            ADAMW_BOUND: _copy(model, 28),
            **{system: optimizer.step for system, optimizer in optimizers.items()},
        }
        if asked.compiled:
            steps["compiled two passes"] = _compiled(optimizers[OURS])
        _report(
            asked, name, sum(parameter.numel() for parameter in model.parameters()), interleave(steps, asked.rounds)
        )


def _copy(model: nn.Module, bytes_per_parameter: int) -> Callable[[], None]:
    """Copies that read half of the bytes and write the other half."""
    numbers = sum(parameter.numel() for parameter in model.parameters()) * bytes_per_parameter // 8
    source, target = torch.ones(min(numbers, LARGEST_COPY)), torch.empty(min(numbers, LARGEST_COPY))

    def copy() -> None:
        for begin in range(0, numbers, LARGEST_COPY):
            size = min(numbers - begin, LARGEST_COPY)
            target[:size].copy_(source[:size])

    return copy


def _optimizers(model: nn.Module) -> Iterator[tuple[str, Optimizer]]:
    yield OURS, build_optimizer(OptimizerRecipe(learning_rate=LEARNING_RATE), model)
    yield "torch, fused AdamW", AdamW(_groups(model), lr=LEARNING_RATE, fused=True)
    # Both peers may clip the global norm inside: off here, for the others have it before the step.
    if (timm := _lamb_of_timm()) is not None:
        yield "timm", timm.Lamb(_groups(model), lr=LEARNING_RATE, max_grad_norm=None)
    if (other := _installed("pytorch_optimizer")) is not None:
        yield "pytorch_optimizer", other.Lamb(_groups(model), lr=LEARNING_RATE, max_grad_norm=0.0)


def _groups(model: nn.Module) -> list[dict[str, Any]]:
    return [{key: group[key] for key in ("params", "weight_decay")} for group in parameter_groups(model, 0.01)]


def _installed(name: str) -> ModuleType | None:
    if importlib.util.find_spec(name) is None:
        print(f"{name} is not installed: left out", file=sys.stderr)
        return None
    return importlib.import_module(name)


def _lamb_of_timm() -> ModuleType | None:
    """The file alone, as a package of its own: timm as a whole needs torchvision."""
    found = importlib.util.find_spec("timm")
    if found is None or not found.submodule_search_locations:
        print("timm is not installed: left out", file=sys.stderr)
        return None
    package = ModuleType("timm_optim")
    package.__path__ = [str(Path(found.submodule_search_locations[0]) / "optim")]
    sys.modules[package.__name__] = package
    return importlib.import_module("timm_optim.lamb")


def _with_shared_moments(optimizers: Iterator[tuple[str, Optimizer]]) -> Iterator[tuple[str, Optimizer]]:
    """Let each take a step and then keep the moments of the first: four times 223 M parameters would not fit."""
    shared: dict[Tensor, dict[str, Tensor]] = {}
    for name, optimizer in optimizers:
        optimizer.step()
        for parameter, state in optimizer.state.items():
            moments = shared.setdefault(parameter, {key: state[key] for key in ("exp_avg", "exp_avg_sq")})
            state.update(moments)
        yield name, optimizer


def _compiled(optimizer: Optimizer) -> Callable[[], None]:
    """The formula, for each tensor of an optimiser: the compiler finds that two passes are enough."""
    tensors = [
        [tensor.detach().view(-1) for tensor in (parameter, parameter.grad, state["exp_avg"], state["exp_avg_sq"])]
        for parameter, state in optimizer.state.items()
        if parameter.grad is not None
    ]
    rate = torch.tensor(LEARNING_RATE)

    def formula(weight: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, rate: Tensor) -> None:
        new_mean, new_square = mean.lerp(gradient, 0.1), square * 0.999 + gradient * gradient * 0.001
        update = new_mean / (new_square.sqrt() + 1e-6) + 0.01 * weight
        norms = weight.square().sum().sqrt(), update.square().sum().sqrt()
        ratio = torch.where((norms[0] > 0) & (norms[1] > 0), norms[0] / norms[1], 1.0)
        weight.sub_(rate * ratio * update)
        mean.copy_(new_mean)
        square.copy_(new_square)

    compiled = torch.compile(formula, dynamic=True)

    def step() -> None:
        for weight, gradient, mean, square in tensors:
            compiled(weight, gradient, mean, square, rate)

    return step


def _report(asked: Benchmark, model: str, parameters: int, found: dict[str, list[float]]) -> None:
    rows = []
    for system, times in sorted(found.items(), key=lambda item: statistics.median(item[1])):
        ratios = [f"{ratio(times, found[other]):.2f}" for other in (BOUND, ADAMW_BOUND, OURS)]
        milliseconds = [f"{1000 * value:.1f}" for value in (statistics.median(times), min(times), max(times))]
        rows.append([model, parameters, system, *milliseconds, *ratios])
    report(asked.output, COLUMNS, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
