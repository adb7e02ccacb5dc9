"""Examples to token ids: `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`, cut to a length, every cut counted."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from albert.runtime.errors import InvalidConfiguration
from albert.runtime.progress import progress
from albert.tasks.examples import Example
from albert.text.tokenizer import Tokenizer

ENCODING_CHUNK = 2048


@dataclass(frozen=True)
class Sequences:
    """Many token sequences, end to end, in one array each for ids and boundaries.

    `starts` has one entry per sequence and a last one for the end; `first_lengths` counts the tokens up to
    and including the first `[SEP]`, which have type 0 (the rest have type 1).
    """

    tokens: np.ndarray
    starts: np.ndarray
    first_lengths: np.ndarray

    def __len__(self) -> int:
        return len(self.first_lengths)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens per sequence, int64 [sequences]."""
        return np.diff(self.starts)

    def token_ids(self, index: int) -> np.ndarray:
        """int64 [length]"""
        return self.tokens[self.starts[index] : self.starts[index + 1]].astype(np.int64)

    def token_type_ids(self, index: int) -> np.ndarray:
        """int64 [length]: 0 up to and including the first `[SEP]`, then 1."""
        types = np.ones(self.starts[index + 1] - self.starts[index], np.int64)
        types[: self.first_lengths[index]] = 0
        return types

    def places(self, members: np.ndarray) -> np.ndarray:
        """Where the tokens of these sequences are in `tokens`, one sequence after the other: int64 [their tokens]."""
        lengths = self.lengths[members]
        starts = np.cumsum(lengths) - lengths
        return np.repeat(self.starts[members] - starts, lengths) + np.arange(lengths.sum())

    def select(self, members: np.ndarray) -> "Sequences":
        """The sequences with these indices, in this order."""
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths[members])])
        return Sequences(self.tokens[self.places(members)], starts, self.first_lengths[members])


@dataclass(frozen=True)
class TextFeatures:
    """Sequences in the order of the examples, their targets, how many were cut, and by how many tokens.

    Targets are label ids or numbers [examples], or which labels are true: float32 [examples, labels].
    """

    sequences: Sequences
    targets: np.ndarray
    truncated: int
    tokens_cut: int


def join_sequences(parts: Sequence[tuple[Sequence[int], int]]) -> Sequences:
    """Sequences from (ids, first length) pairs."""
    lengths = np.fromiter((len(ids) for ids, _ in parts), np.int64, len(parts))
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    tokens = np.fromiter((token for ids, _ in parts for token in ids), np.int32, int(starts[-1]))
    return Sequences(tokens, starts, np.fromiter((first for _, first in parts), np.int32, len(parts)))


def text_features(
    examples: Sequence[Example], tokenizer: Tokenizer, max_length: int, n_labels: int | None = None
) -> TextFeatures:
    """One sequence per example, at most `max_length` tokens with `[CLS]` and `[SEP]`.

    Two texts are cut longest-first from their ends, as the reference does: one token at a time from the
    longer one, from the second when they are equally long. `n_labels` is the number of labels where any of them
    may be true at once.

    Raises:
        InvalidConfiguration: `max_length` leaves no room for text.
    """
    n_texts = len(examples[0].texts) if examples else 1
    room = max_length - 1 - n_texts
    if room < n_texts:
        raise InvalidConfiguration("max_length", f"{max_length} leaves no room for text", "use a larger value")
    encoded = [_encode_all([example.texts[i] for example in examples], tokenizer) for i in range(n_texts)]
    parts, truncated, tokens_cut = [], 0, 0
    for texts in zip(*encoded, strict=True):
        kept = keep_longest_first([len(ids) for ids in texts], room)
        cut = sum(map(len, texts)) - sum(kept)
        truncated, tokens_cut = truncated + (cut > 0), tokens_cut + cut
        ids = [tokenizer.cls_id]
        for text, count in zip(texts, kept, strict=True):
            ids += [*text[:count], tokenizer.sep_id]
        parts.append((ids, kept[0] + 2))
    targets = _single_targets(examples) if n_labels is None else _label_sets(examples, n_labels)
    return TextFeatures(join_sequences(parts), targets, truncated, tokens_cut)


def _single_targets(examples: Sequence[Example]) -> np.ndarray:
    targets = [0 if example.target is None else example.target for example in examples]
    return np.asarray(targets, np.float32 if any(isinstance(target, float) for target in targets) else np.int64)


def _label_sets(examples: Sequence[Example], n_labels: int) -> np.ndarray:
    true = np.zeros((len(examples), n_labels), np.float32)
    for row, example in zip(true, examples, strict=True):
        if isinstance(example.target, tuple):
            row[list(example.target)] = 1.0
    return true


def keep_longest_first(lengths: Sequence[int], room: int) -> list[int]:
    """How many tokens of one or two texts stay when together they may have `room`.

    The same result as removing single tokens from the longer text, from the second on a tie, until they fit.
    """
    if sum(lengths) <= room:
        return list(lengths)
    if len(lengths) == 1:
        return [room]
    first, second = lengths
    half = room // 2
    if first <= half:
        return [first, room - first]
    if second <= room - half - 1:
        return [room - second, second]
    return [room - half, half]


def _encode_all(texts: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    encoded: list[list[int]] = []
    with progress("Encoding", total=len(texts), unit="texts") as bar:
        for start in range(0, len(texts), ENCODING_CHUNK):
            chunk = list(texts[start : start + ENCODING_CHUNK])
            encoded += tokenizer.encode_batch(chunk)
            bar.advance(len(chunk))
    return encoded
