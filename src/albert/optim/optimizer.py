"""The optimizer of a recipe, and its parameter groups.

LAMB is the paper's optimizer, AdamW the reference's for fine-tuning; Muon learns most from few tokens."""

from collections import defaultdict
from typing import Any

from torch import Tensor, nn
from torch.optim import AdamW, Muon, Optimizer

from albert.optim.lamb import Lamb
from albert.recipes.optimizer import OptimizerRecipe


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups: tensors with weight decay and trust ratio, and LayerNorm and biases without (reference
    `optimization.py`). A shared tensor appears once."""
    plain = {id(p) for part in model.modules() if isinstance(part, nn.LayerNorm) for p in part.parameters()}
    plain |= {id(p) for name, p in model.named_parameters() if name.rsplit(".", 1)[-1] == "bias"}
    parameters = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in parameters if id(p) not in plain], "weight_decay": weight_decay, "adapt": True},
        {"params": [p for p in parameters if id(p) in plain], "weight_decay": 0.0, "adapt": False},
    ]


class MuonAndAdamW(Optimizer):
    """Muon for the matrices of linear maps; AdamW for embeddings, classifiers, LayerNorm and biases.

    Muon (Jordan et al., 2024) updates a matrix by its orthogonalised mean gradient. The update is scaled by
    0.2 √max(rows, columns) (Liu et al., 2025, "Muon is scalable for LLM training"), which makes it about as large as
    AdamW's, so that both use the same learning rate and weight decay.
    """

    def __init__(self, model: nn.Module, recipe: OptimizerRecipe) -> None:
        linear = {
            id(part.weight)
            for name, part in model.named_modules()
            if isinstance(part, nn.Linear) and not name.endswith("classifier")
        }
        decaying, plain = (group["params"] for group in parameter_groups(model, recipe.weight_decay))
        self._muon = Muon(
            [p for p in decaying if id(p) in linear],
            lr=recipe.learning_rate,
            weight_decay=recipe.weight_decay,
            adjust_lr_fn="match_rms_adamw",
        )
        self._adamw = AdamW(
            [{"params": [p for p in decaying if id(p) not in linear]}, {"params": plain, "weight_decay": 0.0}],
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
        """On the device, 1 to skip the next step, else 0; None: take it."""

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update all parameters. With `found_inf` this waits for the device, because torch's Muon cannot skip a
        step."""
        if self.found_inf is None or not self.found_inf.item():
            self._muon.step()
            self._adamw.step()


def build_optimizer(recipe: OptimizerRecipe, model: nn.Module) -> Optimizer:
    """Build the optimizer of a recipe for the parameters of a model."""
    if recipe.kind == "muon":
        return MuonAndAdamW(model, recipe)
    groups = parameter_groups(model, recipe.weight_decay)
    constants: Any = {"lr": recipe.learning_rate, "betas": (recipe.beta1, recipe.beta2), "eps": recipe.eps}
    if recipe.kind == "lamb":
        return Lamb(groups, **constants, bias_correction=recipe.bias_correction, clamp=recipe.clamp)
    for group in groups:
        del group["adapt"]
    # Fused, in one pass over each tensor: for small batches, updating the word embeddings is most of a step.
    return AdamW(groups, **constants, fused=True)
