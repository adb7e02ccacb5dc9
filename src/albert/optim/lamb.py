"""LAMB (You et al., 2019) as ALBERT's reference code has it: no bias correction, no clamp, no clipping inside.

For each parameter tensor w with gradient g:

    m ← β₁ m + (1 − β₁) g        v ← β₂ v + (1 − β₂) g²
    u = m / (√v + ε) + λ w       w ← w − η · φ(‖w‖) / ‖u‖ · u

The trust ratio ‖w‖/‖u‖ is 1 where either norm is 0, and for the tensors of groups with `adapt=False` (LayerNorm and
biases, which also have λ = 0). With `adapt=False` everywhere this is the reference's AdamW.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import Optimizer

from albert.optim.chunked_updates import ChunkedUpdates
from albert.optim.plain_updates import PlainUpdates
from albert.optim.shards import sum_over_shards
from albert.optim.slots import Slot, batches, local_part
from albert.runtime.errors import InvalidConfiguration


class Lamb(Optimizer):
    """LAMB with one trust ratio a tensor; a tensor shared by all layers is one tensor, and so is one that is cut up
    over processes (DTensor).

    On a CPU it takes two passes over memory, and keeps as much for updates as the largest tensor or 64 MB need. The
    bits of a step are the same in every run, and for any number of threads.

    Args:
        params: tensors, or groups of them that may set `lr`, `weight_decay` and `adapt`.
        lr: η, set anew by the schedule before each step.
        betas: β₁ and β₂.
        eps: ε, outside the root.
        weight_decay: λ, inside the adapted update.
        bias_correction: divide m and v by 1 − βᵗ, as the LAMB paper does and the reference does not.
        clamp: (low, high) bounds of ‖w‖ in the ratio, the φ of the LAMB paper; None for the identity.
        adapt: whether the group's tensors use the trust ratio.

    Raises:
        InvalidConfiguration: a value outside its range.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        bias_correction: bool = False,
        clamp: tuple[float, float] | None = None,
        adapt: bool = True,
    ) -> None:
        for name, beta in zip(("beta1", "beta2"), betas, strict=True):
            if not 0 <= beta < 1:
                raise InvalidConfiguration(name, f"is {beta}, a value from 0 to below 1 is needed")
        for name, value in (("learning rate", lr), ("eps", eps), ("weight decay", weight_decay)):
            if not value >= 0:
                raise InvalidConfiguration(name, f"is {value}, at least 0 is needed")
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "bias_correction": bias_correction,
            "clamp": clamp,
            "adapt": adapt,
        }
        super().__init__(params, defaults)

        self._begin_anew()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Forget what is no part of the state: the memory of updates, and the last step's ratios."""
        self._chunked, self._plain = ChunkedUpdates(), PlainUpdates()
        self._ratios: list[Tensor] = []

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update all tensors that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._ratios = []
        for group in self.param_groups:
            for batch in batches([self._slot(weight) for weight in group["params"] if weight.grad is not None]):
                self._update(batch, group)
        return loss

    def statistics(self) -> dict[str, float]:
        """Least, median and largest trust ratio of the last step's adapting tensors; nothing where there are none."""
        if not self._ratios:
            return {}
        low, median, high = torch.cat([ratios.cpu() for ratios in self._ratios]).quantile(
            torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
        )
        return {"trust_ratio_min": float(low), "trust_ratio_median": float(median), "trust_ratio_max": float(high)}

    def _slot(self, parameter: Tensor) -> Slot:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        state["step"] += 1
        assert parameter.grad is not None
        return Slot(
            parameter=parameter,
            weight=local_part(parameter),
            gradient=local_part(parameter.grad).contiguous(),
            mean=local_part(state["exp_avg"]),
            square=local_part(state["exp_avg_sq"]),
            step=state["step"],
        )

    def _update(self, slots: list[Slot], group: dict[str, Any]) -> None:
        way = self._chunked if all(slot.is_flat for slot in slots) else self._plain
        if not group["adapt"]:
            way.move(slots, group)
            return
        updates, squares = way.advance(slots, group)
        ratios = trust_ratios(sum_over_shards(squares, [slot.parameter for slot in slots]), group["clamp"])
        way.apply(slots, updates, ratios * group["lr"])
        self._ratios.append(ratios)


def trust_ratios(
    squares: Float[Tensor, "tensors 2"], clamp: tuple[float, float] | None = None
) -> Float[Tensor, " tensors"]:
    """φ(‖w‖)/‖u‖ of each tensor from ‖w‖² and ‖u‖², or 1 where either is 0."""
    weight_norms, update_norms = squares.sqrt().unbind(1)
    shaped = weight_norms if clamp is None else weight_norms.clamp(*clamp)
    usable = (weight_norms > 0) & (update_norms > 0)
    return torch.where(usable, shaped / update_norms, torch.ones_like(shaped))
