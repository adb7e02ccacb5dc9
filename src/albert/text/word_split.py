"""Plain text to words, as the sentences of CoNLL-2003 and the Penn Treebank are split: punctuation and quotes apart.

`(Graz)` is three words, `U.S.` and `47-year-old` are one, `don't` is `do n't`, `Neil's` is `Neil 's`. Every Chinese
character is a word, and so is every run of hiragana or katakana. Thai, Lao, Khmer and Burmese are divided at blanks and
punctuation only. Offsets are exact, and only blanks and control characters belong to no word.
"""

import re
import unicodedata
from functools import cache

_ABBREVIATION = re.compile(
    "Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|Sen|Rep|Gov|Gen|Col|Capt|Lt|Sgt|Rev|Hon|Inc|Corp|Co|Ltd|Bros|vs|Nr|Mt|Ft|Ave|Blvd|etc"
    "|Jan|Feb|Apr|Aug|Sept?|Oct|Nov|Dec|Mme|Mlle|Sra|Srta|Dott|Ing|Hr|Fr|bzw|usw|Ph\\.D|[BM]\\.Sc"
)
_NUMBER_SIGN = re.compile(r"(?:No|Nr|nº)\.(?=\s?\d)")
_ELISION = re.compile(
    "(?:[ldjmtsnc]|(?:jus|lors|puis|quoi)?qu|[dns]ell|d?all|sull|coll|un|quest|quell|dov|com|anch|tutt|nessun|quand)"
    "['’](?=[aeiouhàâäáéèêëíìîïóòôöúùûüœ])",
    re.IGNORECASE,
)
_CLITIC = re.compile("(?:n['’]t|['’](?:s|re|ve|ll|d|m))$", re.IGNORECASE)
_LONE_CLITIC = re.compile(r"['’](?:n['’]|(?:s-(?=\w)\w+|s|re|ve|ll|d|m|t)(?![\w'’]))", re.IGNORECASE)
"""After a blank (text may be split already) or a full stop: `U.K.'s`, `rock 'n' roll`, `'s-Hertogenbosch`."""

_NO_BLANKS = "\u2e80-\u9fff\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
"""Scripts whose text may follow an address without a blank."""
_IN_ADDRESS = rf"[^\s<>\"“”„«»‹›{_NO_BLANKS}]"
_IN_NAME = rf"(?:(?![{_NO_BLANKS}])[\w-])"
_BEGINNING = rf"(?: (?<![\w.+%@-]) | (?<=[{_NO_BLANKS}]) )"
_ADDRESS = rf"""
    (?: [a-zA-Z][a-zA-Z0-9+\-]*:// | [wW]{{3}}\. ) {_IN_ADDRESS}+                 # https://x.org/a
  | {_BEGINNING} (?: {_IN_NAME} | [.+%] )+ @ {_IN_NAME}+ (?: \. {_IN_NAME}+ )+               # a.b@c.org
  | {_BEGINNING} (?: {_IN_NAME}+ \. )+ [a-zA-Z]{{2,}} (?: :\d+ )? / {_IN_ADDRESS}*   # x.org/a, x.org:80/a
  | {_BEGINNING} (?: {_IN_NAME}+ \. )+ [a-zA-Z]{{2,}} :\d+                           # x.org:80
    """
_CLOSING = ".,;:!?'\"”’»›…)]}>"
"""Marks at the end of an address that do not belong to it."""

# The pattern is matched against the shape of the text, a string of the same length: `a` and `A` are letters, `0`
# digits, `M` marks that belong to the character before them, `C` ideographs, `H` hiragana, `K` katakana, `R` the halves
# of a flag, `Z` joiners of emoji, `'` apostrophes, and a blank everything that separates.
_WORD = "[aA0_](?:[aA0_M])*"
_PATTERN = rf"""
    (?P<abbreviation> [aA]M*\.(?:[aA]M*\.)+ (?:-{_WORD})* (?![aA0]))     # U.S., e.g., U.S.-based
  | (?P<initial> (?<![aA0_'.\-]) A\. (?=[ ]A) )                        # W. in George W. Bush
  | (?P<number> (?<![aA0_]) [+\-]? (?:(?<![.)])\.)? 0+ (?:[.,:/\-]0+)* (?![-'&/]?[aA0_M]) )  # 10,000, .5, 1996-08-22
  | (?P<currency> A{{1,3}}\$ (?![aA]) )                                 # US$
  | (?P<decade> (?<![aA0_])' 0+ a+ (?![aA0]) )                          # '90s
  | (?P<handle> (?<![aA0_]) [@\#] {_WORD} )                             # @name, #topic
  | (?P<sharp> (?<![aA0_]) A\# (?![aA0_]) )                              # C#
  | (?P<word> {_WORD} (?:[-.&/+'·@]{_WORD})* \+* )                      # Baden-Baden, AT&T, O'Neil, C++, example.org
  | (?P<ideograph> CM* | (?:HM*)+ | (?:KM*)+ )
  | (?P<flag> RR )
  | (?P<dashes> -{{2,}} | \.{{2,}} | `` | '' )
  | (?P<mark> [^ ] M* (?:Z[^ ]M*)* )
    """


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
    if character in "-‐‑−":
        return "-"
    if character == "\u200d":
        return "Z"  # joins emoji; within a word it is a mark, see below
    if character in "\u200c\u00ad" or category[0] == "M":
        return "M"
    code = ord(character)
    if 0x1F3FB <= code <= 0x1F3FF or 0xE0020 <= code <= 0xE007F:  # skin tones, letters of the flag of a region
        return "M"
    if character.isspace() or category[0] in "CZ":
        return " "
    if 0x3400 <= code <= 0x9FFF or 0xF900 <= code <= 0xFAFF or 0x20000 <= code <= 0x3FFFF:  # ideographs
        return "C"
    if 0x1F1E6 <= code <= 0x1F1FF:
        return "R"
    if character == "ー" or "\u30a0" < character <= "\u30ff" or "\uff66" <= character <= "\uff9f":
        return "K" if category[0] == "L" else character
    if "\u3041" <= character <= "\u309f":
        return "H"
    if category[0] == "N":
        return "0"
    if category in ("Lu", "Lt"):
        return "A"
    if category[0] == "L":
        return "a"
    if character in "aAMCZ0 ":
        return "?"
    return character


@cache
def _address() -> re.Pattern[str]:
    """Compiled when it is needed: most commands split no words. With IGNORECASE it takes 50 ms."""
    return re.compile(_ADDRESS, re.VERBOSE)


@cache
def _pattern() -> re.Pattern[str]:
    return re.compile(_PATTERN, re.VERBOSE)


def word_spans(text: str) -> list[tuple[int, int]]:
    """The words of a text: the start and end of each in characters."""
    shape = text.translate(_shapes())
    if "Z" in shape:
        shape = re.sub(r"(?<=[aAM])Z", "M", shape)
    spans: list[tuple[int, int]] = []
    end = 0
    for address in _address().finditer(text):
        stop = address.end()
        unopened = text.count(")", address.start(), stop) - text.count("(", address.start(), stop)
        while stop > address.start() and text[stop - 1] in _CLOSING:
            if text[stop - 1] == ")":
                if unopened <= 0:
                    break  # https://x.org/a_(b)
                unopened -= 1
            stop -= 1
        spans += _plain_spans(text, shape, end, address.start())
        spans.append((address.start(), stop))
        end = stop
    return spans + _plain_spans(text, shape, end, len(text))


def _plain_spans(text: str, shape: str, start: int, stop: int) -> list[tuple[int, int]]:
    """The words between two addresses."""
    spans: list[tuple[int, int]] = []
    position = start
    pattern = _pattern()
    while position < stop:
        if shape[position] == " ":
            position += 1
            continue
        clitic = _LONE_CLITIC.match(text, position, stop)
        if clitic is not None and (position == 0 or text[position - 1] in ". "):
            spans.append(clitic.span())
            position = clitic.end()
            continue
        match = pattern.match(shape, position, stop)
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
    sign = _NUMBER_SIGN.match(text, start, stop)
    return end if sign is None else sign.end()


def _parts_of_word(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """`l'homme` as `l' homme`, `don't` as `do n't`, `Neil's` as `Neil 's`."""
    spans: list[tuple[int, int]] = []
    word = text[start:end]
    elision = _ELISION.match(word)
    is_name = word[:1] == "D" and word[2:3].isupper()  # D'Angelo
    if elision is not None and not is_name:
        spans.append((start, start + elision.end()))
        start += elision.end()
        word = text[start:end]
    clitic = _CLITIC.search(word)
    if clitic is not None and clitic.start() > 0:
        return [*spans, (start, start + clitic.start()), (start + clitic.start(), end)]
    return [*spans, (start, end)]
