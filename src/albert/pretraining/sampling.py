"""Training samples: sample n of epoch e is a pure function of (seed, e, n) and the corpus.

It never depends on workers, ranks, batches or history. An epoch takes blocks of the corpus in random order and
shuffles the sequences of 128 blocks at a time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from albert.pretraining.masking import NgramMasking, Spans
from albert.pretraining.segments import (
    NO_LABEL,
    Documents,
    NegativeSegments,
    Segments,
    SequenceTable,
    TokenRanges,
    adjacent_segments,
    cut_to_length,
    order_segments,
    pack_sentences,
)
from albert.recipes.pretraining import MaskingRecipe, SequenceRecipe
from albert.runtime.environment import world
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.progress import progress
from albert.runtime.random_streams import item_keys, stream
from albert.text.shards import TokenCorpus

# --------------------------------------------------------------------------------------------------------------------
# The order of an epoch's sequences: blocks of the corpus in random order, then their sequences, shuffled.
#
# A table of all sequences would grow with the corpus (a terabyte of text: 600 million sequences of 512 tokens). So
# the corpus is divided into blocks of about a million tokens. An epoch takes the blocks in random order, 128 at a
# time; such a window is packed into sequences when it is needed, and its sequences are shuffled. Neighbours in an
# epoch therefore come from 128 random blocks of the corpus, or from all of it when it has fewer.

BLOCK_TOKENS = 1 << 20
WINDOW_BLOCKS = 128
CACHED_WINDOWS = 1
CACHED_EPOCHS = 2
"""Samples are mostly requested in order: a batch that reaches into the next window is the last to use this one."""

Packing = Callable[[Documents, int], SequenceTable]
"""Packs documents into the sequences of an epoch."""


@dataclass(frozen=True)
class Window:
    """Some blocks of an epoch, packed.

    Attributes:
        order: int64, a permutation of the sequences.
    """

    sequences: SequenceTable
    order: np.ndarray

    @cached_property
    def negatives(self) -> NegativeSegments:
        """The second segments of all sequences, to draw negative examples from."""
        return NegativeSegments(self.sequences)


class WindowRows(NamedTuple):
    """Requested samples that are in one window of one epoch."""

    epoch: int
    window: Window
    samples: np.ndarray
    """Their indices in the request."""
    rows: np.ndarray
    """Their rows in the window's table."""


class CorpusBlocks:
    """A corpus as blocks of whole documents of one shard, of about a million tokens or one longer document."""

    def __init__(self, corpus: TokenCorpus) -> None:
        self._corpus = corpus
        first = np.zeros(3, dtype=np.int64)
        starts = []
        shards = []
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


class EpochOrder:
    """Finds the sequence of sample n of an epoch.

    Each epoch is packed anew, so their numbers of sequences differ slightly. Every epoch yields as many samples as
    epoch 0 has sequences: a window with fewer starts again from its front, a window with more leaves a few random ones
    out. So the position of sample n does not depend on earlier epochs.
    """

    def __init__(self, corpus: TokenCorpus, pack: Packing, seed: int) -> None:
        self._blocks = CorpusBlocks(corpus)
        self._pack = pack
        self._seed = seed
        self._counts = np.empty(len(self._blocks), dtype=np.int64)
        total = corpus.n_tokens / 1e6
        with progress("Packing", total, "million tokens", quiet=not world().is_first) as bar:
            for block in range(len(self._blocks)):
                documents = self._blocks.documents(block)
                self._counts[block] = len(pack(documents, 0))
                bar.advance(int(documents.sentence_starts[-1] - documents.sentence_starts[0]) / 1e6)
        self.per_epoch = int(self._counts.sum())
        self._epochs: dict[int, tuple[list[np.ndarray], np.ndarray]] = {}
        self._windows: dict[tuple[int, int], Window] = {}

    def find(self, epochs: np.ndarray, samples: np.ndarray) -> Iterator[WindowRows]:
        """Sample n of epoch e for each pair (int64) of the arguments, grouped by window."""
        for epoch in np.unique(epochs).tolist():
            of_epoch = np.flatnonzero(epochs == epoch)
            _, starts = self._epoch(epoch)
            windows = np.searchsorted(starts, samples[of_epoch], side="right") - 1
            for number in np.unique(windows).tolist():
                indices = of_epoch[windows == number]
                window = self._window(epoch, number)
                rows = window.order[(samples[indices] - starts[number]) % len(window.order)]
                yield WindowRows(epoch, window, indices, rows)

    def _epoch(self, epoch: int) -> tuple[list[np.ndarray], np.ndarray]:
        """The blocks of each window, and the first sample of each; the last entry is the end."""
        if epoch not in self._epochs:
            order = stream("blocks", self._seed, epoch).permutation(len(self._blocks))
            blocks = np.array_split(order, max(1, round(len(order) / WINDOW_BLOCKS)))
            starts = np.cumsum([0, *(int(self._counts[part].sum()) for part in blocks)])
            _evict(self._epochs, CACHED_EPOCHS)
            self._epochs[epoch] = blocks, starts
        return self._epochs[epoch]

    def _window(self, epoch: int, number: int) -> Window:
        if (epoch, number) not in self._windows:
            _evict(self._windows, CACHED_WINDOWS)
            blocks = self._epoch(epoch)[0][number].tolist()
            packed = [self._pack(self._blocks.documents(block), epoch) for block in blocks]
            sequences = SequenceTable.concatenate(packed)
            order = stream("order", self._seed, epoch, number).permutation(len(sequences))
            self._windows[epoch, number] = Window(sequences, order)
        return self._windows[epoch, number]


def _evict(cache: dict[Any, Any], size: int) -> None:
    """Remove the oldest entries to make room for another."""
    while len(cache) >= size:
        cache.pop(next(iter(cache)))


TOKENS_AT_ONCE = 1 << 17
"""Smaller batches cost more per token; larger ones exceed the processor's cache."""
RETAINED_BYTES = 1 << 24
"""Freed blocks of memory up to this size are kept for the next array."""


class Sample(NamedTuple):
    """One masked sequence."""

    token_ids: np.ndarray
    """int64 [tokens]: [CLS] first [SEP] second [SEP]."""
    token_type_ids: np.ndarray
    """int64 [tokens]: 0 up to the first [SEP], then 1."""
    masked_positions: np.ndarray
    """int64 [masked]."""
    masked_labels: np.ndarray
    """int64 [masked]."""
    order_label: int
    """0 in order, 1 swapped or from another document, -100 no label."""


class Samples(NamedTuple):
    """Masked sequences, concatenated."""

    token_ids: np.ndarray
    """int64 [tokens]."""
    token_type_ids: np.ndarray
    """int64 [tokens]."""
    lengths: np.ndarray
    """int64 [sequences]: tokens of each."""
    masked_positions: np.ndarray
    """int64 [masked], ascending, in the concatenated sequences."""
    masked_labels: np.ndarray
    """int64 [masked]."""
    order_labels: np.ndarray
    """int64 [sequences]."""

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> "Samples":
        """Single samples as a batch."""
        return cls.concatenate(
            [
                cls(ids, types, np.array([len(ids)]), positions, labels, np.array([order]))
                for ids, types, positions, labels, order in samples
            ]
        )

    @classmethod
    def concatenate(cls, batches: Sequence["Samples"]) -> "Samples":
        """Batches one after the other."""
        starts = np.cumsum([0, *(len(batch.token_ids) for batch in batches[:-1])])
        moved = [b._replace(masked_positions=b.masked_positions + s) for b, s in zip(batches, starts, strict=True)]
        return cls(*map(np.concatenate, zip(*moved, strict=True)))

    @property
    def masked_counts(self) -> np.ndarray:
        """int64 [sequences]: masked tokens of each."""
        return np.diff(np.searchsorted(self.masked_positions, np.cumsum(self.lengths)), prepend=0)

    @property
    def counts(self) -> dict[str, int]:
        """Items of each term of the loss."""
        labelled = int(np.count_nonzero(self.order_labels != NO_LABEL))
        return {"masked_tokens": len(self.masked_labels), "sentence_order": labelled}

    def take(self, rows: np.ndarray) -> "Samples":
        """Some of the sequences, in the given order."""
        lengths = self.lengths[rows]
        counts = self.masked_counts
        starts = (np.cumsum(self.lengths) - self.lengths)[rows]
        tokens = _ranges(starts, lengths)
        masked = _ranges((np.cumsum(counts) - counts)[rows], counts[rows])
        shift = np.repeat(np.cumsum(lengths) - lengths - starts, counts[rows])
        return Samples(
            self.token_ids[tokens],
            self.token_type_ids[tokens],
            lengths,
            self.masked_positions[masked] + shift,
            self.masked_labels[masked],
            self.order_labels[rows],
        )

    def part(self, begin: int, end: int) -> "Samples":
        """Sequences begin to end - 1, as views except for the positions."""
        before = int(self.lengths[:begin].sum())
        after = before + int(self.lengths[begin:end].sum())
        first, last = np.searchsorted(self.masked_positions, (before, after)).tolist()
        return Samples(
            self.token_ids[before:after],
            self.token_type_ids[before:after],
            self.lengths[begin:end],
            self.masked_positions[first:last] - before,
            self.masked_labels[first:last],
            self.order_labels[begin:end],
        )

    def unbatch(self) -> list[Sample]:
        """The single samples."""
        parts = (self.part(i, i + 1) for i in range(len(self.lengths)))
        return [Sample(ids, types, places, labels, int(order[0])) for ids, types, _, places, labels, order in parts]


def _ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The concatenated integers of all ranges [start, start + length)."""
    return np.arange(int(lengths.sum())) + np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)


class SampleDetails(NamedTuple):
    """Samples with their origin in the corpus and their masked n-grams."""

    samples: Samples
    segments: Segments
    spans: Spans
    mask_keys: np.ndarray
    """uint64 [sequences], the keys of the mask draws."""


class PretrainingSamples:
    """All samples of a corpus.

    Raises:
        InvalidConfiguration: the objective needs segments of other documents, and there is only one document.
    """

    def __init__(self, corpus: TokenCorpus, sequences: SequenceRecipe, masking: MaskingRecipe, seed: int) -> None:
        self.corpus = corpus
        self.recipe = sequences
        self._seed = seed
        tokenizer = corpus.tokenizer()
        self._cls = tokenizer.cls_id
        self._sep = tokenizer.sep_id
        self.masking = NgramMasking(masking, tokenizer.word_starts(), tokenizer.mask_id, tokenizer.special_ids)
        if sequences.objective == "nsp" and corpus.n_documents < 2:
            why = f'"nsp" needs at least two {corpus.split} documents, for negative examples'
            raise InvalidConfiguration("sequences.objective", why, 'use "sop" or a larger corpus')
        self._order = EpochOrder(corpus, partial(pack_documents, sequences, seed), seed)
        self.per_epoch = self._order.per_epoch
        # One large block is freed here, so that glibc reuses freed blocks: it returns a block to the system if it is
        # larger than any freed before, and clearing new pages takes a quarter of the time of making samples.
        np.empty(RETAINED_BYTES, dtype=np.uint8)
        self.preferred_batch = max(1, TOKENS_AT_ONCE // sequences.max_length)
        """How many samples are most efficiently made at once."""

    def sample(self, number: int) -> Sample:
        """One sample, counted from 0 over all epochs of `per_epoch` samples each."""
        return self.batch(np.array([number])).unbatch()[0]

    def batch(self, numbers: np.ndarray) -> Samples:
        """Many samples at once, the same as one by one.

        Args:
            numbers: int64, counted from 0 over all epochs.
        """
        return self.details(numbers).samples

    def details(self, numbers: np.ndarray) -> SampleDetails:
        """As `batch`, with the origin of the segments and the masked n-grams."""
        segments, keys = self._segments(numbers)
        first, second, labels = segments
        lengths = _sequence_lengths(first, second)
        token_ids = self._with_special_tokens(first, second, lengths)
        types = np.repeat(
            np.tile([0, 1], len(lengths)), np.stack((first.length + 2, lengths - first.length - 2), axis=1).ravel()
        )
        masked = self.masking(token_ids, lengths, keys)
        samples = Samples(masked.token_ids, types, lengths, masked.positions, masked.labels, labels)
        return SampleDetails(samples, segments, masked.spans, keys)

    def lengths(self, numbers: np.ndarray) -> np.ndarray:
        """Tokens of samples, without making them."""
        return _sequence_lengths(*self.segments(numbers)[:2])

    def segments(self, numbers: np.ndarray) -> Segments:
        """The positions of samples' segments in the corpus, and their order labels."""
        return self._segments(numbers)[0]

    def _segments(self, numbers: np.ndarray) -> tuple[Segments, np.ndarray]:
        """The segments of samples, and the keys of their masks."""
        epochs, items = np.divmod(numbers, self.per_epoch)
        columns = np.empty((5, len(numbers)), dtype=np.int64)
        keys = np.empty(len(numbers), dtype=np.uint64)
        for group in self._order.find(epochs, items):
            first, second, labels = self._ordered(group, items[group.samples])
            columns[:, group.samples] = (*first, *second, labels)
            keys[group.samples] = item_keys("masks", self._seed, group.epoch, items[group.samples])
        return Segments(TokenRanges(*columns[0:2]), TokenRanges(*columns[2:4]), columns[4]), keys

    def _ordered(self, group: WindowRows, items: np.ndarray) -> Segments:
        recipe = self.recipe
        seed = self._seed
        epoch = group.epoch
        window = group.window
        table = window.sequences.take(group.rows)
        coins = item_keys("swap", seed, epoch, items) >> np.uint64(63) == 1
        keys = item_keys("foreign", seed, epoch, items)
        first, second = adjacent_segments(table)
        room = np.maximum(recipe.max_tokens - first.length, second.length if recipe.keep_pairs else 0)

        def negatives(rows: np.ndarray) -> TokenRanges:
            return window.negatives.sample(table.document[rows], second.length[rows], room[rows], keys[rows])

        ordered = order_segments(recipe.objective, first, second, negatives, coins)
        return cut_to_length(recipe.max_tokens, ordered) if recipe.keep_pairs else ordered

    def _with_special_tokens(self, first: TokenRanges, second: TokenRanges, lengths: np.ndarray) -> np.ndarray:
        """[CLS] first [SEP] second [SEP] of all samples."""
        has_second = second.length > 0
        starts = np.cumsum(lengths) - lengths
        token_ids = np.empty(int(lengths.sum()), dtype=np.int64)
        token_ids[starts] = self._cls
        token_ids[starts + first.length + 1] = self._sep
        token_ids[starts + lengths - 1] = self._sep
        places = np.concatenate((starts + 1, (starts + first.length + 2)[has_second]))
        begins = np.concatenate((first.begin, second.begin[has_second]))
        self.corpus.copy_runs(token_ids, places, begins, np.concatenate((first.length, second.length[has_second])))
        return token_ids


def _sequence_lengths(first: TokenRanges, second: TokenRanges) -> np.ndarray:
    """Tokens of sequences, special ones included."""
    return first.length + 2 + np.where(second.length > 0, second.length + 1, 0)


def pack_documents(recipe: SequenceRecipe, seed: int, documents: Documents, epoch: int) -> SequenceTable:
    """The sequences of some documents in an epoch, before they are shuffled."""
    return pack_sentences(
        documents,
        recipe.max_tokens,
        recipe.short_probability,
        seed,
        epoch,
        recipe.keep_pairs,
    )
