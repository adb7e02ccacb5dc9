"""`AlbertConfig`, every published size by name, and which layers share parameters (paper §3.1).

Field names are those of `transformers.AlbertConfig`. The attention pattern is here too, as sizes by formula."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from albert.runtime.errors import InvalidConfiguration

# --------------------------------------------------------------------------------------------------------------------
# The attention pattern by formula: pairs of tokens that attend to each other, and scores that are computed.
#
# Without a window every token sees every other. With one it sees [CLS] and the tokens at most `window` places away,
# and [CLS] sees all; those scores are computed in blocks (`albert.model.attention`), which are a little
# more.

SMALLEST_BLOCK = 32
"""Tokens; products of smaller blocks would take more time than they leave out."""


def covers(window: int, length: int) -> bool:
    """Whether every token sees every other, as it does without a window: the first behind [CLS] sees the last."""
    return window >= length - 2


def seen_pairs(length: int, window: int | None) -> int:
    """Pairs of a token and one that it sees, itself among them, in one sequence.

    Args:
        length: tokens of the sequence.
        window: tokens to either side; None: all of them.
    """
    if window is None or covers(window, length):
        return length * length
    band = length * (2 * window + 1) - window * (window + 1)  # at each end, the triangle that lies outside
    return band + 2 * (length - 1 - window)  # [CLS] and those too far for the window see each other all the same


def computed_scores(length: int, window: int | None) -> int:
    """Scores that one head computes for one sequence.

    Args:
        length: tokens of the sequence.
        window: tokens to either side; None: all of them.
    """
    blocks, rows, columns = score_matrices(length, window)
    return blocks * rows * columns + (length if blocks > 1 else 0)


def copied_vectors(length: int, window: int | None) -> int:
    """Queries, keys and values of one sequence that are copied to lie beside each other in blocks, in all heads.

    Args:
        length: tokens of the sequence.
        window: tokens to either side; None: all of them.
    """
    if window is None or dense_is_faster(length, window):
        return 0
    blocks, rows, columns = score_matrices(length, window)
    return blocks * (rows + 2 * columns)


def score_matrices(length: int, window: int | None) -> tuple[int, int, int]:
    """How many matrices of scores a head has for one sequence, their rows and their columns, without the row of [CLS].

    Args:
        length: tokens of the sequence.
        window: tokens to either side; None: all of them.
    """
    if window is None or dense_is_faster(length, window):
        return 1, length, length
    block = block_size(window)
    return n_blocks(length, window), block, 1 + 3 * block


def dense_is_faster(length: int, window: int) -> bool:
    """Whether dense attention under a mask is faster: blocks copy what they see, and spare less than a third."""
    return covers(window, length) or 2 * length * length <= 3 * _scores_in_blocks(length, window)


def block_size(window: int) -> int:
    """Tokens of a block; it sees one block to either side, and a window reaches no further."""
    return max(window, SMALLEST_BLOCK)


def n_blocks(length: int, window: int) -> int:
    """Blocks that the tokens behind [CLS] are cut into; the last one is filled up."""
    return -(-(length - 1) // block_size(window))


def _scores_in_blocks(length: int, window: int) -> int:
    block = block_size(window)
    return length + n_blocks(length, window) * block * (1 + 3 * block)


Activation = Literal["gelu", "gelu_new", "relu", "tanh"]
Extension = Literal["interpolate", "tile"]
"""How positions beyond the trained ones are made."""
Sharing = Literal["all", "attention", "ffn", "none"]


@dataclass(frozen=True, kw_only=True)
class AlbertConfig:
    """One model architecture (paper §3.1).

    Raises:
        InvalidConfiguration: sizes that do not fit together.
    """

    vocab_size: int = 30000
    """V, pieces in the vocabulary."""
    embedding_size: int = 128
    """E, width of the embeddings; E = H gives BERT's unfactorised ones."""
    hidden_size: int = 768
    """H, width of the layers."""
    num_hidden_layers: int = 12
    """L, how many times a layer is applied."""
    num_hidden_groups: int = 1
    """Groups of consecutive layers; layers of one group are one layer (with sharing "all")."""
    inner_group_num: int = 1
    """Different layers that a group applies one after the other at each visit."""
    num_attention_heads: int = 12
    """A, attention heads; H must be a multiple."""
    intermediate_size: int = 3072
    """F, width inside the feed-forward block; the paper takes 4H."""
    hidden_act: Activation = "gelu_new"
    """"gelu_new" is the tanh form that Google trained with; "gelu" is the exact one."""
    hidden_dropout_prob: float = 0.0
    """Dropout of hidden values."""
    attention_probs_dropout_prob: float = 0.0
    """Dropout of attention probabilities."""
    classifier_dropout_prob: float = 0.1
    """Dropout before a task's head, in fine-tuning."""
    max_position_embeddings: int = 512
    """Positions: the longest sequence, in tokens."""
    type_vocab_size: int = 2
    """Token types: the first and the second segment."""
    initializer_range: float = 0.02
    """Standard deviation of the truncated normal initial values."""
    layer_norm_eps: float = 1e-12
    """Added to the variance in layer normalisation."""
    sharing: Sharing = "all"
    """Which parameters all layers have in common (paper §4.5, Table 4)."""
    embedding_projection: bool | None = None
    """Whether E is mapped to H; None: only where they differ, as the paper has it (transformers always maps)."""
    attention_window: int | None = None
    """Tokens to either side that a token sees beside [CLS], which sees all and is seen by all; None: all tokens."""

    def __post_init__(self) -> None:
        def refuse(subject: str, why: str, remedy: str | None = None) -> None:
            raise InvalidConfiguration(subject, why, remedy)

        for name in ("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "num_hidden_groups",
                     "inner_group_num", "num_attention_heads", "intermediate_size", "max_position_embeddings",
                     "type_vocab_size"):  # fmt: skip
            if getattr(self, name) < 1:
                refuse(name, f"is {getattr(self, name)}, at least 1 is needed")
        if self.attention_window is not None and self.attention_window < 1:
            why = f"is {self.attention_window}, at least 1 is needed"
            refuse("attention_window", why, "without a window attention is dense")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob"):
            if not 0 <= getattr(self, name) < 1:
                refuse(name, f"is {getattr(self, name)}, a share from 0 to below 1 is needed")
        for name in ("initializer_range", "layer_norm_eps"):
            if not getattr(self, name) > 0:
                refuse(name, f"is {getattr(self, name)}, a number above 0 is needed")
        if self.hidden_size % self.num_attention_heads:
            refuse(
                "num_attention_heads",
                f"{self.num_attention_heads} heads do not divide hidden_size {self.hidden_size}",
            )
        if self.num_hidden_groups > self.num_hidden_layers:
            refuse("num_hidden_groups", f"{self.num_hidden_groups} groups for {self.num_hidden_layers} layers")
        if self.num_hidden_layers % self.num_hidden_groups:
            refuse(
                "num_hidden_groups",
                f"{self.num_hidden_groups} groups do not divide {self.num_hidden_layers} layers",
            )
        if self.sharing != "all" and (self.num_hidden_groups, self.inner_group_num) != (1, 1):
            refuse("sharing", f"{self.sharing!r} with groups", 'groups go with sharing "all"')
        if self.embedding_projection is False and self.embedding_size != self.hidden_size:
            refuse("embedding_projection", f"cannot be off: E {self.embedding_size} is not H {self.hidden_size}")

    @property
    def projects_embeddings(self) -> bool:
        """Whether there is a map from E to H."""
        if self.embedding_projection is None:
            return self.embedding_size != self.hidden_size
        return self.embedding_projection

    @property
    def effective_window(self) -> int | None:
        """The window if it changes anything; None for dense attention, which one is that covers all positions."""
        window = self.attention_window
        return None if window is None or covers(window, self.max_position_embeddings) else window


# --------------------------------------------------------------------------------------------------------------------
# A line for every published size: the rows of the paper's tables, the released models, and BERT beside them.
#
# A name is the size, then what differs from it, in the paper's letters: `albert-base-E256-not-shared`, `albert-
# large-L6`. Case and "_" for "-" do not matter. Lan et al. 2019, Tables 1, 3, 4, 11, 12 and 13.

ALBERT_BASE = AlbertConfig()
FULL_WIDTH = ALBERT_BASE.hidden_size
"""H of the narrowest model that a recipe was published for."""
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

PRESET_ALIASES: dict[str, str] = {
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

_BY_SPELLING = {name.lower(): name for name in PRESETS} | {
    name.lower(): meant for name, meant in PRESET_ALIASES.items()
}


def preset_name(name: str) -> str | None:
    """The preset that is meant, however it is spelt; None when there is none: `Albert_Base_V2` -> `albert-base`."""
    return _BY_SPELLING.get(name.lower().replace("_", "-"))


# --------------------------------------------------------------------------------------------------------------------
# Which layers are the same layer (paper §3.1, "cross-layer parameter sharing"; Table 4).
#
# The whole of it is a plan: for each application of a layer, which attention block and which feed-forward block to
# use. Blocks that several applications name exist once in memory.


@dataclass(frozen=True)
class LayerApplication:
    """One of the L steps through the network, as indices of the blocks it uses."""

    attention: int
    feed_forward: int


def sharing_plan(config: AlbertConfig) -> tuple[LayerApplication, ...]:
    """The blocks of every layer application, in order; there are L × inner_group_num of them.

    With sharing "all", layer i belongs to group ⌊i·G/L⌋ (in integers: the reference's floating-point form skips groups
    for some L), and applies that group's inner layers in turn. "attention" or "ffn" share that one block over all
    layers and keep the other of each layer apart; "none" shares nothing.
    """
    layers, groups, inner = config.num_hidden_layers, config.num_hidden_groups, config.inner_group_num
    if config.sharing == "all":
        blocks = [(i * groups // layers) * inner + j for i in range(layers) for j in range(inner)]
        return tuple(LayerApplication(block, block) for block in blocks)
    return tuple(
        LayerApplication(0 if config.sharing == "attention" else i, 0 if config.sharing == "ffn" else i)
        for i in range(layers)
    )


def n_attention_blocks(config: AlbertConfig) -> int:
    """Different attention blocks in memory."""
    return 1 + max(application.attention for application in sharing_plan(config))


def n_feed_forward_blocks(config: AlbertConfig) -> int:
    """Different feed-forward blocks in memory."""
    return 1 + max(application.feed_forward for application in sharing_plan(config))


@dataclass(frozen=True, kw_only=True)
class ArchitectureChanges:
    """Fields of the configuration to set anew, and how positions are extended; what is None stays."""

    num_hidden_layers: int | None = None
    """The same as --depth: a shared layer is applied more or less often, others are repeated in place or left out
    evenly."""
    num_hidden_groups: int | None = None
    """Groups that share one layer each."""
    sharing: Sharing | None = None
    """attention, ffn or none: layers that were shared become layers of their own, and begin as copies."""
    num_attention_heads: int | None = None
    """The same weights cut into another number of heads: for files that state a wrong one."""
    hidden_act: Activation | None = None
    """Another activation: gelu_new is the tanh form that Google trained with."""
    max_position_embeddings: int | None = None
    """Positions; more of them allow longer sequences (see --extend-positions and --max-length)."""
    extend_positions: Extension | None = None
    """How positions beyond the trained ones are made; tile where the model has none and nothing is said."""
    attention_window: int | None = None
    """Tokens to either side that a token sees beside [CLS]; one that covers all positions is dense attention again."""

    def changed_fields(self) -> dict[str, Any]:
        """What is to change, as plain values."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def applied_to(self, config: AlbertConfig) -> AlbertConfig:
        """The architecture wanted. Inner layers and groups of a model that shares no more are layers of their own.

        Raises:
            InvalidConfiguration: sizes that do not fit together.
        """
        fields = {name: value for name, value in self.changed_fields().items() if name != "extend_positions"}
        if self.sharing not in (None, "all") and config.sharing == "all":
            flat = {"num_hidden_layers": config.num_hidden_layers * config.inner_group_num, "num_hidden_groups": 1}
            fields = {**flat, "inner_group_num": 1, **fields}
        return replace(config, **fields)
