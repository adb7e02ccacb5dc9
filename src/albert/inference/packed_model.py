"""A model that is given sequences of any lengths: those of like length go through it together, packed."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from albert.inference.fast_encoder import use_fast_encoders
from albert.inference.precision import InferencePrecision
from albert.model.albert import PreTrainingLogits
from albert.model.output_rows import output_rows
from albert.model.packed_sequences import pack

_TOKENS_A_THREAD = 512
"""Tokens that each thread of a CPU has at once: what a layer computes of so many stays in the cache."""
_TOKENS_ON_A_GPU = 16384
_LOGIT_ROWS = 1024
"""Rows of vocabulary logits that are computed at once: of 30,000 pieces they take 120 MB."""

BETWEEN_BATCHES: ContextVar[Callable[[], None]] = ContextVar("between_batches", default=lambda: None)
"""Called before each batch that goes through a model at once. A server sets it in its threads, to let others compute
in between, or to stop by an exception."""


class PackedModel:
    """A model in evaluation mode, the device it computes on, and how much goes through it at once.

    Args:
        model: one of the model classes. It is moved to the device, and its encoder is replaced by a `FastEncoder`.
        device: where it computes.
        micro_batch_tokens: tokens that go through the model at once; a longer single sequence goes alone. None: as
            many as are fast there.
        precision: of the encoder's matrix products; heads compute in fp32.

    Raises:
        Unavailable: the device does not compute at that precision.
    """

    def __init__(
        self,
        model: nn.Module,
        device: torch.device,
        micro_batch_tokens: int | None = None,
        precision: InferencePrecision = "fp32",
    ) -> None:
        self.model: Any = model.eval().to(device)
        use_fast_encoders(model, precision)
        fast = _TOKENS_A_THREAD * torch.get_num_threads() if device.type == "cpu" else _TOKENS_ON_A_GPU
        self.device, self.micro_batch_tokens = device, micro_batch_tokens or fast

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Without gradients: for whoever calls the model's parts himself."""
        with torch.inference_mode():
            yield

    def rows(self, token_ids: Sequence[np.ndarray], token_types: Sequence[np.ndarray]) -> list[Any]:
        """What the head gives for each sequence, in the order they came (see `output_rows`)."""
        rows: list[Any] = [None] * len(token_ids)
        for members in self._micro_batches([len(ids) for ids in token_ids]):
            BETWEEN_BATCHES.get()()
            packed = pack([token_ids[member] for member in members], [token_types[member] for member in members])
            with self.computing():
                found = output_rows(self.model(packed.to(self.device)), packed.lengths)
            for member, row in zip(members, found, strict=True):
                rows[member] = row
        return rows

    def at(
        self, token_ids: Sequence[np.ndarray], token_types: Sequence[np.ndarray], places: Sequence[np.ndarray]
    ) -> Iterator[tuple[int, Tensor, Tensor | None]]:
        """What a model with a masked-token head gives for each sequence at these places in it.

        Logits of the vocabulary are long, so they come as they are computed: a sequence's number, its logits
        [places, V], and those of its order [2] if there is a head for it.
        """
        for members in self._micro_batches([len(ids) for ids in token_ids], [len(each) for each in places]):
            BETWEEN_BATCHES.get()()
            packed = pack([token_ids[member] for member in members], [token_types[member] for member in members])
            starts = packed.first_positions.tolist()
            asked = [places[member] + start for member, start in zip(members, starts, strict=True)]
            with self.computing():
                found = self.model(packed.to(self.device), torch.from_numpy(np.concatenate(asked)).to(self.device))
            masked, order = found if isinstance(found, PreTrainingLogits) else (found, None)
            rows = masked.split([len(each) for each in asked])
            for place, (member, row) in enumerate(zip(members, rows, strict=True)):
                yield member, row, None if order is None else order[place]

    def _micro_batches(self, lengths: Sequence[int], rows: Sequence[int] | None = None) -> list[list[int]]:
        """Places of sequences that go through together, of like length; `rows` of logits are asked of each."""
        batches: list[list[int]] = []
        total = asked = 0
        for place in sorted(range(len(lengths)), key=lambda place: lengths[place]):
            own = rows[place] if rows is not None else 0
            total, asked = total + lengths[place], asked + own
            if not batches or total > self.micro_batch_tokens or asked > _LOGIT_ROWS:
                batches.append([])
                total, asked = lengths[place], own
            batches[-1].append(place)
        return batches
