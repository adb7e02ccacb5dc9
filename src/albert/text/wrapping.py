"""Recognition of hard-wrapped documents, whose line breaks only keep the lines within a margin; joining of their lines.

In a wrapped paragraph every line but the last is full: the first word of the next line (the first letter, in a script
without spaces) would have crossed the margin. So a width fits a line break if the line is not longer, and would be with
that word. A document is wrapped if one width fits most of the line breaks that are not at the end of a sentence.
Dialogue and short paragraphs do not matter then: their lines end with a sentence. Verses, lists, logs and programs fit
no single width, or their lines begin with a capital or a figure.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple

Wrapped = Literal["auto", "yes", "no"]
MIN_WIDTH = 20
MAX_WIDTH = 160
MIN_BREAKS = 3
"""Line breaks within a sentence that a wrapped document has at least."""
MANY_BREAKS = 30
"""With so many, stray lines, verses and tables of contents are allowed for."""
FIT_SHARE = 0.6
FIT_SHARE_OF_FEW = 0.85
"""Share of the line breaks within a sentence that a width has to fit."""
LOOSE_FIT_SHARE = 0.3
LOOSE_NEAR_SHARE = 0.8
LOOSE_MARGIN = 0.12
LOOSE_LOWER_CASE_SHARE = 0.6
"""Scanned pages have a ragged margin, and some of their lines are two: one width fits fewer line breaks, most lines are
full but for some letters (a share of the width), and more of the next lines begin with a small letter."""
LOWER_CASE_SHARE = 0.35
"""In scripts with capitals: share of the lines after such a break that begin with a small letter. German has two
thirds, verses and lists of names almost none."""

WITHOUT_SPACES = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef"
"""Letters of scripts without spaces between words: Thai, Lao, Burmese, Khmer, Chinese, Japanese."""
_STOPS = frozenset(".!?:…。！？：؟۔।॥։።၊။។៕")
_CLOSING = "\"'”’“„‘«»‹›)]}」』）》】_*~ \u00a0\u3000"
_OPENING = "\"'”’“„‘«»‹›([{「『（《【_*~ \u00a0\u3000-–—―…."
_FIRST_WORD = re.compile(f"[{WITHOUT_SPACES}][、。，．！？：；」』）》】”’…—]*|[^\\s{WITHOUT_SPACES}]+")
_HANGING = "、。，．！？：；」』）》】"
"""Punctuation that some editors let stand beyond the margin."""
_COLUMNS = re.compile(r"\S(?: {4,}|\t)\s*\S|(?:\. ?){5,}\s*\w*$")
"""A row of a table, or a line of a table of contents."""
_NOT_ONE_COLUMN = re.compile("[\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0900-\u17ff\u2e80-\uffef]")
_HYPHENS = ("-", "\u2010", "\u00ad", "¬")
_HYPHENATED = re.compile(r"(\w+)[-\u2010]$")
_BEGINS_WITH_WORD = re.compile(r"\w+")
_WORDS = re.compile(r"\w+(?:[-\u2010]\w+)*")
_AFTER_HANGING_HYPHEN = frozenset(
    ["and", "or", "to", "und", "oder", "bis", "sowie", "en", "of", "och", "eller", "og", "ja", "tai", "et", "ou", "y"]
)
"""As in "pre- and post-war", "Vor- und Nachteile": the hyphen stays, and a blank follows."""
_FIRST_WITHOUT_SPACES = "\u0e00"
_LETTER_WITHOUT_SPACES = re.compile(f"[{WITHOUT_SPACES}]")


@dataclass
class LineCounts:
    """What the line breaks of documents were taken for.

    Attributes:
        documents: with at least one single line break.
        widths: of the documents whose lines were joined, by their width.
        doubtful: documents that were not joined although many of their lines end no sentence.
        breaks, breaks_within: single line breaks of these documents, and those that are not at the end of a sentence.
    """

    documents: int = 0
    widths: Counter[str] = field(default_factory=Counter)
    doubtful: int = 0
    breaks: int = 0
    breaks_within: int = 0

    def remarks(self) -> list[str]:
        """Return a line on documents that were joined, and one on documents that perhaps should have been."""
        lines: list[str] = []
        if self.widths:
            joined = self.widths.total()
            widths = sorted(int(width) for width, count in self.widths.items() for _ in range(count))
            low = widths[len(widths) // 10]
            high = widths[(len(widths) * 9) // 10]
            about = f"about {widths[len(widths) // 2]}" if high - low <= 4 else f"{low} to {high}"
            subject = f"{joined:,} of {self.documents:,} documents with line breaks are"
            if joined == 1 and self.documents == 1:
                subject = "the document is"
            lines.append(f"{subject} wrapped at {about} columns: lines were joined (--wrapped no keeps them apart)")
        if self.doubtful:
            share = self.breaks_within / self.breaks
            whose = "1 document" if self.doubtful == 1 else f"{self.doubtful:,} documents"
            lines.append(
                f"{share:.0%} of the lines of {whose} end no sentence, and each was taken for a paragraph; "
                "if these line breaks are only a margin, --wrapped yes joins the lines"
            )
        return lines


DOUBTFUL_SHARE = 0.3
LONG_SHARE = 0.1
"""With more lines longer than any margin, the short ones are headings and lists, as in articles."""
DOUBTFUL_BREAKS = 5
"""At least so many line breaks, and so large a share of them not at the end of a sentence, are worth a remark."""


WITHIN_SHARE = 0.05
"""Share of the line breaks of a wrapped document that are not at the end of a sentence, at least."""
BLANK_SHARE = 0.05
"""With so many blank lines, paragraphs and headings are taken to stand between them."""
JUSTIFIED_SHARE = 0.8
"""So many of the lines that end at the margin have exactly its width in text that is set to both margins."""


class _Break(NamedTuple):
    """A single line break: the widths that fit it are those from `shortest` up to but without `longest`."""

    shortest: int
    longest: int
    within: bool
    """The line before ends no sentence."""
    case: str
    """How the next line begins: "lower", "upper", "none" for a script without capitals, "other"."""
    deeper: bool
    """The next line is indented further."""


class Wrapping(NamedTuple):
    """The recognised margin: a line is full if its next word would have crossed `width - slack`."""

    width: int
    slack: float


def join_wrapped_lines(lines: Sequence[str], wrapped: Wrapped, counts: LineCounts | None = None) -> list[str]:
    """Return the paragraphs of a document, stripped, without empty ones.

    Args:
        lines: without line ends.
        wrapped: "auto" joins the lines of documents that are recognised as wrapped; "yes" joins all lines but those
            before a blank or an indented line, and short lines at the end of a sentence; "no" joins none.
        counts: of what is found is added here.
    """
    if wrapped == "no":
        return [line for line in map(str.strip, lines) if line]
    if wrapped == "auto":
        # Most documents with a paragraph on each line are decided here: too few of their lines are short.
        lengths = [len(line) for line in lines if line]
        short = sum(length <= MAX_WIDTH for length in lengths)
        if short <= MIN_BREAKS or short < 0.3 * len(lengths):
            if counts is not None:
                counts.documents += any(line and following for line, following in pairwise(lines))
            return [line for line in map(str.strip, lines) if line]
    lines = [line.rstrip() for line in lines]
    filled = [at for at, line in enumerate(lines) if line]
    adjacent = sum(following - at == 1 for at, following in pairwise(filled))
    if len(filled) > 10 and adjacent <= 0.05 * len(filled):  # a blank line follows almost every line
        closed = [line for line in lines if line]
        if wrapped == "yes" or _recognised(_breaks(closed, len)) is not None:
            lines = closed
    touching = [at for at in range(len(lines) - 1) if lines[at] and lines[at + 1]]
    within = sum(not ends_sentence(lines[at]) for at in touching)
    breaks: dict[int, _Break] = {}
    wrapping: Wrapping | None = None
    if wrapped == "yes" or (within >= MIN_BREAKS and within >= WITHIN_SHARE * len(touching)):
        breaks = _breaks(lines, len)
        wrapping = _recognised(breaks)
        if wrapping is None and any(map(_NOT_ONE_COLUMN.search, lines)):
            in_columns = _breaks(lines, _columns)
            wrapping = _recognised(in_columns, 2 * MIN_WIDTH)
            breaks = breaks if wrapping is None else in_columns
        if wrapping is None and wrapped == "yes" and breaks:
            candidates = [each for each in breaks.values() if each.within] or list(breaks.values())
            wrapping = Wrapping(_best_width(candidates)[0], 0.0)
    if counts is not None and touching:
        _count(counts, lines, len(touching), within, wrapping)
    if wrapping is None:
        return [line for line in map(str.strip, lines) if line]
    return _joined(lines, breaks, wrapping, wrapped == "yes")


def _breaks(lines: Sequence[str], measure: Callable[[str], int]) -> dict[int, _Break]:
    """Return the line breaks between two lines that are not blank, by the number of the line before."""
    breaks: dict[int, _Break] = {}
    for at in range(len(lines) - 1):
        line = lines[at]
        if not line or not lines[at + 1]:
            continue
        following = lines[at + 1].lstrip()
        word = following.partition(" ")[0]
        blank = 1
        if following[0] >= _FIRST_WITHOUT_SPACES or line[-1] >= _FIRST_WITHOUT_SPACES or len(word) > MAX_WIDTH // 4:
            first = _FIRST_WORD.match(following)
            word = first.group() if first else following[:1]
            if _LETTER_WITHOUT_SPACES.match(word) or _LETTER_WITHOUT_SPACES.match(line[-1]):
                blank = 0
        length = measure(line)
        widest = measure(line.expandtabs()) if "\t" in line else length  # a tab is one column in `textwrap`
        hanging = len(line) - len(line.rstrip(_HANGING)) if line[-1] in _HANGING else 0
        deeper = lines[at + 1][0].isspace() and _indentation(lines[at + 1]) > _indentation(line)
        longest = widest + measure(word) + blank
        breaks[at] = _Break(length - hanging, longest, not ends_sentence(line), _case(following), deeper)
    return breaks


def _indentation(line: str) -> int:
    expanded = line.expandtabs()
    return len(expanded) - len(expanded.lstrip())


def ends_sentence(line: str) -> bool:
    """Return whether a line ends with the last mark of a sentence, perhaps in quotes or brackets."""
    return line.rstrip(_CLOSING)[-1:] in _STOPS


def _case(line: str) -> str:
    first = line.lstrip(_OPENING)[:1]
    if first.islower():
        return "lower"
    if first.isupper():
        return "upper"
    return "none" if first.isalpha() else "other"


def _columns(line: str) -> int:
    """The width on a screen: two columns for a Chinese letter, none for an accent of its own."""
    if line.isascii():
        return len(line)
    width = 0
    for character in line:
        if unicodedata.east_asian_width(character) in "WF":
            width += 2
        elif unicodedata.category(character) not in ("Mn", "Me", "Cf"):
            width += 1
    return width


def _best_width(breaks: Sequence[_Break]) -> tuple[int, int]:
    """Return the width that fits most breaks, the smallest of equal ones, and how many it fits."""
    changes = [0] * (MAX_WIDTH + 2)
    for each in breaks:
        if each.shortest <= MAX_WIDTH:
            changes[each.shortest] += 1
            changes[min(each.longest, MAX_WIDTH + 1)] -= 1
    fits = list(accumulate(changes))[: MAX_WIDTH + 1]
    width = max(range(len(fits)), key=lambda candidate: fits[candidate])
    return width, fits[width]


def _recognised(breaks: dict[int, _Break], min_width: int = MIN_WIDTH) -> Wrapping | None:
    within = [each for each in breaks.values() if each.within]
    if len(within) < MIN_BREAKS:
        return None
    cases = Counter(each.case for each in within)
    cased = cases["lower"] + cases["upper"]
    has_capitals = cased >= cases["none"]
    if has_capitals and cases["lower"] < LOWER_CASE_SHARE * (cased + cases["other"]):
        return None
    without_blanks = sum(each.longest - each.shortest > MAX_WIDTH // 4 for each in within)
    if without_blanks > len(within) // 2:  # no words, as in Base64
        return None
    width, fitting = _best_width(within)
    share = fitting / len(within)
    if width < min_width:
        return None
    if len(within) < MANY_BREAKS:
        longer = sum(each.shortest > width for each in breaks.values())
        is_wrapped = share >= FIT_SHARE_OF_FEW and longer <= 0.15 * len(breaks) and len(within) >= 0.25 * len(breaks)
        return Wrapping(width, 0.0) if is_wrapped else None
    if share >= FIT_SHARE:
        return Wrapping(width, 0.0)
    capitals = sum(each.case == "upper" for each in breaks.values())
    if has_capitals and capitals and width >= 2 * min_width:
        near = sum(each.longest > width * (1 - LOOSE_MARGIN) for each in within)
        clear = cases["lower"] >= LOOSE_LOWER_CASE_SHARE * (cased + cases["other"])
        if clear and share >= LOOSE_FIT_SHARE and near >= LOOSE_NEAR_SHARE * len(within):
            return Wrapping(width, LOOSE_MARGIN * width)
    return None


def _count(counts: LineCounts, lines: Sequence[str], breaks: int, within: int, wrapping: Wrapping | None) -> None:
    counts.documents += 1
    filled = sum(line != "" for line in lines)
    long = sum(len(line) > MAX_WIDTH for line in lines)
    if wrapping is not None:
        counts.widths[str(wrapping.width)] += 1
    elif breaks >= DOUBTFUL_BREAKS and long <= LONG_SHARE * filled and within >= DOUBTFUL_SHARE * breaks:
        counts.doubtful += 1
        counts.breaks += breaks
        counts.breaks_within += within


def _joined(lines: Sequence[str], breaks: dict[int, _Break], wrapping: Wrapping, always: bool) -> list[str]:
    """Join the lines at the breaks that are only the margin."""
    joins = {at for at, each in breaks.items() if each.longest > wrapping.width - wrapping.slack}
    full = frozenset(joins)
    # In justified text the lines are equally long, and blanks between words are no columns.
    is_justified = sum(breaks[at].shortest == wrapping.width for at in joins) >= JUSTIFIED_SHARE * len(joins)
    apart = set[int]() if always else _lines_of_verses(lines, breaks, full)
    between_blanks = sum(not line for line in lines) >= BLANK_SHARE * len(lines)
    rows: set[int] = set()
    if not is_justified:
        for at, line in enumerate(lines):  # rows of tables, also of tables of contents
            if any(mark in line for mark in ("    ", "\t", ".....", ". . .")) and _COLUMNS.search(line.strip()):
                rows.add(at)
    for at, each in breaks.items():
        is_row = at in rows or at + 1 in rows
        continues = each.within and (each.case == "lower" or always)
        if is_row or at in apart or (each.deeper and not (continues and at in full)):
            joins.discard(at)
        elif at not in full and each.within and (continues or between_blanks):
            near = at - 1 in full or at + 1 in full
            if always or near or (between_blanks and each.case != "upper"):
                joins.add(at)  # a line that was shortened later
    text = _Joiner(lines, joins)
    return [paragraph for paragraph in text.paragraphs() if paragraph]


def _lines_of_verses(lines: Sequence[str], breaks: dict[int, _Break], full: frozenset[int]) -> set[int]:
    """Return the breaks in blocks of verses or lists: most lines are short, though they end no sentence."""
    apart: set[int] = set()
    block: list[int] = []
    for at in range(len(lines)):
        if at in breaks:
            block.append(at)
            continue
        short = sum(number not in full and breaks[number].within for number in block)
        if short >= 2 and short > sum(number in full and breaks[number].within for number in block):
            apart.update(block)
        block = []
    return apart


def _are_joined_without_blank(line: str, following: str) -> bool:
    """Return whether the break is between two letters of a script without spaces, or after a dash within words."""
    if line[-1] >= _FIRST_WITHOUT_SPACES and _LETTER_WITHOUT_SPACES.match(line[-1]):
        return _LETTER_WITHOUT_SPACES.match(following) is not None
    if not line.endswith(("--", "—")):
        return False
    words = line.rstrip("-—")
    return words != "" and not words[-1].isspace()


class _Joiner:
    """Joins lines by a blank, by nothing in scripts without spaces, and undoes the hyphenation of words.

    A hyphen at the end of a line goes if the word is written without it elsewhere in the document more often than with
    it; of words that occur nowhere else, if most of the other words lost it. The soft hyphen always goes.
    """

    def __init__(self, lines: Sequence[str], joins: set[int]) -> None:
        self._lines = [line.strip() for line in lines]
        self._joins = joins
        self._words: Counter[str] | None = None
        self._hyphenates: bool | None = None

    def paragraphs(self) -> list[str]:
        """Return the stripped paragraphs, of which some may be empty."""
        paragraphs: list[str] = []
        parts: list[str] = []
        for at, line in enumerate(self._lines):
            if at not in self._joins:
                parts.append(line)
                paragraphs.append("".join(parts))
                parts = []
                continue
            following = self._lines[at + 1]
            if line.endswith(_HYPHENS) and len(line) > 1 and line[-2].isalpha():
                parts.append(self._without_hyphen(line, following))
            elif _are_joined_without_blank(line, following):
                parts.append(line)
            else:
                parts.append(line + " ")
        paragraphs.append("".join(parts))
        return paragraphs

    def _without_hyphen(self, line: str, following: str) -> str:
        """Return the line as it stands before its next word."""
        if line.endswith(("\u00ad", "¬")):
            return line[:-1]
        first = _BEGINS_WITH_WORD.match(following)
        if first is None:
            return line + " "
        if first.group() in _AFTER_HANGING_HYPHEN:
            return line + " "
        if not following[0].islower():
            return line
        with_hyphen, without = self._occurrences(line, first.group())
        goes = self._most_hyphens_go() if without == with_hyphen else without > with_hyphen
        return line[:-1] if goes else line

    def _occurrences(self, line: str, rest: str) -> tuple[int, int]:
        """Return how often a divided word is written with the hyphen, and without it, within lines."""
        if self._words is None:
            self._words = Counter(word.lower() for each in self._lines for word in _WORDS.findall(each))
        start = _HYPHENATED.search(line)
        begin = start.group(1).lower() if start else ""
        return self._words[f"{begin}-{rest.lower()}"], self._words[begin + rest.lower()]

    def _most_hyphens_go(self) -> bool:
        if self._hyphenates is None:
            votes = 0
            for at in self._joins:
                line = self._lines[at]
                following = self._lines[at + 1]
                first = _BEGINS_WITH_WORD.match(following)
                if _HYPHENATED.search(line) and first is not None and following[0].islower():
                    with_hyphen, without = self._occurrences(line, first.group())
                    votes += (without > with_hyphen) - (with_hyphen > without)
            self._hyphenates = votes > 0
        return self._hyphenates
