"""Sentences of a document: paragraphs first, then the rules of sentencex."""

from collections.abc import Iterator

from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue]  # a compiled module

from albert.text.normalization import REPLACEMENT_CHARACTER
from albert.text.paragraphs import split_paragraphs

WINDOW = 1 << 16  # characters looked at together: sentencex slows down on very long paragraphs


def split_sentences(text: str, language: str = "en") -> list[str]:
    """The sentences of a document in order, trimmed, without empty ones.

    No sentence crosses a paragraph (see `albert.text.paragraphs`). Half surrogates, which are no text,
    become U+FFFD.

    Args:
        text: one document.
        language: ISO 639-1 code; it selects abbreviations and punctuation.
    """
    if not text.isascii():
        text = repair_surrogates(text)
    return [
        sentence
        for paragraph in split_paragraphs(text)
        for piece in _segments(paragraph, language)
        if (sentence := piece.strip())
    ]


def repair_surrogates(text: str) -> str:
    """The text with every lone surrogate replaced by U+FFFD, so that it can be encoded."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "".join(REPLACEMENT_CHARACTER if "\ud800" <= c <= "\udfff" else c for c in text)
    return text


def _segments(paragraph: str, language: str) -> Iterator[str]:
    start, window = 0, WINDOW
    while len(paragraph) - start > window:
        found = list(segment(language, paragraph[start : start + window]))
        if len(found) < 2:
            window *= 2  # no end of a sentence in sight
            continue
        yield from found[:-1]  # the last one may go on
        start += sum(map(len, found[:-1]))
        window = WINDOW
    yield from segment(language, paragraph[start:])
