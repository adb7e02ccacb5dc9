"""The dials of the model: V, E, H, L, A and sharing.

Field names are those of `transformers.AlbertConfig`, which users know.
"""

from dataclasses import dataclass
from typing import Literal

from albert.model.attention_pattern import covers
from albert.runtime.errors import InvalidConfiguration

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
    attention_probs_dropout_prob: float = 0.0
    classifier_dropout_prob: float = 0.1
    """Dropout before a task's head, in fine-tuning."""
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    """Standard deviation of the truncated normal initial values."""
    layer_norm_eps: float = 1e-12
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
