"""Documents of a corpus, of whatever kinds of files; all that is read is counted."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from albert.runtime.environment import load_by_name
from albert.runtime.errors import MissingInput
from albert.text.readers import (
    EMPTY,
    CorpusFile,
    CorpusReport,
    Document,
    Kind,
    Reader,
    Reading,
    SourceCounts,
    find_corpus_files,
    size_in_bytes,
)
from albert.text.text_readers import read_delimited, read_json_lines, read_plain_text

AS_USUAL = Reading()
READERS: dict[Kind, Reader] = {
    "text": read_plain_text,
    "JSON lines": read_json_lines,
    "CSV": read_delimited,
    "TSV": read_delimited,
}
OPTIONAL_READERS: dict[Kind, tuple[str, str, str]] = {
    "Parquet": ("albert.text.parquet_reader", "read", "data"),
    "saved dataset": ("albert.text.datasets_reader", "read_saved_dataset", "data"),
    "Hub dataset": ("albert.text.datasets_reader", "read_hub_dataset", "data"),
    "Wikipedia": ("albert.text.wikipedia_reader", "read", "wikipedia"),
}
"""Modules that are imported when a file of their kind is met, and the extra that brings their library."""


def read_corpus(
    paths: Sequence[Path],
    reading: Reading = AS_USUAL,
    *,
    report: CorpusReport | None = None,
    advance: Callable[[int], None] | None = None,
) -> Iterator[Document]:
    """Read the documents of files, folders, glob patterns and `hf://` addresses, in a fixed order.

    Args:
        paths: see `albert.text.readers`; folders are searched recursively.
        reading: what a document is, and what becomes of bad ones.
        report: counts what is read.
        advance: called with the bytes on disk read since the last call.

    Raises:
        MissingInput: a path leads to nothing, cannot be read, or there is no document with text.
        UsageError: a file of a kind that is not read.
        DamagedData: not UTF-8 (file and byte), NUL bytes, a damaged or growing file, a line that is no JSON object, a
            row or a page that cannot be one (file and line); a field or column that is missing or no text.
        Unavailable: a library that is not installed, a data set of the Hub that cannot be had.
    """
    report = report if report is not None else CorpusReport()
    files, report.files_ignored, report.files_repeated = find_corpus_files(paths)
    yield from read_files(files, reading, report=report, advance=advance)
    if report.documents == 0:
        subject = paths[0] if len(paths) == 1 else "corpus"
        dropped = "".join(f", {count:,} dropped: {reason}" for reason, count in report.dropped.items())
        raise MissingInput(subject, f"no document with text ({report.documents_in:,} read{dropped})")


def read_files(
    files: Sequence[CorpusFile],
    reading: Reading = AS_USUAL,
    *,
    report: CorpusReport,
    advance: Callable[[int], None] | None = None,
) -> Iterator[Document]:
    """`read_corpus` of files that were found before, a part of a corpus say; there may be no document in them."""
    sources: list[SourceCounts] = []
    for file in files:
        report.files += 1
        before = report.documents_in, report.bytes_in, report.documents, report.bytes
        position = _Position(advance)
        for document in reader_of(file.kind)(file, reading, report, position.reached):
            if not document.text or document.text.isspace():
                report.drop(EMPTY, size_in_bytes(document.text))
                continue
            report.use(document.text)
            yield document
        position.reached(file.size)
        after = report.documents_in, report.bytes_in, report.documents, report.bytes
        sources.append(SourceCounts(file.name, file.size, *(b - a for a, b in zip(before, after, strict=True))))
        report.files_empty += sources[-1].documents_in == 0
    report.sources += tuple(sources)


def reader_of(kind: Kind) -> Reader:
    """What reads files of a kind.

    Raises:
        Unavailable: a library for it is not installed.
    """
    if kind in READERS:
        return READERS[kind]
    module, function, extra = OPTIONAL_READERS[kind]
    return getattr(load_by_name(module, extra), function)


class _Position:
    """How far a file has been read."""

    def __init__(self, advance: Callable[[int], None] | None) -> None:
        self._advance, self._behind = advance, 0

    def reached(self, place: int) -> None:
        """Say so, if it is further than before."""
        if self._advance is not None and place > self._behind:
            self._advance(place - self._behind)
            self._behind = place
