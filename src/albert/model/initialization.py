"""Every initial value, in one function (paper §4.1 follows BERT: truncated normal, zero biases)."""

from torch import nn


def initialize(module: nn.Module, standard_deviation: float) -> None:
    """Set all parameters below `module`.

    Matrices and embeddings are drawn from a normal distribution cut at two standard deviations, biases are 0, LayerNorm
    starts as the identity. Draws come from torch's global generator: seed it before.
    """
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            bound = 2 * standard_deviation
            nn.init.trunc_normal_(part.weight, std=standard_deviation, a=-bound, b=bound)
            if isinstance(part, nn.Linear):
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
            nn.init.zeros_(part.bias)
