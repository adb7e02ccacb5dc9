"""Every initial value (paper §4.1 follows BERT: truncated normal, zero biases)."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


def initialize(module: nn.Module, standard_deviation: float) -> None:
    """Set all parameters below `module`.

    Matrices and embeddings are drawn from a normal distribution cut at two standard deviations, biases are 0, LayerNorm
    starts as the identity. Draws come from torch's global generator: seed it before.
    """
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            bound = 2 * standard_deviation
            nn.init.trunc_normal_(part.weight, std=standard_deviation, a=-bound, b=bound)
            if isinstance(part, nn.Linear) and part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
            nn.init.zeros_(part.bias)


def sinusoids(positions: int, width: int, root_mean_square: float) -> Float[Tensor, "positions width"]:
    """Sines and cosines of the position, of wavelengths from 2π to 10,000·2π (Vaswani et al., 2017, §3.5), scaled.

    The vector of a place some tokens away is a rotation of the vector of a place, the same everywhere: one linear map
    finds a neighbour. Random vectors have to be learnt before there is such a map.

    Args:
        positions: how many.
        width: of each vector.
        root_mean_square: of all numbers.
    """
    wavelengths = 10_000 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.arange(positions, dtype=torch.float64)[:, None] / wavelengths
    waves = torch.stack((angles.sin(), angles.cos()), dim=2).flatten(1)[:, :width]
    return (waves * (root_mean_square / math.sqrt(float(waves.square().mean())))).float()


@contextmanager
def without_memory() -> Iterator[None]:
    """Modules that are built in this context have shapes alone (torch's meta device): weights are to be put in."""
    with torch.device("meta"), _NothingDrawn():
        yield


class _NothingDrawn(TorchFunctionMode):
    """Leaves out what torch's modules draw when they are built: on the meta device that takes a second of imports."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        if getattr(function, "__module__", None) == nn.init.__name__:
            return args[0] if args else given["tensor"]
        return function(*args, **given)
