"""Documents of `.txt` files: the file, what stands between blank lines, or every line."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedIOBase

from albert.text.corpus_files import CorpusFile
from albert.text.decoding import decode_from_file
from albert.text.long_documents import pieces, place_to_cut
from albert.text.reading import CorpusReport, Document, Reading
from albert.text.unpacking import open_corpus_file

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
    """The documents of a text file (see `albert.text.reading.Reader`)."""
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
    return (line for line in _lines(content, limit) if line.data.strip())


def _blocks(content: BufferedIOBase, limit: int) -> Iterator[Stretch]:
    """Filled lines that follow one another."""
    block: list[Stretch] = []
    size, part = 0, 1
    for line in _lines(content, limit):
        filled = bool(line.data.strip())
        if block and (not filled or size + len(line.data) > limit):
            yield _joined(block, part)
            part = part + 1 if filled else 1
            block, size = [], 0
        if filled:
            block.append(line)
            size += len(line.data)
    if block:
        yield _joined(block, part)


def _joined(block: list[Stretch], part: int) -> Stretch:
    return Stretch(b"".join(line.data for line in block), block[0].offset, block[0].line, part)


def _lines(content: BufferedIOBase, limit: int) -> Iterator[Stretch]:
    """Lines with what ends them: a line feed, a carriage return or both; of a very long one, its parts."""
    offset, number, part, rest = 0, 1, 1, b""
    while data := rest + content.readline(limit + 1 - len(rest)):
        rest = b""
        if len(data) > limit:
            end = place_to_cut(data, limit)
            data, rest = data[:end], data[end:]
        for line in _AFTER_LONE_RETURN.split(data) if b"\r" in data else (data,):
            yield Stretch(line, offset, number, part)
            offset += len(line)
            ended = line.endswith((b"\n", b"\r"))
            number, part = (number + 1, 1) if ended else (number, part + 1)
