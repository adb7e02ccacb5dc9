"""What resuming needs beyond the data: weights, the optimiser's moments, and how far the run had come.

Random states are not among it: every draw is a pure function of the seed and the step. Tensors are written whole,
whether each process holds all of them or a share: any number of processes, sharded or not, can go on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from albert.runtime.durable_files import written_by_library
from albert.runtime.errors import DamagedData, InvalidConfiguration
from albert.runtime.sharding import share_of, whole
from albert.runtime.strict_json import load_json, save_json
from albert.runtime.world import World
from albert.training.divergence import Incidents
from albert.training.update import UpdateFigures
from albert.training.window import Window

TENSORS_NAME = "training_state.safetensors"
STATE_NAME = "training_state.json"
_RECORDED_LATER = ("development set",)
"""Fingerprints that older runs did not keep; those go on without them."""


@dataclass(kw_only=True)
class TrainingState:
    """How far a run has come.

    Attributes:
        step: optimiser updates done.
        tokens: tokens seen, over all ranks.
        seconds: time spent in updates, over all parts of the run.
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
    incidents: Incidents = field(default_factory=Incidents)
    identity: dict[str, str] = field(default_factory=dict)
    circumstances: dict[str, str | int] = field(default_factory=dict)

    def add(self, figures: UpdateFigures, seconds: float, flops: float = 0.0) -> None:
        """Count one update, taken or left out, of `seconds` and so many floating-point operations."""
        self.step += 1
        self.tokens += figures.tokens
        self.seconds += seconds
        if figures.alarm is None:
            self.window.add(figures, seconds, flops)


def training_tensors(model: nn.Module, optimizer: Optimizer, here: World) -> dict[str, Tensor]:
    """Weights as `model.NAME` and moments as `MOMENT.NAME`, whole and on the CPU; nothing on ranks but the first.

    All ranks must call this. Sharded tensors are brought together one at a time.
    """
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        kept = {f"{key}.{name}": value for key, value in optimizer.state.get(parameter, {}).items()}
        for full_name, tensor in {f"model.{name}": parameter, **kept}.items():
            complete = whole(tensor.detach())
            if here.is_first:
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
        directory: the checkpoint.
        model, optimizer: of the run, to be overwritten.
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
        parameter.copy_(share_of(saved, parameter))
    for full_name in sorted(names - {f"model.{name}" for name in parameters}):
        key, _, name = full_name.partition(".")
        if name not in parameters:
            raise DamagedData(path, f"holds {full_name}, which this model does not have")
        tensor = file.get_tensor(full_name)
        kept = tensor if tensor.dim() == 0 else share_of(tensor, parameters[name])
        optimizer.state[parameters[name]][key] = kept.clone()
