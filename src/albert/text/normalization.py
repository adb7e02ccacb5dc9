"""ALBERT's text normalisation, with the original position of every normalised character.

White space is collapsed, ``` `` ``` and ``''`` become ``"``, compatibility characters are decomposed, combining marks
dropped, letters lower-cased, as in the reference before SentencePiece (Lan et al. 2019, appendix). Each step maps
single characters or short runs, so offsets into the original text are exact.

With accents kept, letters are lower-cased first and compatibility characters decomposed afterwards, because
SentencePiece does the latter: "№" becomes "No". So it is in the reference, in `tokenizer.json` and in transformers.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64

_QUOTE_PAIR = re.compile("``|''")
_WORD = re.compile(r"\S+")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
REPLACEMENT_CHARACTER = "\ufffd"
_TWO_LETTERS_I = ("tr", "az", "crh", "gag")
"""Turkish, Azerbaijani, Crimean Tatar and Gagauz: the small letter of I is ı, that of İ is i."""


class NormalizedText(NamedTuple):
    """A normalised text and its alignment with the original.

    Attributes:
        starts: the position in the original at which each normalised character begins.
        ends: the position at which it ends, exclusive; a pair of quotes or a run of blanks covers several characters.
    """

    text: str
    starts: Int64[np.ndarray, " characters"]
    ends: Int64[np.ndarray, " characters"]


def normalize(text: str, lower_case: bool = True, keep_accents: bool = False, compatibility: bool = True) -> str:
    """Return the normalised text.

    Args:
        compatibility: with `keep_accents`, decompose compatibility characters that become several, like "½". A
            SentencePiece model with a character map does so, one without does not.
    """
    return " ".join(_normalize_characters(text, lower_case, keep_accents, compatibility).split())


def normalize_words(words: Sequence[str], lower_case: bool, keep_accents: bool, compatibility: bool) -> list[str]:
    """Normalise each word of a text, as `str.split` returns them; a result can hold blanks, or be empty.

    Together they are the normalised text: blanks stay blanks, and only quotes within a word make a pair.
    """
    if not words:
        return []
    return _normalize_characters("\n".join(words), lower_case, keep_accents, compatibility).split("\n")


def maps_one_to_one(word: str, lower_case: bool, keep_accents: bool, compatibility: bool) -> bool:
    """Return whether every character of a word becomes one character, except for pairs of quotes."""
    table = character_table(lower_case, keep_accents, compatibility)
    return word.isascii() or all(len(table[ord(character)]) == 1 for character in word)


def _normalize_characters(text: str, lower_case: bool, keep_accents: bool, compatibility: bool) -> str:
    """`normalize` without collapsing blanks."""
    text = text.replace("``", '"').replace("''", '"')
    if text.isascii():
        return text.lower() if lower_case else text
    if lower_case:
        # The letters of ASCII alone: the table lower-cases the others, and not all letters that it puts in their place.
        text = text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")
    table = character_table(lower_case, keep_accents, compatibility)
    return _NOT_ASCII.sub(lambda run: run.group().translate(table), text)


def align_word(
    word: str, lower_case: bool, keep_accents: bool, compatibility: bool
) -> Iterator[tuple[str, list[int], list[int]]]:
    """Yield the parts between blanks of a normalised word, with starts and ends of their characters in the word.

    There is one start more than characters: of the blank after the part, or the end of the word.
    """
    text, starts, ends = normalize_aligned(word, character_table(lower_case, keep_accents, compatibility))
    starts = np.append(starts, len(word))
    for part in _WORD.finditer(text):
        first, end = part.span()
        yield part.group(), starts[first : end + 1].tolist(), ends[first:end].tolist()


def normalize_aligned(text: str, table: "CharacterTable") -> NormalizedText:
    """Return the text normalised by a table, with blanks as they are."""
    mapped = [table[ord(character)] for character in text]
    seconds = {pair.start() + 1 for pair in _QUOTE_PAIR.finditer(text)}
    for index in seconds:
        mapped[index - 1] = '"'
        mapped[index] = ""
    return align_characters(text, mapped, lambda index: index in seconds or unicodedata.combining(text[index]) > 0)


def align_characters(text: str, mapped: Sequence[str], belongs: Callable[[int], bool]) -> NormalizedText:
    """Join what each character of a text becomes, with starts and ends of the sources.

    Args:
        belongs: whether a dropped character, by its index, belongs to the slice of the one before it, as an accent
            belongs to its letter.
    """
    lengths = np.fromiter(map(len, mapped), dtype=np.int64, count=len(mapped))
    ends_of_sources = np.arange(1, len(text) + 1, dtype=np.int64)
    for index in np.flatnonzero(lengths == 0)[::-1].tolist():
        if index and belongs(index):
            ends_of_sources[index - 1] = ends_of_sources[index]
    starts = np.repeat(np.arange(len(text), dtype=np.int64), lengths)
    return NormalizedText("".join(mapped), starts, np.repeat(ends_of_sources, lengths))


class CharacterTable(dict[int, str]):
    """What each character becomes by a rule, for `str.translate`; filled on demand."""

    def __init__(self, rule: Callable[[str], str]) -> None:
        super().__init__()
        self._rule = rule

    def __missing__(self, code: int) -> str:
        self[code] = result = self._rule(chr(code))
        return result


@cache
def character_table(lower_case: bool, keep_accents: bool, compatibility: bool) -> CharacterTable:
    """Return the table of ALBERT's normalisation."""

    def normalized(character: str) -> str:
        if "\ud800" <= character <= "\udfff":
            return REPLACEMENT_CHARACTER  # a lone surrogate cannot be encoded
        if not keep_accents:
            parts = unicodedata.normalize("NFKD", character)
            parts = "".join(part for part in parts if unicodedata.combining(part) == 0)
            return _lowered(parts) if lower_case else parts
        # SentencePiece composes (NFKC) itself; characters that become several are expanded here, for the offsets.
        parts = _lowered(character) if lower_case else character
        composed = unicodedata.normalize("NFKC", parts) if compatibility else parts
        return composed if len(composed) > len(parts) else parts

    return CharacterTable(normalized)


def _lowered(characters: str) -> str:
    """One character at a time, so that a final sigma becomes σ, as in the `tokenizers` library."""
    return "".join(character.lower() for character in characters)


def lower_case_note(language: str, lower_case: bool, keep_accents: bool) -> str | None:
    """What to know of lower-casing in a language (ISO 639 code); None if its letters have the usual small ones.

    Letters are lower-cased in the same way in all languages, as in the reference, in `tokenizers` and in transformers.
    """
    if not lower_case or re.split("[-_]", language.lower())[0] not in _TWO_LETTERS_I:
        return None
    dotted = "i and a combining dot" if keep_accents else "i"
    what = f"I becomes i, not ı, and İ becomes {dotted}: letters are not lower-cased by the rules of {language}"
    return f"{what}; keep capitals, or lower-case the text first"
