"""Which runs of sentences become sequences: consecutive sentences of one document, packed whole up to the length.

Nothing in how a sequence was cut may tell which of its segments came first. So no sentence is cut to fit. Nor are
sentences added one by one until the next does not fit: that one then opens the next sequence, sentences at the ends of
sequences are longer than those inside, and after a swap the long ones meet in the middle, which alone answers up to
60 % of the sentence-order questions. Instead a document is halved, by number of sentences, until every part fits: what
is known of a part's sentences is their sum, and a sum has no order. That leaves sequences about a quarter short of the
longest; as no padding is ever computed, it costs nothing.

Where sentences are long beside a sequence, most are left alone and have no order to tell. `keep_pairs` halves no run of
two or three sentences, whatever its length, and `cut_to_length` shortens what is too long once its order is drawn: the
segment that the model sees first in front, the other one at its end, so that a cut sentence tells where it stands and
not where it stood.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from albert.pretraining.draws import draw, high, item_keys, low, share


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
        documents: which.
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
    place = share(high(draw(keys[2], i + first, j + first)))
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
        middle = i + np.clip((sentences * left / parts + share(high(bits))).astype(np.int64), least, sentences - least)
        i, j = np.concatenate((i, middle)), np.concatenate((middle, j))
    return np.concatenate([a for a, _ in found]), np.concatenate([b for _, b in found])


def _shortened(
    i: np.ndarray, j: np.ndarray, short_probability: float, least: int, first: int, key: np.uint64
) -> tuple[np.ndarray, np.ndarray]:
    """The ranges, some of those of enough sentences cut in two, so that the asked share of them is short."""
    cut_probability = short_probability / (2 - short_probability)  # a cut makes two short ones of one
    bits = draw(key, i + first, j + first)
    cut = (j - i >= 2 * least) & (share(high(bits)) < cut_probability)
    middle = i[cut] + least + (share(low(bits[cut])) * (j[cut] - i[cut] - 2 * least + 1)).astype(np.int64)
    ends = j.copy()
    ends[cut] = middle
    return np.concatenate((i, middle)), np.concatenate((ends, j[cut]))


def _neighbours(
    i: np.ndarray, j: np.ndarray, probability: float, first: int, key: np.uint64
) -> tuple[np.ndarray, np.ndarray]:
    """The ranges, some of those of more than three sentences cut into pairs."""
    cut = (j - i > 3) & (share(high(draw(key, i + first, j + first))) < probability)
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
