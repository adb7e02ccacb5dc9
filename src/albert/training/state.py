"""The training state in a checkpoint: weights, moments, progress; metric sums; the recorded environment.

Random states are not among it: every draw is a pure function of the seed and the step. Tensors are written whole,
whether each process holds all of them or a share: any number of processes, sharded or not, can go on."""

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
from albert.runtime.errors import DamagedData, InvalidConfiguration
from albert.runtime.files import written_by_library
from albert.runtime.json_files import load_json, save_json
from albert.training.update import DivergenceHistory, UpdateFigures

# --------------------------------------------------------------------------------------------------------------------
# Metric sums over the steps since the last line of the journal.


@dataclass
class Window:
    """Adds up updates that were taken, and becomes one line of the journal.

    It is part of the training state, so that a run resumed in the middle of a window writes the same line.
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

    def add(self, figures: UpdateFigures, seconds: float, flops: float = 0.0) -> None:
        """Add one update."""
        self.steps += 1
        self.tokens += figures.tokens
        self.seconds += seconds
        self.flops += flops
        self.gradient_norm += figures.gradient_norm
        for name, count in figures.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        for mine, more in ((self.losses, figures.losses), (self.correct, figures.correct)):
            for name, value in more.items():
                mine[name] = mine.get(name, 0.0) + value

    def line(self) -> dict[str, float]:
        """Means over the window: the loss, each term's loss and accuracy, gradient norm, tokens per second."""
        means = {f"{name}_loss": self.losses[name] / n for name, n in self.counts.items() if n}
        accuracies = {
            f"{name}_accuracy": n / self.counts[name] for name, n in self.correct.items() if self.counts[name]
        }
        return {
            "loss": sum(means.values()),
            **means,
            **accuracies,
            "gradient_norm": self.gradient_norm / self.steps,
            "tokens_per_second": self.tokens / self.seconds,
        }

    def note(self) -> str:
        """The line for people: "loss 4.213, masked tokens 31.8%, 9,120 tokens/s"."""
        line = self.line()
        accuracies = [
            f"{name.removesuffix('_accuracy').replace('_', ' ')} {value:.1%}"
            for name, value in line.items()
            if name.endswith("_accuracy")
        ]
        return ", ".join([f"loss {line['loss']:.3f}", *accuracies[:1], f"{line['tokens_per_second']:,.0f} tokens/s"])


TENSORS_NAME = "training_state.safetensors"
STATE_NAME = "training_state.json"
_RECORDED_LATER = ("development set",)
"""Fingerprints that older runs did not keep; those go on without them."""


@dataclass(kw_only=True)
class TrainingState:
    """How far a run has come.

    Attributes:
        step: optimiser updates done.
        tokens: over all ranks.
        seconds: in updates, over all parts of the run.
        seconds_of_first: the same by the first rank's clock, before the last update; all ranks have it.
        window: sums since the last line of the journal.
        incidents: updates left out, returns to a checkpoint.
        identity: fingerprints of everything that must not change under a run (recipe, corpus, tokenizer).
        circumstances: what bit-identity rests on besides: torch, threads, world size, parallelism, device.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    seconds_of_first: float = 0.0
    window: Window = field(default_factory=Window)
    incidents: DivergenceHistory = field(default_factory=DivergenceHistory)
    identity: dict[str, str] = field(default_factory=dict)
    circumstances: dict[str, str | int] = field(default_factory=dict)

    def add(self, figures: UpdateFigures, seconds: float, flops: float = 0.0) -> None:
        """Count one update, taken or left out, of `seconds` and so many floating-point operations."""
        self.step += 1
        self.tokens += figures.tokens
        self.seconds += seconds
        if figures.alarm is None:
            self.window.add(figures, seconds, flops)


def training_tensors(model: nn.Module, optimizer: Optimizer, ranks: Ranks) -> dict[str, Tensor]:
    """Weights as `model.NAME` and moments as `MOMENT.NAME`, whole and on the CPU; nothing on ranks but the first.

    All ranks must call this. Sharded tensors are brought together one at a time.
    """
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        kept = {f"{key}.{name}": value for key, value in optimizer.state.get(parameter, {}).items()}
        for full_name, tensor in {f"model.{name}": parameter, **kept}.items():
            complete = gather_full(tensor.detach())
            if ranks.is_first:
                tensors[full_name] = complete.cpu().contiguous()
    return tensors


def write_training_state(directory: Path, tensors: dict[str, Tensor], state: TrainingState) -> None:
    """Write `training_tensors` and `state` into an existing directory."""
    with written_by_library(directory / TENSORS_NAME):
        save_file(tensors, directory / TENSORS_NAME)
    save_json(directory / STATE_NAME, state)


def other_entry(kept: Mapping[str, str], identity: Mapping[str, str]) -> str | None:
    """The first fingerprint that is not the kept one; None where all agree."""
    for key, value in identity.items():
        if kept.get(key) != value and (key in kept or key not in _RECORDED_LATER):
            return key
    return None


def read_training_state(
    directory: Path, model: nn.Module, optimizer: Optimizer, identity: dict[str, str], step: int | None = None
) -> TrainingState:
    """Load weights and moments in place and return how far the run had come.

    Args:
        identity: what must be as it was.
        step: of which update the checkpoint is, as its name says; None: whichever.

    Raises:
        InvalidConfiguration: the run was made with another recipe, corpus or tokenizer.
        DamagedData: the tensors are not those of this model, or of another step.
    """
    state = load_json(TrainingState, directory / STATE_NAME)
    if step is not None and state.step != step:
        why = f"holds the state after step {state.step}, its name says {step}"
        raise DamagedData(directory, why, "remove it to go on from the checkpoint before it")
    if (key := other_entry(state.identity, identity)) is not None:
        remedy = f"give the run's own {key} to resume it, or choose another output"
        raise InvalidConfiguration(directory, f"was trained with another {key}", remedy)
    path = directory / TENSORS_NAME
    try:
        with safe_open(path, "pt") as file:  # type: ignore[no-untyped-call]
            _read_tensors(file, path, model, optimizer)
    except SafetensorError as error:
        raise DamagedData(path, f"is not a safetensors file ({error})") from error
    return state


@torch.no_grad()
def _read_tensors(file: Any, path: Path, model: nn.Module, optimizer: Optimizer) -> None:
    """One tensor at a time, of which a sharded model keeps a share."""
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
        # A count of steps too: torch's fused optimisers read it where they compute.
        kept = tensor.to(parameter.device) if tensor.dim() == 0 else shard_like(tensor, parameter)
        optimizer.state[parameter][key] = kept.clone()


# --------------------------------------------------------------------------------------------------------------------
# The environment that bit-identical resuming needs (device, kernels, versions), and a note when it has changed.


def circumstances(
    ranks: Ranks, device: torch.device, model: nn.Module, precision: Precision, workers: int = 1
) -> dict[str, str | int]:
    """How this process computes: on what, with which kernels, and by how many workers."""
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
    """Say so, on the first rank, when a run goes on where the last bits of its numbers may change.

    Args:
        before: of the checkpoint; what an older version did not record is not compared, but it had one worker.

    Returns:
        What changed, by name: {"before": …, "now": …}.
    """
    known = {**before, "workers": before.get("workers", 1)} if before else {}
    changes = {name: {"before": value, "now": now.get(name)} for name, value in known.items() if value != now.get(name)}
    if changes and ranks.is_first:
        told = ", ".join(f"{name} {one['before']} → {one['now'] or 'none'}" for name, one in changes.items())
        print(f"albert: note: the run goes on with {told}: not bit for bit as before", file=sys.stderr)
    return changes
