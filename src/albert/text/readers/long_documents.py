"""Documents too long to be held whole, in pieces that end where a paragraph, a line, a sentence or a word does."""

import io
from collections.abc import Callable, Iterator

from albert.text.readers.reading import CorpusReport, Document, Reading, size_in_bytes

_ENDS = tuple(
    tuple(end.encode("utf-8") for end in ends)
    for ends in (("\n\n", "\n\r\n"), ("\n", "\r"), (". ", "! ", "? ", "。", "！", "？", "।"), (" ",))
)


def pieces(read: Callable[[int], bytes], limit: int) -> Iterator[bytes]:
    """What `read` gives, in pieces of at most `limit` bytes (4 or more); joined, they are the whole."""
    rest = b""
    while len(data := rest + read(limit + 1 - len(rest))) > limit:
        end = place_to_cut(data, limit)
        yield data[:end]
        rest = data[end:]
    yield data


def place_to_cut(data: bytes, limit: int) -> int:
    """Where to cut UTF-8 that is longer than `limit`: at the last and best end of something in its second half.

    Returns:
        the number of bytes before the cut, 1 to `limit`.
    """
    for ends in _ENDS:
        place = max((found + len(end) for end in ends if (found := data.rfind(end, limit // 2, limit)) >= 0), default=0)
        if place:
            return place
    starts = [end for end in range(limit, max(limit - 4, 0), -1) if data[end] & 0xC0 != 0x80]  # of characters
    return starts[0] if starts else limit


def documents_of(text: str, source: str, reading: Reading, report: CorpusReport) -> Iterator[Document]:
    """A document, or its pieces if it is longer than `reading.max_document_bytes`."""
    limit = reading.max_document_bytes
    if len(text) <= limit // 4 or size_in_bytes(text) <= limit:
        yield Document(text, source)
        return
    for number, piece in enumerate(pieces(io.BytesIO(text.encode("utf-8")).read, limit), start=1):
        report.cuts += number > 1
        yield Document(piece.decode("utf-8"), source if number == 1 else f"{source}#{number}")
