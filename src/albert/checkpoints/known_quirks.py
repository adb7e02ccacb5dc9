"""What is known to be doubtful about published models, said when one is opened; their numbers are transformers'."""

from collections.abc import Mapping
from typing import Any

from albert.model.config import AlbertConfig

_RELICS = ("net_structure_type", "gap_size", "num_memory_blocks", "down_scale_factor")
"""Keys that no code reads and that only configurations made from Google's releases have."""
_XLARGE = (2048, 8192)


def known_quirks(config: AlbertConfig, extra: Mapping[str, Any]) -> tuple[str, ...]:
    """A line for each doubt about a model.

    Args:
        config: as the model is opened, that is, after what the user set anew.
        extra: the other keys of `config.json`.
    """
    if not any(key in extra for key in _RELICS):
        return ()
    notes = []
    if config.hidden_act == "gelu":
        notes.append(
            'hidden_act "gelu" is the exact form here as in transformers, but Google trained with the tanh form, '
            '"gelu_new" here; --hidden-act gelu_new computes what Google computed'
        )
    if (config.hidden_size, config.intermediate_size) == _XLARGE:
        notes.append(
            f"num_attention_heads is {config.num_attention_heads}, and ALBERT-xlarge is published with 16 and with 32; "
            "albert info --self-check tells which one these weights know, --num-attention-heads sets it"
        )
    return tuple(notes)
