"""The position-wise feed-forward block (paper §3.1; Vaswani et al., 2017, §3.3)."""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from albert.model.config import AlbertConfig
from albert.model.product_type import in_product_type
from albert.runtime.linear_product import linear

ACTIVATIONS: dict[str, nn.Module] = {
    "gelu": nn.GELU(),
    "gelu_new": nn.GELU(approximate="tanh"),
    "relu": nn.ReLU(),
    "tanh": nn.Tanh(),
}
"""By transformers' names; the reference's "gelu" is the tanh form, here "gelu_new"."""


class FeedForwardMatrices(NamedTuple):
    """What a block multiplies by, in the type of products; made once a forward pass, for all layers that share it."""

    intermediate: Float[Tensor, "F H"]
    intermediate_bias: Float[Tensor, " F"]
    output: Float[Tensor, "H F"]
    output_bias: Float[Tensor, " H"]


class FeedForwardBlock(nn.Module):
    """H→F, activation, F→H, and the LayerNorm of the sum with what came in (post-norm).

    Dropout on the output is applied as Google's code does; transformers declares it but leaves it out.
    """

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.intermediate = nn.Linear(config.hidden_size, config.intermediate_size)
        self.output = nn.Linear(config.intermediate_size, config.hidden_size)
        self.layer_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def matrices(self) -> FeedForwardMatrices:
        """As they are now."""
        first, second = self.intermediate, self.output
        return FeedForwardMatrices(*map(in_product_type, (first.weight, first.bias, second.weight, second.bias)))

    def forward(self, hidden: Float[Tensor, "rows H"], matrices: FeedForwardMatrices) -> Float[Tensor, "rows H"]:
        """Transform every row by itself."""
        wide = self.activation(linear(hidden, matrices.intermediate, matrices.intermediate_bias))
        return self.layer_norm(hidden + self.dropout(linear(wide, matrices.output, matrices.output_bias)))
