"""A model that is given sequences of any lengths: those of like length go through it together, packed."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from albert.model.output_rows import output_rows
from albert.model.packed_sequences import pack


class PackedModel:
    """A model in evaluation mode, the device it computes on, and how much goes through it at once.

    Args:
        model: one of the model classes.
        device: where it computes; the model is moved there.
        micro_batch_tokens: tokens that go through the model at once; a longer single sequence goes alone.
    """

    def __init__(self, model: nn.Module, device: torch.device, micro_batch_tokens: int = 8192) -> None:
        self.model: Any = model.eval().to(device)
        self.device, self.micro_batch_tokens = device, micro_batch_tokens

    def rows(self, token_ids: Sequence[np.ndarray], token_types: Sequence[np.ndarray]) -> list[Any]:
        """What the head gives for each sequence, in the order they came (see `output_rows`)."""
        rows: list[Any] = [None] * len(token_ids)
        for members in self._micro_batches([len(ids) for ids in token_ids]):
            packed = pack([token_ids[member] for member in members], [token_types[member] for member in members])
            with torch.inference_mode():
                found = output_rows(self.model(packed.to(self.device)), packed.lengths)
            for member, row in zip(members, found, strict=True):
                rows[member] = row
        return rows

    def at(self, token_ids: np.ndarray, token_types: np.ndarray, places: np.ndarray) -> Any:
        """What a model with a masked-token head gives for one sequence and these places in it."""
        with torch.inference_mode():
            packed = pack([token_ids], [token_types]).to(self.device)
            return self.model(packed, torch.from_numpy(places).to(self.device))

    def _micro_batches(self, lengths: Sequence[int]) -> list[list[int]]:
        """Places of sequences that go through together, of like length."""
        batches: list[list[int]] = []
        total = 0
        for place in sorted(range(len(lengths)), key=lambda place: lengths[place]):
            total += lengths[place]
            if not batches or total > self.micro_batch_tokens:
                batches.append([])
                total = lengths[place]
            batches[-1].append(place)
        return batches
