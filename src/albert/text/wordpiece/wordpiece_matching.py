"""Greedy longest-match WordPiece: a word to the longest pieces that spell it, from its front (Devlin et al. 2018)."""

from collections.abc import Mapping
from dataclasses import dataclass

CONTINUES = "##"
LONGEST_WORD = 100
"""Characters; `WordPiece` of the tokenizers library takes longer words for unknown."""
LONGEST_WORD_OF_THE_REFERENCE = 200
_LONGEST_KNOWN, _MOST_KNOWN = 48, 1 << 19  # longer words are hardly ever met again


@dataclass(frozen=True, slots=True)
class MatchedPieces:
    """The ids of one word, and the characters of the word that each piece covers."""

    ids: list[int]
    spans: list[tuple[int, int]]


class WordPieces(dict[str, MatchedPieces]):
    """From a word to its pieces; fills itself, and starts anew when it is full.

    Args:
        ids: every piece's id.
        unk_id: what a word becomes, as a whole, that the pieces cannot spell.
        longest_word: characters; a longer word is unknown.
    """

    def __init__(self, ids: Mapping[str, int], unk_id: int, longest_word: int) -> None:
        super().__init__()
        self._ids, self._unk_id, self._longest_word = ids, unk_id, longest_word
        self._longest_piece = max(map(len, ids))

    def __missing__(self, word: str) -> MatchedPieces:
        pieces = self._matched(word)
        if len(word) <= _LONGEST_KNOWN:
            if len(self) >= _MOST_KNOWN:
                self.clear()
            self[word] = pieces
        return pieces

    def _matched(self, word: str) -> MatchedPieces:
        unknown = MatchedPieces([self._unk_id], [(0, len(word))])
        if len(word) > self._longest_word:
            return unknown
        found, spans = [], []
        start, mark = 0, ""
        while start < len(word):
            end = min(len(word), start + self._longest_piece)
            while (piece := self._ids.get(mark + word[start:end])) is None:
                end -= 1
                if end == start:
                    return unknown
            found.append(piece)
            spans.append((start, end))
            start, mark = end, CONTINUES
        return MatchedPieces(found, spans)
