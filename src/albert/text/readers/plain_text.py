"""Documents of `.txt` files: the file, what stands between blank lines, or every line."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedIOBase

from albert.text.readers.corpus_files import CorpusFile
from albert.text.readers.decoding import decode_from_file
from albert.text.readers.long_documents import pieces, place_to_cut
from albert.text.readers.reading import CorpusReport, Document, Reading
from albert.text.readers.unpacking import open_corpus_file

_AFTER_LONE_RETURN = re.compile(rb"(?<=\r)(?!\n|\Z)")


@dataclass(frozen=True)
class Stretch:
    """Some bytes of a file.

    Attributes:
        data: the bytes.
        offset: how many stand before them.
        line: the line they begin with, from 1.
        part: 2 and more of what goes on from the stretch before, because it is too long to be one.
    """

    data: bytes
    offset: int
    line: int
    part: int = 1


def read(
    file: CorpusFile, reading: Reading, report: CorpusReport, reached: Callable[[int], None]
) -> Iterator[Document]:
    """The documents of a text file (see `albert.text.readers.reading.Reader`)."""
    divide = {"file": _whole, "blank-line": _blocks, "line": _filled_lines}[reading.documents]
    with open_corpus_file(file) as (content, raw):
        for stretch in divide(content, reading.max_document_bytes):
            text = decode_from_file(stretch.data, file.path, stretch.offset, reading, report)
            report.cuts += stretch.part > 1
            if text is not None:
                line = "" if reading.documents == "file" else f":{stretch.line}"
                yield Document(text, file.name + line + (f"#{stretch.part}" if stretch.part > 1 else ""))
            reached(raw.tell())


def _whole(content: BufferedIOBase, limit: int) -> Iterator[Stretch]:
    offset = 0
    for part, data in enumerate(pieces(content.read, limit), start=1):
        yield Stretch(data, offset, 1, part)
        offset += len(data)


def _filled_lines(content: BufferedIOBase, limit: int) -> Iterator[Stretch]:
    offset, line, part = 0, 1, 1
    for data, ended in _lines(content, limit):
        if not data.isspace():
            yield Stretch(data, offset, line, part)
        offset += len(data)
        line, part = (line + 1, 1) if ended else (line, part + 1)


def _blocks(content: BufferedIOBase, limit: int) -> Iterator[Stretch]:
    """Filled lines that follow one another."""
    block: list[bytes] = []
    offset = size = 0  # of the block
    first = line = part = 1
    for data, ended in _lines(content, limit):
        blank = data.isspace()
        if block and (blank or size + len(data) > limit):
            yield Stretch(b"".join(block), offset, first, part)
            part = 1 if blank else part + 1
            block, offset, size = [], offset + size, 0
        if blank:
            offset += len(data)
        else:
            first = first if block else line
            block.append(data)
            size += len(data)
        line += ended
    if block:
        yield Stretch(b"".join(block), offset, first, part)


def _lines(content: BufferedIOBase, limit: int) -> Iterator[tuple[bytes, bool]]:
    """Lines with what ends them: a line feed, a carriage return or both; of a very long one, its parts: only the last
    one has ended."""
    rest = b""
    while data := rest + content.readline(limit + 1 - len(rest)):
        rest = b""
        if len(data) > limit:
            end = place_to_cut(data, limit)
            data, rest = data[:end], data[end:]
        if b"\r" in data:
            for line in _AFTER_LONE_RETURN.split(data):
                yield line, line.endswith((b"\n", b"\r"))
        else:
            yield data, data.endswith(b"\n")
