"""Factorised embeddings: V×E, then E×H (paper §3.1, "factorized embedding parameterization")."""

from jaxtyping import Float
from torch import Tensor, nn

from albert.model.config import AlbertConfig
from albert.model.packed_sequences import PackedSequences
from albert.model.spare_rows import rows_for_products
from albert.runtime.linear_product import linear


class FactorizedEmbedding(nn.Module):
    """Word, position and segment embeddings in E dimensions, summed, normalised and mapped to H."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        width = config.embedding_size
        self.word_embeddings = nn.Embedding(config.vocab_size, width)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, width)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, width)
        self.layer_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.projection = nn.Linear(width, config.hidden_size) if config.projects_embeddings else None

    def forward(self, packed: PackedSequences) -> Float[Tensor, "tokens H"]:
        """Embed a run of tokens."""
        embedded = (
            self.word_embeddings(packed.token_ids)
            + self.position_embeddings(packed.position_ids)
            + self.token_type_embeddings(packed.token_type_ids)
        )
        embedded = self.dropout(self.layer_norm(embedded))
        if self.projection is None:
            return embedded
        rows = rows_for_products(embedded, packed)
        return linear(rows, self.projection.weight, self.projection.bias)[: len(embedded)]
