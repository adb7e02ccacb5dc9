"""The optimiser of a recipe."""

from torch import nn
from torch.optim import AdamW, Optimizer

from albert.optim.lamb import Lamb
from albert.optim.optimizer_recipe import OptimizerRecipe
from albert.optim.parameter_groups import parameter_groups


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
