"""Division of a document into paragraphs, of paragraphs into sentences (by sentencex), and of long sentences."""

import math
import re
import unicodedata
from collections.abc import Iterator
from itertools import pairwise

from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue]  # a compiled module

from albert.runtime.errors import InvalidConfiguration
from albert.text.normalization import REPLACEMENT_CHARACTER
from albert.text.sentence_exceptions import (
    EXCEPTIONS,
    has_other_stops,
    join_at_exceptions,
    join_speech,
    split_at_other_stops,
)
from albert.text.wrapping import LineCounts, Wrapped, join_wrapped_lines

_RARE_LINE_BREAKS = "\r\v\f\x85\u2028\u2029"
_LINE_BREAK = re.compile(f"\r\n|[\n{_RARE_LINE_BREAKS}]")


def split_paragraphs(text: str, wrapped: Wrapped = "auto", counts: LineCounts | None = None) -> list[str]:
    """Return the paragraphs of a document, stripped, without empty ones.

    A blank line ends a paragraph. A single line break does too, unless the document is hard-wrapped (see
    `albert.text.wrapping`): then lines are joined, by blanks where the script has them.
    """
    rare = any(character in text for character in _RARE_LINE_BREAKS)
    lines = _LINE_BREAK.split(text) if rare else text.split("\n")
    return join_wrapped_lines(lines, wrapped, counts)


WINDOW = 1 << 16
"""Characters given to sentencex at a time: it slows down on very long paragraphs."""
MAX_SENTENCE_LENGTH = 1000
"""Bytes of UTF-8, about 200 tokens of English; longer sentences are divided.

One sentence in a thousand of English prose is longer. In practice text without full stops is divided: lists,
transcripts, Thai. Undivided, it would be a document of one sentence, which has no sentence order to learn."""
_LINE = re.compile(r"\r\n|[\n\r]")
_LANGUAGE = re.compile(r"[a-z]{2,3}([-_][A-Za-z]+)*")
_SHORT_CODES = dict(
    re.findall(
        r"(\w+)=(\w+)",
        """amh=am ara=ar arm=hy ben=bn bul=bg bur=my cat=ca ces=cs chi=zh cze=cs dan=da deu=de dut=nl ell=el eng=en
        fas=fa fin=fi fra=fr fre=fr ger=de gre=el guj=gu heb=he hin=hi hye=hy ind=id ita=it jpn=ja kan=kn kaz=kk kor=ko
        mal=ml mar=mr mya=my nld=nl ori=or pan=pa per=fa pol=pl por=pt ron=ro rum=ro rus=ru slk=sk slo=sk spa=es
        swe=sv tam=ta tel=te tur=tr ukr=uk urd=ur vie=vi zho=zh""",
    )
)
"""Codes of three letters -> those of two, for languages of which sentencex has rules, and other common ones."""
_REGION = re.compile(r"[-_][A-Z].*")
_BLANK_BEFORE_STOP = re.compile(r"[^\S\x00-\x7f](?=\.)")
"""sentencex panics at a capital, a blank beyond ASCII and a full stop, as in "plan B\u00a0."."""
_DASHES = "—–―-"
_QUOTES = "'’‘"
_SPEECH = re.compile(r"[?!….]\s+(?:[—–―-]|['’‘]\w)")
"""Where a dash or an apostrophe follows the end of a sentence (see `join_speech`)."""
_END_OF_CLAUSE = re.compile(r"[;:,]\s+|[—–،؛、，；：]\s*")
_BLANKS = re.compile(r"\s+")


def split_sentences(
    text: str,
    language: str = "en",
    as_lines: bool = False,
    wrapped: Wrapped = "auto",
    counts: LineCounts | None = None,
) -> list[str]:
    """Return the sentences of a document in order, stripped, without empty ones.

    No sentence crosses a paragraph. Lone surrogates become U+FFFD. A sentence of more than 1,000 bytes is divided (see
    `divide_sentence`).

    Args:
        language: ISO 639 code, also with a region ("de-AT"); it selects abbreviations and punctuation.
            Languages that sentencex does not know are split by the punctuation of all scripts.
        as_lines: return the lines instead.
        wrapped: whether line breaks are only a margin (see `albert.text.wrapping`).
        counts: what the line breaks were taken for is added here.
    """
    if not text.isascii():
        text = replace_surrogates(text)
    if as_lines:
        return [line for piece in _LINE.split(text) if (line := piece.strip())]
    language = _REGION.sub("", language).replace("_", "-")  # sentencex takes English for "de-AT" and "de_at"
    return [
        part
        for paragraph in split_paragraphs(text, wrapped, counts)
        for piece in split_paragraph(paragraph, language)
        if (sentence := piece.strip())
        for part in divide_sentence(sentence)
    ]


def check_language(language: str) -> None:
    """Raise InvalidConfiguration for what sentencex does not know and would split by the rules of English.

    Those are words such as "english", and codes of three letters where there is one of two ("deu" for "de").
    """
    if not _LANGUAGE.fullmatch(language):
        raise InvalidConfiguration("language", f"{language!r} is not an ISO 639 code", "write en, de, zh, ...")
    short = _SHORT_CODES.get(language[:3])
    if short and not language[3:4].isalpha():
        raise InvalidConfiguration("language", f"{language!r} has a code of two letters", f"write {short}")


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates by U+FFFD; returns the same object if there are none."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "".join(REPLACEMENT_CHARACTER if "\ud800" <= c <= "\udfff" else c for c in text)
    return text


def divide_sentence(sentence: str) -> list[str]:
    """Divide a sentence of more than `MAX_SENTENCE_LENGTH` bytes into parts of similar length.

    A part ends with a clause, else with a word, else between two characters, within a quarter of its length from
    the end of an equal part.
    """
    if len(sentence) <= MAX_SENTENCE_LENGTH // 4:
        return [sentence]
    data = sentence.encode("utf-8")
    if len(data) <= MAX_SENTENCE_LENGTH:
        return [sentence]
    parts = math.ceil(1.5 * len(data) / MAX_SENTENCE_LENGTH)  # a part may be longer by a quarter at both ends
    length = len(data) / parts
    cuts = []
    for part in range(1, parts):
        ends = [round((part + shift) * length) for shift in (-0.25, 0, 0.25)]  # in bytes
        earliest, middle, latest = (len(data[:end].decode("utf-8", "ignore")) for end in ends)  # in characters
        cuts.append(_cut_position(sentence, earliest, middle, latest))
    return [part for start, end in pairwise([0, *cuts, len(sentence)]) if (part := sentence[start:end].strip())]


def _cut_position(text: str, first: int, target: int, last: int) -> int:
    for pattern in (_END_OF_CLAUSE, _BLANKS):
        ends = [match.end() for match in pattern.finditer(text, first, last)]
        if ends:
            return min(ends, key=lambda end: abs(end - target))
    candidates = range(target, first, -1)
    return next((end for end in candidates if not unicodedata.combining(text[end])), target)  # before no accent


def split_paragraph(paragraph: str, language: str) -> Iterator[str]:
    """Yield the sentences of a paragraph with the blanks after them; together they are the paragraph."""
    segments = list(_segments(paragraph, language))
    if not paragraph.isascii() and has_other_stops(paragraph):
        segments = [part for piece in segments for part in split_at_other_stops(piece)]
    # The expression reads the whole paragraph, so the ends of pieces are looked at first.
    may_be_speech = any(piece[:1] in _DASHES or before[-1:] in _QUOTES for before, piece in pairwise(segments))
    pieces = iter(segments)
    if may_be_speech and _SPEECH.search(paragraph):
        pieces = join_speech(segments)
    exceptions = EXCEPTIONS.get(language.partition("-")[0])
    return pieces if exceptions is None else join_at_exceptions(pieces, exceptions)


def _segments(paragraph: str, language: str) -> Iterator[str]:
    paragraph = paragraph if paragraph.isascii() else _BLANK_BEFORE_STOP.sub(" ", paragraph)
    start = 0
    while len(paragraph) - start > WINDOW:
        window = paragraph[start : start + WINDOW]
        segments = list(segment(language, window))
        if len(segments) > 1:
            segments.pop()  # it may continue after the window
        else:  # it will be divided anyway
            segments = [window[: _cut_position(window, WINDOW // 2, WINDOW * 3 // 4, WINDOW)]]
        yield from segments
        start += sum(map(len, segments))
    yield from segment(language, paragraph[start:])
