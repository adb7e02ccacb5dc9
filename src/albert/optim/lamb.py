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
from torch import Tensor
from torch.optim import Optimizer

from albert.runtime.errors import InvalidConfiguration


class Lamb(Optimizer):
    """LAMB with one trust ratio a tensor; a tensor shared by all layers is one tensor.

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

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update all tensors that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)
        return loss

    def _update(self, weight: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[weight]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(weight)
            state["exp_avg_sq"] = torch.zeros_like(weight)
        state["step"] += 1
        beta1, beta2 = group["betas"]
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        mean.lerp_(gradient, 1 - beta1)
        square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)

        if group["bias_correction"]:
            taken = float(state["step"])
            denominator = square.sqrt().div_((1 - beta2**taken) ** 0.5).add_(group["eps"])
            update = (mean / (1 - beta1**taken)).div_(denominator)
        else:
            update = mean / square.sqrt().add_(group["eps"])
        if group["weight_decay"]:
            update.add_(weight, alpha=group["weight_decay"])
        if group["adapt"]:
            update.mul_(trust_ratio(weight, update, group["clamp"]))
        weight.sub_(update.mul_(group["lr"]))


def trust_ratio(weight: Tensor, update: Tensor, clamp: tuple[float, float] | None = None) -> Tensor:
    """φ(‖w‖)/‖u‖, or 1 where either norm is 0 (a tensor of no dimensions, left on its device)."""
    weight_norm, update_norm = weight.norm(), update.norm()
    shaped = weight_norm if clamp is None else weight_norm.clamp(*clamp)
    usable = (weight_norm > 0) & (update_norm > 0)
    return torch.where(usable, shaped / update_norm, torch.ones_like(weight_norm))
