"""A line for every published size: the rows of the paper's tables, the released models, and BERT beside them.

A name is the size, then what differs from it, in the paper's letters: `albert-base-E256-not-shared`,
`albert-large-L6`. Case and "_" for "-" do not matter. Lan et al. 2019, Tables 1, 3, 4, 11, 12 and 13.
"""

from dataclasses import replace

from albert.model.config import AlbertConfig

ALBERT_BASE = AlbertConfig()
ALBERT_LARGE = replace(
    ALBERT_BASE, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
)
ALBERT_XLARGE = replace(ALBERT_LARGE, hidden_size=2048, num_attention_heads=32, intermediate_size=8192)
ALBERT_XXLARGE = replace(ALBERT_BASE, hidden_size=4096, num_attention_heads=64, intermediate_size=16384)

BERT_VOCABULARY, CHINESE_VOCABULARY = 30522, 21128


def bert_control(albert: AlbertConfig) -> AlbertConfig:
    """The BERT of the same shape: embeddings as wide as the layers, no parameter shared (paper Table 1)."""
    return replace(albert, embedding_size=albert.hidden_size, sharing="none")


def _with_dropout(config: AlbertConfig) -> AlbertConfig:
    return replace(config, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)


def _as_released_by_devlin(albert: AlbertConfig) -> AlbertConfig:
    bert = _with_dropout(bert_control(albert))
    return replace(bert, vocab_size=BERT_VOCABULARY, hidden_act="gelu")


def _chinese(albert: AlbertConfig, initializer_range: float = 0.02, heads: int | None = None) -> AlbertConfig:
    return replace(
        albert,
        vocab_size=CHINESE_VOCABULARY,
        hidden_act="relu",
        initializer_range=initializer_range,
        num_attention_heads=heads or albert.num_attention_heads,
    )


def _of_width(hidden_size: int) -> AlbertConfig:
    return replace(
        ALBERT_LARGE,
        num_hidden_layers=3,
        hidden_size=hidden_size,
        num_attention_heads=hidden_size // 64,
        intermediate_size=4 * hidden_size,
    )


PRESET_GROUPS: dict[str, dict[str, AlbertConfig]] = {
    "Tables 1, 2: ALBERT and BERT": {
        "albert-base": ALBERT_BASE,
        "albert-large": ALBERT_LARGE,
        "albert-xlarge": ALBERT_XLARGE,
        "albert-xxlarge": ALBERT_XXLARGE,
        "bert-base": bert_control(ALBERT_BASE),
        "bert-large": bert_control(ALBERT_LARGE),
        "bert-xlarge": bert_control(ALBERT_XLARGE),
    },
    "Table 3: embedding size E": {
        **{f"albert-base-E{e}": replace(ALBERT_BASE, embedding_size=e) for e in (64, 256, 768)},
        "albert-base-E64-not-shared": replace(ALBERT_BASE, embedding_size=64, sharing="none"),
        "albert-base-not-shared": replace(ALBERT_BASE, sharing="none"),
        "albert-base-E256-not-shared": replace(ALBERT_BASE, embedding_size=256, sharing="none"),
    },
    "Table 4: what layers share": {
        "albert-base-shared-attention": replace(ALBERT_BASE, sharing="attention"),
        "albert-base-shared-ffn": replace(ALBERT_BASE, sharing="ffn"),
        "albert-base-E768-shared-attention": replace(ALBERT_BASE, embedding_size=768, sharing="attention"),
        "albert-base-E768-shared-ffn": replace(ALBERT_BASE, embedding_size=768, sharing="ffn"),
    },
    "Tables 11, 13: depth L": {
        **{f"albert-large-L{n}": replace(ALBERT_LARGE, num_hidden_layers=n) for n in (1, 3, 6, 12, 48)},
        "albert-xxlarge-L24": replace(ALBERT_XXLARGE, num_hidden_layers=24),
    },
    "Table 12: width H, of 3 layers": {f"albert-large-L3-H{h}": _of_width(h) for h in (2048, 4096, 6144)},
    "Version 1, with dropout": {
        "albert-base-v1": _with_dropout(ALBERT_BASE),
        "albert-large-v1": _with_dropout(ALBERT_LARGE),
        # The released configuration has 16 heads, the paper's rule H/64 gives 32; the weights have the same shapes.
        "albert-xlarge-v1": replace(_with_dropout(ALBERT_XLARGE), num_attention_heads=16),
    },
    "Chinese": {
        "albert-base-zh": _chinese(ALBERT_BASE),
        "albert-large-zh": _chinese(ALBERT_LARGE),
        "albert-xlarge-zh": _chinese(ALBERT_XLARGE, initializer_range=0.014, heads=16),
        "albert-xxlarge-zh": _chinese(ALBERT_XXLARGE, initializer_range=0.01, heads=16),
    },
    "BERT with its own vocabulary": {
        "bert-base-uncased": _as_released_by_devlin(ALBERT_BASE),
        "bert-large-uncased": _as_released_by_devlin(ALBERT_LARGE),
    },
}
"""Heading -> name -> architecture. What Google's English ALBERTs call "gelu" is the tanh form, here "gelu_new"."""

PRESETS: dict[str, AlbertConfig] = {name: config for group in PRESET_GROUPS.values() for name, config in group.items()}
"""Every architecture by its name."""

OTHER_NAMES: dict[str, str] = {
    "albert-base-v2": "albert-base",
    "albert-large-v2": "albert-large",
    "albert-xlarge-v2": "albert-xlarge",
    "albert-xxlarge-v2": "albert-xxlarge",
    "albert-xxlarge-v1": "albert-xxlarge",
    "albert-base-E128": "albert-base",
    "albert-base-E768-not-shared": "bert-base",
    "albert-base-E128-not-shared": "albert-base-not-shared",
    "albert-base-E128-shared-attention": "albert-base-shared-attention",
    "albert-base-E128-shared-ffn": "albert-base-shared-ffn",
    "albert-large-L24": "albert-large",
    "albert-large-L3-H1024": "albert-large-L3",
    "albert-xxlarge-L12": "albert-xxlarge",
    "base": "albert-base",
    "large": "albert-large",
    "xlarge": "albert-xlarge",
    "xxlarge": "albert-xxlarge",
}
"""Further names: rows that are the same model (version 2 has no dropout, nor has xxlarge of version 1), and recipes."""

_BY_SPELLING = {name.lower(): name for name in PRESETS} | {name.lower(): meant for name, meant in OTHER_NAMES.items()}


def preset_name(name: str) -> str | None:
    """The preset that is meant, however it is spelt; None when there is none: `Albert_Base_V2` -> `albert-base`."""
    return _BY_SPELLING.get(name.lower().replace("_", "-"))
