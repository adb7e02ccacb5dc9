"""n-gram masking of whole words (paper §4.1, equation 1: p(n) ∝ 1/n, n up to 3; SpanBERT, Joshi et al., 2019).

`NgramMasking` draws the masks of a batch by a `MaskingRecipe`, `Words` finds the words of sequences."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from albert.recipes.pretraining import MaskingRecipe
from albert.runtime.random_streams import bounded, draw, high_bits, low_bits

_REPLACEMENT_DRAWS = 1 << 32
"""Draw number i of a sequence is for its word i, number _REPLACEMENT_DRAWS + p for its token p."""


@dataclass(frozen=True)
class Words:
    """The words of concatenated sequences, by token position; special tokens belong to no word.

    Attributes:
        begin, end: int64 [words], the tokens of each, `end` exclusive.
        to_segment_end: int64 [words], words from each to the end of its segment, itself included.
        first, count: int64 [sequences], the first word of each sequence and the number of its words.
    """

    begin: np.ndarray
    end: np.ndarray
    to_segment_end: np.ndarray
    first: np.ndarray
    count: np.ndarray

    @classmethod
    def find(cls, token_ids: np.ndarray, lengths: np.ndarray, word_starts: np.ndarray, special: np.ndarray) -> "Words":
        """Find the words of sequences.

        Args:
            token_ids: int64 [tokens], one sequence after the other.
            lengths: int64 [sequences], tokens of each.
            word_starts: bool [V], which pieces begin a word; the first piece of a segment always does.
            special: bool [V], which pieces are special.
        """
        starts = np.cumsum(lengths) - lengths
        is_special = special[token_ids]
        opens_segment = np.zeros(len(token_ids), dtype=bool)
        opens_segment[1:] = is_special[:-1]
        opens_segment[starts] = True
        opens_segment &= ~is_special
        edges = np.flatnonzero(word_starts[token_ids] | opens_segment | is_special)
        is_word = ~is_special[edges]
        begin = edges[is_word]
        end = np.append(edges[1:], len(token_ids))[is_word]
        segments = np.append(np.flatnonzero(opens_segment[begin]), len(begin))
        to_segment_end = np.repeat(segments[1:], np.diff(segments)) - np.arange(len(begin))
        first = np.searchsorted(begin, starts)
        return cls(begin, end, to_segment_end, first, np.diff(first, append=len(begin)))


class Spans(NamedTuple):
    """Masked n-grams, by token position in the concatenated sequences; they never overlap."""

    begin: np.ndarray
    """int64, ascending."""
    end: np.ndarray
    """int64, exclusive."""
    words: np.ndarray
    """int64, n."""


class MaskedTokens(NamedTuple):
    """Masked sequences."""

    token_ids: np.ndarray
    """int64 [tokens], with replacements."""
    positions: np.ndarray
    """int64 [masked], ascending, in the concatenated sequences: the tokens to predict."""
    labels: np.ndarray
    """int64 [masked]: the original tokens."""
    spans: Spans


class NgramMasking:
    """Chooses words and replaces their tokens, in many sequences at once.

    Args:
        word_starts: bool [V], which pieces begin a word.
        special_ids: never masked, never drawn as replacement.

    Attributes:
        word_starts: bool [V], which pieces begin a unit of an n-gram.
        special: bool [V].
        replacements: int64, the ids that random tokens are drawn from.
        ngram_shares: float64 [N], the probabilities of n = 1 to N.
    """

    def __init__(
        self, recipe: MaskingRecipe, word_starts: np.ndarray, mask_id: int, special_ids: Sequence[int]
    ) -> None:
        self.recipe = recipe
        self.mask_id = mask_id
        self.word_starts = word_starts if recipe.unit == "word" else np.ones(len(word_starts), dtype=bool)
        self.special = np.zeros(len(word_starts), dtype=bool)
        self.special[list(special_ids)] = True
        self.replacements = np.flatnonzero(~self.special)
        weights = 1 / np.arange(1, recipe.max_ngram + 1)
        weights = weights if recipe.favor_shorter else weights[::-1]
        self.ngram_shares = weights / weights.sum()
        self._thresholds = [_of_32_bits(share) for share in np.cumsum(self.ngram_shares)[:-1].tolist()]

    def __call__(self, token_ids: np.ndarray, lengths: np.ndarray, keys: np.ndarray) -> MaskedTokens:
        """Mask sequences with their special tokens in place.

        Spans of the tokens 5 to 7 and 12 to 13 mask the positions 5, 6 and 12. For each of these one draw chooses
        between [MASK], a random token and the token itself, and another draw the random token.

        Args:
            token_ids: int64 [tokens], one sequence after the other.
            lengths: int64 [sequences], tokens of each, at least 1.
            keys: uint64 [sequences]; the masks of a sequence depend on its key and tokens alone.
        """
        spans = self.choose_spans(token_ids, lengths, keys)
        sizes = spans.end - spans.begin
        first_of_span = np.cumsum(sizes) - sizes  # of all masked tokens
        positions = np.arange(int(sizes.sum())) + np.repeat(spans.begin - first_of_span, sizes)
        labels = token_ids[positions]
        starts = np.cumsum(lengths) - lengths
        sequence = np.searchsorted(starts, positions, side="right") - 1
        bits = draw(keys[sequence], positions - starts[sequence] + _REPLACEMENT_DRAWS)
        random_tokens = self.replacements[bounded(low_bits(bits), len(self.replacements))]
        choice = high_bits(bits)
        if self.recipe.replacement == "span":  # the draw of its first token
            choice = np.repeat(choice[first_of_span], sizes)
        mask = self.recipe.replace_with_mask
        random = self.recipe.replace_with_mask + self.recipe.replace_with_random
        replaced = token_ids.copy()
        replaced[positions] = np.where(
            choice < _of_32_bits(mask), self.mask_id, np.where(choice < _of_32_bits(random), random_tokens, labels)
        )
        return MaskedTokens(replaced, positions, labels, spans)

    def choose_spans(self, token_ids: np.ndarray, lengths: np.ndarray, keys: np.ndarray) -> Spans:
        """Token ranges of whole words to mask, within segments and within each sequence's budget.

        Start words are taken in random order, one per sequence and round. Each has its n drawn with p(n) ∝ 1/n; the
        span shrinks, word by word, where the segment ends or the budget would be exceeded, and is dropped where it
        overlaps an earlier one. Arguments as of a call.

        Say a sequence has the words "the", "un·known", "quick·ly" and "ran", of 6 tokens, and a budget of 4; "quick·ly"
        is drawn first, with n = 1, then "un·known" with n = 3. Round 1 masks "quick·ly", 2 tokens. Round 2 would mask
        three words, of which "un·known" alone fits the 2 tokens that are left. So the budget is used up.
        """
        max_ngram = self.recipe.max_ngram
        words = Words.find(token_ids, lengths, self.word_starts, self.special)
        order, n = self.draw_starts(words, keys)
        n = np.minimum(n, words.to_segment_end)
        ends = np.append(words.end, np.full(max_ngram, len(token_ids)))  # padded: lookups may pass the last word
        covered = np.zeros(len(ends), dtype=bool)
        offsets = np.arange(max_ngram)
        budgets = self.recipe.budgets(lengths)
        active = np.flatnonzero(words.count)
        left = budgets[active]
        turn = words.first[active]
        last = (words.first + words.count)[active]
        chosen = [np.empty((2, 0), dtype=np.int64)]
        while len(left):
            start = order[turn]
            candidates = start[:, None] + offsets
            fits = ends[candidates] - words.begin[start][:, None] <= left[:, None]
            fits &= offsets < n[start][:, None]
            size = fits.sum(axis=1)
            free = (size > 0) & ~(covered[candidates] & fits).any(axis=1)
            covered[candidates[fits & free[:, None]]] = True
            start = start[free]
            size = size[free]
            chosen.append(np.stack((start, size)))
            left[free] -= ends[start + size - 1] - words.begin[start]
            turn += 1
            active = (left > 0) & (turn < last)
            if not active.all():
                left = left[active]
                turn = turn[active]
                last = last[active]
        start, size = np.concatenate(chosen, axis=1)
        ascending = np.argsort(start)
        start = start[ascending]
        size = size[ascending]
        return Spans(words.begin[start], ends[start + size - 1], size)

    def draw_starts(self, words: Words, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The words of each sequence in random order, and the n of each word.

        Raises:
            ValueError: more and longer sequences than can be masked at once: 2^32 words.
        """
        first = np.repeat(words.first, words.count)
        number = np.arange(len(first)) - first
        sequence = np.repeat(np.arange(len(keys), dtype=np.uint64), words.count)
        bits = draw(np.repeat(keys, words.count), number)
        # Sorting packed integers is several times faster than argsort.
        digits = int(words.count.max(initial=0)).bit_length()
        if len(keys).bit_length() + digits > 32:
            raise ValueError(f"{len(keys)} sequences of up to {words.count.max()} words at a time")
        order = (sequence << np.uint64(32 + digits)) | (high_bits(bits) << np.uint64(digits)) | number.astype(np.uint64)
        order.sort()
        order = (order & np.uint64((1 << digits) - 1)).astype(np.int64) + first
        n = np.ones(len(first), dtype=np.int64)
        for threshold in self._thresholds:
            n += low_bits(bits) >= threshold
        return order, n


def _of_32_bits(share: float) -> np.uint64:
    """How many of all 32-bit numbers are below a share."""
    return np.uint64(round(min(max(share, 0.0), 1.0) * 2**32))
