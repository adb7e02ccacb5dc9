"""Which runs of sentences become sequences: consecutive sentences of one document, packed whole up to the length.

Nothing in how a sequence was cut may tell which of its segments came first. So no sentence is cut to fit. Nor are
sentences added one by one until the next does not fit: that one then opens the next sequence, sentences at the ends of
sequences are longer than those inside, and after a swap the long ones meet in the middle, which alone answers up to
60 % of the sentence-order questions. Instead a document is halved, by number of sentences, until every part fits: what
is known of a part's sentences is their sum, and a sum has no order. That leaves sequences about a quarter short of the
longest; as no padding is ever computed, it costs nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from albert.runtime.randomness import stream

DOCUMENTS_PER_BLOCK = 4096
"""Documents that share one random stream."""


@dataclass(frozen=True)
class SequenceTable:
    """The sequences of an epoch, as global token positions in the corpus, document by document.

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


def pack_sentences(
    sentence_starts: np.ndarray,
    document_starts: np.ndarray,
    max_tokens: int,
    short_probability: float,
    seed: int,
    epoch: int,
) -> SequenceTable:
    """Cut every document of a corpus into sequences (paper §4.1; BERT's input format).

    Args:
        sentence_starts: int64 [sentences + 1], token positions.
        document_starts: int64 [documents + 1], indices into `sentence_starts`.
        max_tokens: most tokens of a sequence, special ones not counted.
        short_probability: share of sequences that are cut from a longer one at a place drawn uniformly; the paper
            has 10 %.
        seed, epoch: the draws depend on these and the corpus alone.

    Every token belongs to exactly one sequence. A sentence longer than `max_tokens` is cut into equal parts, each a
    sequence without an order to predict.
    """
    rows: list[tuple[int, int, int, int]] = []
    for block in range(0, len(document_starts) - 1, DOCUMENTS_PER_BLOCK):
        documents = range(block, min(block + DOCUMENTS_PER_BLOCK, len(document_starts) - 1))
        draws = stream("segments", seed, epoch, block // DOCUMENTS_PER_BLOCK)
        for document in documents:
            first, last = int(document_starts[document]), int(document_starts[document + 1])
            offsets = sentence_starts[first : last + 1].tolist()
            for i, j in _runs(offsets, max_tokens, short_probability, draws):
                rows.extend(_rows(offsets, i, j, draws.random(), max_tokens, document))
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    return SequenceTable(*(np.ascontiguousarray(column) for column in table.T))


def _runs(
    offsets: list[int], max_tokens: int, short_probability: float, draws: np.random.Generator
) -> Iterator[tuple[int, int]]:
    """Sentence ranges [i, j) in order, each no longer than allowed unless it is a single sentence.

    Where a range is cut depends on its number of sentences and the sum of their lengths alone.
    """
    cut_probability = short_probability / (2 - short_probability)  # a cut makes two short ones of one
    waiting = [(0, len(offsets) - 1)]
    while waiting:
        i, j = waiting.pop()
        sentences, tokens = j - i, offsets[j] - offsets[i]
        if sentences > 1 and tokens > max_tokens:
            parts = -(-tokens // max_tokens)
            left = parts // 2 + (parts % 2) * (draws.random() < 0.5)
            middle = i + min(max(int(sentences * left / parts + draws.random()), 1), sentences - 1)
            waiting += [(middle, j), (i, middle)]
        elif sentences > 3 and draws.random() < cut_probability:
            middle = i + 2 + int(draws.random() * (sentences - 3))  # both keep an order to predict
            yield from ((i, middle), (middle, j))
        else:
            yield i, j


def _rows(
    offsets: list[int], i: int, j: int, draw: float, max_tokens: int, document: int
) -> list[tuple[int, int, int, int]]:
    begin, end = offsets[i], offsets[j]
    if j - i > 1:
        return [(begin, offsets[i + 1 + int(draw * (j - i - 1))], end, document)]
    parts = -(-(end - begin) // max_tokens)
    edges = [begin + (end - begin) * part // parts for part in range(parts + 1)]
    return [(start, stop, stop, document) for start, stop in pairwise(edges)]
