"""A line for every published size (Lan et al. 2019, Table 1)."""

from dataclasses import replace

from albert.model.config import AlbertConfig

ALBERT_BASE = AlbertConfig()
ALBERT_LARGE = replace(
    ALBERT_BASE, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
)
ALBERT_XLARGE = replace(ALBERT_LARGE, hidden_size=2048, num_attention_heads=32, intermediate_size=8192)
ALBERT_XXLARGE = replace(ALBERT_BASE, hidden_size=4096, num_attention_heads=64, intermediate_size=16384)


def bert_control(albert: AlbertConfig) -> AlbertConfig:
    """The BERT of the same shape: embeddings as wide as the layers, no parameter shared (paper Table 1)."""
    return replace(albert, embedding_size=albert.hidden_size, sharing="none")


PRESETS: dict[str, AlbertConfig] = {
    "albert-base": ALBERT_BASE,
    "albert-large": ALBERT_LARGE,
    "albert-xlarge": ALBERT_XLARGE,
    "albert-xxlarge": ALBERT_XXLARGE,
    "bert-base": bert_control(ALBERT_BASE),
    "bert-large": bert_control(ALBERT_LARGE),
    "bert-xlarge": bert_control(ALBERT_XLARGE),
}
"""The paper's Table 1: ALBERT's four sizes, and the BERT controls with ALBERT's vocabulary."""
