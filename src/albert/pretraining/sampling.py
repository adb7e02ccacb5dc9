"""Training samples: sample n of epoch e is a pure function of (seed, e, n) and the corpus.

It never depends on workers, ranks, batches or history. An epoch takes blocks of the corpus in random order and
shuffles the sequences of 128 blocks at a time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from albert.pretraining.masking import MaskingRecipe, NgramMasking, Spans
from albert.pretraining.segments import (
    Documents,
    Runs,
    SecondSegments,
    Segments,
    SentenceObjective,
    SequenceTable,
    cut_to_length,
    order_as_reference,
    order_segments,
    pack_as_reference,
    pack_sentences,
    segments_of,
    target_lengths,
)
from albert.runtime.environment import world
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.progress import progress
from albert.runtime.random_streams import item_keys, stream
from albert.text.shards import TokenCorpus

# --------------------------------------------------------------------------------------------------------------------
# In which order an epoch shows its sequences: blocks of the corpus in random order, then their sequences, shuffled.
#
# A table of all sequences would grow with the corpus (a terabyte of text: 600 million sequences of 512 tokens). So
# the corpus is seen as blocks of about a million tokens. An epoch takes the blocks in random order, 128 at a time;
# such a window is packed into sequences when it is needed, and its sequences are shuffled. Neighbours in an epoch
# are therefore from 128 random places of the corpus, or from all of it when it has fewer blocks.

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


SPECIAL_TOKENS_OF_A_PAIR = 3
TOKENS_AT_ONCE = 1 << 17
"""Fewer are slower to make, a token; more leave the processor's cache."""
KEPT_BYTES = 1 << 24
"""Blocks of memory up to this size are kept for the next array when they are freed."""


@dataclass(frozen=True, kw_only=True)
class SequenceRecipe:
    """What a sequence is.

    Raises:
        InvalidConfiguration: a length or share outside its range.
    """

    max_length: int = 512
    """Most tokens of a sequence, [CLS] and [SEP] counted."""
    short_probability: float = 0.1
    """Share of sequences, of those of several sentences, that are cut short at a place drawn uniformly (paper §4.1)."""
    neighbours_probability: float = 0.0
    """Share of sequences, of those of more than three sentences, that are cut into pairs of neighbouring sentences:
    swaps near the boundary, with the least to tell their order by."""
    keep_pairs: bool = False
    """Leave no sentence alone, without an order to tell, that has another in its document: where two or three do not
    fit, the segment seen first is cut in front and the other one at its end. For sequences short beside the sentences;
    `albert show` counts what is cut."""
    objective: SentenceObjective = "sop"
    """What is asked about two segments: sop, their order; nsp, whether the second follows; none. sop-reference is the
    order, made as the reference does."""

    def __post_init__(self) -> None:
        if self.max_length < SPECIAL_TOKENS_OF_A_PAIR + 2:
            raise InvalidConfiguration("sequences.max_length", f"is {self.max_length}, at least 5 is needed")
        for name in ("short_probability", "neighbours_probability"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidConfiguration(f"sequences.{name}", f"is {getattr(self, name)}, not a share")
        for name in ("neighbours_probability", "keep_pairs"):
            if getattr(self, name) and self.objective == "sop-reference":
                why = f'is {getattr(self, name)}, "sop-reference" cuts sequences as the reference does'
                raise InvalidConfiguration(f"sequences.{name}", why, 'use it with "sop" or "nsp"')

    @property
    def max_tokens(self) -> int:
        """Most tokens of both segments."""
        return self.max_length - SPECIAL_TOKENS_OF_A_PAIR


class Sample(NamedTuple):
    """One sequence, masked."""

    token_ids: np.ndarray
    """int64 [tokens]: [CLS] first [SEP] second [SEP]."""
    token_type_ids: np.ndarray
    """int64 [tokens]: 0 up to the first [SEP], 1 behind it."""
    masked_positions: np.ndarray
    """int64 [masked]."""
    masked_labels: np.ndarray
    """int64 [masked]."""
    order_label: int
    """0 in order, 1 swapped or foreign, -100 nothing to predict."""


class Samples(NamedTuple):
    """Sequences, masked, one after the other."""

    token_ids: np.ndarray
    """int64 [tokens]."""
    token_type_ids: np.ndarray
    """int64 [tokens]."""
    lengths: np.ndarray
    """int64 [sequences]: tokens of each."""
    masked_positions: np.ndarray
    """int64 [masked], ascending, in the run of all tokens."""
    masked_labels: np.ndarray
    """int64 [masked]."""
    order_labels: np.ndarray
    """int64 [sequences]."""

    @classmethod
    def joined(cls, samples: Sequence[Sample]) -> "Samples":
        """Single samples one after the other."""
        lengths = np.array([len(sample.token_ids) for sample in samples], dtype=np.int64)
        starts = (np.cumsum(lengths) - lengths).tolist()
        return cls(
            np.concatenate([sample.token_ids for sample in samples]),
            np.concatenate([sample.token_type_ids for sample in samples]),
            lengths,
            np.concatenate([s.masked_positions + start for s, start in zip(samples, starts, strict=True)]),
            np.concatenate([sample.masked_labels for sample in samples]),
            np.array([sample.order_label for sample in samples], dtype=np.int64),
        )

    def part(self, begin: int, end: int) -> "Samples":
        """Sequences begin to end - 1; most of it is a view."""
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
        """Each by itself."""
        parts = (self.part(i, i + 1) for i in range(len(self.lengths)))
        return [Sample(ids, types, places, labels, int(order[0])) for ids, types, _, places, labels, order in parts]


class Explained(NamedTuple):
    """Samples, and what they were made of."""

    samples: Samples
    segments: Segments
    spans: Spans
    mask_keys: np.ndarray
    """uint64 [sequences], of the draws of each one's masks."""


class PretrainingSamples:
    """All samples of a corpus.

    Raises:
        InvalidConfiguration: foreign segments out of a single document.
    """

    def __init__(self, corpus: TokenCorpus, sequences: SequenceRecipe, masking: MaskingRecipe, seed: int) -> None:
        self.corpus, self.recipe, self._seed = corpus, sequences, seed
        tokenizer = corpus.tokenizer()
        self._cls, self._sep = tokenizer.cls_id, tokenizer.sep_id
        self.masking = NgramMasking(masking, tokenizer.word_starts(), tokenizer.mask_id, tokenizer.special_ids)
        if sequences.objective in ("nsp", "sop-reference") and corpus.n_documents < 2:
            why = f'"{sequences.objective}" needs a second {corpus.split} document to take foreign segments from'
            raise InvalidConfiguration("sequences.objective", why, 'use "sop", which is why the paper has it')
        self._order = EpochOrder(corpus, partial(pack_documents, sequences, seed), seed)
        self.per_epoch = self._order.per_epoch
        _keep_freed_memory()
        self.preferred_batch = max(1, TOKENS_AT_ONCE // sequences.max_length)
        """How many samples are best made at once."""

    def numbered(self, number: int) -> Sample:
        """Sample `number` of the run, counted from 0 over all epochs."""
        return self.batch(np.array([number])).unbatch()[0]

    def sample(self, epoch: int, n: int) -> Sample:
        """Sample `n` of an epoch, of which there are `per_epoch`."""
        return self.numbered(epoch * self.per_epoch + n)

    def batch(self, numbers: np.ndarray) -> Samples:
        """Many samples at once, each as it would be alone.

        Args:
            numbers: int64, counted from 0 over all epochs.
        """
        return self.explained(numbers).samples

    def explained(self, numbers: np.ndarray) -> Explained:
        """As `batch`, with where the segments come from and which tokens were masked together."""
        segments, keys = self._segments(numbers)
        first, second, labels = segments
        lengths = _whole_lengths(first, second)
        token_ids = self._with_special_tokens(first, second, lengths)
        types = np.repeat(
            np.tile([0, 1], len(lengths)), np.stack((first.length + 2, lengths - first.length - 2), axis=1).ravel()
        )
        masked = self.masking(token_ids, lengths, keys)
        samples = Samples(masked.token_ids, types, lengths, masked.positions, masked.labels, labels)
        return Explained(samples, segments, masked.spans, keys)

    def lengths(self, numbers: np.ndarray) -> np.ndarray:
        """Tokens of samples, without making them."""
        return _whole_lengths(*self.segments(numbers)[:2])

    def segments(self, numbers: np.ndarray) -> Segments:
        """Where the segments of samples lie in the corpus, and what is asked of them."""
        return self._segments(numbers)[0]

    def _segments(self, numbers: np.ndarray) -> tuple[Segments, np.ndarray]:
        """The segments of samples, and the keys of their masks."""
        epochs, items = np.divmod(numbers, self.per_epoch)
        columns = np.empty((5, len(numbers)), dtype=np.int64)
        keys = np.empty(len(numbers), dtype=np.uint64)
        for place in self._order.find(epochs, items):
            first, second, labels = self._ordered(place, items[place.which])
            columns[:, place.which] = (*first, *second, labels)
            keys[place.which] = item_keys("masks", self._seed, place.epoch, items[place.which])
        return Segments(Runs(*columns[0:2]), Runs(*columns[2:4]), columns[4]), keys

    def _ordered(self, place: Place, items: np.ndarray) -> Segments:
        recipe, seed, epoch = self.recipe, self._seed, place.epoch
        rows = place.window.sequences.take(place.sequences)
        coins = item_keys("swap", seed, epoch, items) >> np.uint64(63) == 1
        keys = item_keys("foreign", seed, epoch, items)
        if recipe.objective == "sop-reference":
            targets = target_lengths(rows.document, recipe.max_tokens, recipe.short_probability, seed, epoch)
            return order_as_reference(rows, targets, place.window.documents, coins, keys, recipe.max_tokens)
        first, second = segments_of(rows)
        room = np.maximum(recipe.max_tokens - first.length, second.length if recipe.keep_pairs else 0)
        ordered = order_segments(
            recipe.objective,
            first,
            second,
            lambda which: place.window.second_segments.foreign(
                rows.document[which], second.length[which], room[which], keys[which]
            ),
            coins,
        )
        return cut_to_length(recipe.max_tokens, ordered) if recipe.keep_pairs else ordered

    def _with_special_tokens(self, first: Runs, second: Runs, lengths: np.ndarray) -> np.ndarray:
        """[CLS] first [SEP] second [SEP] of all samples."""
        two = second.length > 0
        starts = np.cumsum(lengths) - lengths
        token_ids = np.empty(int(lengths.sum()), dtype=np.int64)
        token_ids[starts] = self._cls
        token_ids[starts + first.length + 1] = self._sep
        token_ids[starts + lengths - 1] = self._sep
        places = np.concatenate((starts + 1, (starts + first.length + 2)[two]))
        begins = np.concatenate((first.begin, second.begin[two]))
        self.corpus.copy_runs(token_ids, places, begins, np.concatenate((first.length, second.length[two])))
        return token_ids


def _whole_lengths(first: Runs, second: Runs) -> np.ndarray:
    """Tokens of samples, special ones included."""
    return first.length + 2 + np.where(second.length > 0, second.length + 1, 0)


def pack_documents(recipe: SequenceRecipe, seed: int, documents: Documents, epoch: int) -> SequenceTable:
    """The sequences of some documents in an epoch, before they are shuffled."""
    settings = (documents, recipe.max_tokens, recipe.short_probability, seed, epoch)
    if recipe.objective == "sop-reference":
        return pack_as_reference(*settings)
    return pack_sentences(*settings, recipe.neighbours_probability, recipe.keep_pairs)


def _keep_freed_memory() -> None:
    """Spare every array the pages that the system would have to clear for it, a quarter of the time of making samples.

    glibc gives a freed block back when it is larger than any such block that was freed before.
    """
    np.empty(KEPT_BYTES, dtype=np.uint8)
