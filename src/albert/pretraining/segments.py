"""Which runs of sentences become sequences: consecutive sentences of one document, packed whole up to the length.

No sentence is cut to fit, so no cut can tell the sentence-order task which segment came first. Nor do lengths tell:
packing greedily from the front makes the first sentence of a sequence longer than the others on average (it is the one
that did not fit before), so each document is packed from the front or from the back, by a coin. And because no padding
is ever computed, a sequence that is not quite full costs nothing.
"""

from bisect import bisect_left, bisect_right
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
        short_probability: share of sequences with a target length drawn uniformly from 2 to `max_tokens`; the paper
            has 10 %.
        seed, epoch: the draws depend on these and the corpus alone.

    Every token belongs to exactly one sequence. A sentence longer than `max_tokens` is cut into equal parts, each a
    sequence without an order to predict.
    """
    rows: list[tuple[int, int, int, int]] = []
    for block in range(0, len(document_starts) - 1, DOCUMENTS_PER_BLOCK):
        documents = range(block, min(block + DOCUMENTS_PER_BLOCK, len(document_starts) - 1))
        draws = stream("segments", seed, epoch, block // DOCUMENTS_PER_BLOCK)
        sentences = int(document_starts[documents[-1] + 1] - document_starts[block])
        directions = (draws.random(len(documents)) < 0.5).tolist()
        shorts = draws.random(sentences) < short_probability
        targets = np.where(shorts, draws.integers(2, max(max_tokens, 2) + 1, sentences), max_tokens).tolist()
        splits = draws.random(sentences).tolist()
        used = 0
        for document, forwards in zip(documents, directions, strict=True):
            first, last = int(document_starts[document]), int(document_starts[document + 1])
            offsets = sentence_starts[first : last + 1].tolist()
            for i, j in _runs(offsets, targets[used : used + last - first], max_tokens, forwards):
                rows.extend(_rows(offsets, i, j, splits[used + i], max_tokens, document))
            used += last - first
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    return SequenceTable(*(np.ascontiguousarray(column) for column in table.T))


def _runs(offsets: list[int], targets: list[int], max_tokens: int, forwards: bool) -> list[tuple[int, int]]:
    """Sentence ranges [i, j), each as long as its target allows, at least two sentences where two fit."""
    runs, sentences = [], len(offsets) - 1
    i, j = 0, sentences
    for target in targets:
        if forwards:
            if i == sentences:
                break
            stop = max(bisect_right(offsets, offsets[i] + target) - 1, i + 1)
            if stop == i + 1 < sentences and offsets[i + 2] - offsets[i] <= max_tokens:
                stop += 1
            runs.append((i, stop))
            i = stop
        else:
            if j == 0:
                break
            start = min(bisect_left(offsets, offsets[j] - target), j - 1)
            if start == j - 1 > 0 and offsets[j] - offsets[j - 2] <= max_tokens:
                start -= 1
            runs.append((start, j))
            j = start
    return runs


def _rows(
    offsets: list[int], i: int, j: int, draw: float, max_tokens: int, document: int
) -> list[tuple[int, int, int, int]]:
    begin, end = offsets[i], offsets[j]
    if j - i > 1:
        return [(begin, offsets[i + 1 + int(draw * (j - i - 1))], end, document)]
    parts = -(-(end - begin) // max_tokens)
    edges = [begin + (end - begin) * part // parts for part in range(parts + 1)]
    return [(start, stop, stop, document) for start, stop in pairwise(edges)]
