"""Data of a fine-tuning run: splits read and encoded, and the batch of each step.

Which examples make up step n is a pure function of the seed and n. Every epoch goes through all examples in its own
order; a batch that reaches the end of one epoch goes on with the next. The batch of a step is dealt to the ranks in
turn and cut into micro-batches of so many tokens, sorted by length, without padding."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from albert.model.packing import PackedSequences, pack
from albert.runtime.random_streams import stream
from albert.tasks.examples import (
    IGNORE_INDEX,
    Example,
    Features,
    Sequences,
    is_labelled,
    span_features,
    tag_features,
    text_features,
    to_examples,
)
from albert.tasks.metrics import count_invalid_continuations, tag_scheme
from albert.tasks.race import option_features
from albert.tasks.task import Labels, Option, Span, Tags, Task, TaskRecipe
from albert.text.tokenizer import Tokenizer
from albert.training.update import equal_parts


@dataclass(frozen=True)
class TaskBatch:
    """Packed sequences and what is to be learnt: label ids or numbers [examples], which labels are true [examples,
    labels], spans [examples, 2], or label ids of the tokens that are judged [tokens].

    Spans are first and last token of the answer, counted from the beginning of their sequence. An example is one
    sequence, or as many as it has options. Tokens that are not judged have `IGNORE_INDEX` for a target.

    Attributes:
        states: what a frozen encoder gives for these tokens at each depth, where that is known.
        teacher: a teacher's logits or numbers, where there is one.
    """

    packed: PackedSequences
    targets: Int[Tensor, "targets ..."] | Float[Tensor, "examples ..."]
    term: str
    states: Float[Tensor, "depths tokens H"] | None = None
    teacher: Float[Tensor, "examples outputs"] | None = None

    @property
    def counts(self) -> Mapping[str, int]:
        """The denominator of the one loss term: examples, or the tokens that are judged."""
        if self.targets.dtype == torch.int64 and self.targets.dim() == 1:
            return {self.term: int((self.targets != IGNORE_INDEX).sum())}
        return {self.term: len(self.targets)}

    @property
    def n_tokens(self) -> int:
        return self.packed.n_tokens

    def to(self, device: torch.device) -> "TaskBatch":
        known = (None if each is None else each.to(device) for each in (self.states, self.teacher))
        return TaskBatch(self.packed.to(device), self.targets.to(device), self.term, *known)


@dataclass(frozen=True)
class TaskBatches:
    """The batches of a fine-tuning run.

    Attributes:
        batch_size: examples per step over all ranks.
        micro_batch_tokens: tokens that go through the model at once; a longer single example goes alone.
        n_options: sequences of one example, which follow each other and stay together.
        per_token: whether `targets` are those of tokens; then an example is a sequence.
        workers: that compute at the same time; each gets a part of every micro-batch, with about as many tokens.
        states: of all tokens of `sequences`, float32 on the CPU; see `TaskBatch`.
    """

    sequences: Sequences
    targets: np.ndarray
    term: str
    batch_size: int
    seed: int
    micro_batch_tokens: int
    n_options: int = 1
    per_token: bool = False
    workers: int = 1
    states: Float[Tensor, "depths tokens H"] | None = None
    teacher: Float[np.ndarray, "examples outputs"] | None = None

    @property
    def n_examples(self) -> int:
        """Training examples: questions with their options, or sequences."""
        return len(self.sequences) // self.n_options

    def micro_batches(self, step: int, rank: int, world_size: int) -> list[TaskBatch]:
        """One process's share of the batch of update number `step`."""
        members = batch_members(self.n_examples, self.batch_size, self.seed, step)[rank::world_size]
        lengths = self.sequences.lengths.reshape(-1, self.n_options).sum(axis=1)
        pieces = split_by_tokens(members, lengths, self.micro_batch_tokens)
        return [self.of(piece[part]) for piece in pieces for part in equal_parts(lengths[piece], self.workers)]

    def of(self, members: np.ndarray) -> TaskBatch:
        """Some examples as one batch."""
        sequences = (members[:, None] * self.n_options + np.arange(self.n_options)).ravel()
        places = self.sequences.token_indices(sequences) if self.per_token or self.states is not None else members
        return TaskBatch(
            pack_members(self.sequences, sequences),
            torch.from_numpy(self.targets[places if self.per_token else members]),
            self.term,
            None if self.states is None else self.states[:, torch.from_numpy(places)],
            None if self.teacher is None else torch.from_numpy(self.teacher[members]),
        )


def arrays_fingerprint(*arrays: np.ndarray, about: str = "") -> str:
    """SHA-256 over a text and the bytes of arrays."""
    digest = hashlib.sha256(about.encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


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


# --------------------------------------------------------------------------------------------------------------------
# A split of a task as a model sees it: read, checked, encoded, and everything counted.

UNLABELLED = "unlabelled"


@dataclass(frozen=True)
class PreparedSplit:
    """A split as the model sees it. `counts` tells what was read, cut, relocated, or without a label."""

    split: str
    examples: list[Example]
    features: Features
    counts: Mapping[str, int]

    @property
    def labelled(self) -> bool:
        """Whether the right answers are known."""
        return not self.counts.get(UNLABELLED)


@dataclass(frozen=True)
class Subset:
    """Some rows of a training split: so many, drawn without replacement, a pure function of the seed."""

    examples: int
    seed: int

    def members(self, n_rows: int) -> list[int]:
        """Indices of the rows, in file order; all of them when there are not more."""
        drawn = stream("finetuning.subset", self.seed).permutation(n_rows)[: self.examples]
        return sorted(drawn.tolist())


def prepare_split(task: Task, data: Path, split: str, tokenizer: Tokenizer, recipe: TaskRecipe) -> PreparedSplit:
    """Read and encode a split.

    Raises:
        MissingInput, DamagedData, InvalidConfiguration: see the task's source, `to_examples` and the
            features.
    """
    examples, counts = read_examples(task, data, split)
    return encode_split(task, split, examples, counts, tokenizer, recipe)


def read_examples(
    task: Task, data: Path, split: str, subset: Subset | None = None, needs_labels: bool = True
) -> tuple[list[Example], dict[str, int]]:
    """The examples of a split, or of a subset of it, and what was counted; raises what `prepare_split` does.

    Where labels are not needed, a file without any is counted as that, and not refused.
    """
    rows = task.source.read(data, split)
    chosen = rows.rows if subset is None else [rows.rows[i] for i in subset.members(len(rows.rows))]
    counts = {**rows.counts, "left_out_by_choice": len(rows.rows) - len(chosen)}
    if needs_labels or is_labelled(task, rows.rows):
        return to_examples(task, chosen), counts
    return to_examples(task, chosen, labelled=False), {**counts, UNLABELLED: len(rows.rows)}


def encode_split(
    task: Task,
    split: str,
    examples: list[Example],
    counts: Mapping[str, int],
    tokenizer: Tokenizer,
    recipe: TaskRecipe,
) -> PreparedSplit:
    """Examples as the model sees them, with what was counted before and what was cut now."""
    lengths = (recipe.max_length, recipe.question_length)
    match task.target:
        case Span():
            features = span_features(examples, tokenizer, *lengths, recipe.stride)
        case Option():
            features = option_features(examples, tokenizer, *lengths)
        case Tags():
            features = tag_features(examples, tokenizer, recipe.max_length)
            counts = {**counts, **_contradicting(examples, task.target)}
        case target:
            n_labels = len(target.labels) if isinstance(target, Labels) else None
            features = text_features(examples, tokenizer, recipe.max_length, n_labels)
    return PreparedSplit(split, examples, features, {**counts, **features.counts})


def _contradicting(examples: list[Example], target: Tags) -> dict[str, int]:
    """How many tags go on with an entity that none began, where tags write entities so."""
    if tag_scheme(target.labels) == "plain":
        return {}
    tags = (example.target for example in examples if isinstance(example.target, tuple))
    return {
        "tags_that_continue_nothing": sum(
            count_invalid_continuations([target.labels[t] for t in each]) for each in tags
        )
    }
