"""`Example` and `Features`, the two values by which a task meets the program: what is learned or asked, and token ids.

Here are also the functions that several tasks share on the way from one to the other: sequences of one or two texts,
and long texts in overlapping windows."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from albert.runtime.errors import InvalidConfiguration
from albert.runtime.progress import progress
from albert.tables.table import Answer
from albert.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Example:
    """One example to learn or predict.

    Attributes:
        texts: one or two texts (question, then context), or the words of one text.
        options: the texts of the options; an empty one is absent.
        target: a label id, the index of an option, a number, the ids of the true labels, or an id for each word; None
            for a span, whose gold answers are `answers`, and for what is asked.
        group: examples of the same group are scored together too.
        option_labels: what the options are called in the labels of the file; empty for the names of their columns.
        source, offsets: the text that the words were split from, and the characters of each; empty if words are given.
    """

    identifier: str
    where: str
    texts: tuple[str, ...]
    target: int | float | tuple[int, ...] | None = None
    answers: tuple[Answer, ...] = ()
    options: tuple[str, ...] = ()
    group: str = ""
    option_labels: tuple[str, ...] = ()
    source: str = ""
    offsets: tuple[tuple[int, int], ...] = ()


def asked(*texts: str, **others: Any) -> Example:
    """The example of a request."""
    return Example("", "request", texts, **others)


# --------------------------------------------------------------------------------------------------------------------
# Examples to token ids: sequences of one or two texts.

ENCODING_CHUNK = 2048
MASK = "[MASK]"
IGNORE_INDEX = -100
"""The target of tokens without a label, which torch and transformers leave out of the loss."""


@dataclass(frozen=True)
class Sequences:
    """Token sequences, concatenated in one array.

    Attributes:
        starts: start of each sequence, and the end of the last.
        first_lengths: number of tokens of type 0, up to and including the first `[SEP]`; the rest have type 1.
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

    def token_indices(self, members: np.ndarray) -> np.ndarray:
        """Indices into `tokens` of the tokens of some sequences: int64 [their tokens]."""
        lengths = self.lengths[members]
        starts = np.cumsum(lengths) - lengths
        return np.repeat(self.starts[members] - starts, lengths) + np.arange(lengths.sum())

    def select(self, members: np.ndarray) -> "Sequences":
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths[members])])
        return Sequences(self.tokens[self.token_indices(members)], starts, self.first_lengths[members])


@dataclass(frozen=True, kw_only=True)
class Features:
    """The sequences of examples, their targets, and counts of what was cut.

    Attributes:
        sequences: in the order of the examples; those of an example are adjacent.
        targets: label ids, indices of options or numbers [examples]; true labels, float32 [examples, labels]; first and
            last position of the answer [sequences, 2]; or label ids of tokens [tokens], `IGNORE_INDEX` for none.
        counts: by what is counted.
        example_of: the example of each sequence, int64 [sequences].
        slot_of: its place there, int64 [sequences]: the number of its option (absent ones have no sequence), or window.
        cut: tokens of the text that did not fit, int64 [sequences].
    """

    sequences: Sequences
    targets: np.ndarray
    counts: dict[str, int]
    example_of: np.ndarray
    slot_of: np.ndarray
    cut: np.ndarray

    def only(self, members: np.ndarray, targets: np.ndarray) -> "Features":
        """Some of the sequences, each as an example of its own, with targets."""
        return Features(
            sequences=self.sequences.select(members),
            targets=targets,
            counts=self.counts,
            example_of=np.arange(len(members)),
            slot_of=np.zeros(len(members), np.int64),
            cut=self.cut[members],
        )

    @property
    def cut_of_examples(self) -> list[list[int]]:
        """The tokens cut of the sequences of each example; for examples that have a sequence."""
        ends = np.flatnonzero(np.diff(self.example_of)) + 1
        return [part.tolist() for part in np.split(self.cut, ends)] if len(self.cut) else []


def join_sequences(parts: Sequence[tuple[Sequence[int], int]]) -> Sequences:
    """Sequences from (ids, first length) pairs."""
    lengths = np.fromiter((len(ids) for ids, _ in parts), np.int64, len(parts))
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    tokens = np.fromiter((token for ids, _ in parts for token in ids), np.int32, int(starts[-1]))
    return Sequences(tokens, starts, np.fromiter((first for _, first in parts), np.int32, len(parts)))


def text_features(
    examples: Sequence[Example], tokenizer: Tokenizer, max_length: int, separators: int | None = None
) -> Features:
    """A sequence of one or two texts for each example; targets are label ids, or numbers."""
    sequences, cut = text_sequences([example.texts for example in examples], tokenizer, max_length, separators)
    values = [example.target if isinstance(example.target, int | float) else 0 for example in examples]
    return Features(
        sequences=sequences,
        targets=np.asarray(values, np.float32 if any(isinstance(value, float) for value in values) else np.int64),
        counts={"truncated": int((cut > 0).sum()), "tokens_cut": int(cut.sum())},
        example_of=np.arange(len(cut)),
        slot_of=np.zeros(len(cut), np.int64),
        cut=cut,
    )


def text_sequences(
    rows: Sequence[tuple[str, ...]],
    tokenizer: Tokenizer,
    max_length: int,
    separators: int | None = None,
    masked: bool = False,
) -> tuple[Sequences, np.ndarray]:
    """`[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]` for each row of one text or two, of at most `max_length` tokens.

    Two texts that are too long together lose tokens at their ends, as in `tokenizers` (`keep_longest_first`).

    Args:
        separators: the number of `[SEP]` between two texts; None: as many as the tokenizer has.
        masked: whether a literal `[MASK]`, or the tokenizer's own mask, becomes the mask token.

    Returns:
        The sequences, and the tokens cut of each, int64 [rows].
    """
    of_pair = separators or tokenizer.separators
    most_texts = max(map(len, rows), default=1)
    if max_length - most_texts - (of_pair if most_texts > 1 else 1) < most_texts:
        raise InvalidConfiguration("max_length", f"{max_length} leaves no room for text", "use a larger value")
    texts = list(chain.from_iterable(rows))
    ids, counts = _joined_with_masks(texts, tokenizer) if masked else _joined(texts, tokenizer)
    starts = np.cumsum(counts) - counts
    cls, sep = (np.array([number], np.int32) for number in (tokenizer.cls_id, tokenizer.sep_id))
    pieces = [np.zeros(0, np.int32)]
    lengths = np.zeros(len(rows), np.int64)
    first_lengths = np.zeros(len(rows), np.int32)
    cut = np.zeros(len(rows), np.int64)
    place = 0
    for number, row in enumerate(rows):
        n_texts = len(row)
        own = counts[place : place + n_texts].tolist()
        between = of_pair if n_texts > 1 else 1
        kept = keep_longest_first(own, max_length - n_texts - between)
        start = starts[place]
        pieces += [cls, ids[start : start + kept[0]], *[sep] * between]
        if n_texts > 1:
            start = starts[place + 1]
            pieces += [ids[start : start + kept[1]], sep]
        lengths[number] = sum(kept) + n_texts + between
        first_lengths[number] = kept[0] + 1 + between
        cut[number] = sum(own) - sum(kept)
        place += n_texts
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return Sequences(np.concatenate(pieces), ends, first_lengths), cut


def _joined(texts: Sequence[str], tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """The ids of all texts in one array, and how many each has."""
    ids = [np.zeros(0, np.int32)]
    counts = [np.zeros(0, np.int64)]
    with progress("Encoding", total=len(texts), unit="texts", quiet=len(texts) <= ENCODING_CHUNK) as bar:
        for start in range(0, len(texts), ENCODING_CHUNK):
            chunk = texts[start : start + ENCODING_CHUNK]
            some_ids, some_counts = tokenizer.encode_joined(chunk)
            ids.append(some_ids)
            counts.append(some_counts)
            bar.advance(len(chunk))
    return np.concatenate(ids), np.concatenate(counts)


def _joined_with_masks(texts: Sequence[str], tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """`_joined`, with the mask token for every mask; blanks before it are ignored."""
    own = tokenizer.piece(tokenizer.mask_id)
    divided = [text.replace(own, MASK).split(MASK) for text in texts]
    for parts in divided:
        parts[:-1] = [part.rstrip() for part in parts[:-1]]  # byte-level pieces would hold the blank before a mask
    ids, counts = _joined(list(chain.from_iterable(divided)), tokenizer)
    of_parts = iter(np.split(ids, np.cumsum(counts)[:-1]))
    mask = np.array([tokenizer.mask_id], np.int32)
    pieces = [np.zeros(0, np.int32)]
    lengths = []
    for parts in divided:
        with_masks = [next(of_parts)]
        for _ in parts[1:]:
            with_masks += [mask, next(of_parts)]
        pieces += with_masks
        lengths.append(sum(map(len, with_masks)))
    return np.concatenate(pieces), np.array(lengths, np.int64)


def label_sets(examples: Sequence[Example], n_labels: int) -> np.ndarray:
    """True labels: float32 [examples, labels], 0 or 1."""
    true = np.zeros((len(examples), n_labels), np.float32)
    for row, example in zip(true, examples, strict=True):
        if isinstance(example.target, tuple):
            row[list(example.target)] = 1.0
    return true


def keep_longest_first(lengths: Sequence[int], room: int) -> list[int]:
    """Numbers of tokens to keep of one or two texts that may have `room` tokens together.

    As the strategy `longest_first` of the library `tokenizers`: the shorter text keeps up to half of the room, the
    other one the rest. Of texts of the same length the second keeps the odd token.
    """
    if sum(lengths) <= room:
        return list(lengths)
    if len(lengths) == 1:
        return [room]
    first, second = lengths
    if first <= second:
        kept = min(first, room // 2)
        return [kept, room - kept]
    kept = min(second, room // 2)
    return [room - kept, kept]


def encode_all(texts: Sequence[str], tokenizer: Tokenizer, unit: str = "texts") -> list[list[int]]:
    """Token ids of texts, or of words that stand in a text (`unit` "words"), with a progress bar."""
    encoded: list[list[int]] = []
    with progress("Encoding", total=len(texts), unit=unit) as bar:
        for start in range(0, len(texts), ENCODING_CHUNK):
            chunk = list(texts[start : start + ENCODING_CHUNK])
            encoded += tokenizer.encode_words(chunk) if unit == "words" else tokenizer.encode_batch(chunk)
            bar.advance(len(chunk))
    return encoded


# --------------------------------------------------------------------------------------------------------------------
# Long texts as overlapping windows, in which every token is read and one of which has most context for it.


def cut_windows(n_tokens: int, room: int, stride: int) -> list[tuple[int, int]]:
    """`(start, stop)` of pieces of at most `room` tokens, `stride` apart, that cover all tokens; at least one piece."""
    pieces = []
    start = 0
    while True:
        stop = min(start + room, n_tokens)
        pieces.append((start, stop))
        if stop == n_tokens:
            return pieces
        start += min(stride, room)


def best_windows(pieces: Sequence[tuple[int, int]], n_tokens: int) -> list[np.ndarray]:
    """For each piece, a bool mask of its tokens that have the most context there; each token is in exactly one mask.

    Context is the smaller number of tokens to the left or right, plus 0.01 x the length of the piece, as in the
    reference; the first piece wins a tie.
    """
    most = np.full(n_tokens, -1.0)
    winner = np.zeros(n_tokens, np.int64)
    for row, (start, stop) in enumerate(pieces):
        left = np.arange(stop - start)
        context = np.minimum(left, left[::-1]) + 0.01 * (stop - start)
        more = np.flatnonzero(context > most[start:stop])
        most[start + more] = context[more]
        winner[start + more] = row
    return [winner[start:stop] == row for row, (start, stop) in enumerate(pieces)]
