"""Documents of a corpus: text files and JSON lines, gzipped or not; all that is read is counted."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BufferedIOBase
from pathlib import Path
from typing import Literal

from albert.runtime.errors import DamagedData, MissingInput, did_you_mean
from albert.text.corpus_files import CorpusFile, find_corpus_files, open_corpus_file
from albert.text.sentences import repair_surrogates

DocumentBoundary = Literal["file", "blank-line"]
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Document:
    """One document and where it comes from ("books.jsonl.gz:12")."""

    text: str
    source: str


@dataclass
class CorpusReport:
    """What was read: `documents_in` = `documents` + the sum of `dropped`, and the same in bytes of text."""

    files: int = 0
    files_ignored: int = 0
    documents_in: int = 0
    bytes_in: int = 0
    documents: int = 0
    bytes: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    dropped_bytes: Counter[str] = field(default_factory=Counter)
    surrogates_repaired: int = 0
    sources: list[CorpusFile] = field(default_factory=list)


def read_corpus(
    paths: Sequence[Path],
    *,
    text_field: str = "text",
    documents: DocumentBoundary = "file",
    report: CorpusReport | None = None,
    advance: Callable[[int], None] | None = None,
) -> Iterator[Document]:
    """Read the documents of files, folders and glob patterns, in a fixed order.

    Args:
        paths: `.txt`, `.jsonl`, either with `.gz`; folders are searched recursively.
        text_field: the key of the text in a JSON line.
        documents: what a document is in a `.txt` file: the file, or what stands between blank lines.
        report: counts what is read.
        advance: called with the bytes on disk read since the last call.

    Raises:
        MissingInput: a path leads to nothing, or there is no document with text.
        UsageError: a file of a kind that is not read.
        DamagedData: not UTF-8 (file and byte), NUL bytes, a damaged gzip file, a line that is no JSON
            object or has no text (file and line).
    """
    report = report if report is not None else CorpusReport()
    report.sources, report.files_ignored = find_corpus_files(paths)
    files = report.sources
    yield from read_files(files, text_field=text_field, documents=documents, report=report, advance=advance)
    if report.documents == 0:
        subject = paths[0] if len(paths) == 1 else "corpus"
        raise MissingInput(subject, f"no document with text ({report.documents_in} read)")


def read_files(
    files: Sequence[CorpusFile],
    *,
    text_field: str = "text",
    documents: DocumentBoundary = "file",
    report: CorpusReport,
    advance: Callable[[int], None] | None = None,
) -> Iterator[Document]:
    """`read_corpus` of files that were found before, a part of a corpus say; there may be no document in them."""
    for file in files:
        report.files += 1
        before = 0
        with open_corpus_file(file) as (content, raw):
            for document in _documents(file, content, text_field, documents, report):
                if _counted(document, report):
                    yield document
                if advance and (position := raw.tell()) > before:
                    advance(position - before)
                    before = position
        if advance and file.size > before:
            advance(file.size - before)


def _documents(
    file: CorpusFile, content: BufferedIOBase, text_field: str, documents: DocumentBoundary, report: CorpusReport
) -> Iterator[Document]:
    if file.is_jsonl:
        yield from _json_lines(file, content, text_field, report)
    elif documents == "file":
        yield Document(_decoded(file, content.read(), 0), file.name)
    else:
        yield from _blocks(file, content)


def _json_lines(file: CorpusFile, content: BufferedIOBase, text_field: str, report: CorpusReport) -> Iterator[Document]:
    offset = 0
    for number, line in enumerate(content, start=1):
        text = _decoded(file, line, offset)
        offset += len(line)
        if not text or text.isspace():
            continue  # an empty line between records is no record
        place = f"{file.path}:{number}"
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", None) or "too deep or too large a value"
            raise DamagedData(place, f"is not JSON ({reason})") from error
        if not isinstance(record, dict):
            raise DamagedData(place, f"is {type(record).__name__}, a JSON object is expected")
        if text_field not in record:
            hint = did_you_mean(text_field, [str(key) for key in record])
            raise DamagedData(place, f"has no field {text_field!r}", hint + " (--text-field)" if hint else None)
        value = record[text_field]
        if not isinstance(value, str):
            raise DamagedData(place, f"field {text_field!r} is {type(value).__name__}, text is expected")
        repaired = value if value.isascii() else repair_surrogates(value)
        report.surrogates_repaired += (
            sum(a != b for a, b in zip(value, repaired, strict=True)) if repaired is not value else 0
        )
        yield Document(repaired, f"{file.name}:{number}")


def _blocks(file: CorpusFile, content: BufferedIOBase) -> Iterator[Document]:
    offset, first, lines = 0, 1, []
    for number, line in enumerate(content, start=1):
        text = _decoded(file, line, offset)
        offset += len(line)
        if text.strip():
            if not lines:
                first = number
            lines.append(text)
        elif lines:
            yield Document("".join(lines), f"{file.name}:{first}")
            lines = []
    if lines:
        yield Document("".join(lines), f"{file.name}:{first}")


def _decoded(file: CorpusFile, data: bytes, offset: int) -> str:
    if offset == 0 and data.startswith(_BYTE_ORDER_MARK):
        data, offset = data[3:], 3
    if (place := data.find(b"\0")) >= 0:
        raise DamagedData(file.path, f"is not text: NUL byte at byte {offset + place}", "UTF-8 text is expected")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        remedy = "convert it to UTF-8"
        raise DamagedData(file.path, f"is not UTF-8: byte {offset + error.start}", remedy) from error


def _counted(document: Document, report: CorpusReport) -> bool:
    size = len(document.text) if document.text.isascii() else len(document.text.encode("utf-8"))
    report.documents_in += 1
    report.bytes_in += size
    if not document.text or document.text.isspace():
        report.dropped["empty"] += 1
        report.dropped_bytes["empty"] += size
        return False
    report.documents += 1
    report.bytes += size
    return True
