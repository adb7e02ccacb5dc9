"""Paragraphs of a document, whether its lines are paragraphs or were wrapped to a width."""

import re
from itertools import pairwise

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
