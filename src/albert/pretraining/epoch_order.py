"""In which order an epoch shows its sequences: blocks of the corpus in random order, then their sequences, shuffled.

A table of all sequences would grow with the corpus (a terabyte of text: 600 million sequences of 512 tokens). So the
corpus is seen as blocks of about a million tokens. An epoch takes the blocks in random order, 128 at a time; such a
window is packed into sequences when it is needed, and its sequences are shuffled. Neighbours in an epoch are therefore
from 128 random places of the corpus, or from all of it when it has fewer blocks.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from albert.pretraining.foreign_segments import SecondSegments
from albert.pretraining.segments import Documents, SequenceTable
from albert.runtime.progress import progress
from albert.runtime.randomness import stream
from albert.runtime.world import world
from albert.text.preparation.shards import TokenCorpus

BLOCK_TOKENS = 1 << 20
WINDOW_BLOCKS = 128
KEPT_WINDOWS, KEPT_EPOCHS = 1, 2
"""Samples are asked for in order, mostly: a batch that reaches into the next window leaves the one before for good."""

Packing = Callable[[Documents, int], SequenceTable]
"""Documents and the number of the epoch to sequences."""


@dataclass(frozen=True)
class Window:
    """Some blocks of an epoch.

    Attributes:
        sequences: of all of them.
        order: int64, a permutation of the sequences.
        documents: of each block.
    """

    sequences: SequenceTable
    order: np.ndarray
    documents: tuple[Documents, ...]

    @cached_property
    def second_segments(self) -> SecondSegments:
        """The second segments of all sequences."""
        return SecondSegments(self.sequences)


class Place(NamedTuple):
    """Where samples of one epoch and window are found."""

    epoch: int
    window: Window
    which: np.ndarray
    """Of the samples asked for, those that are here."""
    sequences: np.ndarray
    """Their rows in the window's table."""


class CorpusBlocks:
    """A corpus as blocks: whole documents of one shard, about a million tokens together or a single longer one."""

    def __init__(self, corpus: TokenCorpus) -> None:
        self._corpus = corpus
        first, starts, shards = np.zeros(3, dtype=np.int64), [], []
        for shard in range(corpus.n_shards):
            lengths = corpus.lengths(shard)
            sentences = np.concatenate(([0], np.cumsum(lengths.documents, dtype=np.int64)))
            tokens = np.concatenate(([0], np.cumsum(lengths.sentences, dtype=np.int64)))[sentences]
            begins = np.flatnonzero(np.diff(tokens[:-1] // BLOCK_TOKENS, prepend=-1))
            starts.append(first + np.stack((begins, sentences[begins], tokens[begins]), axis=1))
            shards.append(np.tile([shard, *first[:2]], (len(begins), 1)))
            first = first + np.array([len(lengths.documents), len(lengths.sentences), tokens[-1]])
        self._starts = np.concatenate((*starts, first[None]))
        """[blocks + 1, 3]: the first document, sentence and token of each block."""
        self._shards = np.concatenate(shards)
        """[blocks, 3]: the shard of each block, and the shard's first document and sentence."""

    def __len__(self) -> int:
        return len(self._shards)

    def documents(self, block: int) -> Documents:
        """The documents of a block, read from the lengths on disk."""
        (document, sentence, token), (next_document, next_sentence, _) = self._starts[block : block + 2].tolist()
        shard, shard_document, shard_sentence = self._shards[block].tolist()
        lengths = self._corpus.lengths(shard)
        sentences = lengths.sentences[sentence - shard_sentence : next_sentence - shard_sentence]
        documents = lengths.documents[document - shard_document : next_document - shard_document]
        return Documents(
            np.concatenate(([token], token + np.cumsum(sentences, dtype=np.int64))),
            np.concatenate(([0], np.cumsum(documents, dtype=np.int64))),
            sentence,
            document,
        )


@dataclass(frozen=True)
class _EpochWindows:
    """The blocks of each window of an epoch, and where the samples of each begin; the last entry is the end."""

    blocks: list[np.ndarray]
    starts: np.ndarray


class EpochOrder:
    """Finds the sequence of sample n of an epoch.

    Epochs are packed anew and so differ in size, by chance and by little. Each gives as many samples as epoch 0 has
    sequences: a smaller window begins again at its front, of a larger one a few sequences, random ones, are left out.
    That keeps the place of sample number i independent of all epochs before it.

    Args:
        corpus: token shards.
        pack: makes sequences.
        seed: of the run.
    """

    def __init__(self, corpus: TokenCorpus, pack: Packing, seed: int) -> None:
        self._blocks, self._pack, self._seed = CorpusBlocks(corpus), pack, seed
        self._counts = np.empty(len(self._blocks), dtype=np.int64)
        total = corpus.n_tokens / 1e6
        with progress("Packing", total, "million tokens", quiet=not world().is_first) as bar:
            for block in range(len(self._blocks)):
                documents = self._blocks.documents(block)
                self._counts[block] = len(pack(documents, 0))
                bar.advance(int(documents.sentence_starts[-1] - documents.sentence_starts[0]) / 1e6)
        self.per_epoch = int(self._counts.sum())
        self._epochs: dict[int, _EpochWindows] = {}
        self._windows: dict[tuple[int, int], Window] = {}

    def find(self, epochs: np.ndarray, samples: np.ndarray) -> Iterator[Place]:
        """Where samples are, those of one window together.

        Args:
            epochs, samples: int64, sample n of epoch e each.
        """
        for epoch in np.unique(epochs).tolist():
            own = np.flatnonzero(epochs == epoch)
            starts = self._epoch(epoch).starts
            windows = np.searchsorted(starts, samples[own], side="right") - 1
            for number in np.unique(windows).tolist():
                which = own[windows == number]
                window = self._window(epoch, number)
                yield Place(epoch, window, which, window.order[(samples[which] - starts[number]) % len(window.order)])

    def _epoch(self, epoch: int) -> _EpochWindows:
        if epoch not in self._epochs:
            order = stream("blocks", self._seed, epoch).permutation(len(self._blocks))
            blocks = np.array_split(order, max(1, round(len(order) / WINDOW_BLOCKS)))
            starts = np.cumsum([0, *(int(self._counts[some].sum()) for some in blocks)])
            _forget_the_oldest(self._epochs, KEPT_EPOCHS)
            self._epochs[epoch] = _EpochWindows(blocks, starts)
        return self._epochs[epoch]

    def _window(self, epoch: int, number: int) -> Window:
        if (epoch, number) not in self._windows:
            _forget_the_oldest(self._windows, KEPT_WINDOWS)
            documents = tuple(self._blocks.documents(block) for block in self._epoch(epoch).blocks[number].tolist())
            sequences = SequenceTable.joined([self._pack(some, epoch) for some in documents])
            order = stream("order", self._seed, epoch, number).permutation(len(sequences))
            self._windows[epoch, number] = Window(sequences, order, documents)
        return self._windows[epoch, number]


def _forget_the_oldest(kept: dict[Any, Any], most: int) -> None:
    """Make room for another."""
    while len(kept) >= most:
        kept.pop(next(iter(kept)))
