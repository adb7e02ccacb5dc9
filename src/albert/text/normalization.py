"""ALBERT's text normalisation, and where every normalised character came from.

White space is collapsed, ``` `` ``` and ``''`` become ``"``, compatibility characters are decomposed,
combining marks dropped, letters lower-cased: what the reference does before SentencePiece (Lan et al. 2019,
appendix; its released vocabulary knows no other text). Each step maps single characters or short runs, so
the way back to the original text is exact and no answer ever has to be searched for.
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
CHUNK = 1 << 12
"""Characters of one long word that are normalised at a time: a single one can become 18 (U+FDFA)."""


class NormalizedText(NamedTuple):
    """A normalised text and its way back.

    Attributes:
        starts: where in the original each normalised character begins.
        ends: where in the original it ends, exclusive; a pair of quotes or a run of blanks covers several
            characters.
    """

    text: str
    starts: Int64[np.ndarray, " characters"]
    ends: Int64[np.ndarray, " characters"]


def normalize(text: str, lower_case: bool = True, keep_accents: bool = False, compatibility: bool = True) -> str:
    """The normalised text; nothing is left of a text without visible characters.

    Args:
        compatibility: with accents kept, whether compatibility characters that are several are written out, "½" say.
            A SentencePiece model with a character map does so, one without does not.
    """
    return " ".join(_replaced(text, lower_case, keep_accents, compatibility).split())


def normalize_words(
    words: Sequence[str], lower_case: bool = True, keep_accents: bool = False, compatibility: bool = True
) -> list[str]:
    """Words of a text, as `str.split` gives them, each normalised by itself.

    The same as normalising the text, for what is a blank stays one, and only quotes within a word make a pair. One word
    can become several, with blanks between and around them, or nothing.
    """
    return _replaced("\n".join(words), lower_case, keep_accents, compatibility).split("\n") if words else []


def keeps_places(word: str, lower_case: bool = True, keep_accents: bool = False, compatibility: bool = True) -> bool:
    """Whether every character of a word becomes one character, pairs of quotes aside."""
    table = characters(lower_case, keep_accents, compatibility)
    return word.isascii() or all(len(table[ord(character)]) == 1 for character in word)


def _replaced(text: str, lower_case: bool, keep_accents: bool, compatibility: bool) -> str:
    """What `normalize` does, but for the blanks."""
    text = text.replace("``", '"').replace("''", '"')
    if not text.isascii():
        table = characters(lower_case, keep_accents, compatibility)
        text = _NOT_ASCII.sub(lambda run: run.group().translate(table), text)
    return text.lower() if lower_case else text  # letters beyond ASCII are lower-cased already, and stay as they are


def long_word_parts(
    word: str, lower_case: bool = True, keep_accents: bool = False, compatibility: bool = True
) -> Iterator[str]:
    """What stands between blanks in the normalised text of a word, in memory for some of it at a time."""
    rest: list[str] = []  # of a part that may go on in the next chunk
    for first, end in _chunks(word):
        text = _replaced(word[first:end], lower_case, keep_accents, compatibility)
        parts = text.split()
        if rest and text[:1].isspace():
            parts.insert(0, "")
        if text[-1:].isspace():
            parts.append("")
        for part in parts[:-1]:
            if whole := "".join([*rest, part]):
                yield whole
            rest.clear()
        rest += parts[-1:]
    if whole := "".join(rest):
        yield whole


def long_word_alignment(
    word: str, lower_case: bool = True, keep_accents: bool = False, compatibility: bool = True
) -> Iterator[tuple[str, list[int], list[int]]]:
    """`long_word_parts`, each with where in the word its characters begin and end.

    Each has one start more than characters: where the blank after it begins, or where the word ends.
    """
    table = characters(lower_case, keep_accents, compatibility)
    texts: list[str] = []  # of a part that may go on in the next chunk
    starts: list[int] = []
    ends: list[int] = []
    blank: int | None = None  # where the one after it begins
    for first, end in _chunks(word):
        text, *places = _mapped(word[first:end], table)
        text_starts, text_ends = ((each + first).tolist() for each in places)
        if texts and blank is None and text[:1].isspace():
            blank = text_starts[0]
        for part in _WORD.finditer(text):
            if texts and blank is not None:
                yield "".join(texts), [*starts, blank], ends
                texts, starts, ends = [], [], []
            here = slice(part.start(), part.end())
            texts.append(part.group())
            starts += text_starts[here]
            ends += text_ends[here]
            blank = text_starts[part.end()] if part.end() < len(text) else None
    if texts:
        yield "".join(texts), [*starts, len(word)], ends


def _chunks(text: str) -> Iterator[tuple[int, int]]:
    """Places of a text between which it can be normalised by itself: no pair of quotes, no letter and its accent is
    divided."""
    first = 0
    while first < len(text):
        end = min(first + CHUNK, len(text))
        while end < len(text) and (unicodedata.combining(text[end]) or text[end - 1] == text[end] in "`'"):
            end += 1
        yield first, end
        first = end


def _mapped(text: str, table: "CharacterTable") -> NormalizedText:
    mapped = [table[ord(character)] for character in text]
    seconds = {pair.start() + 1 for pair in _QUOTE_PAIR.finditer(text)}
    for place in seconds:
        mapped[place - 1], mapped[place] = '"', ""
    return with_places(text, mapped, lambda place: place in seconds or unicodedata.combining(text[place]) > 0)


def with_places(text: str, mapped: Sequence[str], belongs: Callable[[int], bool]) -> NormalizedText:
    """What the characters of a text become, joined, and where in it the source of each result begins and ends.

    Args:
        belongs: whether the character at a place, where it is dropped, belongs to the slice of the one before it, as an
            accent does to its letter.
    """
    lengths = np.fromiter(map(len, mapped), dtype=np.int64, count=len(mapped))
    ends_of_sources = np.arange(1, len(text) + 1, dtype=np.int64)
    for place in np.flatnonzero(lengths == 0)[::-1].tolist():
        if place and belongs(place):
            ends_of_sources[place - 1] = ends_of_sources[place]
    starts = np.repeat(np.arange(len(text), dtype=np.int64), lengths)
    return NormalizedText("".join(mapped), starts, np.repeat(ends_of_sources, lengths))


class CharacterTable(dict[int, str]):
    """What a single character becomes by a rule; filled as characters are met."""

    def __init__(self, rule: Callable[[str], str]) -> None:
        super().__init__()
        self._rule = rule

    def __missing__(self, code: int) -> str:
        self[code] = result = self._rule(chr(code))
        return result


@cache
def characters(lower_case: bool, keep_accents: bool, compatibility: bool) -> CharacterTable:
    """What single characters become."""

    def normalized(character: str) -> str:
        if "\ud800" <= character <= "\udfff":
            return REPLACEMENT_CHARACTER  # half of a surrogate pair is no text and cannot be encoded
        if keep_accents:
            # SentencePiece composes (NFKC) by itself; what grows is expanded here, where its place is known.
            composed = unicodedata.normalize("NFKC", character) if compatibility else character
            parts = composed if len(composed) > 1 else character
        else:
            parts = unicodedata.normalize("NFKD", character)
            parts = "".join(part for part in parts if unicodedata.combining(part) == 0)
        # One character at a time, so that a final sigma is a sigma, as in the `tokenizers` library.
        return "".join(part.lower() for part in parts) if lower_case else parts

    return CharacterTable(normalized)
