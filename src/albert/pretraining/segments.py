"""Packs sentences into sequences and orders their two segments: SOP, NSP or none.

A sequence holds consecutive whole sentences of one document, up to the maximum length.

How a sequence was cut must not tell which of its segments came first. So no sentence is cut to fit, and sentences are
not added one by one until the next does not fit either: the sentence that did not fit would open the next sequence, so
sentences at the ends of sequences would be longer than those inside, and after a swap the long ones meet in the middle.
That alone answers up to 60 % of the sentence-order questions. Instead a document is halved, by number of sentences,
until every part fits: this depends on the sum of the lengths only, and a sum has no order. Sequences are about a
quarter shorter than the maximum; as no padding is ever computed, this costs nothing.

Where sentences are long compared with a sequence, most of them would be alone and have no order to predict. With
`keep_pairs`, runs of two or three sentences are never halved, and `cut_to_length` shortens those that are too long once
their order is drawn: the first segment of the input loses its front, the second one its end, so that a cut sentence
shows its position in the input and not in the text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from albert.recipes.pretraining import SentenceObjective
from albert.runtime.random_streams import bounded, draw, high_bits, item_keys, low_bits, uniform


@dataclass(frozen=True)
class SequenceTable:
    """Sequences, as global token positions in the corpus, document by document.

    Attributes:
        begin, end: the tokens of each sequence.
        split: where the second segment begins, at a sentence boundary; equal to `end` for a sequence of one sentence,
            which has no order to predict.
        document: the document of each sequence.
    """

    begin: np.ndarray
    split: np.ndarray
    end: np.ndarray
    document: np.ndarray

    def __len__(self) -> int:
        return len(self.begin)

    def take(self, rows: np.ndarray) -> "SequenceTable":
        """Some of the rows, in the given order."""
        return SequenceTable(self.begin[rows], self.split[rows], self.end[rows], self.document[rows])

    @classmethod
    def concatenate(cls, tables: Sequence["SequenceTable"]) -> "SequenceTable":
        """Tables one after the other."""
        columns = ([getattr(table, name) for table in tables] for name in ("begin", "split", "end", "document"))
        return cls(*map(np.concatenate, columns))


@dataclass(frozen=True)
class Documents:
    """Consecutive documents of a corpus.

    Attributes:
        sentence_starts: int64 [sentences + 1], global token positions; the last entry is the end.
        starts: int64 [documents + 1], indices into `sentence_starts`.
        first_sentence, first_document: their numbers in the corpus, so that what is drawn for a document does not
            depend on which others are packed with it.
    """

    sentence_starts: np.ndarray
    starts: np.ndarray
    first_sentence: int = 0
    first_document: int = 0

    def document_of(self, sentences: np.ndarray) -> np.ndarray:
        """The number in the corpus of the document of each sentence."""
        return np.searchsorted(self.starts, sentences, side="right") - 1 + self.first_document


def pack_sentences(
    documents: Documents,
    max_tokens: int,
    short_probability: float,
    seed: int,
    epoch: int,
    keep_pairs: bool = False,
) -> SequenceTable:
    """Cut documents into sequences (paper §4.1; BERT's input format).

    Every token belongs to exactly one sequence. A sentence that is alone and longer than `max_tokens` is cut into equal
    parts, each a sequence without an order to predict.

    Args:
        max_tokens: most tokens of a sequence, special ones not counted.
        short_probability: share of sequences that are cut from a longer one of several sentences, after a sentence
            drawn uniformly; the paper has 10 %.
        seed, epoch: the draws depend on these and the corpus alone.
        keep_pairs: leave no sentence alone that has another in its document; rows may then be longer than `max_tokens`.
    """
    offsets = documents.sentence_starts
    first = documents.first_sentence
    min_sentences = 2 if keep_pairs else 1
    keys = item_keys("segments", seed, epoch, np.arange(3))
    i, j = _halve_documents(documents, max_tokens, min_sentences, keys[0])
    i, j = _cut_short(i, j, short_probability, min_sentences, first, keys[1])
    order = np.argsort(i)
    i = i[order]
    j = j[order]
    # The sentence that opens the second segment, drawn uniformly; `j` where there is only one sentence.
    sentences = j - i
    drawn = uniform(high_bits(draw(keys[2], i + first, j + first)))
    split = np.where(sentences > 1, i + 1 + (drawn * (sentences - 1)).astype(np.int64), j)
    table = SequenceTable(offsets[i], offsets[split], offsets[j], documents.document_of(i))
    return _split_long_sentences(table, sentences, max_tokens)


def _halve_documents(
    documents: Documents, max_tokens: int, min_sentences: int, key: np.uint64
) -> tuple[np.ndarray, np.ndarray]:
    """Sentence ranges [i, j), unordered, none above `max_tokens` unless a half would have too few sentences.

    Where a range is cut depends on its number of sentences and the sum of their lengths alone.
    """
    offsets = documents.sentence_starts
    first = documents.first_sentence
    i = documents.starts[:-1]
    j = documents.starts[1:]
    ranges: list[tuple[np.ndarray, np.ndarray]] = []
    while len(i):  # each round halves all ranges that are too long
        sentences = j - i
        tokens = offsets[j] - offsets[i]
        fits = (sentences < 2 * min_sentences) | (tokens <= max_tokens)
        ranges.append((i[fits], j[fits]))
        i, j, sentences, tokens = (column[~fits] for column in (i, j, sentences, tokens))
        bits = draw(key, i + first, j + first)
        parts = -(-tokens // max_tokens)
        left = parts // 2 + (parts & (bits & np.uint64(1)).astype(np.int64))
        half = (sentences * left / parts + uniform(high_bits(bits))).astype(np.int64)
        middle = i + np.clip(half, min_sentences, sentences - min_sentences)
        i = np.concatenate((i, middle))
        j = np.concatenate((middle, j))
    return np.concatenate([begin for begin, _ in ranges]), np.concatenate([end for _, end in ranges])


def _cut_short(
    i: np.ndarray, j: np.ndarray, short_probability: float, min_sentences: int, first: int, key: np.uint64
) -> tuple[np.ndarray, np.ndarray]:
    """Cut some ranges in two, so that the given share of all ranges is short."""
    cut_probability = short_probability / (2 - short_probability)  # one cut makes two short ranges
    bits = draw(key, i + first, j + first)
    cut = (j - i >= 2 * min_sentences) & (uniform(high_bits(bits)) < cut_probability)
    choices = j[cut] - i[cut] - 2 * min_sentences + 1
    middle = i[cut] + min_sentences + (uniform(low_bits(bits[cut])) * choices).astype(np.int64)
    ends = j.copy()
    ends[cut] = middle
    return np.concatenate((i, middle)), np.concatenate((ends, j[cut]))


def _split_long_sentences(table: SequenceTable, sentences: np.ndarray, max_tokens: int) -> SequenceTable:
    parts = np.where(sentences == 1, -(-(table.end - table.begin) // max_tokens), 1)
    if len(parts) == 0 or parts.max() == 1:
        return table
    rows = np.repeat(np.arange(len(parts)), parts)
    part = np.arange(len(rows)) - np.repeat(np.cumsum(parts) - parts, parts)  # the number of a part in its sentence
    table = table.take(rows)
    parts = parts[rows]
    length = table.end - table.begin
    begin = table.begin + length * part // parts
    end = table.begin + length * (part + 1) // parts
    return SequenceTable(begin, np.where(parts > 1, end, table.split), end, table.document)


# --------------------------------------------------------------------------------------------------------------------
# The inter-sentence objective: sentence order, next sentence, or none (paper §3.1, §4.6).

IN_ORDER = 0
SWAPPED = 1
NO_LABEL = -100
"""The label of sequences that have no order to predict; the loss ignores it."""


class TokenRanges(NamedTuple):
    """Ranges of tokens of the corpus."""

    begin: np.ndarray
    """int64, global token positions."""
    length: np.ndarray
    """int64, 0 for an absent segment."""


class Segments(NamedTuple):
    """The two segments of each sequence in the order of the input, and the labels."""

    first: TokenRanges
    second: TokenRanges
    labels: np.ndarray
    """int64: IN_ORDER, SWAPPED or NO_LABEL."""


def adjacent_segments(sequences: SequenceTable) -> tuple[TokenRanges, TokenRanges]:
    """The two segments of each sequence, in the order of the text."""
    begin = sequences.begin
    split = sequences.split
    end = sequences.end
    return TokenRanges(begin, split - begin), TokenRanges(split, end - split)


def order_segments(
    objective: SentenceObjective,
    first: TokenRanges,
    second: TokenRanges,
    negatives: Callable[[np.ndarray], TokenRanges],
    coins: np.ndarray,
) -> Segments:
    """Turn adjacent segments of documents into labelled examples.

    Args:
        objective: where the coin is true, "sop" swaps the segments and "nsp" replaces the second one by a segment of
            another document; "none" changes nothing and gives no labels.
        first, second: adjacent segments. The second is empty in a sequence of one sentence, which never gets a label or
            a segment of another document (the reference makes 3 to 14 % of its "SOP" pairs that way).
        negatives: returns segments of other documents for the given sequence numbers; called only for "nsp".
        coins: bool, one per sequence.
    """
    labelled = np.zeros(len(coins), dtype=bool) if objective == "none" else second.length > 0
    labels = np.where(labelled, np.where(coins, SWAPPED, IN_ORDER), NO_LABEL)
    changed = labelled & coins
    if objective == "nsp":
        begin = second.begin.copy()
        length = second.length.copy()
        begin[changed], length[changed] = negatives(np.flatnonzero(changed))
        return Segments(first, TokenRanges(begin, length), labels)
    return Segments(_where(changed, second, first), _where(changed, first, second), labels)


def cut_to_length(max_tokens: int, segments: Segments) -> Segments:
    """Shorten pairs above `max_tokens` by taking tokens from the longer segment, then from both in turn.

    The first segment of the input loses its front and the second its end, whichever came first in the text, so the
    remaining tokens are as far from the boundary as those of a pair in the other order.
    """
    first, second, labels = segments
    # Tokens are taken one by one from the longer segment; of equally long ones the second loses the next token.
    excess = np.maximum(first.length + second.length - max_tokens, 0)
    difference = np.clip(first.length - second.length, -excess, excess)
    rest = excess - np.abs(difference)
    from_first = np.maximum(difference, 0) + rest // 2
    from_second = np.maximum(-difference, 0) + rest - rest // 2
    cut_first = TokenRanges(first.begin + from_first, first.length - from_first)
    return Segments(cut_first, TokenRanges(second.begin, second.length - from_second), labels)


def _where(condition: np.ndarray, these: TokenRanges, others: TokenRanges) -> TokenRanges:
    return TokenRanges(*(np.where(condition, *columns) for columns in zip(these, others, strict=True)))


# --------------------------------------------------------------------------------------------------------------------
# Negative examples of next-sentence prediction: second segments from other documents (paper §4.6).

EQUAL_TRIES = 8
TRIES = 40
"""Draws among segments of equal length, and all draws; later ones use a range that doubles each time."""


class NegativeSegments:
    """Samples second segments of a table by length, to follow the first segments of other documents.

    True and negative second segments come from the same set and are equally long, so neither lengths nor the second
    segment alone tell which it is.

    Args:
        table: sequences of at least two documents. Where only one of these has a second segment, sequences of a single
            sentence count as second segments.
    """

    def __init__(self, table: SequenceTable) -> None:
        has_second = table.split < table.end
        begin = np.where(has_second, table.split, table.begin)
        if len(np.unique(table.document[has_second])) < 2:
            has_second |= True
        begin, length = begin[has_second], (table.end - begin)[has_second]
        by_length = np.argsort(length, kind="stable")
        self._begin = begin[by_length]
        self._length = length[by_length]
        self._document = table.document[has_second][by_length]

    def sample(self, document: np.ndarray, length: np.ndarray, room: np.ndarray, keys: np.ndarray) -> TokenRanges:
        """Segments of other documents, of equal length if there is one, else of a similar length.

        Args:
            document: int64 [segments], the document that each must not come from.
            length: int64 [segments], tokens of the segment that each replaces.
            room: int64 [segments], most tokens; a longer segment is cut, and taken only if there is no other.
            keys: uint64 [segments], of the draws.
        """
        first = np.searchsorted(self._length, length)
        last = np.searchsorted(self._length, length, side="right")
        fitting = np.searchsorted(self._length, room, side="right")
        rows = np.zeros(len(keys), dtype=np.int64)
        pending = np.arange(len(keys))
        for attempt in range(TRIES):
            margin = 0 if attempt < EQUAL_TRIES else 1 << (attempt - EQUAL_TRIES)
            begin = np.maximum(first[pending] - margin, 0)
            end = np.minimum(last[pending] + margin, fitting[pending])
            drawn = begin + bounded(high_bits(draw(keys[pending], attempt)), np.maximum(end - begin, 1))
            drawn = np.minimum(drawn, len(self._length) - 1)
            accepted = (self._document[drawn] != document[pending]) & (begin < end)
            rows[pending[accepted]] = drawn[accepted]
            pending = pending[~accepted]
            if len(pending) == 0:
                break
        else:
            # The first row of another document at or after each row; row 0 follows the last one.
            at = first[pending] % len(self._length)
            ends = np.flatnonzero(self._document != np.roll(self._document, -1))
            next_run = (ends[np.searchsorted(ends, at) % len(ends)] + 1) % len(self._document)
            rows[pending] = np.where(self._document[at] != document[pending], at, next_run)
        return TokenRanges(self._begin[rows], np.minimum(self._length[rows], room))
