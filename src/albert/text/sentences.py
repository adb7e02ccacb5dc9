"""Sentences of a document: paragraphs first, then the rules of sentencex; or lines, where each is a sentence."""

import math
import re
import unicodedata
from collections.abc import Iterator
from itertools import pairwise

from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue]  # a compiled module

from albert.runtime.errors import InvalidConfiguration
from albert.text.normalization import REPLACEMENT_CHARACTER
from albert.text.paragraphs import split_paragraphs

WINDOW = 1 << 16
"""Characters looked at together: sentencex slows down on very long paragraphs."""
LONGEST_SENTENCE = 1000
"""Bytes of UTF-8, about 200 tokens of English; what is longer is divided.

Of English prose one sentence in a thousand is. What is divided in practice is text without full stops: lists,
transcripts, Thai. Whole, it would be a document of one sentence, which has no order to learn; its parts have."""
_LINE = re.compile(r"\r\n|[\n\r]")
_LANGUAGE = re.compile(r"[a-z]{2,3}([-_][A-Za-z]+)*")
_END_OF_CLAUSE = re.compile(r"[;:,]\s+|[—–،؛、，；：]\s*")
_BLANKS = re.compile(r"\s+")


def split_sentences(text: str, language: str = "en", as_lines: bool = False) -> list[str]:
    """The sentences of a document in order, trimmed, without empty ones.

    No sentence crosses a paragraph (see `albert.text.paragraphs`). Half surrogates, which are no text, become U+FFFD.
    A sentence of more than 1,000 bytes is divided (see `divide_sentence`).

    Args:
        text: one document.
        language: ISO 639 code; it selects abbreviations and punctuation. Others than sentencex knows are split by the
            punctuation of all scripts.
        as_lines: every line is a sentence, whatever it holds and however long it is.
    """
    if not text.isascii():
        text = repair_surrogates(text)
    if as_lines:
        return [line for piece in _LINE.split(text) if (line := piece.strip())]
    return [
        part
        for paragraph in split_paragraphs(text)
        for piece in _segments(paragraph, language)
        if (sentence := piece.strip())
        for part in divide_sentence(sentence)
    ]


def check_language(language: str) -> None:
    """Refuse what is no code of a language, "english" say, which would be taken for an unknown language.

    Raises:
        InvalidConfiguration: no code.
    """
    if not _LANGUAGE.fullmatch(language):
        raise InvalidConfiguration("language", f"{language!r} is no ISO 639 code", "write en, de, zh, ...")


def repair_surrogates(text: str) -> str:
    """The text with every lone surrogate replaced by U+FFFD, so that it can be encoded."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "".join(REPLACEMENT_CHARACTER if "\ud800" <= c <= "\udfff" else c for c in text)
    return text


def divide_sentence(sentence: str) -> list[str]:
    """A sentence of more than `LONGEST_SENTENCE` bytes in parts of like length, all others as they are.

    A part ends with a clause, else with a word, else between two characters, within a quarter of its length from
    where an equal part would end.
    """
    if len(sentence) <= LONGEST_SENTENCE // 4 or len(data := sentence.encode("utf-8")) <= LONGEST_SENTENCE:
        return [sentence]

    def place(size: float) -> int:
        return len(data[: round(size)].decode("utf-8", "ignore"))

    parts = math.ceil(1.5 * len(data) / LONGEST_SENTENCE)  # so that with a quarter more at both ends it is not too long
    length = len(data) / parts
    cuts = [
        _place_to_cut(sentence, place((part - 0.25) * length), place(part * length), place((part + 0.25) * length))
        for part in range(1, parts)
    ]
    return [part for start, end in pairwise([0, *cuts, len(sentence)]) if (part := sentence[start:end].strip())]


def _place_to_cut(text: str, first: int, wanted: int, last: int) -> int:
    for end in (_END_OF_CLAUSE, _BLANKS):
        places = [found.end() for found in end.finditer(text, first, last)]
        if places:
            return min(places, key=lambda place: abs(place - wanted))
    before = range(wanted, first, -1)
    return next((place for place in before if not unicodedata.combining(text[place])), wanted)  # no accent alone


def _segments(paragraph: str, language: str) -> Iterator[str]:
    start = 0
    while len(paragraph) - start > WINDOW:
        window = paragraph[start : start + WINDOW]
        found = list(segment(language, window))
        if len(found) > 1:
            found.pop()  # it may go on
        else:
            found = [window[: _place_to_cut(window, WINDOW // 2, WINDOW * 3 // 4, WINDOW)]]  # it will be divided anyway
        yield from found
        start += sum(map(len, found))
    yield from segment(language, paragraph[start:])
