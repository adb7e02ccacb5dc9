"""Who decays and who adapts: LayerNorm and biases do neither (reference `optimization.py`)."""

from typing import Any

from torch import nn


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
