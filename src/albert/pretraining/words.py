"""Where words lie in a run of sequences."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Words:
    """The words of all sequences, by position in the run; special tokens belong to none.

    Attributes:
        begin, end: int64 [words], the tokens of each, `end` one too far.
        to_segment_end: int64 [words], words from each to the end of its segment, itself counted.
        first, count: int64 [sequences], the first word of each sequence and how many it has.
    """

    begin: np.ndarray
    end: np.ndarray
    to_segment_end: np.ndarray
    first: np.ndarray
    count: np.ndarray

    @classmethod
    def find(cls, token_ids: np.ndarray, lengths: np.ndarray, begins: np.ndarray, special: np.ndarray) -> "Words":
        """Find them.

        Args:
            token_ids: int64 [tokens], one sequence after the other.
            lengths: int64 [sequences], tokens of each.
            begins: bool [V], which pieces begin a word; the first of a sequence or segment does whatever it is.
            special: bool [V], which pieces are special.
        """
        starts = np.cumsum(lengths) - lengths
        special = special[token_ids]
        opens = np.zeros(len(token_ids), dtype=bool)  # a segment
        opens[1:] = special[:-1]
        opens[starts] = True
        opens &= ~special
        stops = np.flatnonzero((begins[token_ids] | opens) | special)
        is_word = ~special[stops]
        begin, end = stops[is_word], np.append(stops[1:], len(token_ids))[is_word]
        segments = np.append(np.flatnonzero(opens[begin]), len(begin))
        sizes = np.diff(segments)
        to_segment_end = np.repeat(segments[1:], sizes) - np.arange(len(begin))
        first = np.searchsorted(begin, starts)
        return cls(begin, end, to_segment_end, first, np.diff(first, append=len(begin)))
