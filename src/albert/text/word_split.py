"""Plain text to words, as the sentences of CoNLL-2003 and the Penn Treebank are split: punctuation and quotes apart.

`(Graz)` is three words, `U.S.` and `47-year-old` are one, `don't` is `do n't`, `Neil's` is `Neil 's`. Every Chinese
character is a word. Offsets are exact, and only blanks and control characters belong to no word.
"""

import re
import unicodedata
from functools import cache

_ABBREVIATION = re.compile(
    "Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|Sen|Rep|Gov|Gen|Col|Capt|Lt|Sgt|Rev|Hon|Inc|Corp|Co|Ltd|Bros|vs|Nr|Mt|Ft|Ave|Blvd|etc"
    "|Jan|Feb|Apr|Aug|Sept?|Oct|Nov|Dec|Mme|Mlle|Sra|Srta|Dott|Ing|Hr|Fr|bzw|usw"
)
_ELISION = re.compile(
    "(?:[ldjmtsnc]|(?:jus|lors|puis|quoi)?qu|[dns]ell|d?all|sull|coll|un|quest|quell)['’](?=[aeiouhàâäéèêëîïôöùûüœ])",
    re.IGNORECASE,
)
_CLITIC = re.compile("(?:n['’]t|['’](?:s|re|ve|ll|d|m))$", re.IGNORECASE)
_ADDRESS = re.compile(r"(?:(?:https?|ftp)://|www\.)\S+|[\w.+%-]+@[\w-]+(?:\.[\w-]+)+", re.IGNORECASE)
_CLOSING = ".,;:!?'\"”’»›…)]}>"
"""Marks at the end of an address that do not belong to it."""

# The pattern is matched against the shape of the text, a string of the same length: `a` and `A` are letters, `0`
# digits, `M` marks that belong to the character before them, `C` ideographs, `Z` joiners of emoji, `'` apostrophes, and
# a blank everything that separates.
_WORD = "[aA0_](?:[aA0_M])*"
_PATTERN = re.compile(
    rf"""
    (?P<abbreviation> [aA]M*\.(?:[aA]M*\.)+ (?:-{_WORD})* (?![aA0]))     # U.S., e.g., U.S.-based
  | (?P<initial> (?<![aA0_'.\-]) A\. (?=[ ]A) )                        # W. in George W. Bush
  | (?P<number> (?<![aA0_]) [+\-]? 0+ (?:[.,:/\-]0+)* (?![-'&/]?[aA0_M]) )  # 10,000, 3-0, 1996-08-22
  | (?P<currency> A{{1,3}}\$ (?![aA]) )                                 # US$
  | (?P<decade> (?<![aA0_])' 0+ a+ (?![aA0]) )                          # '90s
  | (?P<handle> (?<![aA0_]) [@\#] {_WORD} )                             # @name, #topic
  | (?P<word> {_WORD} (?:[-.&/+'·@]{_WORD})* \+* )                      # Baden-Baden, AT&T, O'Neil, C++, example.org
  | (?P<ideograph> CM* )
  | (?P<dashes> -{{2,}} | \.{{2,}} | `` | '' )
  | (?P<mark> [^ ] M* (?:Z[^ ]M*)* )
    """,
    re.VERBOSE,
)


class _Shapes(dict[int, str]):
    """The shape of each character, for `str.translate`; filled on demand."""

    def __missing__(self, code: int) -> str:
        self[code] = shape = _shape(chr(code))
        return shape


@cache
def _shapes() -> _Shapes:
    return _Shapes()


def _shape(character: str) -> str:
    category = unicodedata.category(character)
    if character in "'’ʼ＇":
        return "'"
    if character in "-‐‑":
        return "-"
    if character == "\u200d":
        return "Z"  # joins emoji; within a word it is a mark, see below
    if character in "\u200c\u00ad" or category[0] == "M":
        return "M"
    if character.isspace() or category[0] in "CZ":
        return " "
    if _is_ideograph(ord(character)):
        return "C"
    if category[0] == "N":
        return "0"
    if category in ("Lu", "Lt"):
        return "A"
    if category[0] == "L":
        return "a"
    if character in "aAMCZ0 ":
        return "?"
    return character


def _is_ideograph(code: int) -> bool:
    return 0x3400 <= code <= 0x9FFF or 0xF900 <= code <= 0xFAFF or 0x20000 <= code <= 0x3FFFF


def word_spans(text: str) -> list[tuple[int, int]]:
    """The words of a text: the start and end of each in characters."""
    shape = text.translate(_shapes())
    if "Z" in shape:
        shape = re.sub(r"(?<=[aAM])Z", "M", shape)
    spans: list[tuple[int, int]] = []
    end = 0
    for address in _ADDRESS.finditer(text):
        stop = address.end()
        while stop > address.start() and text[stop - 1] in _CLOSING:
            stop -= 1
        spans += _plain_spans(text, shape, end, address.start())
        spans.append((address.start(), stop))
        end = stop
    return spans + _plain_spans(text, shape, end, len(text))


def _plain_spans(text: str, shape: str, start: int, stop: int) -> list[tuple[int, int]]:
    """The words between two addresses."""
    spans: list[tuple[int, int]] = []
    position = start
    while position < stop:
        if shape[position] == " ":
            position += 1
            continue
        match = _PATTERN.match(shape, position, stop)
        if match is None:  # a joiner or a mark that belongs to nothing
            position += 1
            continue
        end = match.end()
        if match.lastgroup == "word":
            end = _end_of_word(text, position, end, stop)
            spans += _parts_of_word(text, position, end)
        else:
            spans.append((position, end))
        position = end
    return spans


def _end_of_word(text: str, start: int, end: int, stop: int) -> int:
    """The end of a word, with the full stop of an abbreviation."""
    if end < stop and text[end] == "." and _ABBREVIATION.fullmatch(text, start, end):
        return end + 1
    return end


def _parts_of_word(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """`l'homme` as `l' homme`, `don't` as `do n't`, `Neil's` as `Neil 's`."""
    spans: list[tuple[int, int]] = []
    word = text[start:end]
    elision = _ELISION.match(word)
    if elision is not None and (word[0].islower() or word[elision.end()].islower()):
        spans.append((start, start + elision.end()))
        start += elision.end()
        word = text[start:end]
    clitic = _CLITIC.search(word)
    if clitic is not None and clitic.start() > 0:
        return [*spans, (start, start + clitic.start()), (start + clitic.start(), end)]
    return [*spans, (start, end)]
