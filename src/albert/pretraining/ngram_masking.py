"""n-gram masking of whole words (paper §4.1, equation 1: p(n) ∝ 1/n, n up to 3; SpanBERT, Joshi et al., 2019)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from albert.runtime.errors import InvalidConfiguration


@dataclass(frozen=True, kw_only=True)
class MaskingRecipe:
    """How much is masked, and how.

    Raises:
        InvalidConfiguration: a share outside its range.
    """

    share: float = 0.15
    """Of the tokens of a sequence, special ones counted as the reference does."""
    max_ngram: int = 3
    """N, most words that one draw masks."""
    replace_with_mask: float = 0.8
    """Share of the chosen tokens that become [MASK]."""
    replace_with_random: float = 0.1
    """Share that becomes a random token; the rest stays as it is."""

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise InvalidConfiguration("masking.share", f"is {self.share}, a number between 0 and 1 is needed")
        if self.max_ngram < 1:
            raise InvalidConfiguration("masking.max_ngram", f"is {self.max_ngram}, at least 1 is needed")
        kept = 1 - self.replace_with_mask - self.replace_with_random
        if min(self.replace_with_mask, self.replace_with_random, kept + 1e-9) < 0:
            raise InvalidConfiguration("masking", "the shares of [MASK] and random tokens do not fit into 1")


class MaskedTokens(NamedTuple):
    """A sequence with holes."""

    token_ids: np.ndarray
    """int64 [tokens], with replacements."""
    positions: np.ndarray
    """int64 [masked], ascending: what is to be predicted."""
    labels: np.ndarray
    """int64 [masked]: the tokens that were there."""


class NgramMasking:
    """Chooses words and replaces their tokens.

    Args:
        recipe: how much, and how.
        word_starts: bool [V], which pieces begin a word.
        mask_id: the id of [MASK].
        special_ids: never masked, never drawn as replacement.
    """

    def __init__(
        self, recipe: MaskingRecipe, word_starts: np.ndarray, mask_id: int, special_ids: Sequence[int]
    ) -> None:
        self.recipe = recipe
        self._word_starts = word_starts
        self._mask_id = mask_id
        self._special = np.zeros(len(word_starts), dtype=np.bool_)
        self._special[list(special_ids)] = True
        self._replacements = np.flatnonzero(~self._special)
        weights = 1 / np.arange(1, recipe.max_ngram + 1)
        self._cumulative = np.cumsum(weights / weights.sum())[:-1]

    def __call__(self, token_ids: np.ndarray, draws: np.random.Generator) -> MaskedTokens:
        """Mask a sequence with its special tokens in place.

        Args:
            token_ids: int64 [tokens].
            draws: the sample's random stream.
        """
        spans = self.choose_spans(token_ids, draws)
        chosen = sorted(position for begin, end in spans for position in range(begin, end))
        positions = np.array(chosen, dtype=np.int64)
        labels = token_ids[positions]
        fates = draws.random(len(positions))
        strangers = self._replacements[draws.integers(0, len(self._replacements), len(positions))]
        masked_below = self.recipe.replace_with_mask
        random_below = masked_below + self.recipe.replace_with_random
        replaced = token_ids.copy()
        replaced[positions] = np.where(
            fates < masked_below, self._mask_id, np.where(fates < random_below, strangers, labels)
        )
        return MaskedTokens(replaced, positions, labels)

    def choose_spans(self, token_ids: np.ndarray, draws: np.random.Generator) -> list[tuple[int, int]]:
        """Token ranges of whole words to mask, none of them across a special token, within the budget.

        Start words are taken in random order. Each has its n drawn with p(n) ∝ 1/n; the span shrinks, word by word,
        where the segment ends or the budget would be exceeded, and is left out where it meets an earlier one.
        """
        budget = max(1, round(self.recipe.share * len(token_ids)))
        special = self._special[token_ids]
        begins = self._word_starts[token_ids] & ~special
        begins[1:] |= special[:-1] & ~special[1:]  # a segment's first piece begins a word whatever it is
        begins[0] |= not special[0]
        starts = np.flatnonzero(begins)
        if len(starts) == 0:
            return []
        # A word ends where the next begins or where a special token stands.
        stops = np.flatnonzero(begins | special)
        ends = np.append(stops, len(token_ids))[np.searchsorted(stops, starts, side="right")].tolist()
        segments = np.cumsum(special)[starts].tolist()
        lengths = (1 + np.searchsorted(self._cumulative, draws.random(len(starts)), side="right")).tolist()
        first_tokens = starts.tolist()
        covered = bytearray(len(token_ids))
        spans = []
        for word in draws.permutation(len(starts)).tolist():
            begin = first_tokens[word]
            last = min(word + lengths[word], len(first_tokens)) - 1
            while last >= word and (segments[last] != segments[word] or ends[last] - begin > budget):
                last -= 1
            if last < word or any(covered[begin : ends[last]]):
                continue
            end = ends[last]
            covered[begin:end] = b"\1" * (end - begin)
            spans.append((begin, end))
            budget -= end - begin
            if budget == 0:
                break
        return spans
