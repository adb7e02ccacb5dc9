"""Building the optimizer of a recipe, and its parameter groups: LayerNorm and biases have no weight decay.

LAMB is the paper's optimizer, AdamW the reference's for fine-tuning, Muon the one that learns most from few tokens."""

from collections import defaultdict
from typing import Any

from torch import Tensor, nn
from torch.optim import AdamW, Muon, Optimizer

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


class MuonAndAdamW(Optimizer):
    """Muon for the matrices of linear maps, AdamW for embeddings, classifiers, LayerNorm and biases, at one rate.

    Muon (Jordan et al., 2024) moves a matrix by its averaged gradient made orthogonal. Scaled by 0.2 √(rows or columns,
    whichever are more), as Liu et al. (2025, "Muon is scalable for LLM training") do, it moves each weight about as far
    as AdamW, so that rate and weight decay of AdamW serve both.
    """

    def __init__(self, model: nn.Module, recipe: OptimizerRecipe) -> None:
        linear = {
            id(part.weight)
            for name, part in model.named_modules()
            if isinstance(part, nn.Linear) and not name.endswith("classifier")
        }
        decaying, plain = (group["params"] for group in parameter_groups(model, recipe.weight_decay))
        others = [p for p in decaying if id(p) not in linear]
        self._muon = Muon(
            [p for p in decaying if id(p) in linear],
            lr=recipe.learning_rate,
            weight_decay=recipe.weight_decay,
            adjust_lr_fn="match_rms_adamw",
        )
        self._adamw = AdamW(
            [{"params": others}, {"params": plain, "weight_decay": 0.0}],
            lr=recipe.learning_rate,
            betas=(recipe.beta1, recipe.beta2),
            eps=recipe.eps,
            weight_decay=recipe.weight_decay,
            fused=True,
        )
        super().__init__(decaying + plain, {})
        self.param_groups = self._muon.param_groups + self._adamw.param_groups
        self.state = self._muon.state = self._adamw.state = defaultdict(dict)
        self.found_inf: Tensor | None = None
        """On the device, 1 where the next step is to be left out; None: it is taken."""

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move all parameters. With `found_inf` this waits for the device: Muon cannot leave a step out by itself."""
        if self.found_inf is None or not self.found_inf.item():
            self._muon.step()
            self._adamw.step()


def build_optimizer(recipe: OptimizerRecipe, model: nn.Module) -> Optimizer:
    """The optimiser of a recipe over a model's parameters."""
    if recipe.kind == "muon":
        return MuonAndAdamW(model, recipe)
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
