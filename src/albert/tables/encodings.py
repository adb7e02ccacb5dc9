"""The encoding of a file with text: recognised, or the one that is given; and its decoded text and lines."""

import codecs
import io
import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from albert.runtime.environment import lazy_import
from albert.runtime.errors import DamagedData, UsageError
from albert.tables.files import InputFile, open_input_file
from albert.tables.records import MAX_RECORD_LENGTH

SAMPLE_BYTES = 1 << 18
"""The beginning of a file by which its encoding, and separator, quotes and header of a table, are recognised."""

ENCODING_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_LATIN = ("cp1250", "cp1254", "cp1257")
_OTHER_SCRIPTS = (
    "cp1251",
    "cp1253",
    "cp1255",
    "cp1256",
    "cp874",
    "koi8_r",
    "gb18030",
    "big5",
    "cp932",
    "euc_jp",
    "cp949",
)
"""Encodings that are recognised, beside UTF-8, UTF-16, UTF-32 and cp1252; others are named with reading.encoding."""


def recognise_encoding(file: InputFile, given: str | None) -> tuple[str, tuple[str, ...]]:
    """The encoding of a file, and a line about it if it is not UTF-8.

    The whole file is checked. Text with few letters beyond ASCII fits many encodings of Latin letters; of these cp1252
    (Windows, and a superset of Latin-1) is taken unless another one fits better.
    """
    if given is not None:
        return known_encoding(given), ()
    with open_input_file(file) as (content, _):
        beginning = content.read(SAMPLE_BYTES)
        for mark, encoding in ENCODING_MARKS:
            if beginning.startswith(mark):
                return encoding, () if encoding == "utf-8-sig" else (f"the text is {encoding.upper()}",)
        if b"\0" in beginning:
            for offset, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
                part = beginning[offset::2]
                if part.count(0) > len(part) // 2:
                    return encoding, (f"the text is {encoding.upper()}",)
            if beginning.startswith(b"PK\3\4"):
                raise DamagedData(
                    file.name, "is not text but a zip archive or an Excel file", "give reading.format=xlsx"
                )
            if beginning.startswith(b"PAR1"):
                raise DamagedData(file.name, "is not text but a Parquet file", "give reading.format=parquet")
            why = f"is not text: NUL byte at byte {beginning.index(0)}"
            raise DamagedData(file.name, why, "name its format with reading.format if its ending is another one's")
        decoder = codecs.getincrementaldecoder("utf-8")()
        data = beginning
        try:
            while data:
                if not data.isascii() or decoder.getstate()[0]:
                    decoder.decode(data)
                data = content.read(1 << 20)
            decoder.decode(b"", final=True)
            return "utf-8", ()
        except UnicodeDecodeError:
            pass
    foreign = []
    valid = 0
    first = 0
    at = 0
    size = 0
    with open_input_file(file) as (content, _):
        for number, line in enumerate(content, start=1):
            if line.isascii():
                continue
            try:
                line.decode("utf-8")
                valid += 1
            except UnicodeDecodeError as error:
                first = first or number
                at = error.start
                foreign.append(line)
                size += len(line)
                if size > 1 << 16:
                    break
    if valid > len(foreign):
        why = f"is not UTF-8 at byte {at} of the line, though {valid:,} other lines are"
        raise DamagedData(f"{file.name}:{first}", why, "mend the line, or name the encoding with reading.encoding")
    encoding = likely_encoding(foreign)
    try:
        line = foreign[0].decode(encoding)
    except UnicodeDecodeError as error:
        raise DamagedData(f"{file.name}:{first}", "is not UTF-8", "name the encoding with reading.encoding") from error
    if encoding in _OTHER_SCRIPTS and not _is_of_its_script(b"".join(foreign).decode(encoding, errors="replace")):
        why = f"is neither UTF-8 nor another encoding for certain: as {encoding} it has {shown_word(line)!r}"
        dropping = f"iconv -c -f utf-8 -t utf-8 {file.name} > mended"
        remedy = f"name the encoding with reading.encoding, or drop the bytes: {dropping}"
        raise DamagedData(f"{file.name}:{first}", why, remedy)
    return encoding, (_encoding_note(line, encoding, first),)


def known_encoding(name: str) -> str:
    """The encoding that the user names; UsageError if there is none of text with this name."""
    try:
        "".encode(name)
        known = codecs.lookup(name).name
    except LookupError as error:  # unknown, or no encoding of text, such as base64
        raise UsageError("reading.encoding", f"{name!r} is unknown", "for example utf-8, cp1252 or utf-16") from error
    return "utf-8-sig" if known == "utf-8" else known


def likely_encoding(foreign: Sequence[bytes]) -> str:
    """The encoding that lines are likely in, which are not UTF-8."""
    for encoding in ("cp932", "euc_jp"):
        text = b"".join(foreign).decode(encoding, errors="replace")
        beyond = [character for character in text if not character.isascii()]
        if sum("\u3041" <= character <= "\u30fa" for character in beyond) > 0.2 * len(beyond) and "\ufffd" not in text:
            return encoding  # kana: Japanese
    if _has_few_western_letters(b"".join(foreign)):
        return "cp1252"
    known = ["cp1252", *_LATIN, *_OTHER_SCRIPTS]
    matches = lazy_import("charset_normalizer").from_bytes(b"".join(foreign), cp_isolation=known)
    best = matches.best()
    if best is not None and best.encoding != "cp1252":
        same = [each for each in matches if "cp1252" in (each.encoding, *each.could_be_from_charset)]
        fits = any(each.chaos <= best.chaos + 0.07 and each.coherence >= best.coherence - 0.01 for each in same)
        if best.encoding in _OTHER_SCRIPTS or not fits:
            return best.encoding
    return "cp1252"


FEW_LETTERS = 3
"""So many different letters beyond ASCII do not tell languages apart."""


def _has_few_western_letters(data: bytes) -> bool:
    """Return whether a text in Latin letters has few different ones beyond ASCII, all of them letters in cp1252."""
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError:
        return False
    beyond = [character for character in text if not character.isascii()]
    ascii_letters = sum(character.isascii() and character.isalpha() for character in text)
    are_letters = all(character.isalpha() for character in beyond)
    return are_letters and len(set(beyond)) <= FEW_LETTERS and len(beyond) < 0.2 * ascii_letters


def _is_of_its_script(text: str) -> bool:
    """Return whether a text in an encoding of another script than Latin has words of that script.

    Damaged UTF-8 in an English text also fits such encodings: its letters beyond ASCII are few, and stand beside signs.
    """
    beyond = [character for character in text if not character.isascii()]
    letters = sum(character.isalpha() or unicodedata.combining(character) > 0 for character in beyond)
    ascii_letters = sum(character.isascii() and character.isalpha() for character in text)
    words = re.findall(r"[^\W\d_a-zA-Z]{3,}", text)
    return letters > 0.5 * len(beyond) and (letters > 0.1 * ascii_letters or len(words) > 0.5 * text.count("\n"))


def _encoding_note(line: str, encoding: str, number: int) -> str:
    return (
        f"the text is not UTF-8: read as {encoding}, such as {shown_word(line)!r} in line {number} (reading.encoding)"
    )


def shown_word(text: str) -> str:
    """The first word with a letter beyond ASCII, as an example of an encoding."""
    words = [word for word in re.findall(r"\S+", text) if not word.isascii()]
    return words[0][:30] if words else text.strip()[:30]


@contextmanager
def text_of_file(file: InputFile, encoding: str, newline: str = "") -> Iterator[io.TextIOWrapper]:
    """The decoded text of a file."""
    with open_input_file(file) as (content, _):
        buffer: Any = content
        text = io.TextIOWrapper(buffer, encoding=encoding, newline=newline)
        try:
            yield text
        except UnicodeDecodeError as error:
            name = encoding.removesuffix("-sig").upper()
            why = f"is not {name}: byte {error.object[error.start]:#04x} ({error.reason})"
            raise DamagedData(file.name, why, "name its encoding with reading.encoding") from error
        finally:
            text.detach()


def lines_of(file: InputFile, encoding: str) -> Iterator[tuple[int, str]]:
    """The lines of a text file with their numbers; only a line feed ends a line, other line breaks are text."""
    with text_of_file(file, encoding, "\n") as text:
        for number, line in enumerate(text, start=1):
            if len(line) > MAX_RECORD_LENGTH:
                raise DamagedData(f"{file.name}:{number}", f"is longer than {MAX_RECORD_LENGTH / 1e6:,.0f} MB")
            yield number, line.removesuffix("\n").removesuffix("\r")
