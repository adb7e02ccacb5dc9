"""What of a pre-trained model's architecture changes before it learns a task."""

from dataclasses import dataclass, replace
from typing import Any

from albert.model.config import Activation, AlbertConfig, Extension, Sharing
from albert.runtime.strict_json import to_json


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

    def asked(self) -> dict[str, Any]:
        """What is to change, as plain values."""
        return {name: value for name, value in to_json(self).items() if value is not None}

    def applied_to(self, config: AlbertConfig) -> AlbertConfig:
        """The architecture wanted. Inner layers and groups of a model that shares no more are layers of their own.

        Raises:
            InvalidConfiguration: sizes that do not fit together.
        """
        fields = {name: value for name, value in self.asked().items() if name != "extend_positions"}
        if self.sharing not in (None, "all") and config.sharing == "all":
            flat = {"num_hidden_layers": config.num_hidden_layers * config.inner_group_num, "num_hidden_groups": 1}
            fields = {**flat, "inner_group_num": 1, **fields}
        return replace(config, **fields)
