"""Sample n of epoch e: a pure function of (seed, e, n) and the corpus, never of workers, ranks or history."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from albert.pretraining.ngram_masking import MaskingRecipe, NgramMasking
from albert.pretraining.segments import SequenceTable, pack_sentences
from albert.pretraining.sentence_order import SentenceObjective, order_segments
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.randomness import stream
from albert.text.shards import TokenCorpus

SPECIAL_TOKENS_OF_A_PAIR = 3
PARTNER_DRAWS = 20


@dataclass(frozen=True, kw_only=True)
class SequenceRecipe:
    """What a sequence is.

    Raises:
        InvalidConfiguration: a length or share outside its range.
    """

    max_length: int = 512
    """Most tokens of a sequence, [CLS] and [SEP] counted."""
    short_probability: float = 0.1
    """Share of sequences that are cut short at a place drawn uniformly (paper §4.1)."""
    objective: SentenceObjective = "sop"
    """What is asked of two segments: their order, whether the second follows, or nothing."""

    def __post_init__(self) -> None:
        if self.max_length < SPECIAL_TOKENS_OF_A_PAIR + 2:
            raise InvalidConfiguration("sequences.max_length", f"is {self.max_length}, at least 5 is needed")
        if not 0 <= self.short_probability <= 1:
            raise InvalidConfiguration("sequences.short_probability", f"is {self.short_probability}, not a share")


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


class PretrainingSamples:
    """All samples of a corpus.

    Epochs are packed anew and so differ in size, by chance and by little. Each gives as many samples as epoch 0 has
    sequences: a smaller one begins again at its front, a larger one leaves a few of its sequences, random ones, out.
    That keeps the place of sample number i independent of all epochs before it.

    Args:
        corpus: token shards.
        sequences, masking: what to make of them.
        seed: of the run.

    Raises:
        InvalidConfiguration: next-sentence prediction over a single document.
    """

    def __init__(self, corpus: TokenCorpus, sequences: SequenceRecipe, masking: MaskingRecipe, seed: int) -> None:
        self._corpus, self._recipe, self._seed = corpus, sequences, seed
        tokenizer = corpus.tokenizer()
        self._cls, self._sep = tokenizer.cls_id, tokenizer.sep_id
        self._mask = NgramMasking(masking, tokenizer.word_starts(), tokenizer.mask_id, tokenizer.special_ids)
        if sequences.objective == "nsp" and len(corpus.document_starts) < 3:
            why = f'"nsp" needs a second {corpus.split} document to take foreign segments from'
            raise InvalidConfiguration("sequences.objective", why, 'use "sop", which is why the paper has it')
        self._epoch = -1
        self._table, self._order = self._open_epoch(0)
        self.per_epoch = len(self._table)

    def numbered(self, number: int) -> Sample:
        """Sample `number` of the run, counted from 0 over all epochs."""
        return self.sample(*divmod(number, self.per_epoch))

    def sample(self, epoch: int, n: int) -> Sample:
        """Sample `n` of an epoch."""
        table, order = self._open_epoch(epoch)
        sequence = int(order[n % len(order)])
        draws = stream("sample", self._seed, epoch, n)
        begin, split, end = (int(column[sequence]) for column in (table.begin, table.split, table.end))
        tokens = self._corpus.read(begin, end)
        first, second, label = order_segments(
            self._recipe.objective,
            tokens[: split - begin],
            tokens[split - begin :],
            lambda: self._foreign(table, sequence, split - begin, end - split, draws),
            draws,
        )
        token_ids = np.concatenate(([self._cls], first, [self._sep]))
        types = np.zeros(len(token_ids), dtype=np.int64)
        if len(second):
            token_ids = np.concatenate((token_ids, second, [self._sep]))
            types = np.concatenate((types, np.ones(len(second) + 1, dtype=np.int64)))
        masked = self._mask(token_ids, draws)
        return Sample(masked.token_ids, types, masked.positions, masked.labels, label)

    def _open_epoch(self, epoch: int) -> tuple[SequenceTable, np.ndarray]:
        if epoch != self._epoch:
            self._table = pack_sentences(
                self._corpus.sentence_starts,
                self._corpus.document_starts,
                self._recipe.max_length - SPECIAL_TOKENS_OF_A_PAIR,
                self._recipe.short_probability,
                self._seed,
                epoch,
            )
            self._order = stream("order", self._seed, epoch).permutation(len(self._table))
            self._epoch = epoch
        return self._table, self._order

    def _foreign(
        self, table: SequenceTable, own: int, first_length: int, usual_length: int, draws: np.random.Generator
    ) -> np.ndarray:
        """The second segment of a sequence of another document, whole sentences that fit where ours were.

        Of several candidates the one closest in length to our own second segment is taken, so that length says little.
        """
        room = self._recipe.max_length - SPECIAL_TOKENS_OF_A_PAIR - first_length
        candidates = draws.integers(0, len(table), PARTNER_DRAWS)
        foreign = candidates[table.document[candidates] != table.document[own]]
        while len(foreign) == 0:
            candidates = draws.integers(0, len(table), PARTNER_DRAWS)
            foreign = candidates[table.document[candidates] != table.document[own]]
        begins = np.where(table.split[foreign] < table.end[foreign], table.split[foreign], table.begin[foreign])
        lengths = table.end[foreign] - begins
        chosen = int(np.argmin(np.abs(lengths - usual_length) + np.where(lengths > room, self._recipe.max_length, 0)))
        begin = int(begins[chosen])
        return self._corpus.read(begin, begin + min(int(lengths[chosen]), room))
