"""What resuming needs beyond the data: weights, the optimiser's moments, and how far the run had come.

Random states are not among it: every draw is a pure function of the seed and the step.
"""

from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from torch.optim import Optimizer

from albert.runtime.errors import DamagedData, InvalidConfiguration
from albert.runtime.strict_json import load_json, save_json
from albert.training.update import UpdateFigures
from albert.training.window import Window

TENSORS_NAME = "training_state.safetensors"
STATE_NAME = "training_state.json"


@dataclass(kw_only=True)
class TrainingState:
    """How far a run has come.

    Attributes:
        step: optimiser updates done.
        tokens: tokens seen, over all ranks.
        seconds: time spent in updates, over all parts of the run.
        window: sums since the last line of the journal.
        identity: fingerprints of everything that must not change under a run (recipe, corpus, tokenizer).
        circumstances: what bit-identity rests on besides: torch, threads, world size, device.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    window: Window = field(default_factory=Window)
    identity: dict[str, str] = field(default_factory=dict)
    circumstances: dict[str, str | int] = field(default_factory=dict)

    def add(self, figures: UpdateFigures, seconds: float) -> None:
        """Count one update that took `seconds`."""
        self.step += 1
        self.tokens += figures.tokens
        self.seconds += seconds
        self.window.add(figures, seconds)


def write_training_state(directory: Path, model: nn.Module, optimizer: Optimizer, state: TrainingState) -> None:
    """Write weights, moments and `state` into an existing directory."""
    tensors = {f"model.{name}": parameter.detach().cpu() for name, parameter in model.named_parameters()}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"{key}.{name}"] = value.detach().cpu()
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, directory / TENSORS_NAME)
    save_json(directory / STATE_NAME, state)


def read_training_state(
    directory: Path, model: nn.Module, optimizer: Optimizer, identity: dict[str, str]
) -> TrainingState:
    """Load weights and moments in place and return how far the run had come.

    Raises:
        InvalidConfiguration: the run was made with another recipe, corpus or tokenizer.
        DamagedData: the tensors are not those of this model.
    """
    state = load_json(TrainingState, directory / STATE_NAME)
    for key, value in identity.items():
        if state.identity.get(key) != value:
            why = f"was trained with another {key}"
            remedy = f"give the run's own {key} to resume it, or choose another output"
            raise InvalidConfiguration(directory, why, remedy)
    path = directory / TENSORS_NAME
    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise DamagedData(path, f"is not a safetensors file ({error})") from error
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            saved = tensors.pop(f"model.{name}", None)
            if saved is None or saved.shape != parameter.shape:
                raise DamagedData(path, f"does not hold {name} of shape {list(parameter.shape)}")
            parameter.copy_(saved)
    names = dict(model.named_parameters())
    for full_name, tensor in tensors.items():
        key, _, name = full_name.partition(".")
        if name not in names:
            raise DamagedData(path, f"holds {full_name}, which this model does not have")
        kept = tensor if tensor.dim() == 0 else tensor.to(names[name].device)
        optimizer.state[names[name]][key] = kept.clone()
    return state
