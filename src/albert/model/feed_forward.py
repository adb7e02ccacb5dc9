"""The position-wise feed-forward block (paper §3.1; Vaswani et al., 2017, §3.3)."""

from jaxtyping import Float
from torch import Tensor, nn

from albert.model.config import AlbertConfig

ACTIVATIONS: dict[str, nn.Module] = {
    "gelu": nn.GELU(),
    "gelu_new": nn.GELU(approximate="tanh"),
    "relu": nn.ReLU(),
    "tanh": nn.Tanh(),
}
"""By transformers' names; the reference's "gelu" is the tanh form, here "gelu_new"."""


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

    def forward(self, hidden: Float[Tensor, "tokens H"]) -> Float[Tensor, "tokens H"]:
        """Transform every token by itself."""
        return self.layer_norm(hidden + self.dropout(self.output(self.activation(self.intermediate(hidden)))))
