"""Building the optimizer of a recipe, and its parameter groups: LayerNorm and biases have no weight decay."""

from typing import Any

from torch import nn
from torch.optim import AdamW, Optimizer

from albert.optim.lamb import Lamb
from albert.optim.recipe import OptimizerRecipe

# --------------------------------------------------------------------------------------------------------------------
# Weight-decay and trust-ratio groups: LayerNorm and biases have neither (reference `optimization.py`).


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups for an optimiser: tensors that decay and adapt, and LayerNorm and biases, which do neither.

    Each tensor appears once however many layers share it.
    """
    plain = {id(p) for part in model.modules() if isinstance(part, nn.LayerNorm) for p in part.parameters()}
    plain |= {id(p) for name, p in model.named_parameters() if name.rsplit(".", 1)[-1] == "bias"}
    parameters = [p for p in model.parameters() if p.requires_grad]
    return [
        {
            "params": [p for p in parameters if id(p) not in plain],
            "weight_decay": weight_decay,
            "adapt": True,
        },
        {"params": [p for p in parameters if id(p) in plain], "weight_decay": 0.0, "adapt": False},
    ]


def build_optimizer(recipe: OptimizerRecipe, model: nn.Module) -> Optimizer:
    """The optimiser of a recipe over a model's parameters."""
    groups = parameter_groups(model, recipe.weight_decay)
    betas = (recipe.beta1, recipe.beta2)
    if recipe.kind == "adamw":
        for group in groups:
            del group["adapt"]
        # One pass over each tensor: for small batches the update of the word pieces is most of a step.
        return AdamW(groups, lr=recipe.learning_rate, betas=betas, eps=recipe.eps, fused=True)
    return Lamb(
        groups,
        lr=recipe.learning_rate,
        betas=betas,
        eps=recipe.eps,
        bias_correction=recipe.bias_correction,
        clamp=recipe.clamp,
    )
