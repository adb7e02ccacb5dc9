"""Training batches of a task: which examples make up step n is a pure function of the seed and n.

Every epoch goes through all examples in its own order; a batch that reaches the end of one epoch goes on with
the next. The batch of a step is dealt to the ranks in turn and cut into micro-batches of so many tokens,
sorted by length, without padding.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from albert.model.packed_sequences import PackedSequences, pack
from albert.runtime.randomness import stream
from albert.tasks.features import Sequences
from albert.tasks.words import NOT_JUDGED


@dataclass(frozen=True)
class TaskBatch:
    """Packed sequences and what is to be learnt: label ids or numbers [examples], which labels are true [examples,
    labels], spans [examples, 2], or label ids of the tokens that are judged [tokens].

    Spans are first and last token of the answer, counted from the beginning of their sequence. An example is one
    sequence, or as many as it has options. Tokens that are not judged have `NOT_JUDGED` for a target.
    """

    packed: PackedSequences
    targets: Int[Tensor, "targets ..."] | Float[Tensor, "examples ..."]
    term: str

    @property
    def counts(self) -> Mapping[str, int]:
        """The denominator of the one loss term: examples, or the tokens that are judged."""
        if self.targets.dtype == torch.int64 and self.targets.dim() == 1:
            return {self.term: int((self.targets != NOT_JUDGED).sum())}
        return {self.term: len(self.targets)}

    @property
    def n_tokens(self) -> int:
        """Tokens that pass through the model."""
        return self.packed.n_tokens

    def to(self, device: torch.device) -> "TaskBatch":
        """The same batch on a device."""
        return TaskBatch(self.packed.to(device), self.targets.to(device), self.term)


@dataclass(frozen=True)
class TaskBatches:
    """The batches of a fine-tuning run.

    Args:
        sequences: all training sequences.
        targets: one entry (or row) per example, or per token.
        term: name of the loss term.
        batch_size: examples per step over all ranks.
        seed: of the order.
        micro_batch_tokens: tokens that go through the model at once; a longer single example goes alone.
        n_options: sequences of one example, which follow each other and stay together.
        per_token: whether `targets` are those of tokens; then an example is a sequence.
    """

    sequences: Sequences
    targets: np.ndarray
    term: str
    batch_size: int
    seed: int
    micro_batch_tokens: int
    n_options: int = 1
    per_token: bool = False

    @property
    def n_examples(self) -> int:
        """Training examples: questions with their options, or sequences."""
        return len(self.sequences) // self.n_options

    def micro_batches(self, step: int, rank: int, world_size: int) -> list[TaskBatch]:
        """One process's share of the batch of update number `step`."""
        return [self.of(members) for members in self.pieces(step, rank, world_size)]

    def pieces(self, step: int, rank: int, world_size: int) -> list[np.ndarray]:
        """Indices of the examples in each of these micro-batches."""
        members = batch_members(self.n_examples, self.batch_size, self.seed, step)[rank::world_size]
        lengths = self.sequences.lengths.reshape(-1, self.n_options).sum(axis=1)
        return split_by_tokens(members, lengths, self.micro_batch_tokens)

    def sequences_of(self, members: np.ndarray) -> np.ndarray:
        """Indices of the sequences of some examples, in their order."""
        return (members[:, None] * self.n_options + np.arange(self.n_options)).ravel()

    def of(self, members: np.ndarray) -> TaskBatch:
        """Some examples as one batch."""
        packed = pack_members(self.sequences, self.sequences_of(members))
        targets = self.targets[self.sequences.places(members) if self.per_token else members]
        return TaskBatch(packed, torch.from_numpy(targets), self.term)


def pack_members(sequences: Sequences, members: np.ndarray) -> PackedSequences:
    """Some of the sequences as one run of tokens."""
    chosen = members.tolist()
    return pack([sequences.token_ids(i) for i in chosen], [sequences.token_type_ids(i) for i in chosen])


def batch_members(n_examples: int, batch_size: int, seed: int, step: int) -> np.ndarray:
    """Indices of the examples in the batch of update number `step` (int64 [batch_size])."""
    places = np.arange(step * batch_size, (step + 1) * batch_size)
    epochs, within = np.divmod(places, n_examples)
    members = np.empty(batch_size, np.int64)
    for epoch in np.unique(epochs):
        members[epochs == epoch] = _order(n_examples, seed, int(epoch))[within[epochs == epoch]]
    return members


def split_by_tokens(members: np.ndarray, lengths: np.ndarray, tokens: int) -> list[np.ndarray]:
    """Members sorted from short to long and cut into pieces of at most `tokens` tokens (at least one member
    each).
    """
    members = members[np.argsort(lengths[members], kind="stable")]
    pieces, first, total = [], 0, 0
    for place, length in enumerate(lengths[members]):
        if place > first and total + length > tokens:
            pieces.append(members[first:place])
            first, total = place, 0
        total += int(length)
    return [*pieces, members[first:]] if len(members) else []


@lru_cache(maxsize=2)
def _order(n_examples: int, seed: int, epoch: int) -> np.ndarray:
    return stream("finetuning.order", seed, epoch).permutation(n_examples)
