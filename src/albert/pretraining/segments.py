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
from albert.text.shards import TokenCorpus


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


BLOCK_TOKENS = 1 << 20


class CorpusBlocks:
    """A corpus as blocks of whole documents of one shard, of about a million tokens or one longer document.

    A document is in the block of its first token, by the position of that token in the shard. With blocks of 10 tokens,
    documents of 4, 8, 3, 20 and 2 tokens begin at 0, 4, 12, 15 and 35, so in the tens 0, 0, 1, 1 and 3: documents 0 and
    1 are a block, 2 and 3 the next one, and 4 the last one.
    """

    def __init__(self, corpus: TokenCorpus) -> None:
        self._corpus = corpus
        first_document = 0
        first_sentence = 0
        first_token = 0
        blocks = []
        for shard in range(corpus.n_shards):
            lengths = corpus.lengths(shard)
            sentences = starts_of(lengths.documents)
            tokens = starts_of(lengths.sentences)[sentences]
            begin = np.flatnonzero(np.diff(tokens[:-1] // BLOCK_TOKENS, prepend=-1))
            end = np.append(begin[1:], len(lengths.documents))
            columns = (
                np.full(len(begin), shard),
                begin,
                end,
                sentences[begin],
                sentences[end],
                begin + first_document,
                sentences[begin] + first_sentence,
                tokens[begin] + first_token,
            )
            blocks.append(np.stack(columns, axis=1))
            first_document += len(lengths.documents)
            first_sentence += len(lengths.sentences)
            first_token += int(tokens[-1])
        self._blocks = np.concatenate(blocks)
        """int64 [blocks, 8]: its shard; there, its documents from begin to end, and its sentences from begin to end; in
        the corpus, its first document, sentence and token."""

    def __len__(self) -> int:
        return len(self._blocks)

    def documents(self, block: int) -> Documents:
        """The documents of a block, read from the lengths on disk."""
        shard, document, end_document, sentence, end_sentence, *first = self._blocks[block].tolist()
        first_document, first_sentence, first_token = first
        lengths = self._corpus.lengths(shard)
        return Documents(
            sentence_starts=first_token + starts_of(lengths.sentences[sentence:end_sentence]),
            starts=starts_of(lengths.documents[document:end_document]),
            first_sentence=first_sentence,
            first_document=first_document,
        )


def starts_of(lengths: np.ndarray) -> np.ndarray:
    """int64 [n + 1]: where each of consecutive parts begins, and the end; of lengths [3, 1, 2] this is [0, 3, 4, 6]."""
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


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
    first_tokens = documents.sentence_starts
    min_sentences = 2 if keep_pairs else 1
    halving, cutting, splitting = item_keys("segments", seed, epoch, np.arange(3))
    # Every sequence as the sentences [i, j), in the order of the text.
    i, j = _halve_documents(documents, max_tokens, min_sentences, halving)
    i, j = _cut_short(i, j, short_probability, min_sentences, documents.first_sentence, cutting)
    order = np.argsort(i)
    i = i[order]
    j = j[order]
    # The sentence that opens the second segment, drawn uniformly; `j` where there is only one sentence.
    sentences = j - i
    first = documents.first_sentence
    drawn = uniform(high_bits(draw(splitting, i + first, j + first)))
    split = np.where(sentences > 1, i + 1 + (drawn * (sentences - 1)).astype(np.int64), j)
    table = SequenceTable(first_tokens[i], first_tokens[split], first_tokens[j], documents.document_of(i))
    return _split_long_sentences(table, sentences, max_tokens)


def _halve_documents(
    documents: Documents, max_tokens: int, min_sentences: int, key: np.uint64
) -> tuple[np.ndarray, np.ndarray]:
    """Sentence ranges [i, j), unordered, none above `max_tokens` unless a half would have too few sentences.

    Where a range is cut depends on its number of sentences and the sum of their lengths alone.

    A document of 10 sentences and 250 tokens, where 100 are allowed, needs 3 parts. A coin says whether 1 or 2 of them
    are on the left, say 2: then 10 · 2/3 = 6.67 sentences are, 6 or 7 by another draw. The left range, of 7 sentences
    and 180 tokens, say, is cut in the same way in the next round; the right one fits.
    """
    first_tokens = documents.sentence_starts
    i = documents.starts[:-1]
    j = documents.starts[1:]
    fitting: list[tuple[np.ndarray, np.ndarray]] = []
    while len(i):  # each round halves all ranges that are too long
        sentences = j - i
        tokens = first_tokens[j] - first_tokens[i]
        fits = (sentences < 2 * min_sentences) | (tokens <= max_tokens)
        fitting.append((i[fits], j[fits]))
        i, j, sentences, tokens = (column[~fits] for column in (i, j, sentences, tokens))
        bits = draw(key, i + documents.first_sentence, j + documents.first_sentence)
        coin = (bits & np.uint64(1)).astype(np.int64)
        parts = -(-tokens // max_tokens)
        parts_on_left = parts // 2 + parts % 2 * coin
        on_left = (sentences * parts_on_left / parts + uniform(high_bits(bits))).astype(np.int64)
        middle = i + np.clip(on_left, min_sentences, sentences - min_sentences)
        i = np.concatenate((i, middle))
        j = np.concatenate((middle, j))
    return np.concatenate([begin for begin, _ in fitting]), np.concatenate([end for _, end in fitting])


def _cut_short(
    i: np.ndarray, j: np.ndarray, short_probability: float, min_sentences: int, first: int, key: np.uint64
) -> tuple[np.ndarray, np.ndarray]:
    """Cut some ranges in two, so that the given share of all ranges is short.

    One cut makes two short ranges of one range: for a share of 10 %, 1 of 19 is cut, and 2 of 20 are short.
    """
    cut_probability = short_probability / (2 - short_probability)
    bits = draw(key, i + first, j + first)
    cut = (j - i >= 2 * min_sentences) & (uniform(high_bits(bits)) < cut_probability)
    places = j[cut] - i[cut] - 2 * min_sentences + 1
    middle = i[cut] + min_sentences + (uniform(low_bits(bits[cut])) * places).astype(np.int64)
    ends = j.copy()
    ends[cut] = middle
    return np.concatenate((i, middle)), np.concatenate((ends, j[cut]))


def _split_long_sentences(table: SequenceTable, sentences: np.ndarray, max_tokens: int) -> SequenceTable:
    """Cut each sequence of one sentence that is too long into equal parts.

    A sentence of 25 tokens that begins at token 100, where 10 are allowed, becomes the 3 sequences 100 to 107, 108 to
    115 and 116 to 124. `sentences` has the number of each sequence.
    """
    needed = np.where(sentences == 1, -(-(table.end - table.begin) // max_tokens), 1)
    if len(needed) == 0 or needed.max() == 1:
        return table
    rows = np.repeat(np.arange(len(needed)), needed)  # the sequence of each part
    part = np.arange(len(rows)) - np.repeat(np.cumsum(needed) - needed, needed)  # its number in that sequence: 0, 1, …
    table = table.take(rows)
    parts = needed[rows]
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

    Of 12 and 7 tokens, where 10 are allowed, 9 are too many: the first segment loses 5, so that both have 7; of the
    other 4 each loses 2, and both have 5. Of an odd number the second segment loses one more.
    """
    first, second, labels = segments
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

    The segments are sorted by length, say 3, 4, 4, 4, 6, 9 tokens. For a segment of 4 tokens one of the three of 4 is
    drawn; if it is of the same document, another time. After eight draws the range grows, by one row to either side,
    then by two, four and so on: 3 to 6 tokens, then 3 to 9.

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
        first_equal = np.searchsorted(self._length, length)
        after_equal = np.searchsorted(self._length, length, side="right")
        after_fitting = np.searchsorted(self._length, room, side="right")
        rows = np.zeros(len(keys), dtype=np.int64)
        pending = np.arange(len(keys))
        for attempt in range(TRIES):
            margin = 0 if attempt < EQUAL_TRIES else 1 << (attempt - EQUAL_TRIES)
            begin = np.maximum(first_equal[pending] - margin, 0)
            end = np.minimum(after_equal[pending] + margin, after_fitting[pending])
            drawn = begin + bounded(high_bits(draw(keys[pending], attempt)), np.maximum(end - begin, 1))
            drawn = np.minimum(drawn, len(self._length) - 1)
            accepted = (self._document[drawn] != document[pending]) & (begin < end)
            rows[pending[accepted]] = drawn[accepted]
            pending = pending[~accepted]
            if len(pending) == 0:
                break
        else:
            rows[pending] = self._next_of_another(first_equal[pending] % len(self._length), document[pending])
        return TokenRanges(self._begin[rows], np.minimum(self._length[rows], room))

    def _next_of_another(self, rows: np.ndarray, document: np.ndarray) -> np.ndarray:
        """The first row of another document at or after each of `rows`; row 0 follows the last one."""
        last_of_document = np.flatnonzero(self._document != np.roll(self._document, -1))
        last = last_of_document[np.searchsorted(last_of_document, rows) % len(last_of_document)]
        return np.where(self._document[rows] != document, rows, (last + 1) % len(self._document))
