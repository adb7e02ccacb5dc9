"""From token shards to batches: sample n of epoch e is a pure function of (seed, e, n) and the corpora.

It never depends on workers, ranks, batches or history.

1. `open_corpora` maps the shards of prepared corpora: token ids, and the lengths of their sentences and documents.
2. `EpochOrder` finds the sequence that is sample n of an epoch: it takes blocks of the corpus in random order, makes
   sequences of the sentences in their documents (`segments.pack_sentences`), and shuffles those of 128 blocks.
3. `PretrainingSamples` makes samples: a sequence as two segments, in the order of the text or not
   (`segments.order_segments`), [CLS] first [SEP] second [SEP], and its masks (`masking.NgramMasking`).
4. `MixedSamples` takes each sample from one of several corpora, by weight.
5. `PretrainingBatches`: step t has samples t·B to (t+1)·B − 1, which ranks and micro-batches share; `batches.batch_of`
   makes tensors of them. On a GPU `fixed_shape.FixedBatches` has the same samples in micro-batches of one shape."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int64

from albert.pretraining.batches import PretrainingBatch, Sample, Samples, batch_of
from albert.pretraining.masking import NgramMasking, Spans
from albert.pretraining.segments import (
    CorpusBlocks,
    Documents,
    NegativeSegments,
    Segments,
    SequenceTable,
    TokenRanges,
    adjacent_segments,
    cut_to_length,
    order_segments,
    pack_sentences,
    starts_of,
)
from albert.recipes.pretraining import MaskingRecipe, PretrainingRecipe, SequenceRecipe
from albert.runtime.environment import world
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.progress import progress
from albert.runtime.random_streams import item_keys, stream
from albert.text.shards import TokenCorpus
from albert.training.update import equal_parts


def open_corpora(paths: Sequence[Path], verify: bool) -> list[TokenCorpus]:
    """The training splits of prepared corpora.

    Raises:
        InvalidConfiguration: they have different tokenizers, or one is named twice.
        MissingInput, DamagedData: see `TokenCorpus.open`.
    """
    if len({path.resolve() for path in paths}) < len(paths):
        raise InvalidConfiguration("data", "names a corpus twice", "give it a larger weight instead")
    corpora = [TokenCorpus.open(path, "train", verify=verify) for path in paths]
    for corpus in corpora[1:]:
        if corpus.tokenizer_fingerprint != corpora[0].tokenizer_fingerprint:
            why = f"was prepared with another tokenizer than {corpora[0].directory}"
            raise InvalidConfiguration(corpus.directory, why, "prepare both with the same one")
    return corpora


@runtime_checkable
class SampleSource(Protocol):
    """Samples by their numbers, counted from 0 over all epochs of `per_epoch` samples each.

    `preferred_batch`: how many are most efficiently made at once.
    """

    per_epoch: int
    preferred_batch: int

    def batch(self, numbers: np.ndarray) -> Samples:
        """Many samples at once, the same as one by one."""
        ...

    def lengths(self, numbers: np.ndarray) -> np.ndarray:
        """Tokens of samples, without making them."""
        ...


def samples_of(recipe: PretrainingRecipe, corpora: Sequence[TokenCorpus], seed: int) -> SampleSource:
    """The samples of all corpora, mixed by the recipe's weights.

    Raises:
        InvalidConfiguration: the weights do not fit the corpora.
    """
    parts = [PretrainingSamples(corpus, recipe.sequences, recipe.masking, seed) for corpus in corpora]
    return MixedSamples(parts, recipe.mixture) if recipe.mixture or len(parts) > 1 else parts[0]


# --------------------------------------------------------------------------------------------------------------------
# The order of an epoch's sequences: blocks of the corpus in random order, then their sequences, shuffled.
#
# A table of all sequences would grow with the corpus (a terabyte of text: 600 million sequences of 512 tokens). So
# the corpus is divided into blocks of about a million tokens. An epoch takes the blocks in random order, 128 at a
# time; such a window is packed into sequences when it is needed, and its sequences are shuffled. Neighbours in an
# epoch therefore come from 128 random blocks of the corpus, or from all of it when it has fewer.

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


class EpochOrder:
    """Finds the sequence of sample n of an epoch.

    Each epoch is packed anew, so their numbers of sequences differ slightly. Every epoch yields as many samples as
    epoch 0 has sequences: a window with fewer starts again from its front, a window with more leaves a few random ones
    out. So the position of sample n does not depend on earlier epochs.

    Say an epoch has 10 samples, of which its windows have 6 and 4: in epoch 0 their blocks have 6 and 4 sequences.
    Sample 7 is then number 1 of window 1. If the blocks of that window have 3 sequences in this epoch, in the order
    [2, 0, 1], its samples 6, 7, 8 and 9 are the sequences 2, 0, 1 and 2.
    """

    def __init__(self, corpus: TokenCorpus, pack: Packing, seed: int) -> None:
        self._blocks = CorpusBlocks(corpus)
        self._pack = pack
        self._seed = seed
        self._counts = np.empty(len(self._blocks), dtype=np.int64)  # sequences of each block in epoch 0
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
            _, first_samples = self._epoch(epoch)
            windows = np.searchsorted(first_samples, samples[of_epoch], side="right") - 1
            for number in np.unique(windows).tolist():
                indices = of_epoch[windows == number]
                window = self._window(epoch, number)
                within_window = samples[indices] - first_samples[number]
                rows = window.order[within_window % len(window.order)]
                yield WindowRows(epoch, window, indices, rows)

    def _epoch(self, epoch: int) -> tuple[list[np.ndarray], np.ndarray]:
        """The blocks of each window, and the first sample of each; the last entry is the end."""
        if epoch not in self._epochs:
            order = stream("blocks", self._seed, epoch).permutation(len(self._blocks))
            windows = np.array_split(order, max(1, round(len(order) / WINDOW_BLOCKS)))
            first_samples = starts_of(np.array([self._counts[blocks].sum() for blocks in windows]))
            _evict(self._epochs, CACHED_EPOCHS)
            self._epochs[epoch] = windows, first_samples
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


# --------------------------------------------------------------------------------------------------------------------
# The samples of one corpus.

TOKENS_AT_ONCE = 1 << 17
"""Smaller batches cost more per token; larger ones exceed the processor's cache."""
RETAINED_BYTES = 1 << 24
"""Freed blocks of memory up to this size are kept for the next array."""


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
        of_first = first.length + 2  # [CLS] first [SEP]
        of_second = lengths - of_first  # second [SEP]
        types = np.repeat(np.tile([0, 1], len(lengths)), np.stack((of_first, of_second), axis=1).ravel())
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
        columns = np.empty((5, len(numbers)), dtype=np.int64)  # begin and length of both segments, and the label
        keys = np.empty(len(numbers), dtype=np.uint64)
        for group in self._order.find(epochs, items):
            first, second, labels = self._ordered(group, items[group.samples])
            columns[:, group.samples] = (*first, *second, labels)
            keys[group.samples] = item_keys("masks", self._seed, group.epoch, items[group.samples])
        return Segments(TokenRanges(*columns[0:2]), TokenRanges(*columns[2:4]), columns[4]), keys

    def _ordered(self, group: WindowRows, items: np.ndarray) -> Segments:
        """The segments of samples of one window, in the order of the input; `items` are their numbers in the epoch."""
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
        """[CLS] first [SEP] second [SEP] of all samples; [CLS] first [SEP] where there is no second segment.

        A sample of segments of 3 and 2 tokens that begins at place 100 has [CLS] at 100, its segments from 101 and from
        105 on, and [SEP] at 104 and 107.
        """
        has_second = second.length > 0
        starts = np.cumsum(lengths) - lengths
        after_first = starts + 1 + first.length
        token_ids = np.empty(int(lengths.sum()), dtype=np.int64)
        token_ids[starts] = self._cls
        token_ids[after_first] = self._sep
        token_ids[starts + lengths - 1] = self._sep
        self.corpus.copy_runs(
            token_ids,
            places=np.concatenate((starts + 1, after_first[has_second] + 1)),
            starts=np.concatenate((first.begin, second.begin[has_second])),
            lengths=np.concatenate((first.length, second.length[has_second])),
        )
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


# --------------------------------------------------------------------------------------------------------------------
# Several corpora as one stream of samples, by weight (paper Table 7: additional data).
#
# Which corpus sample i of the mixture comes from is arithmetic: of the first i samples, a corpus with the share w has
# floor(i·w), give or take one. Within a corpus samples come in its own shuffled order, so nothing is repeated before
# its epoch is over, and the mixture is a pure function of i like each of its parts.

SHARE_UNITS = 1_000_000
"""Shares are rounded to millionths."""


class MixedSamples:
    """Samples of several corpora.

    Args:
        weights: how often each is drawn from, relative to the others; empty: by their sizes.

    Raises:
        InvalidConfiguration: not one weight above 0 for each corpus.
    """

    def __init__(self, parts: Sequence[PretrainingSamples], weights: Sequence[float] = ()) -> None:
        if weights and (len(weights) != len(parts) or not all(weight > 0 for weight in weights)):
            shown = " ".join(map(str, weights))
            why = f"is {shown}, {len(parts)} corpora need as many weights above 0"
            raise InvalidConfiguration("mixture", why)
        shares = np.array(weights if weights else [part.per_epoch for part in parts], dtype=np.float64)
        self._parts = parts
        self._shares = np.maximum(1, np.rint(SHARE_UNITS * shares / shares.sum())).astype(np.int64).tolist()
        self.per_epoch = sum(part.per_epoch for part in parts)
        self.preferred_batch = min(part.preferred_batch for part in parts)

    def batch(self, numbers: Int64[np.ndarray, " samples"]) -> Samples:
        """Many samples at once, in the order of their numbers."""
        corpora, within = self.locate(numbers)
        by_corpus = np.argsort(corpora, kind="stable")
        batches = [part.batch(within[corpora == i]) for i, part in enumerate(self._parts) if (corpora == i).any()]
        return Samples.concatenate(batches).take(np.argsort(by_corpus))

    def lengths(self, numbers: Int64[np.ndarray, " samples"]) -> Int64[np.ndarray, " samples"]:
        """Tokens of samples, without making them."""
        corpora, within = self.locate(numbers)
        lengths = np.empty_like(numbers)
        for corpus, part in enumerate(self._parts):
            lengths[corpora == corpus] = part.lengths(within[corpora == corpus])
        return lengths

    def locate(
        self, numbers: Int64[np.ndarray, " samples"]
    ) -> tuple[Int64[np.ndarray, " samples"], Int64[np.ndarray, " samples"]]:
        """The corpus of each sample, and its number within that corpus."""
        corpora = np.zeros_like(numbers)
        within = numbers.copy()
        pending = np.arange(len(numbers))
        for corpus, share in enumerate(self._shares[:-1]):
            # This corpus gets its share of the samples left by earlier ones, evenly spaced.
            total = sum(self._shares[corpus:])
            before = _count_before(share, total, within[pending])
            selected = _count_before(share, total, within[pending] + 1) > before
            corpora[pending[selected]] = corpus
            within[pending] = np.where(selected, before, within[pending] - before)
            pending = pending[~selected]
            corpora[pending] = corpus + 1
        return corpora, within


def _count_before(share: int, total: int, numbers: np.ndarray) -> np.ndarray:
    """floor(numbers · share / total), in two steps to avoid overflow: samples of a corpus among the first ones.

    With shares of 3 and 2 of 5, of the samples 0, 1, 2, 3, 4 the first 0, 1, 2, 3, 4, 5 have 0, 0, 1, 1, 2, 3 of the
    first corpus: samples 1, 3 and 4 are its samples 0, 1 and 2, and samples 0 and 2 are samples 0 and 1 of the second.
    """
    quotient, rest = np.divmod(numbers, total)
    return quotient * share + rest * share // total


# --------------------------------------------------------------------------------------------------------------------
# The samples of a step.


class PretrainingBatches:
    """Batches by step: step t has samples t·B to (t+1)·B − 1, which the ranks take in turn.

    With B = 8 and two ranks, rank 1 has samples 9, 11, 13 and 15 in step 1: with micro-batches of 2 sequences these are
    two, of 9 and 11 and of 13 and 15.

    Args:
        batch_size: B, sequences over all ranks and micro-batches.
        workers: threads that compute at the same time; every micro-batch is split into as many parts, of about equal
            numbers of tokens.
    """

    def __init__(
        self,
        samples: SampleSource,
        batch_size: int,
        micro_batch_size: int,
        workers: int = 1,
    ) -> None:
        self._samples = samples
        self._workers = workers
        self._batch_size = batch_size
        self._micro_batch_size = micro_batch_size

    def micro_batches(self, step: int, rank: int, world_size: int) -> Sequence[PretrainingBatch]:
        """The samples of one rank in a step."""
        first = step * self._batch_size
        numbers = np.arange(first + rank, first + self._batch_size, world_size)
        return list(micro_batches(self._samples, numbers, self._micro_batch_size, self._workers))


def micro_batches(
    samples: SampleSource, numbers: np.ndarray, micro_batch_size: int, parts: int = 1
) -> Iterator[PretrainingBatch]:
    """Samples in micro-batches, each split into parts of about equal numbers of tokens.

    Samples of several micro-batches are made at once where that is faster.
    """
    at_once = max(1, samples.preferred_batch // micro_batch_size) * micro_batch_size
    for begin in range(0, len(numbers), at_once):
        batch = samples.batch(numbers[begin : begin + at_once])
        for i in range(0, len(batch.lengths), micro_batch_size):
            for part in equal_parts(batch.lengths[i : i + micro_batch_size], parts):
                yield batch_of(batch.part(i + part.start, i + part.stop))
