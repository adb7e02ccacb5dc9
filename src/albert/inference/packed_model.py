"""A model that is given sequences of any lengths: those of like length go through it together, packed."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

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

    def rows(self, token_ids: Sequence[np.ndarray], token_types: Sequence[np.ndarray]) -> list[np.ndarray]:
        """What the head gives for each sequence, float32, in the order they came.

        Returns:
            [labels] for a classifier, [] for a multiple-choice model, [length, labels] for a token classifier,
            [length, 2] for a span model: start and end.
        """
        rows: list[np.ndarray] = [np.zeros(0)] * len(token_ids)
        for members in self._micro_batches([len(ids) for ids in token_ids]):
            packed = pack([token_ids[member] for member in members], [token_types[member] for member in members])
            with torch.inference_mode():
                found = self.model(packed.to(self.device))
                outputs: Tensor = torch.stack(found, dim=1) if isinstance(found, tuple) else found
                outputs = outputs.float().cpu()
            per_token = len(outputs) == packed.n_tokens  # a sequence has [CLS] and [SEP], so they are never as many
            pieces = outputs.split(packed.lengths) if per_token else outputs.unbind(0)
            for member, piece in zip(members, pieces, strict=True):
                rows[member] = piece.numpy()
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
