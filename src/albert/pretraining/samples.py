"""Sample n of epoch e: a pure function of (seed, e, n) and the corpus, never of workers, ranks, batches or history."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from albert.pretraining.draws import item_keys
from albert.pretraining.epoch_order import EpochOrder, Place
from albert.pretraining.ngram_masking import MaskingRecipe, NgramMasking, Spans
from albert.pretraining.reference_segments import order_as_reference, pack_as_reference, target_lengths
from albert.pretraining.segments import Documents, SequenceTable, pack_sentences
from albert.pretraining.sentence_order import (
    Runs,
    Segments,
    SentenceObjective,
    cut_to_length,
    order_segments,
    segments_of,
)
from albert.runtime.errors import InvalidConfiguration
from albert.text.preparation.shards import TokenCorpus

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
    """Their order, whether the second follows, or nothing. "sop-reference": the order, made as the reference does."""

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

    def singly(self) -> list[Sample]:
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

    Args:
        corpus: token shards.
        sequences, masking: what to make of them.
        seed: of the run.

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
        self.worthwhile = max(1, TOKENS_AT_ONCE // sequences.max_length)
        """How many samples are best made at once."""

    def numbered(self, number: int) -> Sample:
        """Sample `number` of the run, counted from 0 over all epochs."""
        return self.batch(np.array([number])).singly()[0]

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
        token_ids, lengths = self._with_special_tokens(first, second)
        types = np.repeat(
            np.tile([0, 1], len(lengths)), np.stack((first.length + 2, lengths - first.length - 2), axis=1).ravel()
        )
        masked = self.masking(token_ids, lengths, keys)
        samples = Samples(masked.token_ids, types, lengths, masked.positions, masked.labels, labels)
        return Explained(samples, segments, masked.spans, keys)

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

    def _with_special_tokens(self, first: Runs, second: Runs) -> tuple[np.ndarray, np.ndarray]:
        """[CLS] first [SEP] second [SEP] of all samples, and their lengths."""
        two = second.length > 0
        lengths = first.length + 2 + np.where(two, second.length + 1, 0)
        starts = np.cumsum(lengths) - lengths
        token_ids = np.empty(int(lengths.sum()), dtype=np.int64)
        token_ids[starts] = self._cls
        token_ids[starts + first.length + 1] = self._sep
        token_ids[starts + lengths - 1] = self._sep
        places = np.concatenate((starts + 1, (starts + first.length + 2)[two]))
        begins = np.concatenate((first.begin, second.begin[two]))
        self.corpus.copy_runs(token_ids, places, begins, np.concatenate((first.length, second.length[two])))
        return token_ids, lengths


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
