"""What every reader of a corpus shares: a document, how documents are taken out of files, and the account of them."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from albert.runtime.errors import InvalidConfiguration
from albert.text.readers.corpus_files import CorpusFile

DocumentBoundary = Literal["file", "blank-line", "line"]
BadUtf8 = Literal["refuse", "replace", "skip"]

NULL, EMPTY, NOT_UTF8 = "null", "empty", "not UTF-8"


@dataclass(frozen=True)
class Document:
    """One document and where it comes from ("books.jsonl.gz:12")."""

    text: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How documents are taken out of files.

    Attributes:
        text_field: the key of a JSON line, or the column of a table, that holds the text.
        documents: what a document is in a `.txt` file: the file, what stands between blank lines, or a line.
        bad_utf8: what becomes of text that is not UTF-8, or holds NUL bytes: an error that names file and byte, U+FFFD
            for every bad sequence, or the document is dropped.
        max_document_bytes: a longer document is divided at the end of a paragraph, a line or a sentence.

    Raises:
        InvalidConfiguration: a limit that is shorter than a character may be.
    """

    text_field: str = "text"
    documents: DocumentBoundary = "file"
    bad_utf8: BadUtf8 = "refuse"
    max_document_bytes: int = 16_000_000

    def __post_init__(self) -> None:
        if self.max_document_bytes < 4:
            raise InvalidConfiguration("max_document_bytes", f"{self.max_document_bytes} holds no character")

    @property
    def max_record_bytes(self) -> int:
        """A record longer than this, text and all else, is refused: nothing can divide it."""
        return 8 * self.max_document_bytes


@dataclass(frozen=True)
class SourceCounts:
    """What was read of one source, a file or a data set of so many bytes on disk; used and dropped together.

    A prepared corpus of before these counts has zeros.
    """

    name: str
    bytes: int
    documents_in: int = 0
    bytes_in: int = 0
    documents_used: int = 0
    bytes_used: int = 0


@dataclass
class CorpusReport:
    """What was read: `documents_in` = `documents` + the sum of `dropped`, and the same in bytes.

    Bytes are bytes of UTF-8 text; those of a document that was never decoded are its bytes in the file.
    """

    files: int = 0
    files_ignored: int = 0
    files_repeated: int = 0
    files_empty: int = 0
    documents_in: int = 0
    bytes_in: int = 0
    documents: int = 0
    bytes: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    dropped_bytes: Counter[str] = field(default_factory=Counter)
    cuts: int = 0
    noted: Counter[str] = field(default_factory=Counter)
    sources: tuple[SourceCounts, ...] = ()

    def use(self, text: str) -> None:
        """Count a document that is handed on."""
        size = size_in_bytes(text)
        self.documents_in += 1
        self.bytes_in += size
        self.documents += 1
        self.bytes += size

    def drop(self, reason: str, size: int, documents: int = 1) -> None:
        """Count a document that is not, or bytes of one that is."""
        self.documents_in += documents
        self.bytes_in += size
        if documents:
            self.dropped[reason] += documents
        self.dropped_bytes[reason] += size

    def remarks(self) -> list[str]:
        """Whatever was left out or noted, for people."""
        lines = [f"{count:,} documents dropped: {reason}" for reason, count in self.dropped.items()]
        for count, what in (
            (self.files_ignored, "files of other kinds, or hidden, ignored"),
            (self.files_repeated, "files or folders met again by another path, read once"),
            (self.files_empty, "files without a document"),
            (self.cuts, "cuts in documents longer than --max-document-megabytes"),
        ):
            if count:
                lines.append(f"{count:,} {what}")
        return lines + [f"{count:,} {what}" for what, count in self.noted.items()]


@runtime_checkable
class Reader(Protocol):
    """What the module of every kind of file offers as `read`."""

    def __call__(
        self, file: CorpusFile, reading: Reading, report: CorpusReport, reached: Callable[[int], None]
    ) -> Iterator[Document]:
        """The documents of a file in their order; those without text included.

        Args:
            file: what to read.
            reading: how.
            report: to count what is dropped or noted here; documents that are yielded are counted by the caller.
            reached: to say how many bytes of the file are behind.

        Raises:
            MissingInput: it cannot be read.
            DamagedData: it is not what its name says; with the line, row or byte.
            Unavailable: a data set of the Hub that cannot be had.
        """
        ...


def size_in_bytes(text: str) -> int:
    """The length of a text as UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
