"""An encoder that stays as it is while pooler and head learn: what it gives is computed once an example.

A frozen encoder is a fixed function: its dropout is off. A head on the pooled sequence reads the state of [CLS] alone,
so one vector a sequence (and exit) is kept for all epochs, and an update costs no pass through the encoder. A head that
reads every token needs all states; where those of the whole training set are more than `MOST_BYTES`, they are computed
anew in each update, without gradients.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from albert.finetuning.batches import pack_members, split_by_tokens
from albert.finetuning.evaluation import Computing
from albert.finetuning.exits import HeadAtDepths
from albert.model.albert import AlbertForMultipleChoice, AlbertForSequenceClassification
from albert.model.packed_sequences import PackedSequences
from albert.runtime.devices import autocast
from albert.runtime.progress import progress
from albert.tasks.features import Sequences

MOST_BYTES = 2**32
"""Of states that are kept; a fixed number, so that a run computes the same on every machine."""


class FrozenEncoder(HeadAtDepths):
    """A model of which only pooler and head learn; for the arguments see `HeadAtDepths`."""

    def __init__(self, model: nn.Module, depths: tuple[int, ...]) -> None:
        super().__init__(model, depths)
        self._fixed = (self.model.albert.embeddings, self.model.albert.encoder)
        for part in self._fixed:
            part.requires_grad_(False)

    def states(self, packed: PackedSequences) -> list[Float[Tensor, "tokens H"]]:
        """What the head reads at each depth: no dropout, no gradients."""
        for part in self._fixed:
            part.eval()
        with torch.no_grad():
            return super().states(packed)


@dataclass(frozen=True)
class KnownStates:
    """What a frozen encoder gives for all sequences.

    Attributes:
        sequences: of the tokens whose states are kept: all of them, or [CLS] alone.
        states: one row for each of these tokens, at each depth; float32, on the CPU.
    """

    sequences: Sequences
    states: Float[Tensor, "depths tokens H"]

    def of(self, members: np.ndarray) -> Float[Tensor, "depths tokens H"]:
        """The states of some sequences' tokens, one sequence after the other."""
        return self.states[:, torch.from_numpy(self.sequences.places(members))]


def known_states(frozen: FrozenEncoder, sequences: Sequences, computing: Computing) -> KnownStates | None:
    """What the encoder gives for all sequences, computed once; None where that is too much to keep.

    Args:
        frozen: on its device already.
        sequences: of the training set.
        computing: where and how.
    """
    first_alone = isinstance(frozen.model, AlbertForSequenceClassification | AlbertForMultipleChoice)
    kept = _first_tokens(sequences) if first_alone else sequences
    shape = (len(frozen.depths), len(kept.tokens), frozen.model.config.hidden_size)
    if 4 * np.prod(shape, dtype=np.int64) > MOST_BYTES:
        return None
    states = torch.empty(shape)
    pieces = split_by_tokens(np.arange(len(sequences)), sequences.lengths, computing.micro_batch_tokens)
    with progress("Encoding once", total=len(sequences), unit="sequences") as bar:
        for piece in pieces:
            packed = pack_members(sequences, piece).to(computing.device)
            with autocast(computing.device, computing.precision):
                found = torch.stack([each.float() for each in frozen.states(packed)])
            rows = found[:, packed.first_positions] if first_alone else found
            states[:, torch.from_numpy(kept.places(piece))] = rows.cpu()
            bar.advance(len(piece))
    return KnownStates(kept, states)


def _first_tokens(sequences: Sequences) -> Sequences:
    """Each sequence's [CLS], as a sequence of its own."""
    n = len(sequences)
    return Sequences(sequences.tokens[sequences.starts[:-1]], np.arange(n + 1), np.ones(n, np.int32))
