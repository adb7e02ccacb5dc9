"""Pieces of single words, looked up after the first time.

No piece crosses a blank, so a text is encoded word by word: the ids of a word never depend on its neighbours (scores
summed over a long text in single precision break ties by chance), they equal those of the `tokenizers` library, which
does the same, and most words of a text have been met before.
"""

from dataclasses import dataclass
from typing import Any

import sentencepiece

from albert.text.tokenizer_files import BLANK

LONGEST_WORD = 48  # characters; longer ones are hardly ever met again
MOST_WORDS = 1 << 19


@dataclass(frozen=True, slots=True)
class WordPieces:
    """The ids of one word, and the characters of the word that each piece covers."""

    ids: list[int]
    spans: list[tuple[int, int]]


class WordIds(dict[str, list[int]]):
    """From a normalised word to its ids; fills itself, and starts anew when it is full."""

    def __init__(self, processor: sentencepiece.SentencePieceProcessor) -> None:
        super().__init__()
        self._processor = processor

    def __missing__(self, word: str) -> list[int]:
        ids: list[int] = self._processor.encode(word)
        if len(word) <= LONGEST_WORD:
            if len(self) >= MOST_WORDS:
                self.clear()
            self[word] = ids
        return ids


class WordSpans(dict[str, WordPieces]):
    """From a normalised word to its pieces with their places; fills itself like `WordIds`."""

    def __init__(self, processor: sentencepiece.SentencePieceProcessor) -> None:
        super().__init__()
        self._processor = processor
        self._invisible: dict[str, bool] = {" ": True, BLANK: True}

    def __missing__(self, word: str) -> WordPieces:
        pieces = self._encoded(word)
        if len(word) <= LONGEST_WORD:
            if len(self) >= MOST_WORDS:
                self.clear()
            self[word] = pieces
        return pieces

    def _encoded(self, word: str) -> WordPieces:
        found: Any = self._processor.encode(word, return_type="offset_mapping")
        spans: list[tuple[int, int]] = []
        following = len(word)
        for piece, (start, end) in zip(reversed(found["pieces"]), reversed(found["offsets"]), strict=True):
            if piece != BLANK:
                end = min(max(end, start + 1), len(word))  # the rest of a character that SentencePiece expanded
            while start < end and self._is_invisible(word[start]):
                start += 1
            while start < end and self._is_invisible(word[end - 1]):
                end -= 1
            if start >= end:  # a blank alone stands where the next piece begins
                start = end = following
            following = start
            spans.append((start, end))
        return WordPieces(found["ids"], spans[::-1])

    def _is_invisible(self, character: str) -> bool:
        """Whether SentencePiece drops a character or takes it for a blank."""
        known = self._invisible.get(character)
        if known is None:
            left = self._processor.normalize(character)
            known = self._invisible[character] = not left.strip(" " + BLANK)
        return known
