"""Paragraphs and sentences of a document.

Paragraphs come first, whether lines are paragraphs or were wrapped to a width; then the rules of sentencex, or one
sentence a line. A sentence that is too long is divided."""

import math
import re
import unicodedata
from collections.abc import Iterator
from itertools import pairwise

from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue]  # a compiled module

from albert.runtime.errors import InvalidConfiguration
from albert.text.normalization import REPLACEMENT_CHARACTER

# --------------------------------------------------------------------------------------------------------------------
# Paragraphs of a document, whether its lines are paragraphs or were wrapped to a width.

_RARE_LINE_BREAKS = "\r\v\f\x85\u2028\u2029"
_LINE_BREAK = re.compile(f"\r\n|[\n{_RARE_LINE_BREAKS}]")
_ENDS_A_SENTENCE = re.compile(r"[.!?:;…][\"'”’)\]]*$")
WIDEST_WRAPPING = 120
FEWEST_WRAPPED_LINES = 3
WRAPPED_SHARE = 0.8


def split_paragraphs(text: str) -> list[str]:
    """The paragraphs of a document, trimmed, without empty ones.

    A blank line always ends a paragraph. A single line break ends one too, unless the document is
    hard-wrapped (see `is_hard_wrapped`): then the lines of a block are joined by blanks.
    """
    rare = any(character in text for character in _RARE_LINE_BREAKS)
    lines = _LINE_BREAK.split(text) if rare else text.split("\n")
    lines = [line.strip() for line in lines]
    if not is_hard_wrapped(lines):
        return [line for line in lines if line]
    blocks: list[list[str]] = [[]]
    for line in lines:
        if line:
            blocks[-1].append(line)
        elif blocks[-1]:
            blocks.append([])
    return [" ".join(block) for block in blocks if block]


def is_hard_wrapped(lines: list[str]) -> bool:
    """Whether line breaks were put in to keep lines within a width, so that they mean nothing.

    Wrapping leaves a mark: a line followed by another of its paragraph is full, that is, the first word of
    the next line would not have fitted within the longest line. A document is hard-wrapped when no line is
    longer than 120 characters, four fifths of its inner lines (three at least) are full, and most of them do
    not end a sentence. Verses, lists, one sentence or one paragraph per line fail one of these conditions.
    """
    width = max(map(len, lines), default=0)
    if not 20 <= width <= WIDEST_WRAPPING:
        return False
    inner = full = ended = 0
    for line, following in pairwise(lines):
        if line and following:
            inner += 1
            full += len(line) + 1 + len(following.split(maxsplit=1)[0]) > width
            ended += _ENDS_A_SENTENCE.search(line) is not None
    return inner >= FEWEST_WRAPPED_LINES and full >= WRAPPED_SHARE * inner and ended <= inner / 2


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

    No sentence crosses a paragraph (see `albert.text.sentences`). Half surrogates, which are no text, become U+FFFD.
    A sentence of more than 1,000 bytes is divided (see `divide_sentence`).

    Args:
        language: ISO 639 code; it selects abbreviations and punctuation. Others than sentencex knows are split by the
            punctuation of all scripts.
    """
    if not text.isascii():
        text = replace_surrogates(text)
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
    """Refuse what is no code of a language, "english" say, which would be taken for an unknown language."""
    if not _LANGUAGE.fullmatch(language):
        raise InvalidConfiguration("language", f"{language!r} is not an ISO 639 code", "write en, de, zh, ...")


def replace_surrogates(text: str) -> str:
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
