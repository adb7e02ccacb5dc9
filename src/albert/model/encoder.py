"""The encoder: shared blocks applied L times (paper §3.1)."""

from jaxtyping import Float
from torch import Tensor, nn

from albert.model.attention import AttentionBlock
from albert.model.config import AlbertConfig
from albert.model.feed_forward import FeedForwardBlock
from albert.model.packed_sequences import PackedSequences
from albert.model.parameter_sharing import (
    LayerApplication,
    n_attention_blocks,
    n_feed_forward_blocks,
    sharing_plan,
)


class Encoder(nn.Module):
    """Attention and feed-forward blocks, each held once, and the plan that says where each is applied."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.plan = sharing_plan(config)
        self.attentions = nn.ModuleList(AttentionBlock(config) for _ in range(n_attention_blocks(config)))
        self.feed_forwards = nn.ModuleList(FeedForwardBlock(config) for _ in range(n_feed_forward_blocks(config)))

    def forward(self, hidden: Float[Tensor, "tokens H"], packed: PackedSequences) -> Float[Tensor, "tokens H"]:
        """The output of the last layer."""
        for application in self.plan:
            hidden = self.apply_layer(application, hidden, packed)
        return hidden

    def hidden_states(
        self, hidden: Float[Tensor, "tokens H"], packed: PackedSequences
    ) -> list[Float[Tensor, "tokens H"]]:
        """What goes into the first layer, then every layer's output."""
        states = [hidden]
        for application in self.plan:
            states.append(self.apply_layer(application, states[-1], packed))
        return states

    def apply_layer(
        self, application: LayerApplication, hidden: Float[Tensor, "tokens H"], packed: PackedSequences
    ) -> Float[Tensor, "tokens H"]:
        """One of the steps of the plan."""
        attended = self.attentions[application.attention](hidden, packed)
        return self.feed_forwards[application.feed_forward](attended)
