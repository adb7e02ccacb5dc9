"""`EncoderConfig`, every published size by name, and the changes that fine-tuning makes (paper §3.1).

Field names are those of `transformers.AlbertConfig`."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from albert.runtime.errors import InvalidConfiguration, require_range

Activation = Literal["gelu", "gelu_new", "relu", "tanh"]
Sharing = Literal["all", "attention", "ffn", "none"]
Family = Literal["albert", "bert", "distilbert", "roberta", "xlm-roberta", "camembert", "electra"]
"""`model_type` in transformers, of the models that are a BERT inside."""
HeadPooling = Literal["pooler", "mean", "cls", "max"]
"""What a head for a whole text reads."""
_MAX_LAYERS = 2**10  # far beyond any model; without a limit a damaged number could fill the memory
MAX_DEPTH_FACTOR = 8
"""Maximum depth as a multiple of the trained depth; larger values are probably typos."""


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """One architecture, of any family: ALBERT's, and those that are the same network without sharing (paper §3.1).

    Raises:
        InvalidConfiguration: sizes that do not fit together.
    """

    vocab_size: int = 30000
    """V, size of the vocabulary."""
    embedding_size: int = 128
    """E, width of the embeddings; E = H gives BERT's unfactorised embeddings."""
    hidden_size: int = 768
    """H, width of the layers."""
    num_hidden_layers: int = 12
    """L, number of layer applications."""
    num_hidden_groups: int = 1
    """Groups of consecutive layers; with sharing "all", the layers of a group share all parameters."""
    inner_group_num: int = 1
    """Number of different layers in a group, applied one after the other."""
    num_attention_heads: int = 12
    """A, attention heads; H must be a multiple of A."""
    intermediate_size: int = 3072
    """F, width of the feed-forward block; 4H in the paper."""
    hidden_act: Activation = "gelu_new"
    """"gelu_new" is the tanh form that Google trained with; "gelu" is the exact one."""
    hidden_dropout_prob: float = 0.0
    """Dropout of hidden values."""
    attention_probs_dropout_prob: float = 0.0
    """Dropout of attention probabilities."""
    classifier_dropout_prob: float = 0.1
    """Dropout before the head of a task, in fine-tuning."""
    max_position_embeddings: int = 512
    """Maximum sequence length, in tokens."""
    type_vocab_size: int = 2
    """Number of token types (segments)."""
    initializer_range: float = 0.02
    """Standard deviation of the truncated normal distribution of initial values."""
    layer_norm_eps: float = 1e-12
    """Added to the variance in layer normalisation."""
    sharing: Sharing = "all"
    """Which parameters all layers share (paper §4.5, Table 4)."""
    embedding_projection: bool | None = None
    """Whether there is a linear map from E to H; None: only if E differs from H (transformers always has one)."""
    segment_types: bool = True
    """Whether the tokens of a second text have the second token type; not in models whose tokenizer gives none."""
    match_embedding: bool = False
    """Whether the last token type embedding is added to the tokens that occur in the other segment, too."""
    family: Family = "albert"
    """Whose files the model is read from and written as; the others than ALBERT share nothing, and have E = H except
    ELECTRA."""
    head_pooling: HeadPooling = "pooler"
    """What a head for a whole text reads: the pooler's output at [CLS], the mean over all tokens, the state at [CLS] or
    the maximum over all tokens. "mean" suits encoders that were trained for sentence vectors."""

    def __post_init__(self) -> None:
        sizes = ("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "num_hidden_groups",
                 "inner_group_num", "num_attention_heads", "intermediate_size", "max_position_embeddings",
                 "type_vocab_size")  # fmt: skip
        require_range(self, "at least 1", *sizes)
        if self.match_embedding and self.type_vocab_size < 3:
            raise InvalidConfiguration(
                "match_embedding", f"needs a third token type, type_vocab_size is {self.type_vocab_size}"
            )
        dropouts = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob")
        require_range(self, "a share from 0 to below 1", *dropouts)
        require_range(self, "a number above 0", "initializer_range", "layer_norm_eps")
        heads = self.num_attention_heads
        groups = self.num_hidden_groups
        layers = self.num_hidden_layers
        if self.hidden_size % heads:
            raise InvalidConfiguration(
                "num_attention_heads", f"{heads} heads do not divide hidden_size {self.hidden_size}"
            )
        if groups > layers:
            raise InvalidConfiguration("num_hidden_groups", f"{groups} groups for {layers} layers")
        if layers % groups:
            raise InvalidConfiguration("num_hidden_groups", f"{groups} groups do not divide {layers} layers")
        depth = layers * self.inner_group_num
        if depth > _MAX_LAYERS:
            raise InvalidConfiguration("num_hidden_layers", f"gives {depth} layers, the limit is {_MAX_LAYERS}")
        if self.sharing != "all" and (groups, self.inner_group_num) != (1, 1):
            raise InvalidConfiguration("sharing", f"{self.sharing!r} with groups", 'groups go with sharing "all"')
        if self.family != "albert":
            shape = {"sharing": "none", "embedding_size": self.hidden_size, "embedding_projection": False,
                     "match_embedding": False}  # fmt: skip
            if self.family == "electra":  # its embeddings are mapped to H, if their width is another
                del shape["embedding_size"]
                del shape["embedding_projection"]
            for name, needed in shape.items():
                value = getattr(self, name)
                if value != needed and not (name == "embedding_projection" and value is None):
                    raise InvalidConfiguration(
                        name, f"is {value!r}, which a model of type {self.family!r} does not have"
                    )
        if self.embedding_projection is False and self.embedding_size != self.hidden_size:
            raise InvalidConfiguration(
                "embedding_projection", f"cannot be off: E {self.embedding_size} is not H {self.hidden_size}"
            )

    @property
    def projects_embeddings(self) -> bool:
        """Whether there is a map from E to H."""
        differs = self.embedding_size != self.hidden_size
        return differs if self.embedding_projection is None else self.embedding_projection

    def with_match_embedding(self) -> "EncoderConfig":
        """The architecture with one more token type, which marks the tokens that occur in the other segment."""
        if self.match_embedding:
            return self
        return replace(self, match_embedding=True, type_vocab_size=self.type_vocab_size + 1)


# --------------------------------------------------------------------------------------------------------------------
# Presets: the rows of Tables 1, 3, 4, 11, 12 and 13 of the paper, the released models, and BERT for comparison.
#
# A name is a size, followed by its differences in the paper's letters: `albert-base-E256-not-shared`,
# `albert-large-L6`. Names are case-insensitive, and "_" may replace "-".

ALBERT_BASE = EncoderConfig()
FULL_WIDTH = ALBERT_BASE.hidden_size
"""H of the narrowest model that has a published recipe."""
_SIZES = {"base": (768, 12), "large": (1024, 24), "xlarge": (2048, 24), "xxlarge": (4096, 12)}
"""H and L; there is a head for every 64 of H, and F is 4H."""
_LETTERS = {"E": "embedding_size", "H": "hidden_size", "L": "num_hidden_layers"}
_DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
_DIFFERENCES: dict[str, dict[str, Any]] = {
    "not": {"sharing": "none"},
    "attention": {"sharing": "attention"},
    "ffn": {"sharing": "ffn"},
    "v1": _DROPOUT,
    "zh": {"vocab_size": 21128, "hidden_act": "relu"},
    "uncased": {"vocab_size": 30522, "hidden_act": "gelu", **_DROPOUT},
}
_EXCEPTIONS: dict[str, dict[str, Any]] = {
    # The released configuration has 16 heads; H/64, as in the paper, would be 32. The weights have the same shapes.
    "albert-xlarge-v1": {"num_attention_heads": 16},
    "albert-xxlarge-v1": dict.fromkeys(_DROPOUT, 0.0),
    "albert-xlarge-zh": {"num_attention_heads": 16, "initializer_range": 0.014},
    "albert-xxlarge-zh": {"num_attention_heads": 16, "initializer_range": 0.01},
}


def bert_control(albert: EncoderConfig) -> EncoderConfig:
    """BERT with the sizes of `albert`: embeddings of width H, no shared parameters (paper Table 1)."""
    return replace(albert, embedding_size=albert.hidden_size, sharing="none")


def _architecture(name: str) -> EncoderConfig:
    family, size, *words = name.split("-")
    hidden_size, layers = _SIZES[size]
    fields: dict[str, Any] = {"hidden_size": hidden_size, "num_hidden_layers": layers}
    for word in words:
        fields |= {_LETTERS[word[0]]: int(word[1:])} if word[1:].isdigit() and word[0] in _LETTERS else {}
        fields |= _DIFFERENCES.get(word, {})
    width = fields["hidden_size"]
    sizes = {"num_attention_heads": width // 64, "intermediate_size": 4 * width}
    config = EncoderConfig(**sizes | fields | _EXCEPTIONS.get(name, {}))
    return bert_control(config) if family == "bert" else config


_NAMES = {
    "Tables 1, 2: ALBERT and BERT": "albert-base albert-large albert-xlarge albert-xxlarge bert-base bert-large "
    "bert-xlarge",
    "Table 3: embedding size E": "albert-base-E64 albert-base-E256 albert-base-E768 albert-base-E64-not-shared "
    "albert-base-not-shared albert-base-E256-not-shared",
    "Table 4: what layers share": "albert-base-shared-attention albert-base-shared-ffn "
    "albert-base-E768-shared-attention albert-base-E768-shared-ffn",
    "Tables 11, 13: depth L": "albert-large-L1 albert-large-L3 albert-large-L6 albert-large-L12 albert-large-L48 "
    "albert-xxlarge-L24",
    "Table 12: width H, of 3 layers": "albert-large-L3-H2048 albert-large-L3-H4096 albert-large-L3-H6144",
    "Version 1, with dropout": "albert-base-v1 albert-large-v1 albert-xlarge-v1",
    "Chinese": "albert-base-zh albert-large-zh albert-xlarge-zh albert-xxlarge-zh",
    "BERT with its own vocabulary": "bert-base-uncased bert-large-uncased",
}
_ALIASES = (
    "albert-base-v2 albert-large-v2 albert-xlarge-v2 albert-xxlarge-v2 albert-xxlarge-v1 albert-base-E128 "
    "albert-base-E768-not-shared albert-base-E128-not-shared albert-base-E128-shared-attention "
    "albert-base-E128-shared-ffn albert-large-L24 albert-large-L3-H1024 albert-xxlarge-L12"
)

PRESET_GROUPS = {title: {name: _architecture(name) for name in names.split()} for title, names in _NAMES.items()}
"""Heading -> name -> architecture. Google's English ALBERTs call the tanh form "gelu"; here it is "gelu_new"."""

PRESETS: dict[str, EncoderConfig] = {name: config for group in PRESET_GROUPS.values() for name, config in group.items()}
"""Name -> architecture."""

_PRESET_OF = {config: name for name, config in PRESETS.items()}
PRESET_ALIASES: dict[str, str] = {alias: _PRESET_OF[_architecture(alias)] for alias in _ALIASES.split()} | {
    size: f"albert-{size}" for size in _SIZES
}
"""Alias -> preset: rows with the same architecture (v2 and xxlarge-v1 have no dropout), and recipe names."""

_BY_SPELLING = {name.lower(): name for name in PRESETS} | {
    name.lower(): preset for name, preset in PRESET_ALIASES.items()
}


def preset_name(name: str) -> str | None:
    """Name of the preset for any spelling or alias (`Albert_Base_V2` -> `albert-base`); None if there is none."""
    return _BY_SPELLING.get(name.lower().replace("_", "-"))


# --------------------------------------------------------------------------------------------------------------------
# Changes of a trained model's architecture.


@dataclass(frozen=True, kw_only=True)
class ArchitectureChanges:
    """Fields of the configuration to change, and whether to extend positions; None: unchanged."""

    num_hidden_layers: int | None = field(default=None, metadata={"key": "depth"})
    """Layers to apply; as many as in training when not set. Half of the layers are half of the work. A shared layer is
    applied more or less often, other layers are repeated or dropped evenly."""
    keep_layers: tuple[int, ...] | None = None
    """The layers to keep of a model whose layers share nothing, from 1: 1,3,5,6 makes four of six layers."""
    num_hidden_groups: int | None = None
    """Number of groups; the layers of a group share their parameters."""
    sharing: Sharing | None = None
    """attention, ffn or none: shared layers become separate layers, which start as copies."""
    num_attention_heads: int | None = None
    """Splits the same weights into another number of heads, for files that state a wrong number."""
    hidden_act: Activation | None = None
    """Activation; gelu_new is the tanh form that Google trained with."""
    max_position_embeddings: int | None = None
    """Number of positions; more allow longer sequences (see extend_positions and max_length)."""
    extend_positions: bool = False
    """Replace positions that pre-training never reached by copies of the trained ones, in turn. Positions that the
    model lacks always begin so."""

    def changed_fields(self) -> dict[str, Any]:
        """The changes as a dictionary of plain values."""
        return {name: value for name, value in asdict(self).items() if value is not None and value is not False}

    def applied_to(self, config: EncoderConfig) -> EncoderConfig:
        """The changed architecture. If it no longer shares layers, groups and inner layers become separate layers.

        Raises:
            InvalidConfiguration: sizes that do not fit together.
        """
        fields = self.changed_fields()
        fields.pop("extend_positions", None)
        layers = config.num_hidden_layers
        depth = self.num_hidden_layers
        if depth is not None and not 1 <= depth <= MAX_DEPTH_FACTOR * layers:
            remedy = f"choose one from 1 to {MAX_DEPTH_FACTOR * layers}"
            raise InvalidConfiguration("depth", f"is {depth}, the model has {layers} layers", remedy)
        kept = fields.pop("keep_layers", None)
        if kept is not None:
            fields |= self._kept_layers(config, kept)
        if self.sharing not in (None, "all") and config.sharing == "all":
            flat = {"num_hidden_layers": config.num_hidden_layers * config.inner_group_num, "num_hidden_groups": 1}
            fields = {**flat, "inner_group_num": 1, **fields}
        try:
            return replace(config, **fields)
        except InvalidConfiguration as error:
            if error.subject not in fields or error.subject == "num_hidden_layers":
                raise
            raise InvalidConfiguration(f"architecture.{error.subject}", error.why, error.remedy) from error

    def _kept_layers(self, config: EncoderConfig, kept: tuple[int, ...]) -> dict[str, int]:
        """The fields that `keep_layers` changes."""
        if self.num_hidden_layers is not None or self.num_hidden_groups is not None or self.sharing is not None:
            why = "cannot be combined with another change of depth or sharing"
            raise InvalidConfiguration("keep_layers", why, "give one of them")
        layers = config.num_hidden_layers
        in_groups = config.sharing == "all" and config.num_hidden_groups == layers
        if not in_groups and config.sharing != "none":
            why = "needs layers that share nothing, those of this model share parameters"
            raise InvalidConfiguration("keep_layers", why, "change the number of layers with depth")
        if list(kept) != sorted(set(kept)) or not kept or not 1 <= kept[0] <= kept[-1] <= layers:
            why = f"is {' '.join(map(str, kept))}, the model has the layers 1 to {layers}"
            raise InvalidConfiguration("keep_layers", why, "name some of them, each once and in order")
        return {"num_hidden_layers": len(kept)} | ({"num_hidden_groups": len(kept)} if in_groups else {})
