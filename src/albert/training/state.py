"""The training state in a checkpoint: weights, moments, progress, metric sums, and the recorded environment.

It holds no random states: every draw is a pure function of the seed and the step. Tensors are saved unsharded, so a run
can resume with any number of processes, sharded or not."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from albert.runtime.devices import fp32_library, processor_capabilities, processor_name
from albert.runtime.distributed import gather_full, is_sharded, shard_like
from albert.runtime.environment import Precision, Ranks
from albert.runtime.errors import DamagedData
from albert.runtime.files import library_writes
from albert.runtime.json_files import load_versioned, save_versioned
from albert.training.same_run import require_same_identity
from albert.training.update import DivergenceHistory, UpdateMetrics

# --------------------------------------------------------------------------------------------------------------------
# Metric sums since the last training line of the journal.


@dataclass
class MetricSums:
    """Sums over the updates taken since the last training line of the journal.

    Part of the training state, so that a run resumed in the middle of a window writes the same line.
    """

    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0
    flops: float = 0.0
    """Of the first rank."""
    gradient_norm: float = 0.0
    losses: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    correct: dict[str, float] = field(default_factory=dict)

    def add(self, metrics: UpdateMetrics, seconds: float, flops: float = 0.0) -> None:
        """Add one update."""
        self.steps += 1
        self.tokens += metrics.tokens
        self.seconds += seconds
        self.flops += flops
        self.gradient_norm += metrics.gradient_norm
        for name, count in metrics.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        for sums, values in ((self.losses, metrics.losses), (self.correct, metrics.correct)):
            for name, value in values.items():
                sums[name] = sums.get(name, 0.0) + value

    def line(self) -> dict[str, float]:
        """Means over the window: the loss, each term's loss and accuracy, gradient norm, tokens per second."""
        means = {f"{name}_loss": self.losses[name] / n for name, n in self.counts.items() if n}
        accuracies = {
            f"{name}_accuracy": n / self.counts[name] for name, n in self.correct.items() if self.counts[name]
        }
        rates = {"gradient_norm": self.gradient_norm / self.steps, "tokens_per_second": self.tokens / self.seconds}
        return {"loss": sum(means.values()), **means, **accuracies, **rates}

    def note(self) -> str:
        """Text for the progress bar: "loss 4.213, masked tokens 31.8% in training, 9,120 tokens/s"; of a
        task, which has one loss, "accuracy 95.6% in training"."""
        line = self.line()
        first = next((name for name in line if name.endswith("_accuracy")), None)
        accuracy = ""
        if first is not None:
            what = first.removesuffix("_accuracy").replace("_", " ") if len(self.counts) > 1 else "accuracy"
            accuracy = f" {what} {line[first]:.1%} in training,"
        return f"loss {line['loss']:.3f},{accuracy} {line['tokens_per_second']:,.0f} tokens/s"


TENSORS_NAME = "training_state.safetensors"
STATE_NAME = "training_state.json"


@dataclass(kw_only=True)
class TrainingState:
    """Progress of a run.

    Attributes:
        step: number of optimiser updates.
        tokens: over all ranks.
        seconds: time of all updates, over all parts of the run.
        seconds_of_first: `seconds` of the first rank before the last update, equal on all ranks.
        window: metric sums since the last training line of the journal.
        divergences: skipped updates and rollbacks.
        identity: fingerprints of everything that must not change within a run (recipe, corpus, tokenizer).
        environment: what else bit-identical resuming depends on: torch, threads, world size, parallelism, device.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    seconds_of_first: float = 0.0
    window: MetricSums = field(default_factory=MetricSums)
    divergences: DivergenceHistory = field(default_factory=DivergenceHistory)
    identity: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str | int] = field(default_factory=dict)

    def add(self, metrics: UpdateMetrics, seconds: float, flops: float = 0.0) -> None:
        """Count one update, taken or skipped."""
        self.step += 1
        self.tokens += metrics.tokens
        self.seconds += seconds
        if metrics.non_finite is None:
            self.window.add(metrics, seconds, flops)


def training_tensors(model: nn.Module, optimizer: Optimizer, ranks: Ranks) -> dict[str, Tensor]:
    """Weights as `model.NAME` and moments as `MOMENT.NAME`, unsharded and on the CPU; empty on ranks but the first.

    A collective call, which gathers sharded tensors one at a time.
    """
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        for key, tensor in {"model": parameter, **optimizer.state.get(parameter, {})}.items():
            complete = gather_full(tensor.detach())
            if ranks.is_first:
                tensors[f"{key}.{name}"] = complete.cpu().contiguous()
    return tensors


def write_training_state(directory: Path, tensors: dict[str, Tensor], state: TrainingState) -> None:
    """Write `training_tensors` and `state` into an existing directory."""
    with library_writes(directory / TENSORS_NAME):
        save_file(tensors, directory / TENSORS_NAME)
    save_versioned(directory / STATE_NAME, state)


def read_progress(directory: Path, step: int | None = None) -> TrainingState:
    """The progress of the run in a checkpoint, without its tensors.

    Args:
        step: expected step of the checkpoint; None: any.

    Raises:
        DamagedData: the checkpoint is of another step.
    """
    file = directory / STATE_NAME
    state = load_versioned(TrainingState, file)
    if step is not None and state.step != step:
        why = f"holds the state after step {state.step}, its name says {step}"
        raise DamagedData(directory, why, "remove it to continue from the checkpoint before it")
    return state


def read_training_state(
    directory: Path, model: nn.Module, optimizer: Optimizer, identity: dict[str, str], step: int | None = None
) -> TrainingState:
    """Load weights and moments in place, and return the progress of the run.

    Args:
        identity: fingerprints that must match the saved ones.
        step: expected step of the checkpoint; None: any.

    Raises:
        InvalidConfiguration: the run was trained with another recipe, corpus or tokenizer.
        DamagedData: the tensors do not match this model, or the checkpoint is of another step.
    """
    state = read_progress(directory, step)
    require_same_identity(directory, state.identity, identity)
    path = directory / TENSORS_NAME
    try:
        with safe_open(path, "pt") as file:  # type: ignore[no-untyped-call]
            _read_tensors(file, path, model, optimizer)
    except SafetensorError as error:
        raise DamagedData(path, f"is not a safetensors file ({error})") from error
    return state


@torch.no_grad()
def _read_tensors(file: Any, path: Path, model: nn.Module, optimizer: Optimizer) -> None:
    """Load one tensor at a time; a sharded model keeps its shard."""
    names = set(file.keys())
    parameters = dict(model.named_parameters())
    for name, parameter in parameters.items():
        saved = file.get_tensor(f"model.{name}") if f"model.{name}" in names else None
        if saved is None or saved.shape != parameter.shape:
            raise DamagedData(path, f"does not hold {name} of shape {list(parameter.shape)}")
        parameter.copy_(shard_like(saved, parameter))
    for full_name in sorted(names - {f"model.{name}" for name in parameters}):
        key, _, name = full_name.partition(".")
        if name not in parameters:
            raise DamagedData(path, f"holds {full_name}, which this model does not have")
        tensor = file.get_tensor(full_name)
        parameter = parameters[name]
        # Step counts go to the device, too: torch's fused optimisers read them there.
        moment = tensor.to(parameter.device) if tensor.dim() == 0 else shard_like(tensor, parameter)
        optimizer.state[parameter][key] = moment.clone()


# --------------------------------------------------------------------------------------------------------------------
# Environment that bit-identical resuming depends on (device, kernels, versions), and a note when it has changed.


def training_environment(
    ranks: Ranks, device: torch.device, model: nn.Module, precision: Precision, workers: int = 1
) -> dict[str, str | int]:
    """Device, kernels, versions and parallelism of this process."""
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        machine = {
            "gpu": torch.cuda.get_device_name(device),
            "compute_capability": f"{major}.{minor}",
            "cuda": torch.version.cuda or "none",
            "tf32": "on" if torch.backends.cuda.matmul.allow_tf32 else "off",
            "deterministic": "on" if torch.are_deterministic_algorithms_enabled() else "off",
        }
    else:
        machine = {
            "processor": processor_name(),
            "capabilities": processor_capabilities(),
            "fp32_products": fp32_library(),
        }
    return {
        "torch": torch.__version__,
        "device": device.type,
        **machine,
        "precision": precision,
        "threads": torch.get_num_threads(),
        "workers": workers,
        "world_size": ranks.size,
        "parallelism": "sharded" if is_sharded(model) else "data",
    }


def report_environment_changes(
    before: Mapping[str, str | int], now: Mapping[str, str | int], ranks: Ranks
) -> dict[str, dict[str, Any]]:
    """Print a note, on the first rank, if results may differ in the last bits; returns the changes by name."""
    changes = {name: {"before": old, "now": now.get(name)} for name, old in before.items() if old != now.get(name)}
    if changes and ranks.is_first:
        text = ", ".join(f"{name} {values['before']} → {values['now'] or 'none'}" for name, values in changes.items())
        print(f"albert: note: the run continues with {text}; the result will not be bit-identical", file=sys.stderr)
    return changes
