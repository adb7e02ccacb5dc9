"""Position embeddings for more positions than were trained, or for fewer.

Fewer are the first ones. More are made of the trained ones in one of two ways, with P trained and P′ wanted:

tile           row i is row i mod P: what is not longer than before is computed as before (Beltagy et al. 2020, §5,
               begin Longformer so).
interpolate    row i is read at i·(P − 1)/(P′ − 1) of the trained table, linearly between its two neighbours, as
               vision transformers do (Dosovitskiy et al. 2021, §3.2): the order stays, short sequences change too.
"""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from albert.model.config import Extension
from albert.runtime.errors import InvalidConfiguration


def resize_positions(
    table: Float[Tensor, "positions E"], wanted: int, trained: int, how: Extension | None
) -> Float[Tensor, "wanted E"]:
    """A position table of another length.

    Args:
        table: of the trained model.
        wanted: rows of the result, P′.
        trained: rows that training ever reached, P; the rest of the table is what it was drawn as.
        how: how rows behind the trained ones are made; None: tiled where the table has none, else left as they are.
    """
    if how is None and wanted <= len(table):
        return table[:wanted]
    if wanted <= trained:
        return table[:wanted]
    if how == "interpolate":
        places = torch.arange(wanted, dtype=torch.float64) * (trained - 1) / (wanted - 1)
        left = places.floor().long().clamp(max=trained - 1)
        right = (left + 1).clamp(max=trained - 1)
        share = (places - left).to(table.dtype)[:, None]
        return torch.lerp(table[left], table[right], share)
    return table[torch.arange(wanted) % trained]


def positions_note(before: int, wanted: int, trained: int, how: Extension | None) -> str | None:
    """The change in words; None when there is none."""
    if wanted <= trained or (how is None and wanted <= before):
        return None if wanted == before else f"{before:,} → {wanted:,} positions, the first ones"
    return f"{before:,} → {wanted:,} positions, {trained:,} trained ones extended by {how or 'tile'}"


def trained_length(extra: Mapping[str, Any]) -> int | None:
    """The positions that a model's training reached; None where its `config.json` does not say.

    A pre-trained model says it as `max_sequence_length`. In a fine-tuned one that is the length of its task, and
    `trained_positions` is what it started with.

    Args:
        extra: the keys of `config.json` beside the configuration.

    Raises:
        InvalidConfiguration: what it says is no length.
    """
    key = "trained_positions" if "finetuning" in extra else "max_sequence_length"
    kept = extra.get(key)
    if kept is not None and (not isinstance(kept, int) or kept < 1):
        raise InvalidConfiguration(f"config.json: {key}", f"is {kept!r}, a length is needed")
    return kept
