"""Which sentences become a sequence, and the order of its segments: SOP, NSP or none, ours and the reference's.

A sequence holds consecutive whole sentences of one document, up to the length.

Nothing in how a sequence was cut may tell which of its segments came first. So no sentence is cut to fit. Nor are
sentences added one by one until the next does not fit: that one then opens the next sequence, sentences at the ends of
sequences are longer than those inside, and after a swap the long ones meet in the middle, which alone answers up to
60 % of the sentence-order questions. Instead a document is halved, by number of sentences, until every part fits: what
is known of a part's sentences is their sum, and a sum has no order. That leaves sequences about a quarter short of the
longest; as no padding is ever computed, it costs nothing.

Where sentences are long beside a sequence, most are left alone and have no order to tell. `keep_pairs` halves no run of
two or three sentences, whatever its length, and `cut_to_length` shortens what is too long once its order is drawn: the
segment that the model sees first in front, the other one at its end, so that a cut sentence tells where it stands and
not where it stood."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

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

    def take(self, which: np.ndarray) -> "SequenceTable":
        """Some of the sequences, in the order asked for."""
        return SequenceTable(self.begin[which], self.split[which], self.end[which], self.document[which])

    @classmethod
    def joined(cls, tables: Sequence["SequenceTable"]) -> "SequenceTable":
        """Tables one after the other."""
        return cls(
            np.concatenate([table.begin for table in tables]),
            np.concatenate([table.split for table in tables]),
            np.concatenate([table.end for table in tables]),
            np.concatenate([table.document for table in tables]),
        )


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


def pack_sentences(
    documents: Documents,
    max_tokens: int,
    short_probability: float,
    seed: int,
    epoch: int,
    neighbours_probability: float = 0.0,
    keep_pairs: bool = False,
) -> SequenceTable:
    """Cut documents into sequences (paper §4.1; BERT's input format).

    Args:
        max_tokens: most tokens of a sequence, special ones not counted.
        short_probability: share of sequences that are cut from a longer one of several sentences, after a sentence
            drawn uniformly; the paper has 10 %.
        seed, epoch: the draws depend on these and the corpus alone.
        neighbours_probability: share of sequences of more than three sentences that are cut into pairs of neighbouring
            sentences, the last one a triple where their number is odd.
        keep_pairs: leave no sentence alone that has another in its document; rows may then be longer than `max_tokens`.

    Every token belongs to exactly one sequence. A sentence that is alone and longer than `max_tokens` is cut into equal
    parts, each a sequence without an order to predict.
    """
    offsets, first, least = documents.sentence_starts, documents.first_sentence, 2 if keep_pairs else 1
    keys = item_keys("segments", seed, epoch, np.arange(4))
    i, j = _halved(documents, max_tokens, least, keys[0])
    i, j = _shortened(i, j, short_probability, least, first, keys[1])
    i, j = _neighbours(i, j, neighbours_probability, first, keys[3])
    order = np.argsort(i)
    i, j = i[order], j[order]
    sentences = j - i
    place = uniform(high_bits(draw(keys[2], i + first, j + first)))
    split = np.where(sentences > 1, i + 1 + (place * (sentences - 1)).astype(np.int64), j)
    document = np.searchsorted(documents.starts, i, side="right") - 1 + documents.first_document
    return _long_sentences_cut(SequenceTable(offsets[i], offsets[split], offsets[j], document), sentences, max_tokens)


def _halved(documents: Documents, max_tokens: int, least: int, key: np.uint64) -> tuple[np.ndarray, np.ndarray]:
    """Sentence ranges [i, j), in no order, each no longer than allowed unless halves would have too few sentences.

    Where a range is cut depends on its number of sentences and the sum of their lengths alone.
    """
    offsets, first = documents.sentence_starts, documents.first_sentence
    i, j = documents.starts[:-1], documents.starts[1:]
    found: list[tuple[np.ndarray, np.ndarray]] = []
    while len(i):  # all ranges of a generation at once
        sentences, tokens = j - i, offsets[j] - offsets[i]
        fits = (sentences < 2 * least) | (tokens <= max_tokens)
        found.append((i[fits], j[fits]))
        i, j, sentences, tokens = (column[~fits] for column in (i, j, sentences, tokens))
        bits = draw(key, i + first, j + first)
        parts = -(-tokens // max_tokens)
        left = parts // 2 + (parts & (bits & np.uint64(1)).astype(np.int64))
        middle = i + np.clip(
            (sentences * left / parts + uniform(high_bits(bits))).astype(np.int64), least, sentences - least
        )
        i, j = np.concatenate((i, middle)), np.concatenate((middle, j))
    return np.concatenate([a for a, _ in found]), np.concatenate([b for _, b in found])


def _shortened(
    i: np.ndarray, j: np.ndarray, short_probability: float, least: int, first: int, key: np.uint64
) -> tuple[np.ndarray, np.ndarray]:
    """The ranges, some of those of enough sentences cut in two, so that the asked share of them is short."""
    cut_probability = short_probability / (2 - short_probability)  # a cut makes two short ones of one
    bits = draw(key, i + first, j + first)
    cut = (j - i >= 2 * least) & (uniform(high_bits(bits)) < cut_probability)
    middle = i[cut] + least + (uniform(low_bits(bits[cut])) * (j[cut] - i[cut] - 2 * least + 1)).astype(np.int64)
    ends = j.copy()
    ends[cut] = middle
    return np.concatenate((i, middle)), np.concatenate((ends, j[cut]))


def _neighbours(
    i: np.ndarray, j: np.ndarray, probability: float, first: int, key: np.uint64
) -> tuple[np.ndarray, np.ndarray]:
    """The ranges, some of those of more than three sentences cut into pairs."""
    cut = (j - i > 3) & (uniform(high_bits(draw(key, i + first, j + first))) < probability)
    pairs = np.where(cut, (j - i) // 2, 1)
    which = np.repeat(np.arange(len(pairs)), pairs)
    number = np.arange(len(which)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
    last = number + 1 == pairs[which]
    return i[which] + 2 * number, np.where(last, j[which], i[which] + 2 * number + 2)


def _long_sentences_cut(table: SequenceTable, sentences: np.ndarray, max_tokens: int) -> SequenceTable:
    parts = np.where(sentences == 1, -(-(table.end - table.begin) // max_tokens), 1)
    if len(parts) == 0 or parts.max() == 1:
        return table
    which = np.repeat(np.arange(len(parts)), parts)
    part, parts = np.arange(len(which)) - np.repeat(np.cumsum(parts) - parts, parts), parts[which]
    rows = table.take(which)
    length = rows.end - rows.begin
    begin, end = rows.begin + length * part // parts, rows.begin + length * (part + 1) // parts
    return SequenceTable(begin, np.where(parts > 1, end, rows.split), end, rows.document)


# --------------------------------------------------------------------------------------------------------------------
# The inter-sentence objective: sentence order, next sentence, or none (paper §3.1, §4.6).

SentenceObjective = Literal["sop", "nsp", "none", "sop-reference"]
IN_ORDER, SWAPPED = 0, 1
NO_LABEL = -100
"""Of sequences that have no order to predict; the loss leaves them out."""


def head_task(objective: SentenceObjective) -> Literal["sop", "nsp", "none"]:
    """What a model's sentence head learns, as its `config.json` says: the reference's pairs ask for the order, too."""
    return "sop" if objective == "sop-reference" else objective


class Runs(NamedTuple):
    """Runs of tokens of the corpus."""

    begin: np.ndarray
    """int64, global token positions."""
    length: np.ndarray
    """int64, 0 where there is none."""


class Segments(NamedTuple):
    """The two segments of each sequence as the model sees them, and what is to be predicted of them."""

    first: Runs
    second: Runs
    labels: np.ndarray
    """int64."""


def segments_of(sequences: SequenceTable) -> tuple[Runs, Runs]:
    """The adjacent segments of sequences, in the order of the text."""
    begin, split, end = sequences.begin, sequences.split, sequences.end
    return Runs(begin, split - begin), Runs(split, end - split)


def order_segments(
    objective: SentenceObjective,
    first: Runs,
    second: Runs,
    foreign: Callable[[np.ndarray], Runs],
    coins: np.ndarray,
) -> Segments:
    """Turn adjacent segments of documents into examples.

    Args:
        objective: "sop" swaps them where the coin says so; "nsp" puts a segment of another document in the place of
            the second there; "none" leaves them and asks nothing.
        first, second: the adjacent segments; the second is empty in a sequence of one sentence, which never gets a
            label, and never a foreign segment (the reference makes 3 to 14 % of its "SOP" pairs that way).
        foreign: gives segments of other documents for the sequences with these numbers; called only for "nsp".
        coins: bool, one a sequence.
    """
    asked = np.zeros(len(coins), dtype=bool) if objective == "none" else second.length > 0
    labels = np.where(asked, np.where(coins, SWAPPED, IN_ORDER), NO_LABEL)
    changed = asked & coins
    if objective == "nsp":
        others, which = foreign(np.flatnonzero(changed)), changed
        begin, length = second.begin.copy(), second.length.copy()
        begin[which], length[which] = others
        return Segments(first, Runs(begin, length), labels)
    return Segments(chosen(changed, second, first), chosen(changed, first, second), labels)


def cut_to_length(max_tokens: int, segments: Segments) -> Segments:
    """Segments after tokens were taken from the longer one until both fit, from both alike when they are equally long.

    What the model sees first loses its front and what it sees second its end, whichever came first in the text, so
    what is left has stood as far from the place between them as what is left of a pair in the other order.

    Args:
        max_tokens: most tokens of both.
    """
    first, second, labels = segments
    from_first, from_second = tokens_to_take(max_tokens, first.length, second.length)
    cut_first = Runs(first.begin + from_first, first.length - from_first)
    return Segments(cut_first, Runs(second.begin, second.length - from_second), labels)


def tokens_to_take(max_tokens: int, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many tokens each of two segments loses when they are taken one by one from the longer one.

    Args:
        max_tokens: most tokens of both.
        first, second: int64, lengths; of equally long ones the second loses the next token.
    """
    excess = np.maximum(first + second - max_tokens, 0)
    difference = np.clip(first - second, -excess, excess)
    rest = excess - np.abs(difference)
    return np.maximum(difference, 0) + rest // 2, np.maximum(-difference, 0) + rest - rest // 2


def chosen(condition: np.ndarray, these: Runs, others: Runs) -> Runs:
    """These runs where the condition holds, elsewhere the others."""
    return Runs(np.where(condition, these.begin, others.begin), np.where(condition, these.length, others.length))


# --------------------------------------------------------------------------------------------------------------------
# The segments of google-research/albert's `create_pretraining_data.py`, by the name "sop-reference", to compare
# with.
#
# Its ways, and what they give away: one draw a document decides on a shorter target length; sentences are added one
# by one until the target is reached, so that a sequence's last sentence is a long one; a chunk of one sentence gets
# a second segment of another document and the label of a swap; what is too long is cut off the longer segment,
# token by token, in front or at the back by a coin, so that sentences are cut and a gap may open between two
# segments.
#
# An epoch is one of the reference's passes over the corpus. What differs: all draws are functions of (seed, epoch,
# n); foreign segments come from the documents of the same window; masks are ours, within segments.

DOCUMENT_TRIES = 10


def target_lengths(
    documents: np.ndarray, max_tokens: int, short_probability: float, seed: int, epoch: int
) -> np.ndarray:
    """Tokens that the sequences of each document are filled up to: all there is room for, or fewer, drawn uniformly.

    Args:
        documents: int64, numbers in the corpus.
    """
    bits = item_keys("reference target", seed, epoch, documents)
    short = 2 + bounded(low_bits(bits), max_tokens - 1)
    return np.where(uniform(high_bits(bits)) < short_probability, short, max_tokens)


def pack_as_reference(
    documents: Documents, max_tokens: int, short_probability: float, seed: int, epoch: int
) -> SequenceTable:
    """Fill sequences sentence by sentence up to each document's target; the last one may overflow it.

    Args:
        max_tokens: tokens of a sequence, special ones not counted; rows may be longer, for they are cut later.
        short_probability: share of documents with a shorter target.
        seed, epoch: the draws depend on these and the corpus alone.
    """
    offsets = documents.sentence_starts
    numbers = documents.first_document + np.arange(len(documents.starts) - 1)
    targets = np.repeat(target_lengths(numbers, max_tokens, short_probability, seed, epoch), np.diff(documents.starts))
    ends = np.repeat(documents.starts[1:], np.diff(documents.starts))
    following = np.minimum(np.searchsorted(offsets, offsets[:-1] + targets), ends).tolist()
    chunks: list[int] = []
    sentence = 0
    while sentence < len(following):
        chunks.append(sentence)
        sentence = following[sentence]
    i = np.array(chunks)
    j = np.append(i[1:], len(following))
    place = uniform(high_bits(item_keys("reference split", seed, epoch, documents.first_sentence + i)))
    split = np.where(j - i > 1, i + 1 + (place * (j - i - 1)).astype(np.int64), j)
    document = np.searchsorted(documents.starts, i, side="right") - 1 + documents.first_document
    return SequenceTable(offsets[i], offsets[split], offsets[j], document)


def order_as_reference(
    sequences: SequenceTable,
    targets: np.ndarray,
    window: tuple[Documents, ...],
    coins: np.ndarray,
    keys: np.ndarray,
    max_tokens: int,
) -> Segments:
    """Swap, bring in foreign segments, and cut to the length.

    Args:
        sequences: of `pack_as_reference`.
        targets: int64 [sequences], the target lengths of their documents.
        coins: bool [sequences], which to swap.
        keys: uint64 [sequences], of all other draws.
    """
    first, second = segments_of(sequences)
    alone = second.length == 0
    for row in np.flatnonzero(alone).tolist():
        wanted = int(targets[row] - first.length[row])
        second.begin[row], second.length[row] = _foreign(window, int(sequences.document[row]), wanted, keys[row])
    swapped = coins & ~alone
    labels = np.where(coins | alone, SWAPPED, IN_ORDER)
    return Segments(*_cut_to(max_tokens, chosen(swapped, second, first), chosen(swapped, first, second), keys), labels)


def _foreign(window: tuple[Documents, ...], own: int, wanted: int, key: np.uint64) -> tuple[int, int]:
    """Sentences of another document, from one drawn at random until there are as many tokens as wanted."""
    first_places = np.cumsum([0, *(len(some.starts) - 1 for some in window)])
    bits = draw(key, np.arange(DOCUMENT_TRIES + 1))
    numbers = bounded(high_bits(bits[1:]), int(first_places[-1]))
    blocks = np.searchsorted(first_places, numbers, side="right") - 1
    places = numbers - first_places[blocks]
    drawn = np.array([window[block].first_document for block in blocks.tolist()]) + places
    one = int(np.argmax(drawn != own))  # the first that is another; the first of all when none is
    documents, place = window[blocks[one]], int(places[one])
    begin, end = documents.starts[place : place + 2].tolist()
    sentence = begin + int(bounded(high_bits(bits[:1]), end - begin)[0])
    offsets = documents.sentence_starts
    last = min(max(int(np.searchsorted(offsets, offsets[sentence] + wanted)), sentence + 1), end)
    return int(offsets[sentence]), int(offsets[last] - offsets[sentence])


def _cut_to(max_tokens: int, first: Runs, second: Runs, keys: np.ndarray) -> tuple[Runs, Runs]:
    """Both segments after tokens were taken one by one from the longer one, the second when both are equally long."""
    from_first, from_second = tokens_to_take(max_tokens, first.length, second.length)
    return _shorter(first, from_first, draw(keys, 20)), _shorter(second, from_second, draw(keys, 21))


def _shorter(runs: Runs, tokens: np.ndarray, keys: np.ndarray) -> Runs:
    """Runs without some tokens, each of which was the front one by a coin: as many coins are tossed as are taken."""
    words = np.arange(int(tokens.max(initial=0)) // 64 + 1)
    bits = draw(keys[:, None], words)
    used = np.clip(tokens[:, None] - 64 * words, 0, 64).astype(np.uint64)
    bits = np.where(used == 64, bits, bits & ((np.uint64(1) << (used & np.uint64(63))) - np.uint64(1)))
    front = np.bitwise_count(bits).sum(axis=1, dtype=np.int64)
    return Runs(runs.begin + front, runs.length - tokens)


# --------------------------------------------------------------------------------------------------------------------
# Second segments from other documents, for next-sentence prediction (paper §4.6).

EQUAL_TRIES, TRIES = 8, 40
"""Draws among segments of equal length, and all draws, each from twice as far around as the one before."""


class SecondSegments:
    """The second segments of a table, by length: each may stand behind any first segment.

    A true second segment and a foreign one are taken from the same segments and are equally long, so that neither
    lengths nor the second segment alone tell which it is.

    Args:
        table: sequences of two documents at least. Where only one of these has a second segment, the sequences of a
            single sentence count as such.
    """

    def __init__(self, table: SequenceTable) -> None:
        two = table.split < table.end
        if len(np.unique(table.document[two])) < 2:
            two |= True
        begin = np.where(table.split < table.end, table.split, table.begin)[two]
        length = table.end[two] - begin
        by_length = np.argsort(length, kind="stable")
        self._begin, self._length = begin[by_length], length[by_length]
        self._document = table.document[two][by_length]

    def foreign(self, document: np.ndarray, length: np.ndarray, room: np.ndarray, keys: np.ndarray) -> Runs:
        """Segments of other documents, of equal length where there is one, else of a length nearby.

        Args:
            document: int64 [segments], the document not to take each from.
            length: int64 [segments], tokens of the segment in whose place it comes.
            room: int64 [segments], most tokens; one that is longer is cut, and taken only where no other is found.
            keys: uint64 [segments], of the draws.
        """
        first = np.searchsorted(self._length, length)
        last = np.searchsorted(self._length, length, side="right")
        fitting = np.searchsorted(self._length, room, side="right")
        chosen = np.zeros(len(keys), dtype=np.int64)
        waiting = np.arange(len(keys))
        for place in range(TRIES):
            wider = 0 if place < EQUAL_TRIES else 1 << (place - EQUAL_TRIES)
            begin = np.maximum(first[waiting] - wider, 0)
            end = np.minimum(last[waiting] + wider, fitting[waiting])
            drawn = begin + bounded(high_bits(draw(keys[waiting], place)), np.maximum(end - begin, 1))
            drawn = np.minimum(drawn, len(self._length) - 1)
            found = (self._document[drawn] != document[waiting]) & (begin < end)
            chosen[waiting[found]] = drawn[found]
            waiting = waiting[~found]
            if len(waiting) == 0:
                break
        else:
            chosen[waiting] = self._next_of_another(first[waiting] % len(self._length), document[waiting])
        return Runs(self._begin[chosen], np.minimum(self._length[chosen], room))

    def _next_of_another(self, places: np.ndarray, document: np.ndarray) -> np.ndarray:
        """From each place on, the first segment that is of another document; behind the last the first one follows."""
        ends = np.flatnonzero(self._document != np.roll(self._document, -1))
        next_run = (ends[np.searchsorted(ends, places) % len(ends)] + 1) % len(self._document)
        return np.where(self._document[places] != document, places, next_run)
