"""Data of a fine-tuning run: splits that are read and encoded, and the batch of each step.

The examples of step n are a pure function of the seed and n. Every epoch shuffles all examples; a batch at the end of
an epoch continues with the next one. Ranks take the examples of a batch in turn and cut them, sorted by length, into
micro-batches of a number of tokens, without padding."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from albert.model.packing import PackedSequences, pack
from albert.recipes.finetuning import TaskRecipe
from albert.runtime.random_streams import stream
from albert.tasks.declared import DeclaredTask
from albert.tasks.examples import IGNORE_INDEX, Example, Features, Sequences
from albert.tasks.pipeline import Lengths
from albert.text.tokenizer import Tokenizer
from albert.training.update import equal_parts


@dataclass(frozen=True)
class TaskBatch:
    """Packed sequences and their targets.

    Attributes:
        packed: one sequence per example, or one per option.
        targets: label ids or numbers [examples], which labels are true [examples, labels], first and last token of the
            answer within its sequence [examples, 2], or label ids of tokens [tokens], `IGNORE_INDEX` for those without.
        states: a frozen encoder's output for these tokens, if precomputed.
        teacher: a teacher's logits or numbers, if there is one.
        example_of, slot_of: of each sequence, its example in this batch and its option, if an example has several.
        n_slots: options of an example.
        class_weights: in the loss, of each class or tag; of each label where it is false and where it is true.
    """

    packed: PackedSequences
    targets: Int[Tensor, "targets ..."] | Float[Tensor, "examples ..."]
    term: str
    states: Float[Tensor, "tokens H"] | None = None
    teacher: Float[Tensor, "examples outputs"] | None = None
    example_of: Int[Tensor, " sequences"] | None = None
    slot_of: Int[Tensor, " sequences"] | None = None
    class_weights: Float[Tensor, " classes"] | Float[Tensor, "2 labels"] | None = None
    n_slots: int = 1

    @property
    def counts(self) -> Mapping[str, int]:
        """The denominator of the only loss term: the number of examples, or of tokens with a label."""
        if self.targets.dtype == torch.int64 and self.targets.dim() == 1:
            return {self.term: int((self.targets != IGNORE_INDEX).sum())}
        return {self.term: len(self.targets)}

    @property
    def n_tokens(self) -> int:
        return self.packed.n_tokens

    def to(self, device: torch.device) -> "TaskBatch":
        tensors = (self.states, self.teacher, self.example_of, self.slot_of, self.class_weights)
        optional = (None if tensor is None else tensor.to(device) for tensor in tensors)
        return TaskBatch(self.packed.to(device), self.targets.to(device), self.term, *optional, n_slots=self.n_slots)


@dataclass(frozen=True)
class TaskBatches:
    """The batches of a fine-tuning run.

    Attributes:
        batch_size: examples per step over all ranks.
        micro_batch_tokens: tokens per forward pass; a single longer example is a micro-batch of its own.
        example_of, slot_of: of each sequence, its example and its option; the sequences of an example are adjacent and
            stay together. None: every sequence is an example.
        per_token: whether `targets` are per token; then an example is a sequence.
        workers: parallel workers; each gets a part of every micro-batch with about as many tokens.
        states: of all tokens of `sequences`, float32 on the CPU; see `TaskBatch`.
        class_weights: see `TaskBatch`.
    """

    sequences: Sequences
    targets: np.ndarray
    term: str
    batch_size: int
    seed: int
    micro_batch_tokens: int
    example_of: Int[np.ndarray, " sequences"] | None = None
    slot_of: Int[np.ndarray, " sequences"] | None = None
    per_token: bool = False
    workers: int = 1
    states: Float[Tensor, "tokens H"] | None = None
    teacher: Float[np.ndarray, "examples outputs"] | None = None
    class_weights: Float[np.ndarray, " classes"] | Float[np.ndarray, "2 labels"] | None = None

    @cached_property
    def n_sequences(self) -> Int[np.ndarray, " examples"]:
        """Sequences of each example."""
        if self.example_of is None:
            return np.ones(len(self.sequences), np.int64)
        return np.bincount(self.example_of)

    @cached_property
    def n_slots(self) -> int:
        """Options of an example."""
        return 1 if self.slot_of is None else int(self.slot_of.max(initial=0)) + 1

    @property
    def n_examples(self) -> int:
        """Training examples: questions with their options, or sequences."""
        return len(self.n_sequences)

    def micro_batches(self, step: int, rank: int, world_size: int) -> list[TaskBatch]:
        """The share of one rank of the batch of update `step`."""
        members = batch_members(self.n_examples, self.batch_size, self.seed, step)[rank::world_size]
        lengths = self.sequences.lengths
        if self.example_of is not None:
            lengths = np.add.reduceat(lengths, np.cumsum(self.n_sequences) - self.n_sequences)
        pieces = split_by_tokens(members, lengths, self.micro_batch_tokens)
        return [self._batch(piece[part]) for piece in pieces for part in equal_parts(lengths[piece], self.workers)]

    def sequences_of(self, members: np.ndarray) -> np.ndarray:
        """Indices of the sequences of examples."""
        if self.example_of is None:
            return members
        counts = self.n_sequences[members]
        first = np.cumsum(self.n_sequences) - self.n_sequences
        before = np.cumsum(counts) - counts
        return np.repeat(first[members] - before, counts) + np.arange(counts.sum())

    def _batch(self, members: np.ndarray) -> TaskBatch:
        sequences = self.sequences_of(members)
        needs_tokens = self.per_token or self.states is not None
        rows = self.sequences.token_indices(sequences) if needs_tokens else members
        return TaskBatch(
            pack_members(self.sequences, sequences),
            torch.from_numpy(self.targets[rows if self.per_token else members]),
            self.term,
            None if self.states is None else self.states[torch.from_numpy(rows)],
            None if self.teacher is None else torch.from_numpy(self.teacher[members]),
            None
            if self.slot_of is None
            else torch.from_numpy(np.repeat(np.arange(len(members)), self.n_sequences[members])),
            None if self.slot_of is None else torch.from_numpy(self.slot_of[sequences]),
            None if self.class_weights is None else torch.from_numpy(self.class_weights),
            n_slots=self.n_slots,
        )


def balanced_weights(targets: np.ndarray, n_classes: int) -> np.ndarray:
    """Weights with which every class has the same part in the loss, and a mean of 1 over the training set, float32.

    Args:
        targets: class ids, `IGNORE_INDEX` for none; or true labels [examples, labels].

    Returns:
        A weight of each class; of labels [2, labels], where they are false and where they are true. A class without
        an example has 1.
    """
    if targets.ndim == 2:
        true = (targets > 0).sum(axis=0)
        counts = np.stack([len(targets) - true, true])
        total = len(targets)
        parts = 2
    else:
        known = targets[targets != IGNORE_INDEX]
        counts = np.bincount(known, minlength=n_classes)
        total = len(known)
        parts = int((counts > 0).sum())
    weights = total / (parts * np.maximum(counts, 1))
    return np.where(counts > 0, weights, 1.0).astype(np.float32)


def arrays_fingerprint(*arrays: np.ndarray, about: str = "") -> str:
    """SHA-256 over a text and the bytes of arrays."""
    digest = hashlib.sha256(about.encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def pack_members(sequences: Sequences, members: np.ndarray) -> PackedSequences:
    """Pack the sequences with these indices."""
    indices = members.tolist()
    return pack([sequences.token_ids(i) for i in indices], [sequences.token_type_ids(i) for i in indices])


def batch_members(n_examples: int, batch_size: int, seed: int, step: int) -> np.ndarray:
    """Indices of the examples in the batch of update `step` (int64 [batch_size])."""
    epochs, positions = np.divmod(np.arange(step * batch_size, (step + 1) * batch_size), n_examples)
    members = np.empty(batch_size, np.int64)
    for epoch in np.unique(epochs):
        members[epochs == epoch] = _order(n_examples, seed, int(epoch))[positions[epochs == epoch]]
    return members


def split_by_tokens(members: np.ndarray, lengths: np.ndarray, tokens: int) -> list[np.ndarray]:
    """Sort members by length and cut them into pieces of at most `tokens` tokens, with at least one member each."""
    members = members[np.argsort(lengths[members], kind="stable")]
    pieces = []
    first = 0
    total = 0
    for index, length in enumerate(lengths[members]):
        if index > first and total + length > tokens:
            pieces.append(members[first:index])
            first = index
            total = 0
        total += int(length)
    return [*pieces, members[first:]] if len(members) else []


@lru_cache(maxsize=2)
def _order(n_examples: int, seed: int, epoch: int) -> np.ndarray:
    return stream("finetuning.order", seed, epoch).permutation(n_examples)


# --------------------------------------------------------------------------------------------------------------------
# A split of a task: read, checked, encoded, with counts of what was cut or lacks a label.

UNLABELLED = "unlabelled"


@dataclass(frozen=True)
class PreparedSplit:
    """An encoded split. `counts` has the numbers of rows read, cut, relocated, or without a label."""

    split: str
    examples: list[Example]
    features: Features
    counts: Mapping[str, int]

    @property
    def labelled(self) -> bool:
        return not self.counts.get(UNLABELLED)


def prepare_split(
    task: DeclaredTask, data: Path, split: str, tokenizer: Tokenizer, recipe: TaskRecipe
) -> PreparedSplit:
    """Read and encode a split."""
    examples, counts = read_examples(task, data, split)
    return encode_split(task, split, examples, counts, tokenizer, recipe)


def read_examples(
    task: DeclaredTask, data: Path, split: str, limit: int | None = None, seed: int = 0, needs_labels: bool = True
) -> tuple[list[Example], dict[str, int]]:
    """The examples of a split, at most `limit`, drawn without replacement by the seed, in file order; and counts.

    Unless labels are needed, a file without any is accepted and its rows are counted as unlabelled.
    """
    rows = task.source.read(data, split)
    selected = rows.rows
    if limit is not None:
        drawn = stream("finetuning.subset", seed).permutation(len(rows.rows))[:limit]
        selected = [rows.rows[i] for i in sorted(drawn.tolist())]
    counts = {**rows.counts, "left_out_by_choice": len(rows.rows) - len(selected)}
    if needs_labels or task.target.is_labelled(rows.rows):
        return task.examples(selected), counts
    return task.examples(selected, labelled=False), {**counts, UNLABELLED: len(rows.rows)}


def encode_split(
    task: DeclaredTask,
    split: str,
    examples: list[Example],
    counts: Mapping[str, int],
    tokenizer: Tokenizer,
    recipe: TaskRecipe,
) -> PreparedSplit:
    """Encode examples; `counts` are extended by what was cut."""
    lengths = Lengths(recipe.max_length, recipe.question_length, recipe.stride)
    features = task.target.encode(examples, tokenizer, lengths)
    return PreparedSplit(split, examples, features, {**counts, **features.counts})
