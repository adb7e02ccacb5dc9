"""BERT's way from text to words, before WordPiece: the Chinese models' (Devlin et al. 2018, `BasicTokenizer`).

Control characters vanish, letters are lower-cased and lose their accents, ideographs and punctuation stand alone. Every
step maps single characters, so each character of a word knows where it came from.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import cache

import numpy as np

from albert.text.normalization import NormalizedText

_IDEOGRAPHS = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)
_IDEOGRAPHS_OF_THE_REFERENCE_ONLY = (0x2B820, 0x2B91F)
_LETTER = r"(?:\S|[\x0b\x0c\x1c-\x1f\x85])"  # the signs in brackets vanish, they separate no words
_WORD_WITH_SIGMA = re.compile(f"{_LETTER}*Σ{_LETTER}*")


@dataclass(frozen=True)
class WordPieceNormalization:
    """What happens to text before it is cut into pieces.

    Attributes:
        lower_case: whether letters are lower-cased.
        keep_accents: whether accents stay.
        space_ideographs: whether each ideograph is a word of its own.
        reference: do as BERT's own code does where transformers does otherwise: characters for private use stay, a
            sigma that ends a word is written as such, and 256 rare ideographs (2B820 to 2B91F) are words too.
    """

    lower_case: bool = True
    keep_accents: bool = False
    space_ideographs: bool = True
    reference: bool = False


def basic_words(text: str, normalization: WordPieceNormalization) -> list[str]:
    """The words of a text: what stands between blanks and punctuation, each ideograph, each sign of punctuation."""
    return _prepared(text, normalization).translate(_characters(normalization)).split()


def words_with_alignment(text: str, normalization: WordPieceNormalization) -> NormalizedText:
    """The words of a text with one blank or several between them, and the original place of every character.

    An accent that is dropped belongs to the place of its letter.
    """
    table = _characters(normalization)
    mapped = [table[ord(character)] for character in _prepared(text, normalization)]
    lengths = np.fromiter(map(len, mapped), dtype=np.int64, count=len(mapped))
    ends_of_sources = np.arange(1, len(text) + 1, dtype=np.int64)
    for place in np.flatnonzero(lengths == 0)[::-1].tolist():
        if place and unicodedata.category(text[place])[0] == "M":
            ends_of_sources[place - 1] = ends_of_sources[place]
    starts = np.repeat(np.arange(len(text), dtype=np.int64), lengths)
    return NormalizedText("".join(mapped), starts, np.repeat(ends_of_sources, lengths))


def _prepared(text: str, normalization: WordPieceNormalization) -> str:
    """The text, for the reference with each sigma that ends a word written as Python's `str.lower` does."""
    if normalization.reference and normalization.lower_case and "Σ" in text:
        return _WORD_WITH_SIGMA.sub(_with_final_sigmas, text)
    return text


def _with_final_sigmas(found: re.Match[str]) -> str:
    word = found.group()
    kept = [place for place, character in enumerate(word) if not _vanishes(character, reference=True)]
    # The dotted capital becomes two letters, which would shift the places.
    lowered = "".join(word[place] for place in kept).replace("İ", "I").lower()
    final = {place for place, letter in zip(kept, lowered, strict=True) if letter == "ς"}
    return "".join("ς" if place in final else character for place, character in enumerate(word))


class _CharacterTable(dict[int, str]):
    """What a single character becomes, with blanks around what stands alone; filled as characters are met."""

    def __init__(self, normalization: WordPieceNormalization) -> None:
        super().__init__()
        self._normalization = normalization

    def __missing__(self, code: int) -> str:
        self[code] = result = self._normalized(chr(code))
        return result

    def _normalized(self, character: str) -> str:
        rules, kind = self._normalization, unicodedata.category(character)
        if character in "\t\n\r" or kind[0] == "Z":
            return " "
        if _vanishes(character, rules.reference):
            return ""
        parts = character
        if not rules.keep_accents:
            decomposed = unicodedata.normalize("NFD", character)
            parts = "".join(part for part in decomposed if unicodedata.category(part) != "Mn")
        if rules.lower_case:
            parts = "".join(part.lower() for part in parts)
        parts = "".join(f" {part} " if _is_punctuation(part) else part for part in parts)
        alone = rules.space_ideographs and _is_ideograph(ord(character), rules.reference)
        return f" {parts} " if alone else parts


def _vanishes(character: str, reference: bool) -> bool:
    """Whether cleaning removes a character: control and format characters, halves of surrogate pairs, U+FFFD."""
    kind = unicodedata.category(character)
    return character == "\ufffd" or kind in ("Cc", "Cf", "Cs") or (kind == "Co" and not reference)


def _is_punctuation(character: str) -> bool:
    """Whether a sign stands alone: Unicode's punctuation, and of ASCII all that is no letter, digit or blank."""
    if "!" <= character <= "~":
        return not character.isalnum()
    return unicodedata.category(character)[0] == "P"


def _is_ideograph(code: int, reference: bool) -> bool:
    first, last = _IDEOGRAPHS_OF_THE_REFERENCE_ONLY
    return any(low <= code <= high for low, high in _IDEOGRAPHS) or (reference and first <= code <= last)


@cache
def _characters(normalization: WordPieceNormalization) -> _CharacterTable:
    return _CharacterTable(normalization)
