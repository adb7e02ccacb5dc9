"""The encoder: shared blocks applied L times (paper §3.1)."""

from jaxtyping import Float
from torch import Tensor, nn

from albert.model.attention import AttentionBlock
from albert.model.config import AlbertConfig
from albert.model.feed_forward import FeedForwardBlock
from albert.model.packed_sequences import PackedSequences
from albert.model.parameter_sharing import n_attention_blocks, n_feed_forward_blocks, sharing_plan


class Encoder(nn.Module):
    """Attention and feed-forward blocks, each held once, and the plan that says where each is applied."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.plan = sharing_plan(config)
        self.attentions = nn.ModuleList(AttentionBlock(config) for _ in range(n_attention_blocks(config)))
        self.feed_forwards = nn.ModuleList(FeedForwardBlock(config) for _ in range(n_feed_forward_blocks(config)))

    def forward(self, hidden: Float[Tensor, "tokens H"], packed: PackedSequences) -> Float[Tensor, "tokens H"]:
        """Apply all layers."""
        for application in self.plan:
            hidden = self.attentions[application.attention](hidden, packed)
            hidden = self.feed_forwards[application.feed_forward](hidden)
        return hidden
