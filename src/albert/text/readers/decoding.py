"""Bytes of a file to text: UTF-8, or what `Reading.bad_utf8` says."""

from collections.abc import Iterable
from pathlib import Path

from albert.runtime.errors import DamagedData, did_you_mean
from albert.text.normalization import REPLACEMENT_CHARACTER
from albert.text.readers.reading import NOT_UTF8, CorpusReport, Reading
from albert.text.sentences import repair_surrogates

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_REPLACED = "bad UTF-8 sequences replaced by U+FFFD"
_REPAIRED = "half surrogates replaced by U+FFFD"


def decode_from_file(data: bytes, path: Path, offset: int, reading: Reading, report: CorpusReport) -> str | None:
    """`decode` of what stands at a place of a file, unpacked; a byte order mark at its beginning is no text."""
    if offset == 0:
        if data.startswith(_UTF16_MARKS) and reading.bad_utf8 == "refuse":
            raise DamagedData(path, "is not UTF-8: byte 0: it is UTF-16", "convert it: iconv -f UTF-16 -t UTF-8")
        if data.startswith(_BYTE_ORDER_MARK):
            data, offset = data[len(_BYTE_ORDER_MARK) :], len(_BYTE_ORDER_MARK)
    return decode(data, path, offset, reading, report)


def decode(data: bytes, subject: object, offset: int, reading: Reading, report: CorpusReport) -> str | None:
    """The text of some bytes; None when it is dropped, and counted as a document.

    Args:
        data: a document, a line, a field.
        subject: where they are: a file, perhaps with a line.
        offset: their place in it.
        reading, report: what to do about bytes that are no text, and the account of it.

    Raises:
        DamagedData: not UTF-8, or a NUL byte, which is UTF-8 and no text; with its place.
    """
    place, error = data.find(b"\0"), None
    if place < 0:
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as found:
            place, error = found.start, found
    if reading.bad_utf8 == "skip":
        report.drop(NOT_UTF8, len(data))
        return None
    if reading.bad_utf8 == "replace":
        text = data.decode("utf-8", "replace").replace("\0", REPLACEMENT_CHARACTER)
        report.noted[_REPLACED] += text.count(REPLACEMENT_CHARACTER) - data.count(b"\xef\xbf\xbd")
        return text
    what = "is not UTF-8:" if error else "is not text: NUL byte at"
    remedy = "convert it to UTF-8" if error else "UTF-8 is expected"
    raise DamagedData(subject, f"{what} byte {offset + place}", f"{remedy}, or --bad-utf8 replace or skip") from error


def similar_name(name: str, names: Iterable[object]) -> str:
    """`did_you_mean` for names out of a file, whatever characters they are made of."""
    hint = did_you_mean(name, [repr(str(known))[1:-1] for known in names])
    return f"{hint} (--text-field)" if hint else ""


def repair(text: str, report: CorpusReport) -> str:
    """The text with every lone surrogate, which JSON's escapes may leave, replaced and counted."""
    if text.isascii():
        return text
    repaired = repair_surrogates(text)
    if repaired is not text:
        report.noted[_REPAIRED] += sum(a != b for a, b in zip(text, repaired, strict=True))
    return repaired
